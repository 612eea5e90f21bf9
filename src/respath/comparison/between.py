"""Two folders of results side by side: runs whose specs, code or weights differ, and every cell that reads otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from respath.comparison.cells import Cell, build_grid
from respath.comparison.code import code_of
from respath.errors import UserError
from respath.files import flattened
from respath.fingerprint import EARLIER, describe
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.resolve import Resolver, Run
from respath.quantities.quantity import is_number
from respath.results.reader import Results
from respath.settings import Settings
from respath.spec.run import RunSpec

#: What a folder of results holds, some of it.
_PARTS = ("runs", "evals", "analyses", "kv", "bench")


def opened(folder: Path, project: Resolver) -> Results:
    """The results of a folder, read as ``project`` asks; those of another clone as that clone's own papers ask. UserError for others."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; two folders of results are compared, or two clones")
    if (folder / "papers").is_dir() and (folder / "scales").is_dir():
        settings = Settings()
        settings.add_file(folder / "config.yaml", required=False)
        settings.add("--scale", {"scale": project.settings.scale})
        return Results(open_papers(folder.resolve(), settings))
    for place in (folder, folder / "results"):
        if any((place / part).is_dir() for part in _PARTS):
            return Results(project, place)
    raise UserError(f"{folder}: holds none of {', '.join(_PARTS)}; name a folder of results, or a clone")


def spec_differences(left: RunSpec, right: RunSpec) -> list[str]:
    """Fields of two specs that differ, ``recipe.batch: 8 -> 16`` each."""
    one, other = (flattened(spec.model_dump(mode="json")) for spec in (left, right))
    return [
        f"{key}: {_text(one, key)} -> {_text(other, key)}"
        for key in dict.fromkeys([*one, *other])
        if one.get(key, _NONE) != other.get(key, _NONE)
    ]


_NONE = object()


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key, _NONE)
    return "(none)" if value is _NONE else str(value)


def nearest(spec: RunSpec, others: Mapping[str, RunSpec]) -> str | None:
    """The name of the spec that differs in the fewest fields."""
    return min(others, key=lambda name: len(spec_differences(others[name], spec)), default=None)


def paired(left: Mapping[str, Run], right: Mapping[str, Run]) -> list[tuple[Run | None, Run | None]]:
    """Runs of two sides: those with one id, then those of one model and seed whose specs are nearest; the rest have no other."""
    pairs: list[tuple[Run | None, Run | None]] = [(left[id], right[id]) for id in left if id in right]
    rest = {id: run for id, run in right.items() if id not in left}
    for id, run in left.items():
        if id in right:
            continue
        same = {name: other.spec for name, other in rest.items() if _names(other) == _names(run)}
        name = nearest(run.spec, same)
        other = None if name is None else rest.pop(name)
        pairs.append((run, other))
    return pairs + [(None, run) for run in rest.values()]


def _names(run: Run) -> tuple[str, str, str, int]:
    return run.paper, run.size, run.variant, run.seed


@dataclasses.dataclass(frozen=True)
class RunDifference:
    """How a run differs between two sides; ``left`` and ``right`` are ids, None where a side has no such run."""

    left: str | None
    right: str | None
    differences: tuple[str, ...]


def run_differences(left: Results, right: Results) -> tuple[list[RunDifference], int]:
    """Runs that ended on some side and differ, and the number of those that do not."""
    sides = left, right
    found, equal = [], 0
    for pair in paired(*(needs.all_runs(side.project) for side in sides)):
        ids = [run.id if run else None for run in pair]
        records = [side.train(run.id) if run else None for side, run in zip(sides, pair, strict=True)]
        if records == [None, None]:
            continue
        differences: list[str] = []
        if None in pair:
            differences = [f"asked for on the {'left' if pair[0] else 'right'} alone"]
        elif pair[0].id != pair[1].id:
            differences = spec_differences(pair[0].spec, pair[1].spec)
        if None not in pair and None in records:
            differences.append(f"ended on the {'left' if records[0] else 'right'} alone")
        elif None not in records:
            differences += _records_differ(*records)
        if differences:
            found.append(RunDifference(*ids, tuple(differences)))
        else:
            equal += 1
    return found, equal


def _records_differ(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    found = []
    codes = [code_of(record) for record in (left, right)]
    if codes[1] is not None and (said := describe(codes[0], codes[1])):
        found.append(
            "code: left is of earlier code"
            if said == EARLIER
            else said.replace("today", "right").replace("other code", "code")
        )
    elif codes[0] is not None and codes[1] is None:
        found.append("code: right is of earlier code")
    if left.get("manifest_sha256") != right.get("manifest_sha256"):
        found.append("tokens: trained on different manifests")
    if left.get("status") != right.get("status"):
        found.append(f"status: {left.get('status')} -> {right.get('status')}")
    weights = [(record.get("weights") or {}).get("sha256") for record in (left, right)]
    if not found and weights[0] != weights[1]:
        found.append(
            "weights differ, from the same spec, code and tokens (another machine, or number of threads)"
        )
    return found


@dataclasses.dataclass(frozen=True)
class CellDifference:
    """A cell that reads otherwise; ``why``: what differs among its runs."""

    target: str
    row: str
    column: str
    left: Any
    right: Any
    delta: float | None
    decimals: int
    why: tuple[str, ...]


def cell_differences(
    left: Results, right: Results, runs: Iterable[RunDifference], targets: Iterable[str] | None = None
) -> tuple[list[CellDifference], int]:
    """Cells of the tables of both sides that differ, and the number of those that do not (not counting what neither side has)."""
    known = {id: one for one in runs for id in (one.left, one.right) if id}
    chosen = None if targets is None else set(targets)
    others = {a.target: a for a in right.project.artifacts() if a.is_table}
    found, equal = [], 0
    for artifact in left.project.artifacts():
        if artifact.target not in others or (chosen is not None and artifact.target not in chosen):
            continue
        grids = (
            build_grid(left.project, left, artifact),
            build_grid(right.project, right, others[artifact.target]),
        )
        for key, cell in grids[0].cells.items():
            other = grids[1].cells.get(key)
            if other is None or cell.kind == "text" or (cell.ours is None and other.ours is None):
                continue
            if _shown(cell) == _shown(other):
                equal += 1
                continue
            numbers = is_number(cell.ours) and is_number(other.ours)
            why = dict.fromkeys(
                text for run in (*cell.runs, *other.runs) if run in known for text in known[run].differences
            )
            found.append(
                CellDifference(
                    artifact.target, *key, cell.ours, other.ours, other.ours - cell.ours if numbers else None,
                    cell.decimals, tuple(why),
                )
            )  # fmt: skip
    return found, equal


def _shown(cell: Cell) -> tuple:
    return cell.ours, tuple(cell.per_seed.items()), cell.low, cell.high


def between(left: Results, right: Results, names: tuple[str, str]) -> dict[str, Any]:
    """Everything that differs, as a plain document."""
    runs, same_runs = run_differences(left, right)
    cells, same_cells = cell_differences(left, right, runs)
    return {
        "schema": 1,
        "kind": "results_diff",
        "scale": left.project.scale.id,
        "left": names[0],
        "right": names[1],
        "runs": [dataclasses.asdict(one) for one in runs],
        "runs_equal": same_runs,
        "cells": [dataclasses.asdict(one) for one in cells],
        "cells_equal": same_cells,
    }


def headline(document: Mapping[str, Any]) -> str:
    """How many runs and cells differ, in a sentence."""
    runs, cells = len(document["runs"]), len(document["cells"])
    all_runs, all_cells = runs + document["runs_equal"], cells + document["cells_equal"]
    if not all_runs and not all_cells:
        return f"Scale {document['scale']}: nothing to compare yet, no run has ended on either side."
    return f"Scale {document['scale']}: {runs} of {all_runs} runs and {cells} of {all_cells} cells of tables differ."
