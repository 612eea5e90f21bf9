"""Panels of training curves: relative loss, the point where a baseline overtakes, and loss against tokens."""

from __future__ import annotations

from respath.config.request import RunRequest
from respath.papers.figures import Crossing, Difference, Tokens
from respath.quantities.curves import (
    NEVER_REACHES,
    CriticalPoint,
    critical_point,
    exponential_fit,
    relative_loss,
    smooth,
    smoothing_steps,
)
from respath.quantities.quantity import Quantity
from respath.quantities.sample import Sample, computed
from respath.reporting.panels.data import MOST_MARKS, Drawn, Line, Mark
from respath.reporting.panels.reader import Curve, Reader
from respath.reporting.panels.savings import Saving, saving_sentence, unfit, withheld

#: Share of a training whose losses are averaged at each place of its curve.
_WINDOW = 0.05
#: Observed crossings that an exponential must be fitted to.
_FEWEST = 3

EXTRAPOLATED = "extrapolated"


def _steps_of(reader: Reader, request: RunRequest) -> int:
    return reader.runs(request)[0].spec.recipe.steps


def _some(steps: list[int]) -> list[int]:
    """At most MOST_MARKS of them, evenly spread, the last one included."""
    every = -(-len(steps) // MOST_MARKS) or 1
    return steps[::-1][::every][::-1]


def _common(curves: list[Curve] | list[dict[int, float]]) -> list[int]:
    return sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []


def _at_step(request: RunRequest, values: dict[int, float], metric: str = "train.curve") -> Sample:
    """What was computed from the curves of a run at one place of the training, by seed."""
    return computed(values, Quantity(metric, request))


def _relative(
    reader: Reader, request: RunRequest, baseline: RunRequest, label: str, metric: str = "train.curve"
) -> dict[int, dict[int, float]]:
    """seed -> step -> smoothed difference from the baseline."""
    total = _steps_of(reader, request)
    curves = reader.curves(request, label, metric)
    context = "" if baseline.context is None else f" at {baseline.context:,}"
    base = reader.curves(baseline, f"{reader.label(baseline)}{context}", metric)
    found = {}
    for seed in curves.keys() & base.keys():
        losses, others = ({s: loss for s, (_, loss) in side[seed].items()} for side in (curves, base))
        steps, difference = relative_loss(losses, others, total)
        if steps:
            found[seed] = dict(zip(steps, difference, strict=True))
    return dict(sorted(found.items()))


def difference(reader: Reader, letter: str, panel: Difference) -> Drawn:
    """One line per run: the smoothed difference, paired over seeds, on the steps that all of them have."""
    lines, window = [], 1
    names = set()
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        baseline = reader.request(panel.run, line.run, panel.baseline)
        if request == baseline:
            continue
        names.add(reader.label(baseline))
        # In the caption "8,192" alone would not say what is missing.
        name = line.label or reader.label(request)
        name = name if request.context is None else f"{reader.label(request)} at {request.context:,}"
        by_seed = _relative(reader, request, baseline, name, panel.metric)
        if panel.metric == "train.curve":
            window = max(window, smoothing_steps(_steps_of(reader, request)))
        marks = []
        for step in _some(_common(list(by_seed.values()))):
            sample = _at_step(request, {seed: one[step] for seed, one in by_seed.items()})
            estimate = reader.estimate(sample)
            marks.append(Mark(float(step), sample.value, tuple(sample.numbers), estimate))
        id = request.variant if request.context is None else f"{request.variant}-T{request.context}"
        label = line.label
        if request.context is not None and line.label:
            own = reader.runs(request)[0].spec.recipe.context
            label = label if own == request.context else f"{own:,} (for {label})"
        lines.append(reader.line(request, marks, label=label, id=id))
    average = f", moving average over {window:,}" if window > 1 else ""
    return Drawn(
        letter,
        panel,
        tuple(lines),
        against=" and ".join(sorted(names)),
        differences=True,
        x_label=f"{panel.x.label}{average}",
    )


def crossing(reader: Reader, letter: str, panel: Crossing) -> Drawn:
    """One mark per length, observed or extrapolated, and an exponential through the observed ones."""
    marks, no_crossing = [], []
    request = None
    for context in panel.contexts:
        request = reader.request(panel.run, RunRequest(context=context))
        baseline = reader.request(panel.run, RunRequest(context=context), panel.baseline)
        total = _steps_of(reader, request)
        length = reader.runs(request)[0].spec.recipe.context
        tick = f"{length:,}" if length == context else f"{length:,}\nfor {context:,}"
        by_seed = _relative(reader, request, baseline, f"{reader.label(request)} at {context:,}")
        points: dict[int, CriticalPoint] = {}
        for seed, values in by_seed.items():
            point = critical_point(list(values), list(values.values()), total)
            if point is not None:
                points[seed] = point
        if by_seed and len(points) < len(by_seed):
            some = f" ({len(by_seed) - len(points)} of {len(by_seed)} seeds)" if points else ""
            no_crossing.append(f"{' '.join(tick.split())}{some}")
        if not points:
            marks.append(Mark(float(length), None, tick=tick))
            continue
        note = "" if all(point.observed for point in points.values()) else EXTRAPOLATED
        sample = _at_step(request, {seed: point.step for seed, point in points.items()})
        estimate = reader.estimate(sample)
        marks.append(Mark(float(length), sample.value, tuple(sample.numbers), estimate, note=note, tick=tick))
    sentences = ()
    if no_crossing:
        sentences = (
            f"No crossing within the run or in sight of its end at length {', '.join(no_crossing)}.",
        )
        reader.remark(sentences[0])
    line = reader.line(request, marks)
    return Drawn(
        letter,
        panel,
        (line, *([] if unfit(reader.project.scale) else exponential(line))),
        empty="no crossing observed or in sight" if no_crossing else "no finished run",
    )


def exponential(line: Line) -> list[Line]:
    """a exp(b x) through a line's observed marks; nothing for too few of them."""
    observed = [mark for mark in line.measured if not mark.note and mark.value > 0]
    if len(observed) < _FEWEST:
        return []
    ends = [mark.x for mark in line.measured]
    label, places, values = exponential_fit(
        [mark.x for mark in observed], [mark.value for mark in observed], (min(ends), max(ends))
    )
    marks = tuple(Mark(*point) for point in zip(places, values, strict=True))
    return [Line(f"{line.id}.fit", label, line.slot, marks, "fit")]


def tokens(reader: Reader, letter: str, panel: Tokens) -> Drawn:
    """Loss of every variant along its training, floors, and how much less data the variants need."""
    lines, printed_lines = [], []
    for variant in panel.variants:
        request = reader.request(panel.run, RunRequest(variant=variant))
        curves = reader.curves(request, reader.label(request), panel.metric, panel.field)
        lines.append(reader.line(request, _levels(reader, request, curves, panel.metric)))
        printed_lines.append(reader.line(request, reader.drawn(panel.printed, request), role="printed"))
    lines += printed_lines
    baseline = reader.request(panel.run, RunRequest(variant=panel.baseline))
    lines += reader.floors(panel.floors, None, baseline)
    savings = [found for variant in panel.saving if (found := tokens_saved(reader, panel, variant, baseline))]
    for sentence in withheld(savings):
        reader.remark(sentence)
    said = saving_sentence("tokens", "fewer", savings, reader.printed_cell(panel.printed_saving))
    return Drawn(letter, panel, tuple(lines), savings=tuple(savings), sentences=tuple(filter(None, [said])))


def tokens_saved(reader: Reader, panel: Tokens, variant: str, baseline: RunRequest) -> Saving | None:
    """Per cent of training tokens that a variant saves: the mean over seeds, None while no pair of runs is there.

    Its interval is the t interval over seeds (``statistics.t_interval``); one seed has none, and then the caption does not
    give the saving.
    """
    request = reader.request(panel.run, RunRequest(variant=variant))
    label = reader.label(request)
    sample = reader.sample(Quantity("scaling.data_saving", request, baseline))
    if not sample.numbers:
        behind = any(reading.reason == NEVER_REACHES for reading in sample.by_seed.values())
        return Saving(variant, label, None, seeds=0, reason=NEVER_REACHES) if behind else None
    reason = unfit(reader.project.scale) or ("" if sample.interval else "one seed has no interval")
    return Saving(variant, label, sample.value, sample.interval, len(sample.numbers), reason)


def _levels(reader: Reader, request: RunRequest, curves: dict[int, Curve], metric: str) -> list[Mark]:
    """Mean over seeds against tokens: a training curve smoothed over a twentieth of its steps, a history as it is."""
    steps = _common(list(curves.values()))
    width = max(1, round(len(steps) * _WINDOW)) if metric == "train.curve" else 1
    smoothed = {
        seed: dict(zip(steps, smooth([curve[step][1] for step in steps], width).tolist(), strict=True))
        for seed, curve in curves.items()
    }
    tokens = next(iter(curves.values()), {})
    return [
        reader.mark(
            float(tokens[step][0]),
            _at_step(request, {seed: values[step] for seed, values in smoothed.items()}, metric),
        )
        for step in _some(steps)
    ]
