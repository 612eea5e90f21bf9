# Tables, figures, pages, and the comparison with the printed numbers. Nothing here starts a training by itself.


rule table:
    "Render one table as CSV, LaTeX and Markdown, each cell beside the printed one."
    input:
        lambda w: results_of(artifact_of(w)),
    output:
        csv=report(
            "reports/out/{scale}/{paper}/{table}.csv",
            caption="../report/table.rst",
            category="{paper}",
            labels={"artifact": "{table}", "scale": "{scale}"},
        ),
        tex="reports/out/{scale}/{paper}/{table}.tex",
        md="reports/out/{scale}/{paper}/{table}.md",
    log:
        "logs/table/{scale}-{paper}-{table}.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        **SETTINGS,
        **{key: of_artifact(key) for key in stamps.ARTIFACT},
        **of_code(*REPORT_CODE),
        out=subpath(output.csv, parent=True),
    shell:
        "python -m respath.reporting.table --target {wildcards.paper:q}_{wildcards.table:q} --config {resources.config:q}"
        " --out-dir {params.out:q} > {log:q} 2>&1"


rule figure:
    "Draw one figure as SVG, PDF and CSV, with its caption as JSON."
    input:
        lambda w: results_of(artifact_of(w)),
    output:
        csv="reports/out/{scale}/{paper}/{figure}.csv",
        json="reports/out/{scale}/{paper}/{figure}.json",
        pdf="reports/out/{scale}/{paper}/{figure}.pdf",
        svg=report(
            "reports/out/{scale}/{paper}/{figure}.svg",
            caption="../report/figure.rst",
            category="{paper}",
            labels={"artifact": "{figure}", "scale": "{scale}"},
        ),
    log:
        "logs/figure/{scale}-{paper}-{figure}.log",
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
        mem_mb=2000,
        runtime=10,
    params:
        **SETTINGS,
        **{key: of_artifact(key) for key in stamps.ARTIFACT},
        **of_code(*REPORT_CODE),
        out=subpath(output.csv, parent=True),
    shell:
        "python -m respath.reporting.figure --target {wildcards.paper:q}_{wildcards.figure:q} --config {resources.config:q}"
        " --out-dir {params.out:q} > {log:q} 2>&1"


rule page:
    "One HTML page with all tables, figures and claims of a paper."
    input:
        lambda w: [f for a in PROJECT.artifacts(w.paper) for f in rendered(a)],
        lambda w: overlaps_of(w.paper),
        lambda w: results_for_claims(w.paper),
    output:
        report("reports/out/{scale}/{paper}/index.html", caption="../report/page.rst", category="{paper}"),
    log:
        "logs/page/{scale}-{paper}.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        **SETTINGS,
        **{key: of_paper(key) for key in stamps.PAPER},
        **of_code(*REPORT_CODE),
    shell:
        "python -m respath.reporting.page --paper {wildcards.paper:q} --config {resources.config:q}"
        " --out {output:q} > {log:q} 2>&1"


rule overview:
    "One page over all papers, and one per architecture."
    input:
        expand("reports/out/{{scale}}/{paper}/index.html", paper=PAPERS),
    output:
        # Beside it models/, with a page per architecture.
        report("reports/out/{scale}/index.html", caption="../report/overview.rst", category="overview"),
    log:
        "logs/overview/{scale}.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        **SETTINGS,
        **of_code(*REPORT_CODE),
        out=subpath(output[0], parent=True),
    shell:
        "python -m respath.reporting.overview --config {resources.config:q} --out-dir {params.out:q} > {log:q} 2>&1"


rule demo_page:
    "The page of what `demo` shows of a paper."
    input:
        lambda w: [f for target in DEMO[w.paper] for f in rendered(PROJECT.artifact(target))],
    output:
        "reports/out/{scale}/{paper}/demo.html",
    log:
        "logs/demo_page/{scale}-{paper}.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        **SETTINGS,
        **{key: of_paper(key) for key in stamps.PAPER},
        **of_code(*REPORT_CODE),
        only=lambda w: [PROJECT.artifact(target).id for target in DEMO[w.paper]],
    shell:
        "python -m respath.reporting.page --paper {wildcards.paper:q} --config {resources.config:q} --only {params.only:q}"
        " --out {output:q} > {log:q} 2>&1"


for artifact in PROJECT.artifacts():

    rule:
        name:
            artifact.target
        input:
            rendered(artifact),
        localrule: True

    workflow.get_rule(artifact.target).docstring = (
        f"{plain(artifact.definition.title)} (Section {artifact.definition.section})."
    )


rule:
    name:
        SCALE
    input:
        [rendered(artifact) for artifact in PROJECT.artifacts()],
        expand("reports/out/{scale}/{paper}/index.html", scale=SCALE, paper=PAPERS),
        f"reports/out/{SCALE}/index.html",
    localrule: True


workflow.get_rule(SCALE).docstring = (
    f"Everything at scale {SCALE} (with --config scale={SCALE}): the runs that its document names first are trained first."
)


rule demo:
    "ResFormer Table 3 and everything around it, from raw text to checked cells."
    input:
        [rendered(PROJECT.artifact(target)) for targets in DEMO.values() for target in targets],
        expand("reports/out/{scale}/{paper}/demo.html", scale=SCALE, paper=DEMO),
    localrule: True


rule pdf:
    "One PDF per paper with all its tables and figures (needs latexmk and lmodern, or tectonic)."
    input:
        rendered=[f for artifact in PROJECT.artifacts() for f in rendered(artifact)],
    log:
        f"logs/pdf/{SCALE}.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        papers=PAPERS,
    shell:
        'for paper in {params.papers:q}; do python -m respath.reporting.pdf --paper "$paper" --config {resources.config:q};'
        " done 2>&1 | tee {log:q}"


rule plan:
    "Runs needed and done, tokens, FLOPs, hours and disk per table, before spending anything."
    log:
        "logs/plan.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    params:
        scale=SCALE,
    shell:
        "python -m respath.cli plan --scale {params.scale:q} 2>&1 | tee {log:q}"


rule diff:
    "Regenerated against printed numbers, cell by cell, from the results that exist."
    input:
        kv=expand("results/kv/{paper}.json", paper=PAPERS),
    log:
        "logs/diff.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        out=f"reports/out/{SCALE}",
    shell:
        "python -m respath.comparison --config {resources.config:q} --out-json {params.out:q}/diff.json"
        " --out-md {params.out:q}/diff.md 2>&1 | tee {log:q}"


rule reference:
    "Everything of this scale from the results that the repository keeps (reports/reference/); trains nothing."
    input:
        sorted(map(str, Path(f"reports/reference/{SCALE}").glob("*.json"))),
    log:
        f"logs/reference/{SCALE}.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        out=f"reports/out/reference-{SCALE}",
    shell:
        "python -m respath.reference render --config {resources.config:q} --out {params.out:q} 2>&1 | tee {log:q}"


rule check:
    "Like diff, but fails when a comparable cell is off or a claim is contradicted."
    input:
        kv=expand("results/kv/{paper}.json", paper=PAPERS),
    log:
        "logs/check.log",
    localrule: True
    conda:
        "../../envs/report.yaml"
    resources:
        config=CONFIG,
    params:
        out=f"reports/out/{SCALE}",
    shell:
        "python -m respath.comparison --check --config {resources.config:q} --out-json {params.out:q}/diff.json"
        " --out-md {params.out:q}/diff.md 2>&1 | tee {log:q}"
