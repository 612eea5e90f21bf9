"""What a figure draws, as tidy rows: read from results, smoothed and averaged here, so that drawing decides nothing."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence

from respath.config.request import RunRequest, merged
from respath.papers.figures import Curves
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities.curves import smooth
from respath.quantities.quantity import Quantity
from respath.quantities.rounding import fixed
from respath.quantities.sample import computed
from respath.results.reader import Results

#: Width of the moving average over a curve, as a share of the whole training.
SMOOTHING_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class Point:
    """One drawn point. ``panel`` names the axes; ``stderr`` is over seeds (None for one seed)."""

    panel: str
    variant: str
    size: str
    x: float
    y: float
    stderr: float | None = None
    seeds: int = 1


@dataclasses.dataclass(frozen=True)
class Series:
    """Everything that one figure shows. ``labels``: variant -> label, in drawing order, drawn or not."""

    target: str
    points: tuple[Point, ...]
    labels: dict[str, str]
    colours: dict[str, str]
    ranks: dict[str, int]
    notes: tuple[str, ...]
    window: str
    units: dict[str, str] = dataclasses.field(default_factory=dict)

    def of(self, panel: str, variant: str) -> list[Point]:
        """Points of one line, from left to right."""
        return sorted(
            (p for p in self.points if p.panel == panel and p.variant == variant), key=lambda p: p.x
        )

    def csv_text(self) -> str:
        """One line per point in full precision."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ["figure", "panel", "variant", "label", "size", "x", "x_name", "y", "y_name", "stderr", "seeds"]
        )
        for p in self.points:
            x_name, y_name = self.units[p.panel].split("|")
            error = "" if p.stderr is None else repr(p.stderr)
            writer.writerow(
                [
                    self.target,
                    p.panel,
                    p.variant,
                    self.labels[p.variant],
                    p.size,
                    repr(p.x),
                    x_name,
                    repr(p.y),
                    y_name,
                    error,
                    p.seeds,
                ]
            )
        return stream.getvalue()


def series_of(project: Resolver, results: Results, artifact: Artifact) -> Series:
    """The points of a figure from whatever results exist; what is missing is named in the notes."""
    definition = artifact.definition
    variants = project.folder(artifact.paper).variants
    builder = _Builder(project, results, artifact)
    builder.curves(definition)
    order = list(variants)
    return Series(
        target=artifact.target,
        points=tuple(builder.points),
        labels={name: variants[name].label for name in definition.variants},
        colours={name: variants[name].colour for name in definition.variants},
        ranks={name: order.index(name) for name in definition.variants},
        notes=tuple(builder.notes()),
        window=builder.window,
        units=builder.units,
    )


class _Builder:
    """Collects the points of one figure."""

    def __init__(self, project: Resolver, results: Results, artifact: Artifact):
        self.project, self.results, self.artifact = project, results, artifact
        self.paper = artifact.paper
        self.points: list[Point] = []
        self.absent: dict[str, str] = {}
        self.further: list[str] = []
        self.window = ""
        self.units: dict[str, str] = {}

    def notes(self) -> list[str]:
        """What is not drawn, and why."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.absent.items():
            by_reason.setdefault(reason, []).append(name)
        missing = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        return ([f"Not drawn: {'; '.join(missing)}."] if missing else []) + self.further

    def _curves_of(self, name: str, request: RunRequest) -> dict[int, dict[int, tuple[int, float]]]:
        """seed -> step -> (tokens, loss) of the finished runs; notes the others."""
        sample = self.results.sample(self.paper, Quantity("train.curve", request))
        for seed, reading in sample.by_seed.items():
            if reading.state != "measured":
                self._note_absent(name, "diverged" if reading.state == "diverged" else reading.reason, seed)
        found = {}
        for seed, curve in sample.values.items():
            columns = zip(curve["step"], curve["tokens"], curve["loss"], strict=True)
            found[seed] = {step: (tokens, loss) for step, tokens, loss in columns}
        return found

    def _note_absent(self, name: str, reason: str, seed: int) -> None:
        seeds = self.project.seeds
        label = self.project.folder(self.paper).variants[name].label
        self.absent.setdefault(label if len(seeds) == 1 else f"{label} seed {seed}", reason)

    def _line(
        self, panel: str, variant: str, size: str, by_seed: dict[int, dict[int, tuple[int, float]]]
    ) -> None:
        """Mean over seeds of the smoothed curves, on the steps that all of them have."""
        if not by_seed:
            return
        steps = sorted(set.intersection(*(set(curve) for curve in by_seed.values())))
        if not steps:
            return
        width = max(1, round(len(steps) * SMOOTHING_SHARE))
        smoothed = {
            seed: smooth([curve[step][1] for step in steps], width) for seed, curve in by_seed.items()
        }
        tokens = next(iter(by_seed.values()))
        span = max(1, round(width * steps[-1] / len(steps)))
        self.window = f"moving average over {span:,} steps" if span > 1 else ""
        for index, step in enumerate(steps):
            here = {seed: float(curve[index]) for seed, curve in smoothed.items()}
            sample = computed(here, Quantity("train.curve", RunRequest(size=size, variant=variant)))
            self.points.append(
                Point(panel, variant, size, tokens[step][0], sample.value, sample.stderr, len(here))
            )

    def curves(self, definition: Curves) -> None:
        """Losses, and paired differences from the baseline at equal steps."""
        self.units = {"loss": "tokens|nats per token", "difference": "tokens|nats per token"}
        request = merged(definition.run, RunRequest(variant=definition.baseline))
        size = request.size
        curves = {}
        for variant in definition.variants:
            curves[variant] = self._curves_of(variant, merged(definition.run, RunRequest(variant=variant)))
            self._line("loss", variant, size, curves[variant])
        base = curves.get(definition.baseline)
        if base is None:
            base = self._curves_of(definition.baseline, request)
        for variant in definition.variants:
            paired = {
                seed: {s: (t, loss - base[seed][s][1]) for s, (t, loss) in curve.items() if s in base[seed]}
                for seed, curve in curves[variant].items()
                if seed in base
            }
            self._line("difference", variant, size, paired)
        if not base:
            self.further.append("No differences: the baseline has no finished run.")


def human_tokens(tokens: float) -> tuple[float, str]:
    """Divisor and unit for an axis of tokens: 2.1e10 -> (1e9, "B tokens")."""
    for divisor, unit in ((1e9, "B tokens"), (1e6, "M tokens"), (1e3, "K tokens")):
        if tokens >= 2 * divisor:
            return divisor, unit
    return 1.0, "tokens"


def short_count(count: float) -> str:
    """82.4e6 -> "82M", 1.04e6 -> "1.0M", 350e3 -> "350K"."""
    for divisor, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= divisor:
            return f"{fixed(count / divisor, 0 if count >= 10 * divisor else 1)}{unit}"
    return fixed(count, 0)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near ``wanted``, at least ``gap`` apart and within low..high, in the same order: for labels of lines.

    With too many labels for the room the gap shrinks to what fits.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1)) if len(wanted) > 1 else gap
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Pool neighbours that are too close around their common mean (as in isotonic regression).
    pools: list[tuple[float, list[int]]] = []
    for rank, index in enumerate(order):
        pools.append((wanted[index] - rank * gap, [index]))
        while len(pools) > 1 and pools[-1][0] < pools[-2][0]:
            (b, right), (a, left) = pools.pop(), pools.pop()
            pools.append(((a * len(left) + b * len(right)) / (len(left) + len(right)), left + right))
    placed = [0.0] * len(wanted)
    rank = 0
    top = high - (len(wanted) - 1) * gap
    for base, members in pools:
        for index in members:
            placed[index] = min(max(base, low), top) + rank * gap
            rank += 1
    return placed
