"""Panels of analyses: series per layer, matrices, arrays over token positions, and the largest values of a layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from respath.papers.figures import Along, Checkpoints, Layers, Matrix, Positions, Ranks
from respath.quantities.keeping import binned
from respath.quantities.quantity import Checkpoint, Quantity, Subject
from respath.quantities.sample import Sample, computed
from respath.reporting.panels.data import COLOURED, Drawn, Grid, Line, Mark
from respath.reporting.panels.reader import Reader

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


def _marks(reader: Reader, sample: Sample, first: int, base: Sample | None = None) -> list[Mark]:
    """A mark per index, with its paired difference from another sample's value there."""
    longest = max((len(values) for values in sample.values.values()), default=0)

    def at(index: int, of: Sample) -> Sample:
        return of.each(lambda values: _at(values, index))

    return [
        reader.mark(float(first + index), at(index, sample), None if base is None else at(index, base))
        for index in range(longest)
    ]


def _uniform(
    reader: Reader, panel: Layers | Checkpoints, kind: str, subjects: Iterable[Subject]
) -> list[Line]:
    """What uniform causal attention gives, as the analyses recorded it: the same for all of one length."""
    if not panel.uniform:
        return []
    metric = f"{kind}.importance.{_UNIFORM[panel.uniform]}"
    samples = [reader.sample(Quantity(metric, subject)) for subject in subjects]
    found = next((sample for sample in samples if sample.numbers), None)
    if found is None:
        return []
    return [Line("uniform", UNIFORM_LABEL, COLOURED, (reader.mark(None, found),), "reference")]


def layers(reader: Reader, letter: str, panel: Layers) -> Drawn:
    """One line per run and series; the baseline's line is what the others of its series are compared with."""
    rows = []
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        label = line.label or reader.label(request)
        path = line.series or panel.series
        rows.append((line, request, label, path, reader.series(request, path, label, panel.untrained)))
    bases = {
        (path, request.size): (label, found)
        for _, request, label, path, found in rows
        if request.variant == reader.baseline
    }
    lines, printed_lines = [], []
    for line, request, label, path, found in rows:
        _, base = bases.get((path, request.size), ("", None))
        id = request.variant if line.series is None else f"{request.variant}.{path}"
        id = f"{request.size}-{id}" if _sizes_differ(reader, panel) else id
        base = None if base is found else base
        lines.append(reader.line(request, _marks(reader, found, panel.first, base), label=label, id=id))
        series, count = path.rpartition(".")[2], reader.folder.paper.sizes[request.size].layers
        printed = [
            Mark(float(panel.first + n - 1), value)
            for n in range(1, count + 1)
            if (value := reader.printed(panel.printed, request, series=series, layer=n)) is not None
        ]
        printed_lines.append(reader.line(request, printed, label=label, id=id, role="printed"))
    requests = [request for _, request, *_ in rows]
    uniform = _uniform(reader, panel, "untrained" if panel.untrained else "analysis", requests)
    return Drawn(
        letter,
        panel,
        tuple(lines + printed_lines + uniform),
        against=" and ".join(label for label, _ in bases.values()) if len(rows) > len(bases) else "",
        empty="not analysed" if panel.untrained else "no analysed run",
    )


def _sizes_differ(reader: Reader, panel: Layers) -> bool:
    return len({reader.request(panel.run, line.run).size for line in panel.lines}) > 1


def along(reader: Reader, letter: str, panel: Along) -> Drawn:
    """One line per run: a series at the values of another one, over the seeds that have a number at each place."""
    lines = []
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        label = line.label or reader.label(request)
        places, heights = (reader.series(request, path, label) for path in (panel.at, panel.series))
        found: dict[float, dict[int, float]] = {}
        for seed, values in heights.values.items():
            for x, y in zip(places.values.get(seed, ()), values, strict=False):
                if y is not None:
                    found.setdefault(float(x), {})[seed] = y
        marks = [reader.mark(x, computed(by_seed, heights.quantity)) for x, by_seed in sorted(found.items())]
        one_size = panel.one_size(reader.artifact.definition.run)
        id = request.variant if one_size else f"{request.size}-{request.variant}"
        lines.append(reader.line(request, marks, label=label, id=id))
    return Drawn(letter, panel, tuple(lines), empty="no analysed run")


def checkpoints(reader: Reader, letter: str, panel: Checkpoints) -> Drawn:
    """One line per Hugging Face checkpoint that the user names."""
    names, lines = list(reader.project.settings.hf_models), []
    for rank, name in enumerate(names):
        sample = reader.sample(Quantity(f"checkpoint.{panel.series}", Checkpoint(name)))
        if not sample.measured:
            reader.remark(f"Missing: checkpoint {name} ({sample.reason}).")
            continue
        lines.append(Line(name, name, rank % COLOURED, tuple(_marks(reader, sample, 1))))
    return Drawn(
        letter,
        panel,
        tuple(lines + _uniform(reader, panel, "checkpoint", map(Checkpoint, names))),
        empty="not analysed" if names else "no checkpoint named (hf_models in config.yaml)",
    )


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
    whole = sample.mean_array()
    kept = binned(whole)
    # Position 1 at x = 1: a logarithmic axis has no 0.
    grid = Grid(
        request.variant,
        label,
        tuple(map(tuple, kept["values"])),
        tuple(border + 1.0 for border in kept["borders"]),
        _edges(panel.first, len(whole)),
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
        marks = _marks(reader, columns, 1)
        lines.append(reader.line(request, marks, label=f"top {rank}", id=f"{request.variant}.top{rank}"))
    return Drawn(letter, panel, tuple(lines), empty="no analysed run")
