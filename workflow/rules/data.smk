# Text to tokens: fetch_source -> sample -> tokenizer -> tokenize (sharded) -> manifest.


rule fetch:
    "Everything that comes from elsewhere, where there is internet (a login node): what is behind it needs none."
    input:
        list(downloads()),
    localrule: True


rule fetch_source:
    "Fetch one embedded source and extract its documents."
    output:
        "results/corpus/{corpus}/{source}/source.json",
    log:
        "logs/fetch/{corpus}/{source}.log",
    retries: 1
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=2000,
        runtime=60,
    shell:
        "python -m respath.data.fetch --source {wildcards.source:q} --corpus {wildcards.corpus:q}"
        " --out {output:q} > {log:q} 2>&1"


rule index_corpus:
    "List the files of a local corpus, or download a hub corpus at its pinned revision (resumable)."
    output:
        "results/corpus/{corpus}/files/source.json",
    log:
        "logs/index_corpus/{corpus}.log",
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=4000,
        runtime=1440,
    params:
        corpus=lambda w: canonical_json(identity(CORPORA[w.corpus])),
        location=lambda w: PROJECT.settings.locations.get(w.corpus, ""),
        instead=lambda w: list(CORPORA[w.corpus].instead),
    shell:
        "python -m respath.data.documents --corpus {params.corpus:q} --location={params.location:q}"
        " --out {output:q} --instead {params.instead:q} > {log:q} 2>&1"


rule scan:
    "Read every n-th file of a large corpus and leave what may be sampled as sorted runs."
    input:
        sources=lambda w: sources_of(w.sample),
        gpt2=lambda w: detokenizer_of(w.sample),
    output:
        temp("results/samples/{sample}/scan/{part}-of-{parts}.json"),
    log:
        "logs/scan/{sample}/{part}-of-{parts}.log",
    benchmark:
        "benchmarks/scan/{sample}/{part}-of-{parts}.jsonl"
    conda:
        "../../envs/data.yaml"
    resources:
        spec=lambda w: jobs.filed(canonical_json(identity(SAMPLES[w.sample]))),
        mem_mb=2000,
        runtime=480,
        gpt2=lambda w: (detokenizer_of(w.sample) or ["auto"])[0],
    params:
        spec=lambda w: canonical_json(identity(SAMPLES[w.sample])),
        part=lambda w: int(w.part),
        parts=lambda w: int(w.parts),
    shell:
        "python -m respath.data.sample --spec {resources.spec:q} --sources {input.sources:q}"
        " --parts {params.parts} --part {params.part} --gpt2={resources.gpt2:q} --out {output:q} > {log:q} 2>&1"


rule sample:
    "Seeded shuffle, held-out split and byte budget per domain."
    input:
        sources=lambda w: sources_of(w.sample),
        scans=lambda w: scans_of(w.sample),
        gpt2=lambda w: detokenizer_of(w.sample),
    output:
        "results/samples/{sample}/sample.json",
    log:
        "logs/sample/{sample}.log",
    benchmark:
        "benchmarks/sample/{sample}.jsonl"
    conda:
        "../../envs/data.yaml"
    resources:
        spec=lambda w: jobs.filed(canonical_json(identity(SAMPLES[w.sample]))),
        mem_mb=4000,
        runtime=480,
        gpt2=lambda w: (detokenizer_of(w.sample) or ["auto"])[0],
    params:
        spec=lambda w: canonical_json(identity(SAMPLES[w.sample])),
        parts=lambda w: len(scans_of(w.sample)) or 1,
        sources=lambda w: SOURCES[SAMPLES[w.sample].corpus.name],
    shell:
        "python -m respath.data.sample --spec {resources.spec:q} --sources {input.sources:q}"
        " --parts {params.parts} --gpt2={resources.gpt2:q} --out {output:q} > {log:q} 2>&1"


rule tokenizer:
    "The tokenizer: trained on the sample, or a published one with a pinned hash."
    input:
        sample=lambda w: trained_on(w.tokenizer),
    output:
        "results/tokenizers/{tokenizer}/tokenizer.json",
    log:
        "logs/tokenizer/{tokenizer}.log",
    conda:
        "../../envs/data.yaml"
    threads: 2
    resources:
        spec=lambda w: jobs.filed(canonical_json(identity(TOKENIZERS[w.tokenizer]))),
        # Training holds the words of its text with their counts; not measured beyond the default of 8 MiB.
        mem_mb=lambda w: 4000 + getattr(TOKENIZERS[w.tokenizer], "training_bytes", 0) // 250_000,
        runtime=60,
        origin=lambda w: PROJECT.settings.tokenizers.get(w.tokenizer, "auto"),
    params:
        spec=lambda w: canonical_json(identity(TOKENIZERS[w.tokenizer])),
        sample=lambda w, input: f"--sample {input.sample}" if input.sample else "",
    shell:
        "RAYON_NUM_THREADS={threads} python -m respath.data.tokenizer --spec {resources.spec:q} {params.sample}"
        " --origin={resources.origin:q} --out {output:q} > {log:q} 2>&1"


rule tokenize:
    "Encode one shard of one domain up to its token quota."
    input:
        sample=lambda w: f"results/samples/{SAMPLE_OF[w.tokens]}/sample.json",
        tokenizer=lambda w: f"results/tokenizers/{TOKENIZER_OF[w.tokens]}/tokenizer.json",
    output:
        # The .bin beside it is not declared: Snakemake would delete it, and a whole one need not be made again.
        "results/tokens/{tokens}/{split}/{domain}.{shard}.json",
    log:
        "logs/tokenize/{tokens}/{split}-{domain}-{shard}.log",
    benchmark:
        "benchmarks/tokenize/{tokens}/{split}-{domain}-{shard}.jsonl"
    conda:
        "../../envs/data.yaml"
    resources:
        spec=lambda w: jobs.filed(DATA_SPECS[w.tokens]),
        mem_mb=2000,
        runtime=240,
    params:
        spec=lambda w: DATA_SPECS[w.tokens],
        shard=lambda w: int(w.shard),
    shell:
        "RAYON_NUM_THREADS={threads} python -m respath.data.tokenize --spec {resources.spec:q} --sample {input.sample:q}"
        " --tokenizer {input.tokenizer:q} --split {wildcards.split} --domain {wildcards.domain:q}"
        " --shard {params.shard} --out {output:q} > {log:q} 2>&1"


rule manifest:
    "Counts and hashes of every shard: the only input of training."
    input:
        shards=lambda w: shards_of(w.tokens),
        sample=lambda w: f"results/samples/{SAMPLE_OF[w.tokens]}/sample.json",
        tokenizer=lambda w: f"results/tokenizers/{TOKENIZER_OF[w.tokens]}/tokenizer.json",
        sources=lambda w: sources_of(SAMPLE_OF[w.tokens]),
    output:
        "results/tokens/{tokens}/manifest.json",
    log:
        "logs/manifest/{tokens}.log",
    conda:
        "../../envs/data.yaml"
    resources:
        spec=lambda w: jobs.filed(DATA_SPECS[w.tokens]),
        mem_mb=2000,
        runtime=60,
    params:
        spec=lambda w: DATA_SPECS[w.tokens],
    shell:
        "python -m respath.data.manifest --spec {resources.spec:q} --shards {input.shards:q} --sample {input.sample:q}"
        " --tokenizer {input.tokenizer:q} --sources {input.sources:q} --out {output:q} > {log:q} 2>&1"


rule overlap:
    "Evaluation items that share thirteen words in a row with the sample."
    input:
        sample="results/samples/{sample}/sample.json",
        questions="results/eval_items/{paper}/items.json",
    output:
        "results/overlap/{sample}/{paper}.json",
    log:
        "logs/overlap/{sample}/{paper}.log",
    benchmark:
        "benchmarks/overlap/{sample}/{paper}.jsonl"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=2000,
        runtime=120,
    shell:
        "python -m respath.data.overlap --sample {input.sample:q} --items {input.questions:q}"
        " --out {output:q} > {log:q} 2>&1"
