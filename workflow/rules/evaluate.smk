# Evaluation of finished runs: losses on the frozen validation rows, and lm-eval on real items.


rule eval_items:
    "Collect the evaluation items of a paper, each task's file with its hash."
    output:
        "results/eval_items/{paper}/items.json",
    log:
        "logs/eval_items/{paper}.log",
    retries: 1
    conda:
        "../../envs/evaluate.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        source=PROJECT.settings.items,
        location=PROJECT.settings.items_location or "",
        tasks=lambda w: list(PROJECT.paper(w.paper).evaluation.tasks),
    shell:
        "python -m respath.measure.items --suite {wildcards.paper:q} --tasks {params.tasks:q}"
        " --source {params.source:q} --location={params.location:q} --out {output:q} > {log:q} 2>&1"


rule evaluate_loss:
    "Loss and bits per byte of one run on each domain's validation rows."
    input:
        lambda w: until_made([f"results/evals/{w.run}/loss.json"], [manifest_of(w.run)], w.run),
        train="results/runs/{run}/train.json",
    output:
        "results/evals/{run}/loss.json",
    log:
        "logs/evaluate_loss/{run}.log",
    benchmark:
        "benchmarks/evaluate_loss/{run}.jsonl"
    priority: len(RUNS) + 1
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        mem_mb=8000,
        runtime=240,
        tokens=lambda w: manifest_of(w.run),
        checkpoints=CHECKPOINTS,
        accept_code=ACCEPT_CODE,
    params:
        sequences=lambda w: PROJECT.paper(RUNS[w.run].paper).evaluation.loss_sequences,
        also=lambda w: also_scored(w.run),
    shell:
        "python -m respath.measure.loss --train {input.train:q} --tokens {resources.tokens:q}"
        " --checkpoints {resources.checkpoints:q}/{wildcards.run:q} --sequences {params.sequences} {params.also}"
        " {resources.accept_code}"
        " --out {output:q} > {log:q} 2>&1"


rule ngrams:
    "The floor under a run's losses: n-grams of the tokens that it trains on. Needs no trained run."
    input:
        lambda w: until_made([f"results/evals/{w.run}/ngrams.json"], [manifest_of(w.run)]),
    output:
        "results/evals/{run}/ngrams.json",
    log:
        "logs/ngrams/{run}.log",
    benchmark:
        "benchmarks/ngrams/{run}.jsonl"
    conda:
        "../../envs/evaluate.yaml"
    resources:
        spec=lambda w: jobs.filed(RUNS[w.run].text),
        mem_mb=4000,
        runtime=60,
        tokens=lambda w: manifest_of(w.run),
    params:
        spec=lambda w: RUNS[w.run].text,
        sequences=lambda w: PROJECT.paper(RUNS[w.run].paper).evaluation.loss_sequences,
    shell:
        "python -m respath.measure.ngrams --spec {resources.spec:q} --tokens {resources.tokens:q}"
        " --sequences {params.sequences} --out {output:q} > {log:q} 2>&1"


rule evaluate_lm:
    "lm-eval of one run, zero-shot, with lm-eval's own task definitions."
    input:
        lambda w: read_by("lm", w.run),
        train="results/runs/{run}/train.json",
    output:
        "results/evals/{run}/lm.json",
    log:
        "logs/evaluate_lm/{run}.log",
    benchmark:
        "benchmarks/evaluate_lm/{run}.jsonl"
    priority: len(RUNS) + 1
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        mem_mb=8000,
        runtime=480,
        questions=lambda w: items_of(w.run),
        tokenizer=lambda w: tokenizer_of(w.run),
        checkpoints=CHECKPOINTS,
        accept_code=ACCEPT_CODE,
    params:
        # Another name than "limit", whose results are of the first items of each file.
        sample=lambda w: sample_of(w.run),
    shell:
        "python -m respath.measure.lm --train {input.train:q}"
        " --checkpoints {resources.checkpoints:q}/{wildcards.run:q} --tokenizer {resources.tokenizer:q}"
        " --items {resources.questions:q} --limit {params.sample} {resources.accept_code} --out {output:q} > {log:q} 2>&1"


rule likelihood_items:
    "Reference answers of the likelihood suite, each set's file with its hash; of the gated GPQA nothing."
    output:
        "results/likelihood_items/items.json",
    log:
        "logs/likelihood_items.log",
    retries: 1
    conda:
        "../../envs/evaluate.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        source=PROJECT.settings.items,
        location=PROJECT.settings.items_location or "",
        sets=[name for name in SETS if name != "gpqa_diamond"],
    shell:
        "python -m respath.measure.items --suite likelihood --tasks {params.sets}"
        " --source {params.source:q} --location={params.location:q} --out {output:q} > {log:q} 2>&1"


rule evaluate_nll:
    "Likelihood of reference answers in code, science and mathematics; nothing is generated."
    input:
        lambda w: read_by("nll", w.run),
        train="results/runs/{run}/train.json",
    output:
        "results/evals/{run}/nll.json",
    log:
        "logs/evaluate_nll/{run}.log",
    benchmark:
        "benchmarks/evaluate_nll/{run}.jsonl"
    priority: len(RUNS) + 1
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        mem_mb=8000,
        runtime=480,
        tokenizer=lambda w: tokenizer_of(w.run),
        checkpoints=CHECKPOINTS,
        accept_code=ACCEPT_CODE,
    params:
        location=PROJECT.settings.items_location or "",
        hub="--hub" if PROJECT.settings.items == "hub" else "",
        sample=lambda w: sample_of(w.run),
    shell:
        "python -m respath.measure.nll --train {input.train:q}"
        " --checkpoints {resources.checkpoints:q}/{wildcards.run:q} --tokenizer {resources.tokenizer:q}"
        " --items results/likelihood_items/items.json --limit {params.sample} --location={params.location:q}"
        " {params.hub} {resources.accept_code} --out {output:q} > {log:q} 2>&1"


rule core_bundle:
    "The task files of CORE, from a folder or the published archive, each with its hash; without either all are absent."
    output:
        "results/core_bundle/bundle.json",
    log:
        "logs/core_bundle.log",
    retries: 1
    conda:
        "../../envs/evaluate.yaml"
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        source=PROJECT.settings.core_bundle or "none",
    shell:
        "python -m respath.measure.core_bundle --source={params.source:q} --out {output:q} > {log:q} 2>&1"


rule evaluate_core:
    "CORE of one run, few-shot. The bundle is an input at any time: files that are named later are evaluated then."
    input:
        lambda w: until_made([f"results/evals/{w.run}/core.json"], [tokenizer_of(w.run)], w.run),
        bundle="results/core_bundle/bundle.json",
        train="results/runs/{run}/train.json",
    output:
        "results/evals/{run}/core.json",
    log:
        "logs/evaluate_core/{run}.log",
    benchmark:
        "benchmarks/evaluate_core/{run}.jsonl"
    priority: len(RUNS) + 1
    conda:
        "../../envs/evaluate.yaml"
    threads: THREADS
    resources:
        mem_mb=16000,
        runtime=480,
        tokenizer=lambda w: tokenizer_of(w.run),
        checkpoints=CHECKPOINTS,
        accept_code=ACCEPT_CODE,
    params:
        bundle=subpath(input.bundle, parent=True),
        suites=lambda w: list(PROJECT.paper(RUNS[w.run].paper).evaluation.core) or list(SUITES),
        sample=lambda w: sample_of(w.run),
    shell:
        "python -m respath.measure.core --train {input.train:q}"
        " --checkpoints {resources.checkpoints:q}/{wildcards.run:q} --tokenizer {resources.tokenizer:q}"
        " --bundle {params.bundle:q} --suites {params.suites} --limit {params.sample} {resources.accept_code}"
        " --out {output:q} > {log:q} 2>&1"
