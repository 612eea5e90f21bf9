# What happens inside models: one job per run makes every analysis that figures, tables and claims want of it.


rule analyze:
    "Similarities, coefficients, gradients, removals and attention of one trained run, on frozen sequences."
    input:
        lambda w: until_made(analysis_files(w.run), [manifest_of(w.run), *questions_for(w.run)], w.run),
        train="results/runs/{run}/train.json",
    output:
        analysis="results/analyses/{run}/analysis.json",
        arrays="results/analyses/{run}/arrays.npz",
    log:
        "logs/analyze/{run}.log",
    benchmark:
        "benchmarks/analyze/{run}.jsonl"
    priority: len(RUNS) + 1
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        mem_mb=16000,
        runtime=240,
        tokens=lambda w: manifest_of(w.run),
        checkpoints=CHECKPOINTS,
        accept_code=ACCEPT_CODE,
        questions=lambda w: " ".join(["--items", *questions_for(w.run)] if questions_for(w.run) else []),
    params:
        sequences=lambda w: PROJECT.paper(RUNS[w.run].paper).evaluation.analysis_sequences,
        modules=lambda w: " ".join(
            [modules_of(w.run), *([f"--limit {sample_of(w.run)}"] if questions_for(w.run) else [])]
        ),
    shell:
        "python -m respath.measure.analyses --train {input.train:q} --tokens {resources.tokens:q}"
        " --checkpoints {resources.checkpoints:q}/{wildcards.run:q} --sequences {params.sequences}"
        " --modules {params.modules} {resources.questions} {resources.accept_code} --out {output.analysis:q}"
        " --arrays {output.arrays:q} > {log:q} 2>&1"


rule analyze_untrained:
    "The same of the weights that a run starts from: nothing is trained for it."
    input:
        lambda w: until_made(analysis_files(w.untrained, "untrained"), [untrained_manifest(w.untrained)]),
    output:
        analysis="results/analyses/{untrained}/untrained.json",
        arrays="results/analyses/{untrained}/untrained.npz",
    log:
        "logs/analyze_untrained/{untrained}.log",
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        spec=lambda w: jobs.filed(UNTRAINED[w.untrained][0].text),
        mem_mb=16000,
        runtime=60,
        tokens=lambda w: untrained_manifest(w.untrained),
    params:
        spec=lambda w: UNTRAINED[w.untrained][0].text,
        sequences=lambda w: PROJECT.paper(UNTRAINED[w.untrained][0].paper).evaluation.analysis_sequences,
        modules=lambda w: ",".join(sorted(UNTRAINED[w.untrained][1])),
    shell:
        "python -m respath.measure.analyses --untrained --spec {resources.spec:q} --run {wildcards.untrained:q}"
        " --tokens {resources.tokens:q} --sequences {params.sequences} --modules {params.modules}"
        " --out {output.analysis:q} --arrays {output.arrays:q} > {log:q} 2>&1"


rule analyze_checkpoint:
    "Token importance in a checkpoint folder that the user names in hf_models."
    input:
        lambda w: until_made(
            analysis_files(f"checkpoint-{w.model}-{w.scale}"), [checkpoint_manifest(w.model)]
        ),
    output:
        analysis="results/analyses/checkpoint-{model}-{scale}/analysis.json",
        arrays="results/analyses/checkpoint-{model}-{scale}/arrays.npz",
    log:
        "logs/analyze_checkpoint/{model}-{scale}.log",
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        mem_mb=64000,
        runtime=240,
        tokens=lambda w: checkpoint_manifest(w.model),
    params:
        folder=lambda w: PROJECT.settings.hf_models[w.model],
        context=lambda w: PROJECT.paper(ELSEWHERE[w.model][0].paper).recipe({}).context,
        sequences=lambda w: PROJECT.paper(ELSEWHERE[w.model][0].paper).evaluation.analysis_sequences,
        modules=lambda w: ",".join(sorted(ELSEWHERE[w.model][1])),
    shell:
        "python -m respath.measure.analyses --hf {params.folder:q} --tokens {resources.tokens:q} --context {params.context}"
        " --sequences {params.sequences} --modules {params.modules} --out {output.analysis:q}"
        " --arrays {output.arrays:q} > {log:q} 2>&1"
