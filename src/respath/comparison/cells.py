"""A table of the paper as a grid of cells: what the paper prints, what was regenerated, and how the two compare."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from respath.comparison.readings import (
    Reading,
    is_per_seed,
    is_scale_free,
    missing,
    read_exact,
    read_run,
    read_sample,
)
from respath.comparison.results import Results
from respath.config.project import Artifact, Project, Run
from respath.config.request import RunRequest
from respath.errors import UserError, did_you_mean
from respath.papers.reported import Reported, load_reported
from respath.papers.tables import Column, Row, Table
from respath.quantities.rounding import rounded
from respath.quantities.statistics import mean, standard_error

MATCH, WITHIN, OFF, DIVERGED = "match", "within", "off", "diverged"
NOT_RUN, NOT_REPORTED, NOT_COMPARABLE = "not run", "not reported", "not comparable at this scale"
#: Every status a compared cell can have, in the order of reports.
STATUSES = (MATCH, WITHIN, OFF, DIVERGED, NOT_RUN, NOT_REPORTED, NOT_COMPARABLE)

#: Standard errors that a measured cell may be away from the printed value.
STANDARD_ERRORS = 2
EXACT, HALF_UNIT, CONFIGURED = "exact", "half a unit of the last printed digit", "configured"

Value = float | int | str | bool | None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell. Numbers are in the column's unit (the metric times its factor); absent ones are None.

    ``kind``: ``text`` cells are only shown; ``exact`` ones come from the paper-scale spec; ``measured`` ones from runs or
    data of this scale. ``gain`` is the difference from the baseline's row, paired over seeds. ``signed``: the cell is a
    difference itself.
    """

    row: str
    column: str
    kind: Literal["text", "exact", "measured"]
    metric: str = ""
    text: str = ""
    unit: str = ""
    decimals: int = 3
    better: str | None = None
    ours: Value = None
    per_seed: dict[int, float] = dataclasses.field(default_factory=dict)
    stderr: float | None = None
    item_stderr: float | None = None
    printed: Value = None
    printed_decimals: int | None = None
    delta: float | None = None
    tolerance: float | None = None
    rule: str = ""
    status: str = ""
    reason: str = ""
    signed: bool = False
    gain: float | None = None
    gain_stderr: float | None = None
    printed_gain: float | None = None
    scale_value: Value = None
    runs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = dataclasses.asdict(self)
        data["per_seed"] = {str(seed): value for seed, value in self.per_seed.items()}
        data["runs"] = list(self.runs)
        return data


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table with all its cells by (row, column)."""

    artifact: Artifact
    scale: str
    comparable: bool
    seeds: tuple[int, ...]
    cells: dict[tuple[str, str], Cell]

    @property
    def table(self) -> Table:
        """The table's definition."""
        return self.artifact.definition

    def compared(self) -> list[Cell]:
        """All cells but texts, row by row."""
        return [cell for cell in self.cells.values() if cell.kind != "text"]

    def counts(self) -> dict[str, int]:
        """Cells per status, all statuses named."""
        counts = dict.fromkeys(STATUSES, 0)
        for cell in self.compared():
            counts[cell.status] += 1
        return counts


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Status of a cell, with the difference and the tolerance that decided it."""

    status: str
    delta: float | None = None
    tolerance: float | None = None
    rule: str = ""


def is_number(value: Any) -> bool:
    """Is this a number, and not true or false?"""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _reaches(distance: float, tolerance: float) -> bool:
    # The rounding dust of a subtraction must not turn a value on the edge into one beyond it.
    return distance <= tolerance + 1e-9 * max(tolerance, distance) + 1e-15


def judge_exact(
    ours: Value, printed: Value, half_unit: float | None, decimals: int | None = None
) -> Judgement:
    """Scale-free quantities: equal, or rounding to what is printed. Texts and booleans must be equal.

    ``decimals`` of the printed number; None where it was read off a figure to ``half_unit``.
    """
    if printed is None:
        return Judgement(NOT_REPORTED)
    if not (is_number(ours) and is_number(printed)):
        same = type(ours) is type(printed) and ours == printed
        return Judgement(MATCH if same else OFF, rule=EXACT)
    delta = ours - printed
    if math.isclose(ours, printed, rel_tol=1e-12, abs_tol=0.0) or delta == 0:
        return Judgement(MATCH, delta, 0.0, EXACT)
    tolerance = half_unit or 0.0
    if decimals is None:
        same = _reaches(abs(delta), tolerance)
    else:
        same = rounded(ours, decimals) == rounded(printed, decimals)
    return Judgement(MATCH if same else OFF, delta, tolerance, HALF_UNIT if half_unit else EXACT)


def judge_measured(
    ours: float,
    printed: Value,
    *,
    configured: float,
    stderr: float | None,
    item_stderr: float | None,
    half_unit: float | None,
    seeds: int,
) -> Judgement:
    """Measured quantities: within the widest of the tolerances, and which one that was."""
    if printed is None:
        return Judgement(NOT_REPORTED)
    if not (is_number(ours) and is_number(printed)):
        return Judgement(WITHIN if ours == printed else OFF, rule=EXACT)
    candidates = [(configured, CONFIGURED)]
    if half_unit is not None:
        candidates.append((half_unit, HALF_UNIT))
    if stderr is not None:
        candidates.append((STANDARD_ERRORS * stderr, f"{STANDARD_ERRORS} standard errors over {seeds} seeds"))
    if item_stderr is not None:
        candidates.append((STANDARD_ERRORS * item_stderr, f"{STANDARD_ERRORS} standard errors over items"))
    tolerance, rule = max(candidates, key=lambda candidate: candidate[0])
    delta = ours - printed
    return Judgement(WITHIN if _reaches(abs(delta), tolerance) else OFF, delta, tolerance, rule)


@dataclasses.dataclass(frozen=True)
class _Seeds:
    """A metric over the seeds of a request: what was measured, and what is missing or diverged."""

    values: dict[int, float]
    item_stderr: float | None
    state: str
    reason: str
    runs: tuple[Run, ...]


def _read_seeds(
    project: Project, results: Results, paper: str, requests: list[RunRequest], metric: str, factor: float
) -> _Seeds:
    """Values of one request, or paired differences of the first from the second."""
    runs = tuple(run for request in requests for run in project.runs_of(paper, request))
    by_request = [
        {run.seed: read_run(results, run, metric) for run in project.runs_of(paper, request)}
        for request in requests
    ]
    readings: dict[int, Reading] = by_request[0]
    if len(by_request) == 2:
        readings = {
            seed: _minus(reading, by_request[1][seed])
            for seed, reading in readings.items()
            if seed in by_request[1]
        }
    measured = {seed: r for seed, r in readings.items() if r.state == "measured"}
    diverged = {seed: r for seed, r in readings.items() if r.state == "diverged"}
    absent = {seed: r for seed, r in readings.items() if r.state == "not run"}
    values = {seed: r.value * factor if is_number(r.value) else r.value for seed, r in measured.items()}
    errors = [r.stderr * abs(factor) for r in measured.values() if r.stderr is not None]
    notes = []
    for group, word in ((diverged, "diverged"), (absent, "missing")):
        reason = "; ".join(dict.fromkeys(r.reason for r in group.values()))
        if len(group) == len(readings):
            notes.append(reason)
        elif group:
            seeds = f"seed{'s' * (len(group) > 1)} {', '.join(map(str, group))}"
            notes.append(f"{seeds} {word}: {reason}")
    state = "diverged" if diverged else "measured" if measured else "not run"
    # Seeds share the evaluated items, so more seeds do not shrink the error over items.
    return _Seeds(values, mean(errors) if errors else None, state, "; ".join(notes), runs)


def _minus(left: Reading, right: Reading) -> Reading:
    """Difference of two readings of one seed. Both read the same items, so their errors over items do not add up."""
    for reading in (left, right):
        if reading.state != "measured":
            return reading
    if not (is_number(left.value) and is_number(right.value)):
        return missing("no numbers to subtract")
    return Reading(left.value - right.value)


def load_printed(project: Project, artifact: Artifact) -> Reported | None:
    """The printed numbers of a table or figure; None when the paper prints none."""
    name = artifact.definition.reported
    if name is None:
        return None
    path = project.folder(artifact.paper).path / "reported" / f"{name}.yaml"
    return load_reported(path)


def build_grid(project: Project, results: Results, artifact: Artifact) -> Grid:
    """All cells of a table, from whatever results exist.

    Raises UserError when a column names a reported column that is not there, or a metric that does not exist.
    """
    table: Table = artifact.definition
    printed = load_printed(project, artifact)
    _check_columns(artifact, printed)
    comparable = project.scale.comparable
    cells: dict[tuple[str, str], Cell] = {}
    for row in table.rows:
        for column in table.columns:
            metric, request = project.cell_request(table, row, column)
            if not metric or not project.cell_reads(table, row, column):
                cells[row.id, column.id] = Cell(row.id, column.id, "text", text=row.text.get(column.id, ""))
                continue
            cells[row.id, column.id] = _cell(
                project, results, artifact, row, column, metric, request, printed, comparable
            )
    _add_gains(project, artifact, cells)
    return Grid(artifact, project.scale.id, comparable, tuple(project.seeds), cells)


def _check_columns(artifact: Artifact, printed: Reported | None) -> None:
    problems = [
        f"papers/{artifact.paper}/tables.yaml: {artifact.id}.columns.{column.id}.reported: {column.reported!r} is not a column of "
        f"reported/{artifact.definition.reported}.yaml{did_you_mean(column.reported, printed.columns if printed else ())}"
        for column in artifact.definition.columns
        if column.reported is not None and (printed is None or column.reported not in printed.columns)
    ]
    if problems:
        raise UserError(problems)


def _cell(
    project: Project,
    results: Results,
    artifact: Artifact,
    row: Row,
    column: Column,
    metric: str,
    request: RunRequest,
    printed: Reported | None,
    comparable: bool,
) -> Cell:
    # In a configuration table the row names the quantity, and with it factor, unit and decimals.
    owner = row if row.metric else column
    decimals = column.decimals if owner.decimals is None else owner.decimals
    paper_value, paper_decimals, half_unit = _printed(printed, row.id, column.reported or column.id)
    exact = is_scale_free(metric)
    cell = Cell(
        row=row.id,
        column=column.id,
        kind="exact" if exact else "measured",
        metric=metric,
        unit=owner.unit,
        decimals=decimals,
        better=column.better,
        printed=paper_value,
        printed_decimals=paper_decimals,
        signed=column.difference,
    )
    if metric.startswith("sample."):
        reading, scale_value = read_sample(results, artifact.paper, row.id, metric), None
    elif exact:
        reading = read_exact(project, results, artifact.paper, request, metric, "paper")
        scale_value = None
        if project.scale.id != "paper":
            scale_value = _times(
                read_exact(project, results, artifact.paper, request, metric, project.scale.id).value,
                owner.factor,
            )
    elif is_per_seed(metric):
        excluded = project.excluded(row)
        if excluded is not None:
            return dataclasses.replace(cell, status=NOT_RUN, reason=excluded)
        requests = [read for _, read in project.cell_reads(artifact.definition, row, column)]
        seeds = _read_seeds(project, results, artifact.paper, requests, metric, owner.factor)
        return _judge_seeds(cell, seeds, artifact.definition.tolerance, half_unit, comparable)
    else:
        reading, scale_value = missing(f"no metric {metric!r}"), None
    ours = _times(reading.value, owner.factor)
    cell = dataclasses.replace(cell, ours=ours, scale_value=scale_value, reason=reading.reason)
    if reading.state != "measured":
        return dataclasses.replace(cell, status=reading.state)
    if exact:
        read_off = half_unit is not None and not math.isclose(half_unit, 0.5 * 10**-paper_decimals)
        judgement = judge_exact(ours, paper_value, half_unit, None if read_off else paper_decimals)
    elif paper_value is not None and not comparable:
        judgement = Judgement(NOT_COMPARABLE)
    else:
        judgement = judge_measured(
            ours,
            paper_value,
            configured=artifact.definition.tolerance,
            stderr=None,
            item_stderr=None,
            half_unit=half_unit,
            seeds=1,
        )
    return dataclasses.replace(cell, **dataclasses.asdict(judgement))


def _judge_seeds(
    cell: Cell, seeds: _Seeds, configured: float, half_unit: float | None, comparable: bool
) -> Cell:
    numbers = [value for value in seeds.values.values() if is_number(value)]
    ours = mean(numbers) if numbers else next(iter(seeds.values.values()), None)
    cell = dataclasses.replace(
        cell,
        ours=ours,
        per_seed=seeds.values,
        stderr=standard_error(numbers),
        item_stderr=seeds.item_stderr,
        reason=seeds.reason,
        runs=tuple(run.id for run in seeds.runs),
    )
    if seeds.state != "measured":
        return dataclasses.replace(cell, status=DIVERGED if seeds.state == "diverged" else NOT_RUN)
    if cell.printed is not None and not comparable:
        return dataclasses.replace(cell, status=NOT_COMPARABLE)
    judgement = judge_measured(
        ours,
        cell.printed,
        configured=configured,
        stderr=cell.stderr,
        item_stderr=cell.item_stderr,
        half_unit=half_unit,
        seeds=len(numbers),
    )
    return dataclasses.replace(cell, **dataclasses.asdict(judgement))


def _times(value: Value, factor: float) -> Value:
    # A factor of one must leave integers integers: bytes and parameters are exact.
    return value * factor if is_number(value) and factor != 1 else value


def _printed(reported: Reported | None, row: str, column: str) -> tuple[Value, int | None, float | None]:
    """What the paper prints: value, decimals, half a unit of its last digit. A row of the user's own is not printed."""
    if reported is None or row not in reported.rows or column not in reported.columns:
        return None, None, None
    value = reported.value(row, column)
    return (
        value,
        reported.decimals(row, column) if is_number(value) else None,
        reported.half_unit(row, column),
    )


def _add_gains(project: Project, artifact: Artifact, cells: dict[tuple[str, str], Cell]) -> None:
    """Difference of every measured cell from the baseline's cell of the same size, length and recipe."""
    table: Table = artifact.definition
    if table.kind != "runs":
        return
    for column in table.columns:
        if column.better is None:
            continue
        for row, base in baseline_rows(project, artifact, column).items():
            cell, baseline = cells[row, column.id], cells[base, column.id]
            if cell.kind != "measured" or row == base:
                continue
            paired = [
                cell.per_seed[s] - baseline.per_seed[s] for s in cell.per_seed if s in baseline.per_seed
            ]
            both = is_number(cell.printed) and is_number(baseline.printed)
            cells[row, column.id] = dataclasses.replace(
                cell,
                gain=mean(paired) if paired else None,
                gain_stderr=standard_error(paired),
                printed_gain=cell.printed - baseline.printed if both else None,
            )


def baseline_rows(project: Project, artifact: Artifact, column: Column) -> dict[str, str]:
    """For every row the row of the paper's baseline variant that differs from it in nothing but the variant."""
    table: Table = artifact.definition
    baseline = project.accounting_defaults(artifact.paper).baseline

    def key(request: RunRequest) -> tuple:
        return request.size, request.context, str(sorted(request.recipe.items()))

    requests = {row.id: project.cell_request(table, row, column)[1] for row in table.rows}
    bases = {}
    for row, request in requests.items():
        if request.variant == baseline:
            bases.setdefault(key(request), row)
    return {row: bases[key(request)] for row, request in requests.items() if key(request) in bases}


def rank_agreement(project: Project, grid: Grid) -> dict[str, dict[str, Any]]:
    """Per column with a better direction: is the best row still best, does every step from the baseline keep its sign?

    Kendall's tau-b over the rows with both numbers, where there are at least three. For small scales this says more than
    absolute differences do; it is information, never a verdict.
    """
    agreement = {}
    for column in grid.table.columns:
        cells = [grid.cells[row.id, column.id] for row in grid.table.rows]
        cells = [
            cell for cell in cells if cell.kind != "text" and is_number(cell.printed) and is_number(cell.ours)
        ]
        if column.better is None or len(cells) < 2:
            continue
        pick = min if column.better == "lower" else max
        best_printed = pick(cell.printed for cell in cells)
        best_ours = pick(cell.ours for cell in cells)
        gains = [
            cell
            for cell in cells
            if cell.printed_gain is not None and cell.gain is not None and cell.printed_gain != 0
        ]
        kept = [
            cell.row
            for cell in gains
            if math.copysign(1, cell.gain) == math.copysign(1, cell.printed_gain) and cell.gain != 0
        ]
        tau = None
        if len(cells) >= 3:
            from scipy.stats import kendalltau

            tau = float(kendalltau([cell.printed for cell in cells], [cell.ours for cell in cells]).statistic)
        printed_rows = [cell.row for cell in cells if cell.printed == best_printed]
        ours_rows = [cell.row for cell in cells if cell.ours == best_ours]
        agreement[column.id] = {
            "rows": len(cells),
            "best_printed": printed_rows,
            "best_ours": ours_rows,
            "same_best": bool(set(printed_rows) & set(ours_rows)),
            "improvements": len(gains),
            "improvements_kept": len(kept),
            "improvements_lost": [cell.row for cell in gains if cell.row not in kept],
            "kendall_tau": tau if tau is not None and math.isfinite(tau) else None,
        }
    return agreement
