# Every table and figure is a target: `snakemake --list-target-rules` lists them, `snakemake -n TARGET` plans one.
# `rule all` comes first, before every include: a default target inside an include is lost.
from snakemake.utils import min_version

min_version("9.19")


include: "workflow/rules/common.smk"


rule all:
    "Every table, figure and page of every paper at this scale."
    default_target: True
    input:
        [rendered(artifact) for artifact in PROJECT.artifacts()],
        expand("reports/out/{scale}/{paper}/index.html", scale=SCALE, paper=PAPERS),
        f"reports/out/{SCALE}/index.html",


include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/analyze.smk"
include: "workflow/rules/account.smk"
include: "workflow/rules/report.smk"


refuse_unknown_targets()


onstart:
    spare_the_cores()
    tell(banner())


onsuccess:
    if workflow.is_main_process:
        close()


onerror:
    tell(failure_hint(log))
