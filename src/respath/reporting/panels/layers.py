"""Panels of analyses: series per layer, matrices, arrays over token positions, and the largest values of a layer."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from respath.papers.figures import Checkpoints, Layers, Matrix, Positions, Ranks
from respath.quantities.statistics import mean
from respath.reporting.panels.data import Drawn, Grid, Line, Mark
from respath.reporting.panels.reader import Reader, averaged

#: Bins of token positions in a heat map: every position by itself at first, then equally wide on a logarithmic axis.
_BINS = 96
#: Scalars of the importance module behind ``uniform``, and how the line is called.
_UNIFORM = {"entropy": "uniform_entropy", "first_token": "uniform_first_token"}
UNIFORM_LABEL = "uniform causal attention"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _marks(by_seed: dict[int, list], first: int) -> list[Mark]:
    """A mark per index, over the seeds that have a number there."""
    longest = max((len(values) for values in by_seed.values()), default=0)
    marks = []
    for index in range(longest):
        here = {
            seed: float(values[index])
            for seed, values in by_seed.items()
            if index < len(values) and _finite(values[index])
        }
        if here:
            marks.append(averaged(float(first + index), here))
    return marks


def uniform_lines(reference: str | None, scalars: Sequence[dict[str, Any]]) -> list[Line]:
    """What uniform causal attention gives, as the analysed runs recorded it."""
    values = [found[_UNIFORM[reference]] for found in scalars if reference and _UNIFORM[reference] in found]
    if not values:
        return []
    return [Line("uniform", UNIFORM_LABEL, "#999999", 0, (Mark(None, mean(values)),), "reference")]


def layers(reader: Reader, letter: str, panel: Layers) -> Drawn:
    """One line per run and series."""
    lines, scalars = [], []
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        label = line.label or reader.label(request)
        path = line.series or panel.series
        found = reader.series(request, path, label, panel.untrained)
        id = request.variant if line.series is None else f"{request.variant}.{path}"
        id = f"{request.size}-{id}" if _sizes_differ(reader, panel) else id
        lines.append(reader.line(request, _marks(found, panel.first), label=label, id=id))
        if panel.uniform:
            module = reader.modules(request, "importance", label, panel.untrained)
            scalars += [data.get("scalars", {}) for data in module.values()]
    empty = "not analysed" if panel.untrained else "no analysed run"
    return Drawn(letter, panel, tuple(lines + uniform_lines(panel.uniform, scalars)), empty=empty)


def _sizes_differ(reader: Reader, panel: Layers) -> bool:
    return len({reader.request(panel.run, line.run).size for line in panel.lines}) > 1


def checkpoints(reader: Reader, letter: str, panel: Checkpoints) -> Drawn:
    """One line per Hugging Face checkpoint that the user names."""
    module, _, series = panel.series.partition(".")
    lines, scalars = [], []
    for rank, label in enumerate(reader.project.config.hf_models):
        data = reader.results.checkpoint(label)
        found = (data or {}).get("modules", {}).get(module, {})
        values = found.get("series", {}).get(series)
        if values is None:
            reader.remark(f"Not drawn: checkpoint {label} ({found.get('reason') or 'not analysed'}).")
            continue
        scalars.append(found.get("scalars", {}))
        lines.append(Line(label, label, _CHECKPOINT_COLOURS[rank % 4], rank, tuple(_marks({0: values}, 1))))
    named = bool(reader.project.config.hf_models)
    return Drawn(
        letter,
        panel,
        tuple(lines + uniform_lines(panel.uniform, scalars)),
        empty="not analysed" if named else "no checkpoint named\n(hf_models in config.yaml)",
    )


_CHECKPOINT_COLOURS = ("#4e79a7", "#e15759", "#59a14f", "#b07aa1")


def _grids(by_seed: dict[int, list]) -> list[list[float | None]] | None:
    """Cell by cell the mean over seeds of matrices of one shape; None where no seed has a number."""
    if not by_seed:
        return None
    shape = [len(row) for row in next(iter(by_seed.values()))]
    same = [rows for rows in by_seed.values() if [len(row) for row in rows] == shape]
    grid: list[list[float | None]] = []
    for i, width in enumerate(shape):
        cells = ([float(rows[i][j]) for rows in same if _finite(rows[i][j])] for j in range(width))
        grid.append([mean(cell) if cell else None for cell in cells])
    return grid


def _edges(first: float, count: int) -> tuple[float, ...]:
    return tuple(first - 0.5 + index for index in range(count + 1))


def matrix(reader: Reader, letter: str, panel: Matrix) -> Drawn:
    """A matrix as a heat map; ragged rows are filled up with nothing."""
    request = reader.request(panel.run)
    label = reader.label(request)
    by_seed = reader.series(request, panel.series, label, panel.untrained)
    values = _grids(by_seed)
    if not values:
        return Drawn(letter, panel, empty="no analysed run")
    width = max(len(row) for row in values)
    full = tuple(tuple(row) + (None,) * (width - len(row)) for row in values)
    edges = _edges(panel.first, width), _edges(panel.first, len(full))
    return Drawn(letter, panel, grid=Grid(request.variant, label, full, *edges, seeds=len(by_seed)))


def position_bins(positions: int) -> list[int]:
    """Borders of bins over positions 0..positions: the first ones hold one position, later ones grow with the position."""
    borders = {round(math.exp(math.log(positions + 1) * k / _BINS)) - 1 for k in range(_BINS + 1)}
    return sorted(borders | {0, positions})


def positions(reader: Reader, letter: str, panel: Positions) -> Drawn:
    """An array of (layers, positions) as a heat map: mean over seeds, positions averaged in bins and counted from 1."""
    request = reader.request(panel.run)
    label = reader.label(request)
    module, _, name = panel.array.partition(".")
    arrays = []
    analysed = reader.modules(request, module, label)
    for run in reader.runs(request):
        array = reader.results.array(run.id, panel.array) if run.seed in analysed else None
        if array is not None:
            arrays.append(array)
        elif run.seed in analysed:
            reader.miss(label, f"has no {name}", run.seed, request)
    if not arrays:
        return Drawn(letter, panel, empty="no analysed run")
    import numpy as np

    whole = np.mean(np.stack([np.asarray(array, dtype=np.float64) for array in arrays]), axis=0)
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
        seeds=len(arrays),
    )
    return Drawn(letter, panel, grid=grid)


def ranks(reader: Reader, letter: str, panel: Ranks) -> Drawn:
    """One line per rank of a matrix of (layers, ranks), largest value first."""
    request = reader.request(panel.run)
    by_seed = reader.series(request, panel.series, reader.label(request))
    lines = []
    for rank in panel.ranks:
        columns = {
            seed: [row[rank - 1] if row and rank <= len(row) else None for row in rows]
            for seed, rows in by_seed.items()
        }
        line = reader.line(
            request, _marks(columns, 1), label=f"top {rank}", id=f"{request.variant}.top{rank}"
        )
        # One rank has one marker in all panels.
        lines.append(dataclasses.replace(line, rank=len(lines)))
    return Drawn(letter, panel, tuple(lines), empty="no analysed run")
