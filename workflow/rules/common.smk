# The project read once at parse time, and the input functions of the rules. No torch here: a dry run stays under 2 s.
import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from respath import jobs, stamps
from respath.quantities.analyses import CATALOGUE
from respath.quantities.core import SUITES
from respath.quantities.likelihood import SETS
from respath.spec.document import identity
from respath.accounting.asking import asked
from respath.accounting.kv import entries_of_paper
from respath.spec.data import Gpt2Tokenizer, sample_id, tokenizer_id, tokens_id
from respath.data.catalogue import source_ids
from respath.errors import UserError, did_you_mean
from respath.files import canonical_json
from respath.letters import plain
from respath.papers import needs
from respath.papers.check import open_papers
from respath.results.items import LISTS, evaluated_before
from respath.settings import Settings
from snakemake import benchmark as snakemake_benchmark
from snakemake.cli import parse_args as snakemake_arguments
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent


def tell(text):
    """A notice on stderr (stdout belongs to --dag and its like)."""
    print(text, file=sys.stderr)


def or_leave(function, *arguments):
    """Call and return; or tell every problem, one a line and without a traceback, and leave."""
    try:
        return function(*arguments)
    except UserError as error:
        for line in error.lines:
            tell(f"error: {line}")
        sys.exit(error.exit_code)


class Planned(dict):
    """The runs of this scale by id. They are too many for a wildcard pattern, which every rule would compile again."""

    def __missing__(self, run):
        raise WorkflowError(
            f"{run} is no run of scale {SCALE} and papers {', '.join(PAPERS)}{did_you_mean(run, self)}"
        )


def read_settings():
    """config.yaml and what wins over it, each from its own text: Snakemake reads files, options and profiles differently."""
    chosen, settings = workflow.config_settings, Settings()
    if not chosen.replace_workflow_config:
        settings.add_file("config.yaml", required=False)
    for path in chosen.configfiles:
        settings.add_file(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else path)
    if set(chosen.config_args) <= set(sys.argv) or not (profile := profile_with_settings()):
        settings.add_assignments("--config", chosen.config_args)
    else:
        settings.add_profile(profile)
        # Jobs get what we read, on their command line.
        chosen.config_args = [
            f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.values.items()
        ]
    return settings


def command_line():
    """Snakemake's own reading of its command line and profiles: the parser and what it found."""
    with contextlib.redirect_stderr(io.StringIO()):
        return snakemake_arguments(sys.argv[1:])


def refuse_unknown_targets():
    """Did-you-mean for targets; called when all rules are known. A Snakemake that was not started by its command has no such line."""
    if not Path(sys.argv[0]).match("snakemake*") and "snakemake" not in Path(sys.argv[0]).parts:
        return
    known, bare = {made.name: made for made in workflow.rules}, re.compile(r"\{(\w+),.*?\}(?=\W|$)(?!\})")
    many = {name: bare.sub(r"{\1}", made.output[0]) for name, made in known.items() if made.has_wildcards()}
    targets = [name for name in known if name not in many]
    files = {str(file) for name in targets for file in known[name].input}
    asked = [name for name in command_line()[1].targets or () if not Path(name).exists()]
    or_leave(jobs.check_targets, asked, targets, many, files, SCALE, PROJECT.library.scales)


def profile_with_settings():
    """The profile whose ``config:`` is in force, if any is."""
    parser, _ = command_line()
    for name, given in parser.get_source_to_settings_dict().items():
        if name.startswith("config_file|") and "config" in given:
            return name.split("|", 1)[1]


class OneLineAGroup:
    """A filter of the log of a dry run: jobs of one rule for one reason are one line. `snakemake -n -p` shows each job instead."""

    def __init__(self):
        self.jobs = []
        logger.addFilter(self)

    def filter(self, record):
        event = getattr(record, "event", None)
        if not workflow.dryrun or workflow.output_settings.printshellcmds:
            return True
        if event == LogEvent.JOB_INFO:
            self.jobs.append((record.rule_name, record.reason))
        elif event == LogEvent.RUN_INFO and self.jobs:
            record.msg, self.jobs = jobs.grouped(self.jobs), []
        return event not in (LogEvent.JOB_INFO, LogEvent.SHELLCMD) and not str(record.msg).startswith(
            ("Reasons:", "Some jobs were triggered by provenance")
        )


OneLineAGroup()
or_leave(jobs.check_folder, Path.cwd(), Path(workflow.basedir))
or_leave(jobs.check_writable, Path.cwd())

# Jobs find our sources, and the Python that runs Snakemake; an environment activated for a job still comes first.
jobs.export_environment(Path(workflow.basedir))

PROJECT = or_leave(open_papers, Path(workflow.basedir), or_leave(read_settings))
jobs.export_gpu_lease(PROJECT.settings.runtime.gpu_lease)
SCALE = PROJECT.settings.scale
PAPERS = list(PROJECT.chosen)
RUNS = Planned(needs.all_runs(PROJECT))
#: Few cores train the runs in this order.
PRIORITY = {run: len(RUNS) - rank for rank, run in enumerate(RUNS)}
DATA = needs.data_sets(PROJECT)
#: Ids and specs of what each token store is made of, computed once and not once a shard.
STORE_OF = {paper: tokens_id(PROJECT.paper(paper).data) for paper in PAPERS}
SAMPLE_OF = {tokens: sample_id(data.sample) for tokens, data in DATA.items()}
TOKENIZER_OF = {tokens: tokenizer_id(data) for tokens, data in DATA.items()}
SAMPLES = {SAMPLE_OF[tokens]: data.sample for tokens, data in DATA.items()}
#: Tokenizers by id, and the sample that a trained one is trained on. GPT-2's also puts the texts of token corpora back together.
TOKENIZERS = {"gpt2": Gpt2Tokenizer(kind="gpt2")} | {
    TOKENIZER_OF[t]: data.tokenizer for t, data in DATA.items()
}
TRAINED_ON = {TOKENIZER_OF[t]: SAMPLE_OF[t] for t, data in DATA.items() if data.tokenizer.kind == "bpe"}
DATA_SPECS = {tokens: canonical_json(identity(data)) for tokens, data in DATA.items()}
CORPORA = {data.sample.corpus.name: data.sample.corpus for data in DATA.values()}
SOURCES = {name: source_ids(c.profile) if c.kind == "embedded" else ["files"] for name, c in CORPORA.items()}
DOMAINS = sorted({domain for sample in SAMPLES.values() for domain in sample.domains})
CHECKPOINTS = PROJECT.settings.checkpoints
CONFIG = jobs.filed(canonical_json(PROJECT.settings.model_dump(mode="json")))
ACCEPT_CODE = "--accept-code" if PROJECT.settings.runtime.accept_code else "--no-accept-code"
THREADS = PROJECT.settings.runtime.threads or 1
#: Runs that are looked at as they are before training, with the analyses that are wanted of them.
UNTRAINED = {
    run_id: wanted
    for artifact in PROJECT.artifacts()
    for run_id, wanted in needs.of_artifact(PROJECT, artifact).untrained.items()
}
#: Checkpoints from elsewhere that figures look at: name -> the first artifact that wants one, and the analyses wanted of it.
ELSEWHERE = {}
for artifact in PROJECT.artifacts():
    for name, modules in needs.of_artifact(PROJECT, artifact).checkpoints.items():
        ELSEWHERE.setdefault(name, (artifact, set()))[1].update(modules)
or_leave(
    jobs.check_named_checkpoints,
    {name: PROJECT.settings.hf_models[name] for name in ELSEWHERE},
    PROJECT.place,
)
#: Code that decides how tables, figures and pages look.
REPORT_CODE = (
    "src/respath/reporting",
    "src/respath/comparison",
    "src/respath/quantities",
    "src/respath/results",
    "reports/templates",
)
#: Parameters of everything that is rendered. Functions, because braces in a text would be wildcards.
SETTINGS = {f"config_{key}": (lambda w, text=text: text) for key, text in stamps.of_settings(PROJECT).items()}
#: What `make demo` shows.
DEMO = {
    folder.id: [f"{folder.id}_{name}" for name in folder.paper.demo]
    for folder in map(PROJECT.folder, PAPERS)
    if folder.paper.demo
}


@functools.cache
def asked_of(run):
    """GPUs, memory and minutes of a training."""
    paper = PROJECT.folder(RUNS[run].paper).paper
    return or_leave(asked, RUNS[run].spec, paper.accounting.attention, PROJECT.settings.runtime)


ASKS_FOR_GPUS = (
    {"gpu": lambda w: asked_of(w.run).processes}
    if PROJECT.settings.runtime.gpu and PROJECT.settings.runtime.nodes == 1
    else {}
)


def runtime_of(run):
    """How a training uses its machine: the settings, with as many processes as it asks GPUs for."""
    return jobs.filed(
        canonical_json(PROJECT.settings.runtime.model_dump() | {"processes": asked_of(run).processes})
    )


def either(names):
    """A wildcard pattern of known names (of none: a pattern that matches nothing)."""
    return "|".join(sorted(map(re.escape, names))) or "(?!)"


wildcard_constraints:
    run=r"[^/]+-s\d+-[0-9a-f]{8}",
    untrained=either(UNTRAINED),
    model=either(ELSEWHERE),
    tokens=either(DATA),
    sample=either(SAMPLES),
    tokenizer=either(TOKENIZERS),
    corpus=either(CORPORA),
    source=either({source for sources in SOURCES.values() for source in sources} - {"files"}),
    domain=either(DOMAINS),
    split="train|validation",
    shard=r"\d\d\d",
    context=r"\d+",
    part=r"\d\d\d",
    parts=r"\d\d\d",
    scale=either(PROJECT.library.scales),
    size=either({size for folder in PROJECT.folders() for size in folder.paper.sizes}),
    variant=either({variant for folder in PROJECT.folders() for variant in folder.variants}),
    paper=either(PAPERS),
    table=either({artifact.id for artifact in PROJECT.artifacts() if artifact.is_table}),
    figure=either({artifact.id for artifact in PROJECT.artifacts() if not artifact.is_table}),


@functools.cache
def stamps_of(name):
    """What decides how a table, a figure (by target) or a page (by paper) looks, beside results: one parameter per file or key.

    Parameters, not inputs: an edit renders again, a dry run still shows what a table is made of, and its reason names the file.
    """
    if name in PAPERS:
        return stamps.of_paper(PROJECT, name)
    return stamps.of_artifact(PROJECT, PROJECT.artifact(name))


def of_artifact(key):
    """Parameter of a table or figure."""
    return lambda w: stamps_of(artifact_of(w).target)[key]


def of_paper(key):
    """Parameter of a page."""
    return lambda w: stamps_of(w.paper)[key]


def of_code(*folders):
    """Parameters: a stamp for each folder of code."""
    return {f"code_{Path(folder).name}": (lambda w, f=folder: code_stamp(f)) for folder in folders}


@functools.cache
def code_stamp(folder):
    """Stamp of one folder of code."""
    return stamps.of_files(PROJECT.root, [folder])


def manifest_of(run):
    """Token manifest that a run trains on."""
    return f"results/tokens/{STORE_OF[RUNS[run].paper]}/manifest.json"


def model_text(paper, size, variant):
    """A model at this scale, as canonical JSON."""
    return canonical_json(identity(PROJECT.paper(paper).model(size, variant)))


def until_made(outputs, inputs, run=None):
    """What a costly job is made of, as long as an output is missing; nothing once all are there.

    ``run``: the trained run that it measures; while its train.json is missing or newer the job will run, and needs them too.

    Data that are made again (identical, as a rule) must repeat no training and no evaluation. `ancient()` would say so, but
    Snakemake (9.27) drops the jobs behind a job that runs when all files between them are ancient, even those whose own
    outputs are missing. An edge that is not there hides nothing. Jobs get these paths as resources, which have no history.
    """
    if not all(Path(output).exists() for output in outputs):
        return inputs
    trained = None if run is None else Path(f"results/runs/{run}/train.json")
    if trained is None:
        return []
    oldest = min(Path(output).stat().st_mtime for output in outputs)
    return [] if trained.exists() and trained.stat().st_mtime <= oldest else inputs


def tokenizer_of(run):
    """Tokenizer that a run's tokens were made with."""
    return f"results/tokenizers/{TOKENIZER_OF[STORE_OF[RUNS[run].paper]]}/tokenizer.json"


def items_of(run):
    """Evaluation items of a run's paper."""
    return f"results/eval_items/{RUNS[run].paper}/items.json"


def read_by(kind, run):
    """What a run's tasks of a kind are evaluated with, until they are; and again where the items are others since."""
    items, made = LISTS[kind].format(paper=RUNS[run].paper), f"results/evals/{run}/{kind}.json"
    inputs = [items, tokenizer_of(run)]
    return until_made([made], inputs, run) or (inputs if evaluated_before(Path(made), Path(items)) else [])


def also_scored(run):
    """Options for what else a run is scored on: a second length, for runs of longer training sequences; documents one by one."""
    paper = PROJECT.paper(RUNS[run].paper)
    context = paper.common_context(RUNS[run])
    common = [] if context is None else [f"--common-context {context}"]
    return " ".join([*common, *(["--padded"] if paper.evaluation.padded else [])])


def sources_of(sample):
    """source.json of every source of a sample's corpus."""
    name = SAMPLES[sample].corpus.name
    return [f"results/corpus/{name}/{source}/source.json" for source in SOURCES[name]]


def trained_on(tokenizer):
    """The sample that a tokenizer is trained on; none for a published one."""
    return [f"results/samples/{TRAINED_ON[tokenizer]}/sample.json"] if tokenizer in TRAINED_ON else []


def detokenizer_of(sample):
    """The tokenizer that turns a corpus of token ids into text; none for a corpus of texts."""
    return ["results/tokenizers/gpt2/tokenizer.json"] if SAMPLES[sample].corpus.token_field else []


def downloads():
    """Everything that may come from the internet: texts, published tokenizers, and evaluation items."""
    published = [name for name in TOKENIZERS if name in TOKENIZER_OF.values() and name not in TRAINED_ON]
    return dict.fromkeys(
        [
            *(file for sample in SAMPLES for file in (*sources_of(sample), *detokenizer_of(sample))),
            *(f"results/tokenizers/{name}/tokenizer.json" for name in published),
            *(
                f"results/eval_items/{paper}/items.json"
                for paper in PAPERS
                if PROJECT.paper(paper).evaluation.tasks
            ),
            *(["results/core_bundle/bundle.json"] if PROJECT.settings.core_bundle else []),
        ]
    )


def scans_of(sample):
    """Lists of a large corpus' parts, each read by a job of its own; an embedded corpus is read in one go."""
    parts = SAMPLES[sample].shards if SAMPLES[sample].corpus.kind != "embedded" else 0
    return [f"results/samples/{sample}/scan/{part:03d}-of-{parts:03d}.json" for part in range(parts)]


def shards_of(tokens):
    """Token shards of a store: one job each."""
    data = DATA[tokens]
    wanted = [("train", k) for k in range(data.sample.shards)] + [("validation", 0)]
    return [
        f"results/tokens/{tokens}/{split}/{domain}.{shard:03d}.json"
        for domain in data.sample.domains
        for split, shard in wanted
    ]


@functools.cache
def modules_by_run():
    """Run id -> the analyses that tables, figures and claims want of a run that is trained for some table or figure."""
    wanted = {}
    for paper in PAPERS:
        shown = [
            quantity
            for artifact in PROJECT.artifacts(paper)
            for quantity in needs.quantities(PROJECT, artifact)
        ]
        found = needs.needs_of(PROJECT, paper, [*shown, *needs.quantities_of_claims(PROJECT, paper)])
        wanted |= {run: modules for run, modules in found.analyses.items() if run in RUNS}
    return wanted


def modules_of(run):
    """Analyses of one run: what is wanted of it, or all of them where a user asks for a run that nothing wants analysed."""
    return ",".join(sorted(modules_by_run().get(run, CATALOGUE)))


def questions_for(run):
    """Items that a run's analyses ask: those of its paper, where one of them wants accuracies."""
    wanted = "answers" in modules_of(run).split(",") and PROJECT.paper(RUNS[run].paper).evaluation.tasks
    return [items_of(run)] if wanted else []


def sample_of(run):
    """How many items of a task are asked."""
    return PROJECT.paper(RUNS[run].paper).evaluation.limit or "none"


def results_for_claims(paper):
    """Result files that only the claims of a paper read, of runs that are trained anyway; none with `missing: allow`."""
    if PROJECT.settings.missing == "allow":
        return []
    found = needs.needs_of(PROJECT, paper, needs.quantities_of_claims(PROJECT, paper))
    shown = {path for artifact in PROJECT.artifacts(paper) for path in results_of(artifact)}
    return [file for path in found.paths(among=RUNS) if (file := f"results/{path}") not in shown]


def untrained_manifest(run):
    """Token manifest whose sequences an untrained run is looked at on."""
    return f"results/tokens/{STORE_OF[UNTRAINED[run][0].paper]}/manifest.json"


def checkpoint_manifest(name):
    """The same for a checkpoint from elsewhere."""
    return f"results/tokens/{STORE_OF[ELSEWHERE[name][0].paper]}/manifest.json"


def analysis_files(name, kind="analysis"):
    """Both outputs of an analysis: numbers and arrays."""
    arrays = "arrays" if kind == "analysis" else kind
    return [f"results/analyses/{name}/{kind}.json", f"results/analyses/{name}/{arrays}.npz"]


def results_of(artifact):
    """Result files that an artifact reads; with `missing: allow` only what needs no training."""
    trained = PROJECT.settings.missing != "allow"
    return [f"results/{path}" for path in needs.of_artifact(PROJECT, artifact).paths(trained=trained)]


def overlaps_of(paper):
    """What a page says on evaluation items in the sample, where its tables read task accuracies."""
    read = any("lm" in needs.of_artifact(PROJECT, artifact).kinds for artifact in PROJECT.artifacts(paper))
    if PROJECT.settings.missing == "allow" or not read:
        return []
    return [f"results/overlap/{sample_id(PROJECT.paper(paper).data.sample)}/{paper}.json"]


def artifact_of(w):
    """The artifact behind a report path."""
    return PROJECT.artifact(f"{w.paper}_{w.get('table') or w.get('figure')}")


def rendered(artifact):
    """The files of a table (CSV, LaTeX, Markdown) or of a figure (CSV, JSON, SVG, PDF)."""
    endings = ("csv", "tex", "md") if artifact.is_table else ("csv", "json", "svg", "pdf")
    return [f"reports/out/{SCALE}/{artifact.paper}/{artifact.id}.{ending}" for ending in endings]


def spare_the_cores():
    """Less of what Snakemake (9.27) does beside jobs that run here, and has no option for.

    * A limit on job starts a second starts a timer in every scheduling pass, each of which ends in another pass: after dozens
      of jobs the passes take most of a core. Dropped; queues and their jobs keep theirs.
    * ``benchmark`` adds up a job's memory map twice a second, 20 ms each time where torch is loaded. Every two seconds will do.
    """
    if workflow.local_exec and workflow.is_main_process:
        workflow.scheduler.job_rate_limiter = None
        snakemake_benchmark.BENCHMARK_INTERVAL_SHORT = 2.0


def banner():
    """What this invocation works on."""
    return f"respath: scale {SCALE}, papers {', '.join(PAPERS)}; results in results/, tables in reports/out/{SCALE}/, logs in logs/"


def requested():
    """Files that this invocation was asked for; none where it was asked to stop before them (--until, --omit-from, --batch)."""
    settings = workflow.dag_settings
    if settings.until or settings.omit_from or settings.batch:
        return []
    rules = {rule.name: rule for rule in workflow.rules}
    targets = settings.targets or [workflow.default_target]
    return [file for name in targets for file in (map(str, rules[name].input) if name in rules else [name])]


def close():
    """The last lines, about what was asked for. Whatever Snakemake says: a file that is not there, or stale, is a failure."""
    if missing := [file for file in dict.fromkeys(requested()) if not Path(file).exists()]:
        raise WorkflowError(
            f"respath: asked for and not there: {', '.join(missing[:5])}{', ...' if missing[5:] else ''} ({len(missing)} in all); "
            "run the same command again"
        )
    shown = [
        file for file in requested() if file.startswith("reports/") or file in workflow.dag_settings.targets
    ]
    command = [sys.executable, "-m", "respath.comparison.closing", "--config", CONFIG, "--files", *shown]
    if shown and subprocess.run(command).returncode:
        raise WorkflowError("respath: what was asked for is not fresh or cannot be read: see above")


def failure_hint(path):
    """What to look at, and that nothing is lost."""
    return (
        f"respath: a job failed; its own log is named above (logs/<rule>/...), Snakemake's is {', '.join(map(str, path))}. Finished shards, "
        "checkpoints and results are kept: mend the cause and run the same command again. See docs/troubleshooting.md."
    )
