"""A paper as data: what its folder under ``papers/`` may say (paper, variants, tables, figures)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from respath.config.request import Overrides
from respath.errors import did_you_mean
from respath.letters import Text
from respath.quantities.core import SUITES
from respath.spec.data import Corpus, Tokenizer
from respath.spec.document import Document
from respath.spec.recipe import RecipeTerms


def _names(mapping: dict[str, Any]) -> dict[str, Any]:
    """Names that become parts of paths and of ``paper/size/variant``."""
    for name in mapping:
        if "/" in name or not name.isprintable() or name != name.strip() or not name:
            raise ValueError(
                f"{name!r} cannot be a name: it becomes a part of folder names, so no slash, no line break, no space at its ends"
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
    note: Text | None = None


class Scaling(Document):
    """By which rule the recipe holds for other sizes than the one that it is printed for."""

    rule: Literal["nanochat"]
    size: str
    """The size of the recipe; its baseline model is the rule's measure."""


class PaperRecipe(RecipeTerms):
    """The paper's training recipe, in the paper's own terms; scales multiply or replace parts of it."""

    final_lr_ratio: float = Field(ge=0, le=1)
    micro_batch_tokens: int
    """A step is ``micro_batches`` micro-batches (over all GPUs and accumulation) of ``micro_batch_tokens //
    context`` sequences: how the paper keeps about 2M tokens per step at every length (Table 13)."""
    micro_batches: int
    target_flops: float | None = Field(None, gt=0)
    """Training FLOPs of every run, in the paper's own count: a variant that costs less per token takes more steps.
    null: all runs take ``steps``, which are the baseline's otherwise."""
    scaling: Scaling | None = None
    """null: the recipe is every size's, but for what a size says itself."""

    sweep: bool = False
    """Is the run one of a search (of learning rates)? A small scale may train these for a part of the steps."""

    def changed(self, overrides: Overrides) -> dict[str, Any]:
        """Its fields with others in their place; of an optimizer or schedule of the same kind, only the settings that are given."""
        fields = {**self.model_dump(mode="json"), **overrides}
        for part in ("optimizer", "schedule"):
            own, other = getattr(self, part), overrides.get(part)
            if isinstance(other, Mapping) and other.get("kind", own.kind) == own.kind:
                fields[part] = own.model_dump(mode="json") | other
        return fields


class DomainShare(Document):
    """One domain of the mix."""

    label: Text
    share: float = Field(gt=0, le=1)


def sums_to_one(domains: dict[str, DomainShare] | None) -> dict[str, DomainShare] | None:
    total = sum(domain.share for domain in domains.values()) if domains else 1
    if abs(total - 1) > 1e-9:
        raise ValueError(f"the domain shares sum to {total:g}, not 1")
    return domains


class RowPacking(Document):
    """How documents become rows; best fit makes them as long as the recipe's context (``respath.spec.data.BestFit``)."""

    kind: Literal["concatenate", "best_fit"]
    long_documents: Literal["crop", "split"] = "crop"

    def of(self, context: int) -> dict[str, Any]:
        """Fields of the data's ``packing``, for rows of ``context`` tokens."""
        if self.kind == "concatenate":
            return {"kind": self.kind}
        return {**self.model_dump(mode="json"), "row_tokens": context}


class PaperData(Document):
    """The paper's corpus, tokenizer and quotas."""

    corpus: str
    tokenizer: Tokenizer
    domains: dict[str, DomainShare]
    train_tokens: int
    validation_tokens: int
    shards: int = 1
    packing: RowPacking = RowPacking(kind="concatenate")

    _sum = field_validator("domains")(sums_to_one)


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


Sequences = Annotated[int, Field(ge=1)] | Literal["all"]


class Evaluation(Document):
    """What a finished run is measured on."""

    loss_sequences: Sequences
    """Validation sequences per domain, a fixed sample of them, or ``all`` of the split."""
    tasks: tuple[str, ...] = ()
    """lm-eval tasks (zero-shot), in the paper's order."""
    core: tuple[str, ...] = ()
    """Suites of CORE (core21, core22); few-shot, from the published bundle's files (``core_bundle`` in config.yaml)."""
    limit: int | None = None
    """Items per task, a fixed sample of them; null takes all."""
    common_context: int | None = None
    """Length at which runs of longer training sequences are scored too (``loss.common``), in the paper's terms."""
    padded: bool = False
    """Are validation documents scored one by one too, cut or padded to a row (``loss.padded``)? So many of them as rows."""
    analysis_sequences: int = Field(143, ge=1)
    """Validation sequences per domain that analyses of trained models read."""

    @field_validator("core")
    @classmethod
    def _known_suites(cls, core):
        for suite in core:
            if suite not in SUITES:
                raise ValueError(f"{suite!r} is no suite of CORE{did_you_mean(suite, SUITES)}")
        return core


class Paper(Document):
    """papers/<id>/paper.yaml."""

    id: str
    title: Text
    short: Text
    authors: tuple[Text, ...]
    arxiv: str
    venue: Text | None = None
    year: int
    sizes: dict[str, Size]
    model: Overrides
    """Model fields shared by all sizes."""
    recipe: PaperRecipe
    data: PaperData
    hardware: Hardware
    accounting: AccountingDefaults
    evaluation: Evaluation
    shown_size: str | None = None
    """The size whose counts docs/architectures.md shows; null: the first."""
    demo: tuple[str, ...] = ()
    """Tables and figures that the target ``demo`` makes."""

    _names = field_validator("sizes")(_names)


class Variant(Document):
    """One entry of variants.yaml: overrides of the model and recipe; title and label are for people only, and ``colour`` is not read."""

    title: Text
    label: Text
    colour: str = Field("#444444", pattern=r"^#[0-9a-fA-F]{6}$")
    model: Overrides = {}
    recipe: Overrides = {}


class Variants(Document):
    """papers/<id>/variants.yaml."""

    variants: dict[str, Variant]

    _names = field_validator("variants")(_names)


class Corpora(Document):
    """papers/corpora.yaml: every corpus by name."""

    corpora: dict[str, Corpus]
