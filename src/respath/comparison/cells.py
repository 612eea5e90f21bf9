"""A table of the paper as a grid of cells: what the paper prints, what was regenerated, and how the two compare."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from respath.comparison.claims import Judge
from respath.config.request import RunRequest
from respath.errors import UserError, did_you_mean
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.reported import Reported, load_reported
from respath.papers.resolve import Resolver
from respath.papers.tables import Column, Row, Table
from respath.quantities import metrics
from respath.quantities.derived import DERIVED
from respath.quantities.kinds import factor
from respath.quantities.quantity import Domain, Quantity, is_number
from respath.quantities.rounding import rounded
from respath.quantities.sample import Sample
from respath.quantities.verdicts import OFF, UNDECIDED, WITHIN, Outcome, judge_cell
from respath.results.reader import Results

MATCH, DIVERGED = "match", "diverged"
NOT_RUN, NOT_REPORTED, NOT_COMPARABLE = "not run", "not reported", "not comparable at this scale"
#: Every status a compared cell can have, in the order of reports.
STATUSES = (MATCH, WITHIN, OFF, UNDECIDED, DIVERGED, NOT_RUN, NOT_REPORTED, NOT_COMPARABLE)

EXACT, HALF_UNIT, CONFIGURED = "exact", "half a unit of the last printed digit", "configured"

Value = float | int | str | bool | None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell. Numbers are in the unit that the cell shows; absent ones are None.

    ``kind``: ``text`` cells are only shown; ``exact`` ones come from the paper-scale spec; ``measured`` ones from runs or
    data of this scale. ``gain`` is the difference from the baseline's row, paired over the seeds ``gain_per_seed``, with its 95 %
    interval and ``verdict``: does it lie on the printed side of zero (or, where nothing is printed, on the better one)? ``claim``
    asks the same. ``signed``: the cell is a difference itself. ``show``: value, difference, interval (``low`` to ``high`` around
    ours) or p. ``sample``: what it was read from.
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
    base: str = ""
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    gain_per_seed: dict[int, float] = dataclasses.field(default_factory=dict)
    printed_gain: float | None = None
    verdict: str = ""
    claim: str = ""
    scale_value: Value = None
    runs: tuple[str, ...] = ()
    show: str = "value"
    low: float | None = None
    high: float | None = None
    sample: Sample | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = dataclasses.asdict(dataclasses.replace(self, sample=None))
        del data["sample"]
        for name in ("per_seed", "gain_per_seed"):
            data[name] = {str(seed): value for seed, value in getattr(self, name).items()}
        data["runs"] = list(self.runs)
        return data


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table with all its cells by (row, column). ``sizes``: where all runs have one size, its printed name and what was built."""

    artifact: Artifact
    scale: str
    comparable: bool
    seeds: tuple[int, ...]
    cells: dict[tuple[str, str], Cell]
    sizes: tuple[str, str] = ("", "")

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
    ours: float, printed: Value, *, configured: float, half_unit: float | None, half_width: float | None
) -> Judgement:
    """Measured quantities: ``verdicts.judge_cell`` with the wider of the configured tolerance and half a printed unit.

    ``half_width``: of our interval; 0 for what has no seeds, None for one seed.
    """
    if printed is None:
        return Judgement(NOT_REPORTED)
    if not (is_number(ours) and is_number(printed)):
        return Judgement(WITHIN if ours == printed else OFF, rule=EXACT)
    tolerance, rule = max((configured, CONFIGURED), (half_unit or 0.0, HALF_UNIT), key=lambda entry: entry[0])
    noise = "one seed has no interval" if half_width is None else f"our interval is ± {half_width:.2g}"
    delta = ours - printed
    return Judgement(
        judge_cell(delta, half_width, tolerance),
        delta,
        tolerance,
        rule if half_width == 0 else f"{rule}; {noise}",
    )


def load_printed(project: Resolver, artifact: Artifact) -> Reported | None:
    """The printed numbers of a table or figure; None when the paper prints none."""
    name = artifact.definition.reported
    if name is None:
        return None
    path = project.folder(artifact.paper).path / "reported" / f"{name}.yaml"
    return load_reported(path)


def build_grid(project: Resolver, results: Results, artifact: Artifact, judge: Judge | None = None) -> Grid:
    """All cells of a table, from whatever results exist. ``judge``: of the paper, where one is at hand.

    Raises UserError when a column names a reported column that is not there, or a metric that does not exist.
    """
    table: Table = artifact.definition
    printed = load_printed(project, artifact)
    _check_columns(artifact, printed)
    comparable = project.scale.comparable
    cells: dict[tuple[str, str], Cell] = {}
    for row in table.rows:
        for column in table.columns:
            quantity = table.quantity(row, column)
            if quantity is None:
                cells[row.id, column.id] = Cell(row.id, column.id, "text", text=row.text.get(column.id, ""))
            else:
                cells[row.id, column.id] = _cell(
                    project, results, artifact, row, column, quantity, printed, comparable
                )
    _add_gains(judge or Judge(project, results, artifact.paper), artifact, cells)
    return Grid(
        artifact,
        project.scale.id,
        comparable,
        tuple(project.seeds),
        cells,
        _sizes(project, results, artifact),
    )


def millions(count: float) -> str:
    """``0.54M``, ``82M``, ``20,000M``."""
    value = count / 1e6
    return f"{value:,.0f}M" if value >= 10 else f"{value:.2g}M"


def _sizes(project: Resolver, results: Results, artifact: Artifact) -> tuple[str, str]:
    table, baseline = artifact.definition, project.folder(artifact.paper).paper.accounting.baseline
    sizes = {table.request(row, column).size for row in table.rows for column in table.columns}
    if table.kind != "runs" or len(sizes) != 1 or None in sizes:
        return "", ""
    size = sizes.pop()
    model = RunRequest(size=size, variant=baseline)
    counted = results.sample(
        artifact.paper, Quantity("account.parameters.total", model, own_scale=True)
    ).value
    return size, millions(counted)


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
    project: Resolver,
    results: Results,
    artifact: Artifact,
    row: Row,
    column: Column,
    quantity: Quantity,
    printed: Reported | None,
    comparable: bool,
) -> Cell:
    # In a configuration table the row names the quantity, and with it unit and decimals.
    owner = row if row.metric else column
    paper_value, paper_decimals, half_unit = _printed(printed, row.id, column.reported or column.id)
    exact = metrics.is_exact(quantity.metric)
    cell = Cell(
        row=row.id,
        column=column.id,
        kind="exact" if exact else "measured",
        metric=quantity.metric,
        unit="" if column.show == "p" else owner.unit,
        decimals=column.decimals if owner.decimals is None else owner.decimals,
        better=column.better,
        printed=paper_value,
        printed_decimals=paper_decimals,
        signed=column.show in ("difference", "interval") and not metrics.compares(quantity.metric),
        show=column.show,
    )
    excluded = needs.excluded(project, row)
    if excluded is not None and not exact:
        return dataclasses.replace(cell, status=NOT_RUN, reason=excluded)

    def read(wanted: Quantity) -> Sample:
        sample = results.sample(artifact.paper, wanted)
        return sample.times(factor(sample.unit, owner.unit), owner.unit or sample.unit)

    sample = read(quantity)
    seeded = set(sample.by_seed) != {None}
    cell = dataclasses.replace(
        cell,
        sample=sample,
        ours=sample.p_value if column.show == "p" else sample.value,
        per_seed=sample.values if seeded and column.show != "p" else {},
        stderr=sample.stderr if column.show in ("value", "difference") else None,
        item_stderr=sample.item_stderr if column.show in ("value", "difference") else None,
        reason=sample.reason,
        runs=sample.runs,
    )
    if column.show == "interval" and sample.interval is not None:
        cell = dataclasses.replace(cell, low=sample.interval.low, high=sample.interval.high)
    if exact and project.scale.id != "paper" and not isinstance(quantity.subject, Domain):
        cell = dataclasses.replace(cell, scale_value=read(quantity.of(own_scale=True)).value)
    if sample.state != "measured":
        return dataclasses.replace(cell, status=sample.state)
    if column.show in ("interval", "p") and sample.interval is None:
        return dataclasses.replace(cell, ours=None, status=NOT_RUN, reason="one seed has no interval")
    if exact:
        read_off = half_unit is not None and not math.isclose(half_unit, 0.5 * 10**-paper_decimals)
        judgement = judge_exact(cell.ours, paper_value, half_unit, None if read_off else paper_decimals)
    elif paper_value is not None and not comparable:
        judgement = Judgement(NOT_COMPARABLE)
    else:
        judgement = judge_measured(
            cell.ours,
            paper_value,
            configured=artifact.definition.tolerance,
            half_unit=half_unit,
            half_width=_half_width(sample) if seeded else 0.0,
        )
    return dataclasses.replace(cell, **dataclasses.asdict(judgement))


def _half_width(sample: Sample) -> float | None:
    interval = sample.interval
    return None if interval is None else interval.high - interval.mean


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


def _add_gains(judge: Judge, artifact: Artifact, cells: dict[tuple[str, str], Cell]) -> None:
    """Difference of every measured cell from the baseline's cell of the same size, length and recipe, judged as claims are."""
    table: Table = artifact.definition
    if table.kind != "runs":
        return
    rows = {row.id: row for row in table.rows}
    for column in table.columns:
        if column.show != "value":
            for row in table.rows:
                cells[row.id, column.id] = _judged_difference(
                    judge, table, row, column, cells[row.id, column.id]
                )
        if column.better is None or column.show != "value":
            continue
        for row, base in baseline_rows(judge.project, artifact, column).items():
            cell, baseline = cells[row, column.id], cells[base, column.id]
            if cell.kind != "measured" or row == base or cell.sample is None or baseline.sample is None:
                continue
            both = is_number(cell.printed) and is_number(baseline.printed)
            printed = cell.printed - baseline.printed if both else None
            left, right = (table.quantity(rows[name], column).subject for name in (row, base))
            outcome, claim, times = _outcome(judge, cell, column, left, right, printed, baseline.metric)
            gain = cell.sample.minus(baseline.sample)
            cells[row, column.id] = dataclasses.replace(
                cell,
                base=base,
                gain=gain.value,
                gain_low=outcome.interval.low * times if outcome.interval else None,
                gain_high=outcome.interval.high * times if outcome.interval else None,
                gain_per_seed=gain.numbers,
                printed_gain=printed,
                # A floor, measured by another metric, answers no question of the paper.
                verdict=outcome.verdict if cell.metric == baseline.metric else "",
                claim=claim,
            )


def _judged_difference(judge: Judge, table: Table, row: Row, column: Column, cell: Cell) -> Cell:
    """A cell that is a difference itself, with the interval that a claim on the same comparison has."""
    # A ratio or a saving of two runs is no difference that a claim could ask.
    if cell.kind != "measured" or cell.sample is None or column.show == "p" or metrics.compares(cell.metric):
        return cell
    quantity, printed = table.quantity(row, column), cell.printed if column.show == "difference" else None
    derived = DERIVED.get(quantity.metric)
    if derived is not None and derived.compares:
        # It is the comparison itself, and no difference of two values.
        own = cell.sample.interval
        return (
            dataclasses.replace(cell, low=own.low, high=own.high) if own and cell.ours is not None else cell
        )
    outcome, claim, times = _outcome(judge, cell, column, quantity.subject, quantity.against, printed)
    if outcome.interval is None or cell.ours is None:
        return dataclasses.replace(cell, verdict=outcome.verdict, claim=claim)
    low, high = outcome.interval.low * times, outcome.interval.high * times
    return dataclasses.replace(cell, low=low, high=high, verdict=outcome.verdict, claim=claim)


def _outcome(
    judge: Judge,
    cell: Cell,
    column: Column,
    left: RunRequest,
    right: RunRequest,
    printed: Value,
    base_metric: str = "",
) -> tuple[Outcome, str, float]:
    """The judged difference of two runs in the metric's own unit, the claim that asks it, and the factor to the cell's unit."""
    times = factor(metrics.unit_of(cell.metric), cell.unit)
    printed = printed / times if is_number(printed) else None
    lower = printed < 0 if printed else column.better != "higher"
    return (
        *judge.row(cell.metric, left, right, lower=lower, printed=printed, base_metric=base_metric),
        times,
    )


def baseline_rows(project: Resolver, artifact: Artifact, column: Column) -> dict[str, str]:
    """For every row the row of the paper's baseline variant that differs from it in nothing but the variant."""
    table: Table = artifact.definition
    baseline = project.folder(artifact.paper).paper.accounting.baseline

    def key(request: RunRequest) -> tuple:
        return request.size, request.context, str(sorted(request.recipe.items()))

    requests = {row.id: table.request(row, column) for row in table.rows}
    bases = {}
    for row, request in requests.items():
        if request.variant == baseline:
            bases.setdefault(key(request), row)
    return {row: bases[key(request)] for row, request in requests.items() if key(request) in bases}


def rank_agreement(project: Resolver, grid: Grid) -> dict[str, dict[str, Any]]:
    """Per column with a better direction: is the best row still best, does every step from the baseline keep its sign?

    Kendall's tau-b over the rows with both numbers, where there are at least three; of paired differences where rows have
    them, so that only seeds which both sides have are compared. It is information, never a verdict.
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

            pairs = [(cell.printed_gain, cell.gain) for cell in gains]
            pairs = [*pairs, (0.0, 0.0)] if pairs else [(cell.printed, cell.ours) for cell in cells]
            tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
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
