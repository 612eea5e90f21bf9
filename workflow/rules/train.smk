# Training: one job per run. Checkpoints are no declared outputs: Snakemake would delete them when a job fails.


rule train:
    "Train one run; resumes from its own checkpoints."
    input:
        lambda w: until_made([f"results/runs/{w.run}/train.json"], [manifest_of(w.run)]),
    output:
        "results/runs/{run}/train.json",
    log:
        "logs/train/{run}.log",
    benchmark:
        "benchmarks/train/{run}.jsonl"
    priority: lambda w: PRIORITY[w.run]
    conda:
        "../../envs/train.yaml"
    threads: lambda w: THREADS * asked_of(w.run).processes
    resources:
        **ASKS_FOR_GPUS,
        spec=lambda w: jobs.filed(RUNS[w.run].text),
        mem_mb=lambda w: asked_of(w.run).memory_mb,
        runtime=lambda w: asked_of(w.run).minutes,
        # On several machines GPUs are asked for by machine (docs/cluster.md), and without a kind of GPU as the profile says.
        tokens=lambda w: manifest_of(w.run),
        runtime_options=lambda w: runtime_of(w.run),
        # No parameter: what is measured on the way changes no weight, so a change trains nothing anew.
        validation=lambda w: jobs.filed(
            canonical_json(PROJECT.paper(RUNS[w.run].paper).changes.validation.model_dump())
        ),
        checkpoints=CHECKPOINTS,
    params:
        spec=lambda w: RUNS[w.run].text,
    # exec: a queue signals all processes of a job, and a shell that dies of it would leave the trainer without a parent.
    shell:
        "exec python -m respath.training --spec {resources.spec:q} --tokens {resources.tokens:q}"
        " --checkpoints {resources.checkpoints:q}/{wildcards.run:q} --runtime {resources.runtime_options:q}"
        " --validation {resources.validation:q} --out {output:q} > {log:q} 2>&1"


rule clean_checkpoints:
    "Delete the intermediate checkpoints of finished runs (final weights stay)."
    log:
        "logs/clean_checkpoints.log",
    localrule: True
    conda:
        "../../envs/train.yaml"
    params:
        checkpoints=CHECKPOINTS,
    shell:
        "python -m respath.training.clean --checkpoints {params.checkpoints:q} --runs results/runs 2>&1 | tee {log:q}"
