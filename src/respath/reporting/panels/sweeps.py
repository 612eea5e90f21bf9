"""Panels of a metric: against a number that runs differ in, or of several runs side by side."""

from __future__ import annotations

from respath.config.request import RunRequest, merged
from respath.papers.figures import Bars, Sweep, SweepPoint
from respath.quantities.metrics import is_exact, unit_of
from respath.quantities.quantity import Quantity
from respath.quantities.rounding import short_count
from respath.reporting.panels.data import Drawn, Mark
from respath.reporting.panels.reader import Reader


def _reference(reader: Reader, panel: Sweep | Bars):
    """Request and values of the panel's reference run."""
    if panel.reference is None:
        return None, None
    request = reader.request(panel.run, panel.reference)
    return request, reader.values(request, panel.metric, reader.label(request), panel.unit)


def sweep(reader: Reader, letter: str, panel: Sweep) -> Drawn:
    """Every line with its points from left to right, less the reference run's value, or beside the baseline's line."""
    reference, base = _reference(reader, panel)
    rows = []
    for line in panel.lines:
        points = []
        first = reader.request(panel.run, line.run, line.points[0].run)
        label = line.label or reader.label(first)
        for point in line.points:
            request = reader.request(panel.run, line.run, point.run)
            x = _place(reader, panel, point, request)
            if x is None:
                continue
            # A line of one point is its label; of several, the place says which point is meant.
            name = label if len(line.points) == 1 else f"{label} at {_place_name(x)}"
            metric = line.metric or panel.metric
            points.append((x, request, metric, reader.values(request, metric, name, panel.unit)))
        rows.append((first, label, sorted(points, key=lambda one: one[0])))
    against = "" if reference is None else reader.label(reference)
    beside = {}
    if reference is panel.baseline is None and not is_exact(panel.metric) and len(rows) > 1:
        first, label, points = next((row for row in rows if row[0].variant == reader.baseline), rows[0])
        against, beside = label, {(x, metric): (request, sample) for x, request, metric, sample in points}
    lines, printed_lines = [], []
    for first, label, points in rows:
        marks, printed_marks = [], []
        for x, request, metric, sample in points:
            other, values = beside.get((x, metric), (reference, base))
            if panel.baseline is not None:
                other = merged(request, panel.baseline)
                values = reader.values(other, metric, "", panel.unit)
            other, values = (None, None) if other == request else (other, values)
            printed = reader.printed_difference(panel.printed, request, other)
            marks.append(reader.mark(x, sample, values, printed))
            level = reader.printed(panel.printed, request)
            if level is not None:
                printed_marks.append(Mark(x, level, difference=reader.printed_estimate(printed)))
        lines.append(reader.line(first, marks, label=label, id=_id(label)))
        printed_lines.append(reader.line(first, printed_marks, label=label, id=_id(label), role="printed"))
    if panel.baseline is not None:
        against = reader.label(merged(rows[0][0], panel.baseline))
    comparable = reader.project.scale.comparable
    return Drawn(
        letter,
        panel,
        tuple(lines + printed_lines),
        against=against,
        differences=reference is not None or (panel.baseline is not None and not comparable),
        x_label="" if panel.at is None or comparable else f"{panel.x.label}, of the paper's shapes",
    )


def _place_name(x: float) -> str:
    return short_count(x) if x >= 1e4 else f"{x:.3g}"


def _place(reader: Reader, panel: Sweep, point: SweepPoint, request: RunRequest) -> float | None:
    """Where a point stands on the x axis; None where its model does not exist at this size."""
    if panel.at is None:
        return point.x
    value = reader.sample(Quantity(panel.at, request)).value
    return None if value is None else float(value)


def bars(reader: Reader, letter: str, panel: Bars) -> Drawn:
    """One line of one mark per run, at its place counted from 0, with its paired difference from the reference."""
    reference, base = _reference(reader, panel)
    lines, printed_lines = [], []
    for place, bar in enumerate(panel.bars):
        request = reader.request(panel.run, bar.run)
        sample = reader.values(request, panel.metric, bar.label, panel.unit)
        values = None if request == reference else base
        printed = reader.printed_difference(panel.printed, request, reference)
        mark = reader.mark(float(place), sample, values, printed)
        lines.append(reader.line(request, [mark], label=bar.label, id=_id(bar.label), group=bar.group))
        level = reader.printed(panel.printed, request)
        if level is not None:
            there = Mark(float(place), level, difference=reader.printed_estimate(printed))
            printed_lines.append(
                reader.line(request, [there], label=bar.label, id=_id(bar.label), role="printed")
            )
    return Drawn(
        letter,
        panel,
        tuple(lines + printed_lines),
        against="" if reference is None else reader.label(reference),
        differences=reference is not None,
        unit=unit_of(panel.metric),
    )


def _id(label: str) -> str:
    """A label as an id for the CSV."""
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in label.lower()).split())
