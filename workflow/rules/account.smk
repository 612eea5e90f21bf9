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
        definition=lambda w: fingerprint(
            w.paper, "src/respath/accounting", "src/respath/model", scales=("paper",)
        ),
    shell:
        "python -m respath.accounting.kv --paper {wildcards.paper:q} --out {output:q} > {log:q} 2>&1"
