"""How a grid of cells is laid out for a reader: heads, row groups and formatted cells, the same for every format."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from respath.comparison.cells import (
    DIVERGED,
    NOT_COMPARABLE,
    NOT_REPORTED,
    NOT_RUN,
    STATUSES,
    Cell,
    Grid,
    Value,
    baseline_rows,
    is_number,
)
from respath.papers.resolve import Resolver
from respath.papers.tables import Column, Row
from respath.quantities.rounding import fixed, rounded

#: Above so many measured columns a table shows only values: differences from the baseline would not fit a page.
_MOST_COLUMNS_WITH_GAINS = 3
#: Above so many metric columns an error stands as (4) behind its value instead of ± 0.004 (where LaTeX sets it).
_MOST_COLUMNS_WITH_PLUS_MINUS = 6
#: Above so many printed metric columns paper and ours stand under one another instead of side by side.
_MOST_PRINTED_SIDE_BY_SIDE = 3

Kind = Literal["label", "text", "number", "status", "blank"]


@dataclasses.dataclass(frozen=True)
class Shown:
    """One formatted cell. ``text``: digits with an ASCII sign and point for numbers; may hold $mathematics$ for texts."""

    kind: Kind
    text: str = ""
    error: str = ""
    bold: bool = False
    note: str = ""

    @property
    def is_number(self) -> bool:
        """Is this a number (and not a word in a column of numbers)?"""
        ends = self.text.lstrip("+-")[:1], self.text[-1:]
        return self.kind == "number" and all(map(str.isdigit, ends))


@dataclasses.dataclass(frozen=True)
class Head:
    """One column's head: ``group`` spans neighbouring columns of the same group."""

    text: str
    kind: Kind
    group: str = ""
    unit: str = ""
    #: The head where groups cannot be drawn.
    full: str = ""


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows under a common heading (which may be empty)."""

    title: str
    rows: tuple[tuple[Shown, ...], ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A table ready to be written."""

    heads: tuple[Head, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]
    compact_errors: bool = False


BLANK = Shown("blank")


def lay_out(project: Resolver, grid: Grid) -> Layout:
    """The layout that fits a table's kind and width."""
    if grid.table.kind == "configuration":
        return _configuration(grid)
    columns = [column for column in grid.table.columns if _metric_cells(grid, column)]
    measured = [c for c in columns if any(cell.kind == "measured" for cell in _metric_cells(grid, c))]
    printed = [
        column for column in columns if any(cell.printed is not None for cell in _metric_cells(grid, column))
    ]
    if len(printed) > _MOST_PRINTED_SIDE_BY_SIDE:
        return _stacked(grid)
    return _side_by_side(project, grid, with_gains=len(measured) <= _MOST_COLUMNS_WITH_GAINS)


# --- formatting ----------------------------------------------------------------------------------------------------


def number(
    value: Value, decimals: int, *, sign: bool = False, error: float | None = None, bold: bool = False
) -> Shown:
    """A value as a cell: numbers with fixed decimals, booleans as Yes and No, texts as they are, nothing as a dash."""
    if value is None:
        return Shown("number", "–")
    if isinstance(value, bool):
        return Shown("number", "Yes" if value else "No")
    if not is_number(value):
        return Shown("number", str(value))
    return Shown(
        "number", fixed(value, decimals, sign), fixed(error, decimals) if error is not None else "", bold
    )


def _printed(cell: Cell, bold: bool = False) -> Shown:
    # Trailing zeros that the paper dropped come back: the column's resolution is what counts.
    return number(
        cell.printed,
        cell.decimals if cell.printed_decimals is None else cell.printed_decimals,
        sign=cell.signed,
        bold=bold,
    )


def _decimals(cell: Cell) -> int:
    return max(cell.decimals, cell.printed_decimals or 0) if cell.kind == "measured" else cell.decimals


def _ours(cell: Cell, bold: bool = False, has_status: bool = True) -> Shown:
    if cell.ours is None or cell.status == DIVERGED:
        # A mean over the seeds that survived would flatter a diverging variant. Beside a column of statuses the word would stand twice.
        return Shown("number", "–" if has_status else cell.status, note=cell.reason)
    if cell.show == "interval":
        ends = (fixed(end, _decimals(cell), sign=True).replace("-", "−") for end in (cell.low, cell.high))
        return Shown("text", " to ".join(ends))
    if cell.status == NOT_COMPARABLE and cell.stderr is None:
        return _small(cell.ours, _decimals(cell), sign=cell.signed)
    return number(cell.ours, _decimals(cell), sign=cell.signed, error=cell.stderr, bold=bold)


def _gain(cell: Cell) -> Shown:
    gain = None if cell.status == DIVERGED else cell.gain
    return number(gain, _decimals(cell), sign=True, error=cell.gain_stderr)


def _small(value: Value, decimals: int, sign: bool = False) -> Shown:
    """A small scale's own value: more decimals where the paper's would show nothing but zeros."""
    if is_number(value) and value and abs(value) < 10 ** (1 - decimals):
        decimals = max(decimals, 1 - math.floor(math.log10(abs(value))))
        while (
            decimals
            and fixed(value, decimals)[-1] == "0"
            and float(fixed(value, decimals - 1)) == float(fixed(value, decimals))
        ):
            decimals -= 1
    return number(value, decimals, sign=sign)


def _status(cell: Cell) -> Shown:
    return Shown("status", cell.status, note=cell.reason)


def short_status(status: str) -> str:
    """The status as tables show it: the legend says "at this scale" once."""
    return "not comparable" if status == NOT_COMPARABLE else status


def _metric_cells(grid: Grid, column: Column) -> list[Cell]:
    cells = (grid.cells[row.id, column.id] for row in grid.table.rows)
    return [cell for cell in cells if cell.kind != "text"]


def _seeds_of(grid: Grid, row: Row) -> int:
    """Seeds that a row's measured values come from: the most of any column."""
    return max((len(grid.cells[row.id, column.id].per_seed) for column in grid.table.columns), default=0)


def _seeds_differ(grid: Grid) -> bool:
    """Do some rows take fewer seeds than others?"""
    return len({len(cell.runs) for cell in grid.compared() if cell.runs}) > 1


def _all_means(cells: list[Cell]) -> bool:
    """Has every value two seeds or more? With one seed the best of several small models is mostly luck."""
    return all(len(cell.per_seed) > 1 for cell in cells if cell.kind == "measured" and cell.per_seed)


def _best(cells: list[Cell], attribute: str, better: str | None) -> set[str]:
    """Rows whose value, as shown, is the best of three or more."""
    cells = [cell for cell in cells if attribute == "printed" or cell.status != DIVERGED]
    values = {cell.row: getattr(cell, attribute) for cell in cells if is_number(getattr(cell, attribute))}
    if better is None or len(values) < 3:
        return set()
    decimals = max(_decimals(cell) for cell in cells)
    shown = {row: rounded(value, decimals) for row, value in values.items()}
    best = (min if better == "lower" else max)(shown.values())
    return {row for row, value in shown.items() if value == best}


def _groups(rows: tuple[Row, ...]) -> list[tuple[str, list[Row]]]:
    groups: list[tuple[str, list[Row]]] = []
    for row in rows:
        if not groups or groups[-1][0] != (row.group or ""):
            groups.append((row.group or "", []))
        groups[-1][1].append(row)
    return groups


def _differs(cell: Cell) -> bool:
    """Is this scale's own value another one than the paper-scale spec's?"""
    if cell.scale_value is None or cell.ours is None:
        return False
    if is_number(cell.scale_value) and is_number(cell.ours):
        return not math.isclose(cell.scale_value, cell.ours, rel_tol=1e-12)
    return cell.scale_value != cell.ours


# --- tables of runs ------------------------------------------------------------------------------------------------


def _side_by_side(project: Resolver, grid: Grid, with_gains: bool) -> Layout:
    """Per metric: paper, ours, difference and status; only ours where the paper prints nothing."""
    heads = [Head(grid.table.row_header, "label")]
    builders = []  # one function of a row per column after the label
    gains_shown = False
    for column in grid.table.columns:
        cells = _metric_cells(grid, column)
        if not cells:
            heads.append(Head(column.label, "text"))
            builders.append(lambda row, c=column.id: Shown("text", grid.cells[row.id, c].text))
            continue
        measured = any(cell.kind == "measured" for cell in cells)
        printed = any(cell.printed is not None for cell in cells)
        gains = (
            with_gains
            and measured
            and any(cell.gain is not None or cell.printed_gain is not None for cell in cells)
        )
        best = _best(cells, "ours", column.better) if measured and _all_means(cells) else set()
        best_printed = _best(cells, "printed", column.better)
        parts: list[tuple[str, Kind, object]] = []  # head, kind, and one cell's content
        if printed:
            parts.append(("Paper", "number", lambda cell, b=best_printed: _printed(cell, cell.row in b)))
            if gains and not grid.comparable:
                parts.append(
                    ("Δ base", "number", lambda cell: number(cell.printed_gain, _decimals(cell), sign=True))
                )
        parts.append(
            (
                "Ours" if printed else "",
                "text" if column.show == "interval" else "number",
                lambda cell, b=best, p=printed: _ours(cell, cell.row in b, p),
            )
        )
        if gains and not (printed and grid.comparable):
            gains_shown = True
            parts.append(("Δ base", "number", _gain))
        if printed and measured and grid.comparable:
            parts.append(("Δ", "number", lambda cell: number(cell.delta, _decimals(cell), sign=True)))
        if printed:
            parts.append(("Status", "status", _status))
        alone, whose = len(parts) == 1, ""
        for title, kind, make in parts:
            unit = cells[0].unit
            whose = title.lower() if title in ("Paper", "Ours") else whose
            # Two columns "Δ base" need to say whose, where no rule groups them with their values.
            said = f"{whose} {title}" if title == "Δ base" else title if title == "Δ" else title.lower()
            full = f"{column.label}: {said}"
            head = (
                Head(column.label, kind, "", unit) if alone else Head(title, kind, column.label, unit, full)
            )
            heads.append(head)
            builders.append(lambda row, c=column.id, m=make: m(grid.cells[row.id, c]))
    if _seeds_differ(grid):
        heads.append(Head("Seeds", "number"))
        builders.append(
            lambda row: Shown("number", str(_seeds_of(grid, row)) if _seeds_of(grid, row) else "–")
        )
    blocks = [
        Block(title, tuple((Shown("label", row.label), *[build(row) for build in builders]) for row in rows))
        for title, rows in _groups(grid.table.rows)
    ]
    blocks += _own_scale_block(grid, heads)
    notes = _notes(project, grid, gains_shown)
    metrics = sum(head.kind == "number" for head in heads)
    return Layout(
        tuple(heads), tuple(blocks), tuple(notes), compact_errors=metrics > _MOST_COLUMNS_WITH_PLUS_MINUS
    )


def _own_scale_block(grid: Grid, heads: list[Head]) -> list[Block]:
    """The small scale's own counts below the paper-scale ones: what this machine really built."""
    rows = []
    for row in grid.table.rows:
        shown = [Shown("label", row.label)]
        for column in grid.table.columns:
            cell = grid.cells[row.id, column.id]
            spans = [head for head in heads if (head.group or head.text) == column.label]
            for head in spans:
                own = cell.kind == "exact" and _differs(cell) and head.text in ("Ours", column.label)
                shown.append(_small(cell.scale_value, cell.decimals) if own else BLANK)
        if any(item.kind == "number" for item in shown):
            rows.append((*shown, *[BLANK] * (len(heads) - len(shown))))
    return [Block(f"At this scale's shapes ({grid.scale})", tuple(rows))] if rows else []


def _stacked(grid: Grid) -> Layout:
    """Many printed columns: per model one line of the paper, one of ours and, where it says something, one of statuses."""
    columns = [column for column in grid.table.columns if _metric_cells(grid, column)]
    texts = [column for column in grid.table.columns if column not in columns]
    heads = [
        Head(grid.table.row_header, "label"),
        *[Head(column.label, "text") for column in texts],
        Head("", "text"),
    ]
    heads += [Head(column.label, "number", "", _metric_cells(grid, column)[0].unit) for column in columns]
    best = {c.id: _best(_metric_cells(grid, c), "printed", c.better) for c in columns}
    ours_best = {
        c.id: _best(_metric_cells(grid, c), "ours", c.better)
        for c in columns
        if _all_means(_metric_cells(grid, c))
    }
    differ = _seeds_differ(grid)
    blocks = []
    for title, rows in _groups(grid.table.rows):
        lines: list[tuple[Shown, ...]] = []
        for row in rows:
            cells = [grid.cells[row.id, column.id] for column in columns]
            own = [Shown("text", grid.cells[row.id, column.id].text) for column in texts]
            blank = [BLANK] * len(texts)
            lines.append(
                (
                    Shown("label", row.label),
                    *own,
                    Shown("text", "paper"),
                    *[_printed(c, row.id in best[c.column]) for c in cells],
                )
            )
            values = [_ours(c, row.id in ours_best.get(c.column, ()), has_status=False) for c in cells]
            n = _seeds_of(grid, row)
            whose = f"ours, {n} seed{'s' * (n > 1)}" if differ and n else "ours"
            lines.append((BLANK, *blank, Shown("text", whose), *values))
            if any(cell.status not in (NOT_COMPARABLE, NOT_RUN, NOT_REPORTED) for cell in cells):
                lines.append((BLANK, *blank, Shown("text", "status"), *[_status(c) for c in cells]))
        blocks.append(Block(title, tuple(lines)))
    return Layout(tuple(heads), tuple(blocks), tuple(_status_notes(grid)), compact_errors=True)


# --- configuration tables ------------------------------------------------------------------------------------------


def _configuration(grid: Grid) -> Layout:
    """Rows are quantities: per column paper and ours, and one status per row."""
    heads = [Head(grid.table.row_header, "label")]
    for column in grid.table.columns:
        for whose in ("Paper", "Ours"):
            heads.append(Head(whose, "number", column.label, "", f"{column.label}: {whose.lower()}"))
    heads.append(Head("Status", "status"))
    blocks = []
    for title, rows in _groups(grid.table.rows):
        lines = []
        for row in rows:
            cells = [grid.cells[row.id, column.id] for column in grid.table.columns]
            values = [shown for cell in cells for shown in (_printed(cell), _ours(cell))]
            lines.append((Shown("label", row.label), *values, _row_status(cells)))
        blocks.append(Block(title, tuple(lines)))
    own = []
    for row in grid.table.rows:
        cells = [grid.cells[row.id, column.id] for column in grid.table.columns]
        if any(_differs(cell) for cell in cells):
            values = [item for cell in cells for item in (BLANK, _small(cell.scale_value, cell.decimals))]
            own.append((Shown("label", row.label), *values, BLANK))
    if own:
        blocks.append(Block(f"At this scale ({grid.scale})", tuple(own)))
    return Layout(tuple(heads), tuple(blocks), tuple(_status_notes(grid)))


def _row_status(cells: list[Cell]) -> Shown:
    found = {status: sum(cell.status == status for cell in cells) for status in STATUSES}
    found = {status: count for status, count in found.items() if count}
    if len(found) == 1:
        return Shown("status", next(iter(found)), note=cells[0].reason)
    return Shown("status", ", ".join(f"{count} {status}" for status, count in found.items()))


# --- notes ---------------------------------------------------------------------------------------------------------


def _notes(project: Resolver, grid: Grid, gains_shown: bool) -> list[str]:
    notes = _status_notes(grid)
    if gains_shown:
        measured = [
            c for c in grid.table.columns if any(cell.kind == "measured" for cell in _metric_cells(grid, c))
        ]
        bases = {row for column in measured for row in baseline_rows(project, grid.artifact, column).values()}
        labels = [row.label for row in grid.table.rows if row.id in bases]
        which = labels[0] if len(labels) == 1 else "the baseline of the same size and length"
        error = (
            ", ± its standard error" if any(cell.gain_stderr is not None for cell in grid.compared()) else ""
        )
        notes.append(f"Δ base: difference from {which}, paired over seeds{error}.")
    return notes


def _status_notes(grid: Grid) -> list[str]:
    notes = []
    cells = grid.compared()
    statuses = {cell.status for cell in cells}
    if any(cell.stderr is not None for cell in cells):
        over = "each row's seeds" if _seeds_differ(grid) else f"{len(grid.seeds)} seeds"
        notes.append(f"Ours: mean ± standard error over {over}.")
    if NOT_COMPARABLE in statuses:
        notes.append(
            "Not comparable: models of this scale are far smaller than the paper's, so no cell is judged."
        )
    if "match" in statuses:
        halves = any(cell.rule.startswith("half") for cell in cells)
        rounds = ", or rounds to the printed digits" if halves else ""
        sample = all(cell.metric.startswith("sample.") for cell in cells)
        whence = "share of the token store's tokens," if sample else "computed from the paper-scale spec and"
        notes.append(f"Match: {whence} equal to the printed value{rounds}.")
    rules = sorted(
        {cell.rule for cell in cells if cell.status in ("within", "off") and cell.kind == "measured"}
    )
    if rules:
        notes.append(f"Tolerance (the widest applies): {'; '.join(rules)}.")
    reasons: dict[str, int] = {}
    for cell in cells:
        if cell.status == NOT_RUN and cell.reason:
            reasons[cell.reason] = reasons.get(cell.reason, 0) + 1
    if reasons:
        shown = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:4]
        rest = len(reasons) - len(shown)
        text = "; ".join(f"{reason} ({count} cells)" if count > 1 else reason for reason, count in shown)
        notes.append(f"Not run: {text}{f'; and {rest} more reasons' if rest else ''}.")
    diverged = sorted(
        {cell.reason.partition("; seed")[0] for cell in cells if cell.status == DIVERGED and cell.reason}
    )
    if diverged:
        notes.append(f"Diverged: {'; '.join(diverged[:4])}.")
    return notes
