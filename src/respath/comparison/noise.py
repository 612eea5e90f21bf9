"""Seed noise: how far runs that differ in nothing but the seed lie apart, and which differences so many seeds can show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from respath.comparison.cells import Cell, Grid, baseline_rows
from respath.papers.resolve import Resolver
from respath.quantities.statistics import SEEDS, detectable_effect, mean, t_interval


@dataclasses.dataclass(frozen=True)
class Spread:
    """Pooled standard deviation over ``groups`` of two or more values, with its degrees of freedom."""

    std: float
    freedom: int
    groups: int


def pooled(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Root of the squared deviations from each group's mean over the degrees of freedom; None without a group of two."""
    squares, freedom, count = 0.0, 0, 0
    for values in groups:
        if len(values) < 2:
            continue
        centre = mean(values)
        squares += math.fsum((value - centre) ** 2 for value in values)
        freedom += len(values) - 1
        count += 1
    return Spread(math.sqrt(squares / freedom), freedom, count) if freedom else None


@dataclasses.dataclass
class _Family:
    """Cells of one metric, size and length, each run once; and their paired differences from the baseline."""

    values: dict[tuple[str, ...], list[float]] = dataclasses.field(default_factory=dict)
    baseline: dict[tuple[str, ...], list[float]] = dataclasses.field(default_factory=dict)
    pairs: dict[tuple[str, ...], list[float]] = dataclasses.field(default_factory=dict)


def noise(project: Resolver, grids: Iterable[Grid]) -> dict[str, list[dict[str, Any]]]:
    """``metrics``: spread per metric, size and length; ``rows``: t intervals of all paired differences of two or more seeds.

    Differences are those from the baseline of the same size, length and recipe, and those that a table prints as such.
    """
    families: dict[tuple[str, str, int], _Family] = {}
    rows: list[dict[str, Any]] = []
    for grid in grids:
        if grid.table.kind != "runs":
            continue
        definitions = {row.id: row for row in grid.table.rows}
        for column in grid.table.columns:
            bases = baseline_rows(project, grid.artifact, column)
            for row, definition in definitions.items():
                cell = grid.cells[row, column.id]
                values = _values(cell)
                if not values:
                    continue
                if cell.signed:
                    rows += _row(grid, cell, list(values.values()))
                    continue
                request = grid.table.request(definition, column)
                context = request.context or project.folder(grid.artifact.paper).paper.recipe.context
                family = families.setdefault((cell.metric, request.size, context), _Family())
                family.values[cell.runs] = list(values.values())
                if bases.get(row) == row:
                    family.baseline[cell.runs] = list(values.values())
                elif row in bases:
                    base = grid.cells[bases[row], column.id].sample
                    paired = list(cell.sample.minus(base).numbers.values()) if base else []
                    family.pairs[cell.runs] = paired
                    rows += _row(grid, cell, paired)
    metrics = [entry for key, family in families.items() if (entry := _spreads(*key, family)) is not None]
    return {"metrics": metrics, "rows": rows}


def _values(cell: Cell) -> dict[int, float]:
    """Numbers per seed of a measured cell."""
    return cell.sample.numbers if cell.kind == "measured" and cell.per_seed else {}


def _row(grid: Grid, cell: Cell, differences: list[float]) -> list[dict[str, Any]]:
    if len(differences) < 2:
        return []
    interval = t_interval(differences)
    place = {"table": grid.artifact.target, "row": cell.row, "column": cell.column, "metric": cell.metric}
    return [{**place, **dataclasses.asdict(interval)}]


def _spreads(metric: str, size: str, context: int, family: _Family) -> dict[str, Any] | None:
    everything, pairs = pooled(family.values.values()), pooled(family.pairs.values())
    if everything is None:
        return None
    baseline = pooled(family.baseline.values())
    return {
        "metric": metric,
        "size": size,
        "context": context,
        "baseline": dataclasses.asdict(baseline) if baseline else None,
        "pooled": dataclasses.asdict(everything),
        "pairs": dataclasses.asdict(pairs) if pairs else None,
        "detectable": {str(n): detectable_effect(pairs.std, n) for n in SEEDS} if pairs else {},
    }
