"""Panels of a figure as data: what each kind of panel draws, of which runs, on which axes."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from respath.config.request import RunRequest, merged
from respath.errors import UserError, did_you_mean
from respath.letters import Text
from respath.papers.reported import PrintedCell
from respath.papers.tables import Only, target_names
from respath.quantities import metrics
from respath.quantities.analyses import unknown_series
from respath.quantities.kinds import KINDS, factor
from respath.quantities.quantity import Quantity
from respath.spec.document import Document

LOSS = "validation loss (nats per token)"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """One run that a panel reads: the key that names it, requests to be merged (later ones win), and the metrics read."""

    key: str
    layers: tuple[RunRequest, ...]
    metrics: tuple[str, ...]
    only: Only | None = None
    """Scales at which it is read; None: at all of them."""


class Axis(Document):
    """An axis: label with its unit, and scale."""

    label: Text
    scale: Literal["linear", "log"] = "linear"


class Printed(Document):
    """Where the paper prints what a panel draws: the first of ``reported`` files whose row and column have a value."""

    reported: tuple[str, ...]
    row: str = "{variant}"
    """Row of a point, from its variant, size and context (in a panel of layers also from ``series`` and ``layer``, from 1), and so the
    column; points with recipe overrides have no printed value."""
    column: str = "loss"


class Panel(Document):
    """What all panels say."""

    title: Text
    run: RunRequest = RunRequest()
    """Under the requests of lines and points, over the figure's."""
    only: Only | None = None
    """Scales at which the panel's runs are trained; null: all. Elsewhere the panel says why it is empty."""

    def wanted(self) -> Iterator[Wanted]:
        """Every run that the panel reads."""
        raise NotImplementedError

    def reported_files(self) -> tuple[str, ...]:
        """Names of the files of printed numbers that the panel reads."""
        printed, saving = (getattr(self, name, None) for name in ("printed", "printed_saving"))
        return (*(printed.reported if printed else ()), *((saving.reported,) if saving else ()))


def _series(value: str | None) -> str | None:
    if value is not None:
        whole = value.partition(".")[0] in KINDS
        if problem := metrics.unknown(value, series=True) if whole else unknown_series(value):
            raise ValueError(problem)
    return value


def _analysis(series: str, untrained: bool = False) -> tuple[str, ...]:
    return (metric_of(series, untrained),)


def metric_of(series: str, untrained: bool = False) -> str:
    """The metric of a series: an analysis' ``module.name``, or any other metric that is a series by its whole name."""
    if series.partition(".")[0] in KINDS:
        return series
    return f"{'untrained' if untrained else 'analysis'}.{series}"


def _metric(value: str) -> str:
    if problem := metrics.unknown(value, pair=False):
        raise ValueError(problem)
    return value


def _shown_in_its_unit(panel):
    try:
        factor(metrics.unit_of(panel.metric), panel.unit)
    except UserError as error:
        raise ValueError(f"unit: {error.lines[0]}") from None
    return panel


# --- a metric of runs ------------------------------------------------------------------------------------------------


class SweepPoint(Document):
    """One run at its place on the x axis."""

    x: float | None = None
    """null: where the panel's ``at`` puts it."""
    run: RunRequest = RunRequest()


class SweepLine(Document):
    """Runs that differ in one number. Colour is that of the first point's variant, and so is the label unless one is given."""

    label: Text | None = None
    run: RunRequest = RunRequest()
    metric: str | None = None
    """null: the panel's. Another one has the same unit: what is measured beside what a formula gives."""
    points: tuple[SweepPoint, ...] = Field(min_length=1)

    @field_validator("metric")
    @classmethod
    def _one_number(cls, metric):
        return metric if metric is None else _metric(metric)


class Sweep(Panel):
    """A metric against a number that the runs differ in."""

    kind: Literal["sweep"]
    x: Axis
    y: Axis = Axis(label=LOSS)
    metric: str = "loss.mean"
    unit: Text = ""
    """In which the metric is drawn (``%``, ``TFLOP``, ``GB``); printed values are in it too. Empty: as it comes."""
    at: str | None = None
    """A metric of each point's model that is its place on the x axis, in the paper's own shape, e.g. account.parameters.total."""
    lines: tuple[SweepLine, ...] = Field(min_length=1)
    reference: RunRequest | None = None
    """A run drawn as a horizontal line."""
    baseline: RunRequest | None = None
    """What differs in the run that each point is compared with, the rest being as in the point: whiskers are of these paired
    differences."""
    printed: Printed | None = None

    _known = field_validator("metric")(_metric)
    _converts = model_validator(mode="after")(_shown_in_its_unit)

    @field_validator("at")
    @classmethod
    def _of_a_shape(cls, at):
        if at is not None and (problem := metrics.unknown(at, pair=False)):
            raise ValueError(problem)
        if at is not None and not metrics.is_exact(at):
            raise ValueError(f"{at!r} is measured; a place on the axis comes from the paper's own shapes")
        return at

    @model_validator(mode="after")
    def _every_point_has_a_place(self):
        for i, line in enumerate(self.lines):
            for j, point in enumerate(line.points):
                if (point.x is None) == (self.at is None):
                    raise ValueError(
                        f"lines.{i}.points.{j} takes its place from `x`, or all do from the panel's `at`"
                    )
        return self

    @model_validator(mode="after")
    def _one_comparison(self):
        if self.reference is not None and self.baseline is not None:
            raise ValueError(
                "has both `reference` and `baseline`; whiskers are of one difference, so keep one"
            )
        return self

    @model_validator(mode="after")
    def _one_axis_has_one_unit(self):
        for i, line in enumerate(self.lines):
            if line.metric is not None and metrics.unit_of(line.metric) != metrics.unit_of(self.metric):
                raise ValueError(
                    f"lines.{i}.metric: {line.metric!r} has another unit than the panel's {self.metric!r}"
                )
        return self

    def wanted(self):
        for i, line in enumerate(self.lines):
            wanted = (line.metric or self.metric, *filter(None, [self.at]))
            for j, point in enumerate(line.points):
                yield Wanted(f"lines.{i}.points.{j}.run", (self.run, line.run, point.run), wanted)
                if self.baseline is not None:
                    yield Wanted("baseline", (self.run, line.run, point.run, self.baseline), wanted[:1])
        if self.reference is not None:
            yield Wanted("reference", (self.run, self.reference), (self.metric,))


class Bar(Document):
    """One run among others without an order."""

    label: Text
    group: Text = ""
    """Bars of one group stand together under its name."""
    run: RunRequest = RunRequest()


class Bars(Panel):
    """A metric of several runs: paired differences from a reference run as dots, or bars where zero means none (bytes, seconds)."""

    kind: Literal["bars"]
    x: Axis
    y: Axis = Axis(label=LOSS)
    metric: str = "loss.mean"
    unit: Text = ""
    """As of a sweep."""
    bars: tuple[Bar, ...] = Field(min_length=1)
    reference: RunRequest | None = None
    printed: Printed | None = None

    _known = field_validator("metric")(_metric)
    _converts = model_validator(mode="after")(_shown_in_its_unit)

    def wanted(self):
        metrics = (self.metric,)
        for i, bar in enumerate(self.bars):
            yield Wanted(f"bars.{i}.run", (self.run, bar.run), metrics)
        if self.reference is not None:
            yield Wanted("reference", (self.run, self.reference), metrics)


# --- analyses --------------------------------------------------------------------------------------------------------


class RunLine(Document):
    """One line of one run."""

    run: RunRequest = RunRequest()
    label: Text | None = None


class LayerLine(Document):
    """One line: a series of one run."""

    run: RunRequest = RunRequest()
    label: Text | None = None
    series: str | None = None
    """``module.series``; the panel's unless told otherwise."""

    _known = field_validator("series")(_series)


class Layers(Panel):
    """A series of an analysis against its index: a value per layer, or per number of removed layers."""

    kind: Literal["layers"]
    series: str | None = None
    x: Axis = Axis(label="layer")
    first: int = 1
    """Index of the first value: 1 for layers, 0 where the first value is of the embedding or of nothing removed."""
    y: Axis
    lines: tuple[LayerLine, ...] = Field(min_length=1)
    uniform: Literal["entropy", "first_token"] | None = None
    """Draw what uniform causal attention gives at the analysed length."""
    untrained: bool = False
    printed: Printed | None = None

    _known = field_validator("series")(_series)

    @model_validator(mode="after")
    def _every_line_has_a_series(self):
        for i, line in enumerate(self.lines):
            if line.series is None and self.series is None:
                raise ValueError(
                    f"lines.{i} names no series; give `series: module.name` to it or to the panel"
                )
        return self

    def wanted(self):
        for i, line in enumerate(self.lines):
            yield Wanted(
                f"lines.{i}.run",
                (self.run, line.run),
                _analysis(str(line.series or self.series), self.untrained),
            )


class Along(Panel):
    """A series of an analysis against another series of the same analysis: thresholds, training steps."""

    kind: Literal["along"]
    series: str
    at: str
    """The series whose values are the places on the x axis."""
    x: Axis
    y: Axis
    lines: tuple[RunLine, ...] = Field(min_length=1)

    _known = field_validator("series", "at")(_series)

    def one_size(self, outer: RunRequest) -> bool:
        """Are all lines of one size?"""
        return len({merged(outer, self.run, line.run).size for line in self.lines}) == 1

    def wanted(self):
        for i, line in enumerate(self.lines):
            metrics = (*_analysis(self.series), *_analysis(self.at))
            yield Wanted(f"lines.{i}.run", (self.run, line.run), metrics)


class Matrix(Panel):
    """A matrix of an analysis as a heat map: row against column, both counted from ``first``."""

    kind: Literal["matrix"]
    series: str
    x: Axis
    y: Axis
    value: Axis
    """Label and scale of the colours."""
    about: float | None = None
    """Value that is white between two colours, e.g. the one that training starts from; none: 0 where there are both signs."""
    first: int = 1
    first_column: int | None = None
    """Where columns count from, if not as rows do."""
    untrained: bool = False

    _known = field_validator("series")(_series)

    def wanted(self):
        yield Wanted("run", (self.run,), _analysis(self.series, self.untrained))


class Positions(Panel):
    """An array of an analysis as a heat map: layer against token position. Panels of one array share their colours."""

    kind: Literal["positions"]
    array: str
    x: Axis = Axis(label="position", scale="log")
    y: Axis = Axis(label="layer")
    value: Axis
    first: int = 1
    """Layer of the first row."""

    _known = field_validator("array")(_series)

    def wanted(self):
        yield Wanted("run", (self.run,), _analysis(self.array))


class Ranks(Panel):
    """Columns of a matrix of an analysis against the layer: the largest value, the second largest, and so on."""

    kind: Literal["ranks"]
    series: str
    ranks: tuple[int, ...] = Field(min_length=1)
    """Columns, counted from 1; those beyond the matrix are left out."""
    y: Axis
    x: Axis = Axis(label="layer")

    _known = field_validator("series")(_series)

    def wanted(self):
        yield Wanted("run", (self.run,), _analysis(self.series))


class Checkpoints(Panel):
    """A series of an analysis per layer, of the Hugging Face checkpoints that the user names in ``hf_models``."""

    kind: Literal["checkpoints"]
    series: str
    x: Axis = Axis(label="layer")
    y: Axis
    uniform: Literal["entropy", "first_token"] | None = None

    _known = field_validator("series")(_series)

    def wanted(self):
        return iter(())


def _compared(panel):
    """Baseline and savings must be among the variants that are drawn."""
    for name in (panel.baseline, *panel.saving):
        if name not in panel.variants:
            raise ValueError(
                f"{name!r} is not among the panel's variants{did_you_mean(name, panel.variants)}"
            )
    return panel


# --- training curves -------------------------------------------------------------------------------------------------


class Floor(Document):
    """A horizontal line that a loss should be below: what n-grams of a run's own tokens reach on the same rows."""

    label: Text
    metric: str = "ngrams.trigram.mean"
    run: RunRequest = RunRequest()
    only: Only | None = None
    """Scales at which it is measured; none: all."""

    _known = field_validator("metric")(_metric)


def _floors(floors: Iterable[Floor], *layers: RunRequest) -> Iterator[Wanted]:
    for i, floor in enumerate(floors):
        yield Wanted(f"floors.{i}.run", (*layers, floor.run), (floor.metric,), floor.only)


Curve = Literal["train.curve", "train.validation"]


class Difference(Panel):
    """Training (or validation) loss minus a baseline's, against steps: relative loss."""

    kind: Literal["difference"]
    metric: Curve = "train.curve"
    x: Axis = Axis(label="steps")
    y: Axis
    lines: tuple[RunLine, ...] = Field(min_length=1)
    baseline: RunRequest
    """What differs in each line's baseline; the rest is as in the line."""

    def wanted(self):
        for i, line in enumerate(self.lines):
            yield Wanted(f"lines.{i}.run", (self.run, line.run), (self.metric,))
            yield Wanted("baseline", (self.run, line.run, self.baseline), (self.metric,))


class Crossing(Panel):
    """Step from which on a run's training loss stays above its baseline's, against sequence length, with a fit."""

    kind: Literal["crossing"]
    x: Axis = Axis(label="sequence length (tokens)", scale="log")
    y: Axis = Axis(label="critical point (steps)")
    contexts: tuple[int, ...] = Field(min_length=1)
    baseline: RunRequest

    def wanted(self):
        for i, context in enumerate(self.contexts):
            length = RunRequest(context=context)
            yield Wanted(f"contexts.{i}", (self.run, length), ("train.curve",))
            yield Wanted("baseline", (self.run, length, self.baseline), ("train.curve",))


class Tokens(Panel):
    """Loss against tokens (of training, smoothed; or the validation history), and the data saved at equal loss."""

    kind: Literal["tokens"]
    metric: Curve = "train.curve"
    field: Literal["loss", "bits_per_byte"] = "loss"
    """What is drawn of the history. Bits per byte are pooled over domains; tokens and bytes are those of the final evaluation's text,
    whose rows begin with the frozen ones."""
    x: Axis = Axis(label="tokens")
    y: Axis = Axis(label="training loss (nats per token)")
    variants: tuple[str, ...] = Field(min_length=1)
    baseline: str
    saving: tuple[str, ...] = ()
    """Variants whose saving is given, the headline first."""
    floors: tuple[Floor, ...] = ()
    printed: Printed | None = None
    """Files whose drawn curves (``curves``) stand beside ours."""
    printed_saving: PrintedCell | None = None

    _drawn = model_validator(mode="after")(_compared)

    @model_validator(mode="after")
    def _bytes_are_of_a_history(self):
        if self.field == "bits_per_byte" and self.metric != "train.validation":
            raise ValueError("field bits_per_byte goes with metric train.validation")
        return self

    def wanted(self):
        for i, variant in enumerate(self.variants):
            metrics = (self.metric, "loss.mean") if self.field == "bits_per_byte" else (self.metric,)
            yield Wanted(f"variants.{i}", (self.run, RunRequest(variant=variant)), metrics)
        yield from _floors(self.floors, self.run, RunRequest(variant=self.baseline))


# --- sizes -----------------------------------------------------------------------------------------------------------


class Sizes(Panel):
    """Validation loss against parameters, a quadratic in their logarithm, and the parameters saved at equal loss."""

    kind: Literal["sizes"]
    x: Axis = Axis(label="parameters", scale="log")
    y: Axis = Axis(label=LOSS)
    variants: tuple[str, ...] = Field(min_length=1)
    sizes: tuple[str, ...] = Field(min_length=1)
    baseline: str
    saving: tuple[str, ...] = ()
    """Variants whose saving (or extra cost) is given, the headline first."""
    printed_saving: PrintedCell | None = None
    """The percentage that the paper prints."""
    direction: Literal["fewer", "more"] = "fewer"
    """Is it said how many fewer parameters, or how many more, are needed?"""
    printed: Printed | None = None
    floors: tuple[Floor, ...] = ()
    """Each at every size."""

    _drawn = model_validator(mode="after")(_compared)

    def wanted(self):
        for size in self.sizes:
            yield from _floors(self.floors, self.run, RunRequest(size=size, variant=self.baseline))
            for i, variant in enumerate(self.variants):
                request = RunRequest(size=size, variant=variant)
                yield Wanted(f"variants.{i}", (self.run, request), ("loss.mean", "account.parameters.total"))


AnyPanel = Annotated[
    Sweep
    | Bars
    | Layers
    | Along
    | Matrix
    | Positions
    | Ranks
    | Checkpoints
    | Difference
    | Crossing
    | Tokens
    | Sizes,
    Field(discriminator="kind"),
]


class Panels(Document):
    """A figure made of panels."""

    kind: Literal["panels"]
    title: Text
    section: Text
    caption: Text = ""
    run: RunRequest = RunRequest()
    layout: tuple[str, ...] = ()
    """Rows of letters, one letter per panel in order (``["AB", "AC"]``: A is two rows high); none: one row."""
    height: float = Field(2.9, gt=0)
    """Inches per row of the layout."""
    panels: tuple[AnyPanel, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _layout_names_every_panel(self):
        wanted = set(string.ascii_uppercase[: len(self.panels)])
        letters = set("".join(self.layout))
        if self.layout and letters != wanted:
            raise ValueError(
                f"layout has the letters {''.join(sorted(letters))} for panels {''.join(sorted(wanted))}"
            )
        if len({len(row) for row in self.layout}) > 1:
            raise ValueError("layout: all rows must be equally long")
        return self

    def quantities(self, scale: str | None = None) -> Iterator[tuple[str, Quantity]]:
        """What the panels read of runs and models (at one scale, or at any), with the key that names each."""
        for i, panel in enumerate(self.panels):
            if scale and panel.only and scale not in panel.only.scales:
                continue
            for wanted in panel.wanted():
                if scale and wanted.only and scale not in wanted.only.scales:
                    continue
                run = merged(self.run, *wanted.layers)
                yield from ((f"panels.{i}.{wanted.key}", Quantity(metric, run)) for metric in wanted.metrics)


class Figures(Document):
    """papers/<id>/figures.yaml."""

    figures: dict[str, Panels]

    _targets = field_validator("figures")(target_names)
