# Closed forms (parameters, FLOPs, KV bytes) and the measured size of the real cache. No training needed.


rule account:
    "Parameters, FLOPs and KV bytes of every model that a paper's tables and claims name."
    output:
        "results/accounts/{paper}-{scale}.json",
    log:
        "logs/account/{paper}-{scale}.log",
    conda:
        "../../envs/report.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        definition=lambda w: fingerprint(
            w.paper, "src/respath/accounting", "src/respath/config", "src/respath/papers"
        ),
    shell:
        "python -m respath.accounting.stage --paper {wildcards.paper:q} --scale {wildcards.scale:q}"
        " --out {output:q} > {log:q} 2>&1"


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
        definition=lambda w: fingerprint(
            w.paper, "src/respath/accounting", "src/respath/model", scales=("paper",)
        ),
    shell:
        "python -m respath.accounting.kv --paper {wildcards.paper:q} --out {output:q} > {log:q} 2>&1"
