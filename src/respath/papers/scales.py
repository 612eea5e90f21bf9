"""Scales as data: what a scale is for, and what it changes of each paper."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from respath.config.request import Overrides, RunRequest
from respath.config.runtime import Validation
from respath.letters import Text
from respath.papers.paper import DomainShare, RowPacking, Sequences, sums_to_one
from respath.settings import distinct_seeds
from respath.spec.data import Tokenizer
from respath.spec.document import Document

#: The largest factor on the coefficients' learning rate. Under Adam a coefficient moves by about one rate per step: at ten times
#: a peak rate of 6e-3 by 0.06, a small part of coefficients of about 1. Ninety times makes 0.5 a step, and rounding decides the
#: run (docs/log.md).
MOST_COEFFICIENT_LR = 10.0


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
    """same: coefficients follow the schedule as they are. matched: their learning rate is such that its sum
    over the shorter run equals the paper's, or coefficients could not move as far (decision coefficient-lr); at most
    ``MOST_COEFFICIENT_LR`` times, and where that falls short, page and diff.md say so."""
    sweep_share: float = Field(1.0, gt=0, le=1)
    """Part of the steps that runs of a search take (``sweep: true`` in a request's recipe)."""
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
    packing: RowPacking | None = None

    _sum = field_validator("domains")(sums_to_one)


class ScaleEvaluation(Document):
    """What a scale changes of the evaluation; null keeps the paper's value."""

    loss_sequences: Sequences | None = None
    limit: int | None = None
    analysis_sequences: int | None = None


class RunSet(Document):
    """Runs that differ in their variant only, in the paper's terms."""

    size: str
    variants: tuple[str, ...] = Field(min_length=1)
    context: int | None = None
    recipe: Overrides = {}
    seeds: int | None = Field(None, ge=1)
    """How many of the scale's seeds they take; null: all."""

    def requests(self) -> tuple[RunRequest, ...]:
        """One request per variant."""
        return tuple(
            RunRequest(size=self.size, variant=variant, context=self.context, recipe=self.recipe)
            for variant in self.variants
        )


class ScalePaper(Document):
    """papers/<id>/scales/<scale>.yaml: how the paper shrinks at a scale; it may be empty."""

    model: Overrides = {}
    sizes: dict[str, Overrides] = {}
    variants: dict[str, Overrides] = {}
    """Model fields of single variants, e.g. fewer blocks of a shallower model."""
    recipe: ScaleRecipe = ScaleRecipe()
    data: ScaleData = ScaleData()
    evaluation: ScaleEvaluation = ScaleEvaluation()
    paired: tuple[RunSet, ...] | None = None
    """Runs that are trained first, the most important first, each with as many seeds as its entry says. null: every run
    takes every seed of the scale."""
    others: int = Field(1, ge=1)
    """Seeds of every run that ``paired`` does not list; rows and claims with one seed get no verdict."""
    first: tuple[str, ...] = ()
    """Tables and figures whose runs are trained before all others', the most important first (after ``paired``)."""
    validation: Validation = Validation()
    """What trainings measure on their way; nothing here enters a run's id."""
    notes: tuple[Text, ...] = ()
    """Paragraphs of the paper's page and of diff.md at this scale: what its recipe hides."""


class Scale(Document):
    """scales/<id>.yaml."""

    id: str
    title: Text
    purpose: Text
    seeds: tuple[int, ...]
    comparable: bool = False
    """May measured cells (losses, accuracies) be set against the printed numbers?"""
    fits: bool = True
    """May figures tell numbers that are fitted through this scale's losses (savings at equal loss, exponentials)?"""

    _seeds = field_validator("seeds")(distinct_seeds)
