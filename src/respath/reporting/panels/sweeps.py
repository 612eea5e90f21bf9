"""Panels of a metric: against a number that runs differ in, or of several runs side by side."""

from __future__ import annotations

from respath.config.request import RunRequest, merged
from respath.papers.figures import Bars, Sweep, SweepPoint
from respath.quantities.quantity import Quantity
from respath.quantities.sample import Sample
from respath.reporting.panels.data import Drawn, Line, Mark
from respath.reporting.panels.reader import Reader, averaged


def _reference(reader: Reader, panel: Sweep | Bars) -> tuple[Sample | None, list[Line]]:
    """Values of the panel's reference run, and its horizontal lines: ours, and the printed one."""
    if panel.reference is None:
        return None, []
    request = reader.request(panel.run, panel.reference)
    values = reader.values(request, panel.metric, reader.label(request), panel.unit)
    lines = [reader.line(request, [averaged(None, values)] if values.numbers else [], role="reference")]
    printed = reader.printed(panel.printed, request)
    if printed is not None:
        lines.append(reader.line(request, [Mark(None, printed, note="printed")], role="reference"))
    return values, lines


def sweep(reader: Reader, letter: str, panel: Sweep) -> Drawn:
    """Every line with its points from left to right; printed values as lines of their own."""
    reference, extra = _reference(reader, panel)
    lines, printed_lines, diverged_lines, x_points = [], [], [], []
    for line in panel.lines:
        marks, printed_marks, diverged = [], [], []
        first = reader.request(panel.run, line.run, line.points[0].run)
        label = line.label or reader.label(first)
        requests = [reader.request(panel.run, line.run, point.run) for point in line.points]
        places = [_place(reader, panel, *one) for one in zip(line.points, requests, strict=True)]
        found = [one for one in zip(places, requests, strict=True) if one[0] is not None]
        for x, request in sorted(found, key=lambda one: one[0]):
            # A line of one point is its label; of several, the point is told by its place.
            name = label if len(line.points) == 1 else f"{label} at {x:g}"
            metric = line.metric or panel.metric
            values = reader.values(request, metric, name, panel.unit)
            x_points.append(x)
            if lost := [one for one in values.by_seed.values() if one.state == "diverged"]:
                diverged.append(Mark(x, None, seeds=len(lost), note="diverged"))
            if values.numbers:
                beside = reference if panel.baseline is None else _beside(reader, panel, metric, request)
                marks.append(averaged(x, values, beside))
            printed = reader.printed(panel.printed, request)
            if printed is not None:
                printed_marks.append(Mark(x, printed))
        lines.append(reader.line(first, marks, label=label, id=_id(label)))
        printed_lines.append(reader.line(first, printed_marks, label=label, id=_id(label), role="printed"))
        diverged_lines.append(reader.line(first, diverged, label=label, id=_id(label), role="diverged"))
    every = (*lines, *printed_lines, *diverged_lines, *extra)
    return Drawn(letter, panel, every, x_points=tuple(x_points))


def _beside(reader: Reader, panel: Sweep, metric: str, request: RunRequest) -> Sample | None:
    """The panel's baseline of a point; None where the point is its own, and has no difference."""
    other = merged(request, panel.baseline)
    return None if other == request else reader.values(other, metric, "", panel.unit)


def _place(reader: Reader, panel: Sweep, point: SweepPoint, request: RunRequest) -> float | None:
    """Where a point stands on the x axis; None where its model does not exist at this size."""
    if panel.at is None:
        return point.x
    value = reader.sample(Quantity(panel.at, request)).value
    return None if value is None else float(value)


def bars(reader: Reader, letter: str, panel: Bars) -> Drawn:
    """One mark per bar at its place, counted from 0, with its paired difference from the reference."""
    reference, extra = _reference(reader, panel)
    lines, printed_lines = [], []
    for place, bar in enumerate(panel.bars):
        request = reader.request(panel.run, bar.run)
        values = reader.values(request, panel.metric, f"{panel.x.label} {bar.label}", panel.unit)
        marks = [averaged(float(place), values, reference)] if values.numbers else []
        lines.append(reader.line(request, marks, label=bar.label))
        printed = reader.printed(panel.printed, request)
        if printed is not None:
            mark = Mark(float(place), printed)
            printed_lines.append(reader.line(request, [mark], label=bar.label, role="printed"))
    places = tuple((bar.label, bar.group) for bar in panel.bars)
    return Drawn(letter, panel, tuple(lines + printed_lines + extra), places=places)


def _id(label: str) -> str:
    """A label as an id for the CSV."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in label.lower()).split())
