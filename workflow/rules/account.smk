# The measured size of the real cache. No training needed; closed forms (parameters, FLOPs, KV bytes) need no file.


rule measure_kv:
    "Bytes of the real cache object after a prefill, beside the formula."
    output:
        "results/kv/{paper}.json",
    log:
        "logs/measure_kv/{paper}.log",
    conda:
        "../../envs/train.yaml"
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        **of_code("src/respath/accounting", "src/respath/model", "src/respath/spec"),
        models=lambda w: stamps.stamp("models", entries_of_paper(w.paper)),
    shell:
        "python -m respath.accounting.kv --paper {wildcards.paper:q} --out {output:q} > {log:q} 2>&1"


rule bench:
    "Training step, prefill and decoding of one model on this machine, alone and in turns with its baseline."
    output:
        "results/bench/{scale}/{paper}/{size}/{variant}.json",
    log:
        "logs/bench/{scale}-{paper}-{size}-{variant}.log",
    conda:
        "../../envs/train.yaml"
    # Alone: what runs beside it would be measured with it. A queue, which is given no number of cores, runs it by itself.
    threads: workflow.resource_settings.cores or 1
    resources:
        mem_mb=16000,
        runtime=60,
    params:
        model=lambda w: model_text(w.paper, w.size, w.variant),
        baseline=lambda w: model_text(w.paper, w.size, PROJECT.folder(w.paper).paper.accounting.baseline),
        context=lambda w: PROJECT.paper(w.paper).recipe({}).context,
        prompt=lambda w: PROJECT.paper(w.paper).prompt,
        turns=3 if PROJECT.scale.fits else 1,
    shell:
        "python -m respath.measure.system --model {params.model:q} --baseline {params.baseline:q}"
        " --name {wildcards.size:q}/{wildcards.variant:q} --context {params.context} --prompt {params.prompt} --batch 8"
        " --rounds {params.turns} --repetitions {params.turns} --out {output:q} > {log:q} 2>&1"


rule decoding:
    "Decoding of one model behind one length of context on this machine, alone and in turns with its baseline."
    output:
        "results/decode/{scale}/{paper}/{size}/{variant}/{context}.json",
    log:
        "logs/decoding/{scale}-{paper}-{size}-{variant}-{context}.log",
    conda:
        "../../envs/train.yaml"
    threads: workflow.resource_settings.cores or 1
    resources:
        mem_mb=16000,
        runtime=60,
    params:
        model=lambda w: model_text(w.paper, w.size, w.variant),
        baseline=lambda w: model_text(w.paper, w.size, PROJECT.folder(w.paper).paper.accounting.baseline),
        context=lambda w: PROJECT.paper(w.paper).recipe({}, int(w.context)).context,
        turns=3 if PROJECT.scale.fits else 1,
    shell:
        "python -m respath.measure.decoding --model {params.model:q} --baseline {params.baseline:q}"
        " --name {wildcards.size:q}/{wildcards.variant:q} --context {params.context} --turns {params.turns}"
        " --out {output:q} > {log:q} 2>&1"
