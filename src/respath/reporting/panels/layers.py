"""Panels of analyses: series per layer, matrices, arrays over token positions, and the largest values of a layer."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from respath.config.request import RunRequest
from respath.papers.figures import Checkpoints, Layers, Matrix, Positions, Ranks
from respath.quantities.keeping import position_bins
from respath.quantities.quantity import Checkpoint, Quantity, Subject
from respath.quantities.sample import Sample, computed
from respath.reporting.panels.data import Drawn, Grid, Line, Mark
from respath.reporting.panels.reader import Reader, averaged

#: Scalars of the importance module behind ``uniform``, and how the line is called.
_UNIFORM = {"entropy": "uniform_entropy", "first_token": "uniform_first_token"}
UNIFORM_LABEL = "uniform causal attention"


def _at(values: Sequence[Any], *place: int) -> Any:
    """An entry of nested lists; None where there is none."""
    for index in place:
        if index >= len(values):
            return None
        values = values[index]
    return values


def _marks(sample: Sample, first: int) -> list[Mark]:
    """A mark per index, over the seeds that have a number there."""
    longest = max((len(values) for values in sample.values.values()), default=0)
    points = ((index, sample.each(lambda values, at=index: _at(values, at))) for index in range(longest))
    return [averaged(float(first + index), point) for index, point in points if point.numbers]


def _uniform(
    reader: Reader, panel: Layers | Checkpoints, kind: str, subjects: Iterable[Subject]
) -> list[Line]:
    """What uniform causal attention gives, as the analyses recorded it: the same for all of one length."""
    if not panel.uniform:
        return []
    metric = f"{kind}.importance.{_UNIFORM[panel.uniform]}"
    found = [
        value for subject in subjects for value in reader.sample(Quantity(metric, subject)).numbers.values()
    ]
    if not found:
        return []
    mark = averaged(None, computed(dict(enumerate(found)), Quantity(metric, RunRequest())))
    return [Line("uniform", UNIFORM_LABEL, "#999999", 0, (Mark(None, mark.value),), "reference")]


def layers(reader: Reader, letter: str, panel: Layers) -> Drawn:
    """One line per run and series."""
    lines, requests = [], []
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        label = line.label or reader.label(request)
        path = line.series or panel.series
        found = reader.series(request, path, label, panel.untrained)
        id = request.variant if line.series is None else f"{request.variant}.{path}"
        id = f"{request.size}-{id}" if _sizes_differ(reader, panel) else id
        lines.append(reader.line(request, _marks(found, panel.first), label=label, id=id))
        requests.append(request)
    empty = "not analysed" if panel.untrained else "no analysed run"
    uniform = _uniform(reader, panel, "untrained" if panel.untrained else "analysis", requests)
    return Drawn(letter, panel, tuple(lines + uniform), empty=empty)


def _sizes_differ(reader: Reader, panel: Layers) -> bool:
    return len({reader.request(panel.run, line.run).size for line in panel.lines}) > 1


def checkpoints(reader: Reader, letter: str, panel: Checkpoints) -> Drawn:
    """One line per Hugging Face checkpoint that the user names."""
    names, lines = list(reader.project.settings.hf_models), []
    for rank, name in enumerate(names):
        sample = reader.sample(Quantity(f"checkpoint.{panel.series}", Checkpoint(name)))
        if not sample.measured:
            reader.remark(f"Not drawn: checkpoint {name} ({sample.reason}).")
            continue
        lines.append(Line(name, name, _CHECKPOINT_COLOURS[rank % 4], rank, tuple(_marks(sample, 1))))
    return Drawn(
        letter,
        panel,
        tuple(lines + _uniform(reader, panel, "checkpoint", map(Checkpoint, names))),
        empty="not analysed" if names else "no checkpoint named\n(hf_models in config.yaml)",
    )


_CHECKPOINT_COLOURS = ("#4e79a7", "#e15759", "#59a14f", "#b07aa1")


def _grid(sample: Sample) -> list[list[float | None]] | None:
    """Cell by cell the mean over seeds of matrices of one shape; None where no seed has a number."""
    shapes = [[len(row) for row in rows] for rows in sample.values.values()]
    if not shapes:
        return None
    same = computed(
        {s: rows for s, rows in sample.values.items() if [len(row) for row in rows] == shapes[0]},
        sample.quantity,
    )
    cells = [
        [same.each(lambda rows, i=i, j=j: rows[i][j]) for j in range(width)]
        for i, width in enumerate(shapes[0])
    ]
    return [[cell.value if cell.numbers else None for cell in row] for row in cells]


def _edges(first: float, count: int) -> tuple[float, ...]:
    return tuple(first - 0.5 + index for index in range(count + 1))


def matrix(reader: Reader, letter: str, panel: Matrix) -> Drawn:
    """A matrix as a heat map; ragged rows are filled up with nothing."""
    request = reader.request(panel.run)
    label = reader.label(request)
    by_seed = reader.series(request, panel.series, label, panel.untrained)
    values = _grid(by_seed)
    if not values:
        return Drawn(letter, panel, empty="no analysed run")
    width = max(len(row) for row in values)
    full = tuple(tuple(row) + (None,) * (width - len(row)) for row in values)
    column = panel.first if panel.first_column is None else panel.first_column
    edges = _edges(column, width), _edges(panel.first, len(full))
    return Drawn(letter, panel, grid=Grid(request.variant, label, full, *edges, seeds=len(by_seed.measured)))


def positions(reader: Reader, letter: str, panel: Positions) -> Drawn:
    """An array of (layers, positions) as a heat map: mean over seeds, positions averaged in bins and counted from 1."""
    request = reader.request(panel.run)
    label = reader.label(request)
    sample = reader.series(request, panel.array, label)
    if not sample.measured:
        return Drawn(letter, panel, empty="no analysed run")
    import numpy as np

    whole = sample.mean_array()
    borders = position_bins(whole.shape[1])
    binned = [
        [
            float(row[a:b].mean()) if np.isfinite(row[a:b]).all() else None
            for a, b in itertools.pairwise(borders)
        ]
        for row in whole
    ]
    # Position 1 at x = 1: a logarithmic axis has no 0.
    grid = Grid(
        request.variant,
        label,
        tuple(map(tuple, binned)),
        tuple(border + 1.0 for border in borders),
        _edges(panel.first, len(binned)),
        seeds=len(sample.measured),
    )
    return Drawn(letter, panel, grid=grid)


def ranks(reader: Reader, letter: str, panel: Ranks) -> Drawn:
    """One line per rank of a matrix of (layers, ranks), largest value first."""
    request = reader.request(panel.run)
    by_seed = reader.series(request, panel.series, reader.label(request))
    lines = []
    for rank in panel.ranks:
        columns = by_seed.each(lambda rows, at=rank - 1: [_at(row or (), at) for row in rows])
        line = reader.line(
            request, _marks(columns, 1), label=f"top {rank}", id=f"{request.variant}.top{rank}"
        )
        # One rank has one marker in all panels.
        lines.append(dataclasses.replace(line, rank=len(lines)))
    return Drawn(letter, panel, tuple(lines), empty="no analysed run")
