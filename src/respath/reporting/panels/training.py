"""Panels of training curves: relative loss, the point where a baseline overtakes, and loss against tokens."""

from __future__ import annotations

import math

import numpy as np

from respath.config.request import RunRequest
from respath.papers.figures import Crossing, Difference, Tokens
from respath.quantities.curves import (
    NEVER_REACHES,
    CriticalPoint,
    critical_point,
    relative_loss,
    smooth,
    smoothing_steps,
)
from respath.quantities.quantity import Quantity
from respath.quantities.sample import Sample, computed
from respath.reporting.panels.data import Drawn, Line, Mark
from respath.reporting.panels.reader import Curve, Reader, averaged
from respath.reporting.panels.savings import Saving, saving_texts, unfit, untold

#: A curve of losses at so many places of a training: the paper evaluates every 2B of 20B tokens.
READINGS = 10
#: Share of a training whose losses are averaged at each of them.
_WINDOW = 0.05
#: Observed crossings that an exponential must be fitted to.
_FEWEST = 3

EXTRAPOLATED = "extrapolated"


def _losses(curve: Curve) -> dict[int, float]:
    return {step: loss for step, (_, loss) in curve.items()}


def _steps_of(reader: Reader, request: RunRequest) -> int:
    return reader.runs(request)[0].spec.recipe.steps


def _relative(
    reader: Reader, request: RunRequest, baseline: RunRequest, label: str
) -> dict[int, tuple[list[int], list[float]]]:
    """seed -> steps and smoothed difference from the baseline."""
    total = _steps_of(reader, request)
    curves = reader.curves(request, label)
    base_label = reader.label(baseline)
    context = "" if baseline.context is None else f" at {baseline.context:,}"
    base = reader.curves(baseline, f"{base_label}{context}")
    found = {}
    for seed, curve in curves.items():
        if seed in base:
            steps, difference = relative_loss(_losses(curve), _losses(base[seed]), total)
            if steps:
                found[seed] = (steps, difference)
    return found


def difference(reader: Reader, letter: str, panel: Difference) -> Drawn:
    """One line per run: mean over paired seeds of the smoothed difference, on the steps that all of them have."""
    lines = []
    window = 1
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        baseline = reader.request(panel.run, line.run, panel.baseline)
        label = line.label or reader.label(request)
        # In the foot "8,192" alone would not say what is missing.
        name = label if request.context is None else f"{reader.label(request)} at {request.context:,}"
        by_seed = _relative(reader, request, baseline, name)
        window = max(window, smoothing_steps(_steps_of(reader, request)))
        at = [dict(zip(*found, strict=True)) for found in by_seed.values()]
        common = sorted(set.intersection(*(set(one) for one in at))) if at else []
        seeds = list(by_seed)
        marks = [
            averaged(
                float(step), _at_step(request, {seed: one[step] for seed, one in zip(seeds, at, strict=True)})
            )
            for step in common
        ]
        id = request.variant if request.context is None else f"{request.variant}-T{request.context}"
        lines.append(reader.line(request, marks, label=label, id=id))
    average = f", moving average over {window:,}" if window > 1 else ""
    return Drawn(letter, panel, tuple(lines), x_label=f"steps{average}")


def crossing(reader: Reader, letter: str, panel: Crossing) -> Drawn:
    """One mark per length, observed or extrapolated, and an exponential through the observed ones."""
    marks, no_crossing = [], []
    request = None
    for context in panel.contexts:
        request = reader.request(panel.run, RunRequest(context=context))
        baseline = reader.request(panel.run, RunRequest(context=context), panel.baseline)
        label = f"{reader.label(request)} at {context:,}"
        total = _steps_of(reader, request)
        length = float(reader.runs(request)[0].spec.recipe.context)
        points: dict[int, CriticalPoint] = {}
        by_seed = _relative(reader, request, baseline, label)
        for seed, (steps, values) in by_seed.items():
            point = critical_point(steps, values, total)
            if point is not None:
                points[seed] = point
        if by_seed and len(points) < len(by_seed):
            some = f" ({len(by_seed) - len(points)} of {len(by_seed)} seeds)" if points else ""
            no_crossing.append(f"{length:,.0f}{some}")
        if points:
            observed = all(point.observed for point in points.values())
            mark = averaged(length, _at_step(request, {seed: point.step for seed, point in points.items()}))
            marks.append(
                Mark(mark.x, mark.value, mark.stderr, mark.seeds, note="" if observed else EXTRAPOLATED)
            )
    if no_crossing:
        reader.remark(
            f"No crossing within the run or in sight of its end at length {', '.join(no_crossing)}."
        )
    line = reader.line(request, marks)
    return Drawn(
        letter,
        panel,
        (line, *([] if unfit(reader.project.scale) else exponential(line))),
        texts=("hollow: extrapolated, not observed",) if any(m.note for m in marks) else (),
        empty="no crossing observed or in sight" if no_crossing else "no finished run",
    )


def exponential(line: Line) -> list[Line]:
    """a exp(b x) through a line's observed marks, by least squares of the logarithm; nothing for too few of them."""
    observed = [mark for mark in line.marks if not mark.note and mark.value > 0]
    if len(observed) < _FEWEST:
        return []
    x = np.array([mark.x for mark in observed])
    slope, intercept = np.polyfit(x, np.log([mark.value for mark in observed]), 1)
    ends = [mark.x for mark in line.marks]
    grid = np.geomspace(min(ends), max(ends), 60)
    marks = tuple(Mark(float(t), math.exp(intercept + slope * t), seeds=len(observed)) for t in grid)
    # A flat fit has a slope of rounding dust.
    slope = 0.0 if abs(slope) * max(ends) < 1e-9 else slope
    label = f"{math.exp(intercept):.4g} exp({slope:.3g} T)".replace("-", "−")
    return [Line(f"{line.id}.fit", label, line.colour, line.rank, marks, "fit")]


def tokens(reader: Reader, letter: str, panel: Tokens) -> Drawn:
    """Training loss of every variant at ten places, and how much less data the variants need."""
    lines = []
    for variant in panel.variants:
        request = reader.request(panel.run, RunRequest(variant=variant))
        curves = reader.curves(request, reader.label(request))
        lines.append(reader.line(request, _readings(request, curves, _steps_of(reader, request))))
    baseline = reader.request(panel.run, RunRequest(variant=panel.baseline))
    savings = [found for variant in panel.saving if (found := tokens_saved(reader, panel, variant, baseline))]
    for sentence in untold(savings):
        reader.remark(sentence)
    texts = saving_texts("tokens", "fewer", savings, reader.printed_cell(panel.printed_saving))
    return Drawn(letter, panel, tuple(lines), savings=tuple(savings), texts=texts)


def tokens_saved(reader: Reader, panel: Tokens, variant: str, baseline: RunRequest) -> Saving | None:
    """Per cent of training tokens that a variant saves: the mean over seeds, None while no pair of runs is there.

    Its interval is the t interval over seeds (``statistics.t_interval``); one seed has none, and then the figure does not
    tell the saving.
    """
    request = reader.request(panel.run, RunRequest(variant=variant))
    label = reader.label(request)
    sample = reader.sample(Quantity("scaling.data_saving", request, baseline))
    if not sample.numbers:
        behind = any(reading.reason == NEVER_REACHES for reading in sample.by_seed.values())
        return Saving(variant, label, None, seeds=0, reason=NEVER_REACHES) if behind else None
    reason = unfit(reader.project.scale) or ("" if sample.interval else "one seed has no interval")
    return Saving(variant, label, sample.value, sample.interval, len(sample.numbers), reason)


def _at_step(request: RunRequest, values: dict[int, float]) -> Sample:
    """What was computed from the curves of a run at one place of the training, by seed."""
    return computed(values, Quantity("train.curve", request))


def _readings(request: RunRequest, curves: dict[int, Curve], total: int) -> list[Mark]:
    """Mean over seeds of the smoothed loss at every tenth of the training, against tokens."""
    if not curves:
        return []
    steps = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    if not steps:
        return []
    width = max(1, round(len(steps) * _WINDOW))
    smoothed = {seed: smooth([curve[step][1] for step in steps], width) for seed, curve in curves.items()}
    tokens = next(iter(curves.values()))
    marks = []
    for index in dict.fromkeys(_nearest(steps, total * k / READINGS) for k in range(1, READINGS + 1)):
        values = {seed: float(losses[index]) for seed, losses in smoothed.items()}
        marks.append(averaged(float(tokens[steps[index]][0]), _at_step(request, values)))
    return marks


def _nearest(steps: list[int], wanted: float) -> int:
    return min(range(len(steps)), key=lambda index: abs(steps[index] - wanted))
