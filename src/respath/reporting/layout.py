"""How a grid of cells is laid out for a reader: heads, row groups and formatted cells, the same for every format."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from respath.comparison.cells import (
    DIVERGED,
    MATCH,
    NOT_COMPARABLE,
    NOT_REPORTED,
    NOT_RUN,
    Cell,
    Grid,
    Value,
    is_number,
)
from respath.papers.tables import Column, Row
from respath.quantities.rounding import fixed, rounded
from respath.quantities.statistics import CONFIDENCE
from respath.quantities.verdicts import WITHIN

#: Above so many printed metric columns, paper and ours stand under one another instead of side by side.
_MOST_SIDE_BY_SIDE = 3
_INTERVAL = f"{CONFIDENCE:.0%}".replace("%", " %") + " interval"

_UNJUDGED = (NOT_REPORTED, NOT_RUN, NOT_COMPARABLE)

Kind = Literal["label", "text", "number", "interval", "status", "blank"]


@dataclasses.dataclass(frozen=True)
class Shown:
    """One formatted cell. ``text``: digits with an ASCII sign and point for numbers; may hold $mathematics$ for texts.

    ``link``: the row of "Runs behind each row" or the claim that stands behind it. ``quiet``: too few seeds for a verdict.
    """

    kind: Kind
    text: str = ""
    bold: bool = False
    link: str = ""
    quiet: bool = False
    mark: str = ""

    @property
    def is_number(self) -> bool:
        """Is this a number (and not a word in a column of numbers)?"""
        ends = self.text.lstrip("+-")[:1], self.text[-1:]
        return self.kind == "number" and all(map(str.isdigit, ends))


@dataclasses.dataclass(frozen=True)
class Head:
    """One column's head: ``group`` spans neighbouring columns of the same group. ``key``: is it among the few that a phone shows?"""

    text: str
    kind: Kind
    group: str = ""
    #: The head where groups cannot be drawn.
    full: str = ""
    key: str = ""


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows under a common heading (which may be empty)."""

    title: str
    rows: tuple[tuple[Shown, ...], ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A table ready to be written. ``method``: how its differences are judged. ``summary``: of a table of settings, how many agree; ``differing``: its rows that do not."""

    heads: tuple[Head, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]
    method: str = ""
    summary: str = ""
    differing: tuple[Block, ...] = ()


BLANK = Shown("blank")


def lay_out(grid: Grid) -> Layout:
    """The layout that fits a table's kind and width."""
    if grid.table.kind != "runs":
        return _settings(grid)
    columns = [column for column in grid.table.columns if _cells(grid, column)]
    printed = [c for c in columns if any(cell.printed is not None for cell in _cells(grid, c))]
    gains = [c for c in columns if any(cell.base for cell in _cells(grid, c))]
    if max(len(printed), len(gains)) > _MOST_SIDE_BY_SIDE:
        return _stacked(grid, columns)
    return _side_by_side(grid)


# --- formatting ----------------------------------------------------------------------------------------------------


def number(value: Value, decimals: int, *, sign: bool = False, bold: bool = False, link: str = "") -> Shown:
    """A value as a cell: numbers with fixed decimals, booleans as Yes and No, texts as they are, nothing as a dash."""
    if value is None:
        return Shown("number", "–")
    if isinstance(value, bool):
        return Shown("number", "Yes" if value else "No")
    if not is_number(value):
        return Shown("number", str(value))
    return Shown("number", fixed(value, decimals, sign), bold, link)


def plain_cell(cell: Shown) -> str:
    """A cell as text for readers: minus signs, grouped digits."""
    if not cell.is_number:
        return (
            cell.text.replace("--", "–").replace("-", "−")
            if cell.kind == "interval"
            else cell.text.replace("--", "–")
        )
    sign = {"-": "−", "+": "+"}.get(cell.text[0], "")
    digits, _, decimals = cell.text.lstrip("+-").partition(".")
    grouped = f"{int(digits):,}" if len(digits) > 4 else digits
    return f"{sign}{grouped}.{decimals}" if decimals else f"{sign}{grouped}"


def value_of(cell: Cell, printed: bool = False) -> Shown:
    """Our value of a cell, or the printed one, by itself."""
    return _printed(cell) if printed else number(cell.ours, _decimals(cell), sign=cell.signed)


def paired(cell: Cell) -> str:
    """The paired difference of a cell with its interval, as text; empty where it has none."""
    if cell.gain is None:
        return ""
    parts = (
        fixed(cell.gain, _decimals(cell), True),
        _interval(cell.gain_low, cell.gain_high, _decimals(cell)),
    )
    return " ".join(filter(None, parts)).replace("-", "−")


def _printed(cell: Cell, bold: bool = False) -> Shown:
    # Trailing zeros that the paper dropped come back: the column's resolution is what counts.
    decimals = cell.decimals if cell.printed_decimals is None else cell.printed_decimals
    return number(cell.printed, decimals, sign=cell.signed, bold=bold)


def _decimals(cell: Cell) -> int:
    return max(cell.decimals, cell.printed_decimals or 0) if cell.kind == "measured" else cell.decimals


def _ours(grid: Grid, cell: Cell, bold: bool = False) -> Shown:
    if cell.ours is None or cell.status == DIVERGED:
        # A mean over the seeds that survived would flatter a diverging variant.
        return Shown("number", "diverged" if cell.status == DIVERGED else "–")
    if cell.show == "interval":
        return Shown("interval", _interval(cell.low, cell.high, _decimals(cell)))
    link = f"{grid.artifact.id}-{cell.row}" if cell.runs else ""
    if cell.status == NOT_COMPARABLE and not cell.base:
        return dataclasses.replace(_small(cell.ours, _decimals(cell), sign=cell.signed), link=link)
    return number(cell.ours, _decimals(cell), sign=cell.signed, bold=bold, link=link)


def _interval(low: float | None, high: float | None, decimals: int) -> str:
    """``[-0.119, +0.033]``."""
    if low is None or high is None:
        return ""
    return f"[{fixed(low, decimals, True)}, {fixed(high, decimals, True)}]"


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


def _cells(grid: Grid, column: Column) -> list[Cell]:
    cells = (grid.cells[row.id, column.id] for row in grid.table.rows)
    return [cell for cell in cells if cell.kind != "text"]


def _all_means(cells: list[Cell]) -> bool:
    """Has every value two seeds or more? With one seed the best of several small models is mostly luck."""
    return all(len(cell.per_seed) > 1 for cell in cells if cell.kind == "measured" and cell.per_seed)


def _best(cells: list[Cell], attribute: str, better: str | None) -> set[str]:
    """Rows whose value, as shown, is the best of three or more."""
    cells = [cell for cell in cells if attribute == "printed" or cell.status != DIVERGED]
    values = {cell.row: getattr(cell, attribute) for cell in cells if is_number(getattr(cell, attribute))}
    if better is None or len(values) < 3 or (attribute == "ours" and not _all_means(cells)):
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


def _side_by_side(grid: Grid) -> Layout:
    """Printed value and difference; ours with the paired difference, its interval and seeds; and a verdict that answers a question."""
    heads = [Head(grid.table.row_header, "label")]
    builders = []  # one function of a row per column after the label
    metric_columns = [column for column in grid.table.columns if _cells(grid, column)]
    alone = len(metric_columns) == 1

    def add(head: Head, build) -> None:
        heads.append(head)
        builders.append(build)

    for column in grid.table.columns:
        cells = _cells(grid, column)
        if not cells:
            add(
                Head(column.label, "text"), lambda row, c=column.id: Shown("text", grid.cells[row.id, c].text)
            )
            continue
        at = lambda row, c=column.id: grid.cells[row.id, c]  # noqa: E731 (closes over the column)
        measured = any(cell.kind == "measured" for cell in cells)
        printed = any(cell.printed is not None for cell in cells)
        gains = any(cell.base for cell in cells)
        best, best_printed = _best(cells, "ours", column.better), _best(cells, "printed", column.better)
        unit = cells[0].unit
        called = "" if alone else f"{column.label}, "
        spread = column.show == "difference" and measured
        if not printed and not gains:
            label = column.label if not unit or "(" in column.label else f"{column.label} ({unit})"
            kind: Kind = "interval" if column.show == "interval" else "number"
            add(Head(label, kind), lambda row, a=at, b=best: _ours(grid, a(row), row.id in b))
            continue
        printed_size, own_size = grid.sizes if measured else ("", "")
        if printed:
            group = _sentence(f"{called}printed", printed_size, unit)
            add(
                Head("Value", "number", group, f"{column.label}: printed")
                if gains
                else Head(group, "number"),
                lambda row, a=at, b=best_printed: _printed(a(row), row.id in b),
            )
            if gains:
                add(
                    Head("Δ", "number", group, f"{column.label}: printed Δ", "printed"),
                    lambda row, a=at: number(a(row).printed_gain, _decimals(a(row)), sign=True),
                )
        level = "level not comparable" if measured and printed and not spread and not grid.comparable else ""
        group = _sentence(f"{called}ours", own_size, "; ".join(filter(None, (unit, level))))
        many = gains or spread
        add(
            Head(
                "Δ paired" if spread else "Value",
                "number",
                group,
                f"{column.label}: ours",
                "delta" if spread else "",
            )
            if many
            else Head(group, "number", "", f"{column.label}: ours"),
            lambda row, a=at, b=best: _ours(grid, a(row), row.id in b),
        )
        if gains:
            add(Head("Δ paired", "number", group, "Δ paired", "delta"), lambda row, a=at: _gain(a(row)))
        if many:
            add(
                Head(_INTERVAL, "interval", group, _INTERVAL, "interval"),
                lambda row, a=at: Shown("interval", _bounds(a(row))),
            )
            add(Head("Seeds", "number", group, "Seeds"), lambda row, a=at: _seeds(a(row)))
            question = _question(grid, column, cells) if gains else "On the printed side of 0?"
            if gains or printed:
                add(
                    Head(question, "status", "", "", "verdict"),
                    lambda row, a=at, c=cells: _verdict(a(row), c),
                )
        if printed and measured and grid.comparable:
            add(
                Head(f"{called}as printed?".capitalize(), "status"),
                lambda row, a=at: Shown("status", a(row).status),
            )
    blocks = [
        Block(
            title,
            tuple((Shown("label", row.label, link=""), *[build(row) for build in builders]) for row in rows),
        )
        for title, rows in _groups(grid.table.rows)
    ]
    blocks += _own_scale_block(grid, heads)
    return Layout(tuple(heads), tuple(blocks), tuple(_notes(grid)), _method(grid))


def _sentence(*parts: str) -> str:
    text = ", ".join(filter(None, parts))
    return text[:1].upper() + text[1:]


def _bounds(cell: Cell) -> str:
    """The interval of a cell's difference: of its paired difference from the baseline, or of the difference that it is."""
    low, high = (cell.gain_low, cell.gain_high) if cell.base else (cell.low, cell.high)
    return _interval(low, high, _decimals(cell))


def _question(grid: Grid, column: Column, cells: list[Cell]) -> str:
    rows = {row.id: row.label for row in grid.table.rows}
    bases = dict.fromkeys(rows[cell.base] for cell in cells if cell.base)
    base = next(iter(bases)) if len(bases) == 1 else "its baseline"
    printed = [cell.printed_gain for cell in cells if cell.printed_gain]
    if all((gain < 0) == (column.better == "lower") for gain in printed):
        return f"{'Below' if column.better == 'lower' else 'Above'} {base}?"
    return f"On the printed side of {base}?"


def _gain(cell: Cell) -> Shown:
    gain = None if cell.status == DIVERGED else cell.gain
    quiet = cell.gain is not None and cell.gain_low is None
    return dataclasses.replace(number(gain, _decimals(cell), sign=True), quiet=quiet, bold=False)


def _seeds(cell: Cell) -> Shown:
    count = len(cell.gain_per_seed) if cell.base else len(cell.per_seed)
    return Shown("number", str(count) if count else "–", quiet=True)


def _verdict(cell: Cell, cells: list[Cell]) -> Shown:
    if any(other.base == cell.row for other in cells):
        return Shown("text", "baseline")
    return (
        Shown("status", cell.verdict, link=f"claim-{cell.claim}" if cell.claim else "")
        if cell.verdict
        else BLANK
    )


def _own_scale_block(grid: Grid, heads: list[Head]) -> list[Block]:
    """The small scale's own counts below the paper-scale ones: what this machine really built."""
    rows = []
    for row in grid.table.rows:
        shown = [Shown("label", row.label)] + [BLANK] * (len(heads) - 1)
        for column in grid.table.columns:
            cell = grid.cells[row.id, column.id]
            if cell.kind == "exact" and _differs(cell):
                place = next(
                    i
                    for i, h in enumerate(heads)
                    if h.full == f"{column.label}: ours"
                    or h.text.partition(" (")[0] == column.label.partition(" (")[0]
                )
                shown[place] = _small(cell.scale_value, cell.decimals)
        if any(item.kind == "number" for item in shown):
            rows.append(tuple(shown))
    return [Block(f"At this scale's shapes ({grid.scale})", tuple(rows))] if rows else []


def _stacked(grid: Grid, columns: list[Column]) -> Layout:
    """Many columns: per model a line of the paper, one of ours, and the paired differences with their intervals."""
    texts = [column for column in grid.table.columns if column not in columns]
    heads = [Head(grid.table.row_header, "label")]
    heads += [Head(column.label, "text") for column in texts] + [Head("", "text")]
    for column in columns:
        unit = _cells(grid, column)[0].unit
        heads.append(
            Head(
                f"{column.label} ({unit})"
                if unit and unit != "%" and "(" not in column.label
                else column.label,
                "number",
            )
        )
    best = {c.id: _best(_cells(grid, c), "printed", c.better) for c in columns}
    ours_best = {c.id: _best(_cells(grid, c), "ours", c.better) for c in columns}
    blocks = []
    for title, rows in _groups(grid.table.rows):
        lines: list[tuple[Shown, ...]] = []
        for row in rows:
            cells = [grid.cells[row.id, column.id] for column in columns]
            own = [Shown("text", grid.cells[row.id, column.id].text) for column in texts]
            blank = [BLANK] * len(texts)
            first = [Shown("label", row.label), *own]
            if any(cell.printed is not None for cell in cells):
                lines.append(
                    (
                        *first,
                        Shown("text", "printed"),
                        *[_printed(c, row.id in best[c.column]) for c in cells],
                    )
                )
                first = [BLANK, *blank]
            values = [_ours(grid, c, row.id in ours_best[c.column]) for c in cells]
            seeds = max((len(cell.per_seed) for cell in cells), default=0)
            lines.append(
                (
                    *first,
                    Shown("text", f"ours, {seeds} seed{'s' * (seeds != 1)}" if seeds else "ours"),
                    *values,
                )
            )
            if any(cell.gain is not None for cell in cells):
                lines.append(
                    (
                        BLANK,
                        *blank,
                        Shown("text", "Δ paired"),
                        *[_gain(c) if c.base else BLANK for c in cells],
                    )
                )
            if any(cell.gain_low is not None for cell in cells):
                shown = [Shown("interval", _interval(c.gain_low, c.gain_high, _decimals(c))) for c in cells]
                lines.append((BLANK, *blank, Shown("text", _INTERVAL), *shown))
        blocks.append(Block(title, tuple(lines)))
    return Layout(tuple(heads), tuple(blocks), tuple(_notes(grid)), _method(grid))


# --- tables of settings --------------------------------------------------------------------------------------------


def _settings(grid: Grid) -> Layout:
    """Rows are quantities: per column printed and ours; what agrees is counted, and what differs is a row of its own."""
    heads = [Head(grid.table.row_header, "label")]
    for column in grid.table.columns:
        for whose in ("Printed", "Ours"):
            heads.append(Head(whose, "number", column.label, f"{column.label}: {whose.lower()}"))
    blocks, differing, own = [], [], []
    for title, rows in _groups(grid.table.rows):
        lines, off = [], []
        for row in rows:
            cells = [grid.cells[row.id, column.id] for column in grid.table.columns]
            line = (Shown("label", row.label), *(s for c in cells for s in (_printed(c), _ours(grid, c))))
            lines.append(line)
            if any(cell.status not in (MATCH, WITHIN, *_UNJUDGED) for cell in cells):
                off.append(line)
            if any(_differs(cell) for cell in cells):
                values = (s for c in cells for s in (BLANK, _small(c.scale_value, c.decimals)))
                own.append((Shown("label", row.label), *values))
        blocks.append(Block(title, tuple(lines)))
        differing += [Block(title, tuple(off))] if off else []
    if own:
        blocks.append(Block(f"At this scale ({grid.scale})", tuple(own)))
    printed = [cell for cell in grid.compared() if cell.status not in _UNJUDGED]
    equal = sum(cell.status in (MATCH, WITHIN) for cell in printed)
    summary = f"{equal} of {len(printed)} equal" if printed else "nothing to compare yet"
    return Layout(tuple(heads), tuple(blocks), tuple(_notes(grid)), "", summary, tuple(differing))


# --- notes ---------------------------------------------------------------------------------------------------------


#: How every difference of every table is judged.
METHOD = (
    f"Δ paired: difference from the baseline of the same size and length, seed by seed; its {_INTERVAL} over seeds and, where it "
    "is known, the choice of text. Supported: the interval lies on the printed side of zero."
)


def _method(grid: Grid) -> str:
    judged = any(cell.gain_low is not None or cell.low is not None for cell in grid.compared())
    return METHOD if judged else ""


def _notes(grid: Grid) -> list[str]:
    notes = []
    cells = grid.compared()
    notes += _alone(grid)
    if any(cell.status == DIVERGED for cell in cells):
        found = sorted({c.reason.partition("; seed")[0] for c in cells if c.status == DIVERGED and c.reason})
        notes.append(f"Diverged: {'; '.join(found[:4])}.")
    rules = sorted(
        {c.rule for c in cells if c.status in (WITHIN, "off") and c.kind == "measured" and c.tolerance}
    )
    if rules and grid.comparable:
        notes.append(f"Tolerance: {'; '.join(dict.fromkeys(rule.partition(';')[0] for rule in rules))}.")
    missing: dict[str, int] = {}
    for cell in cells:
        if cell.status == NOT_RUN and cell.reason:
            missing[cell.reason] = missing.get(cell.reason, 0) + 1
    if missing:
        shown = sorted(missing.items(), key=lambda item: (-item[1], item[0]))[:3]
        text = "; ".join(f"{reason} ({count} values)" if count > 1 else reason for reason, count in shown)
        notes.append(f"Not run: {text}{'; and more' if len(missing) > 3 else ''}.")
    return notes


def _alone(grid: Grid) -> list[str]:
    """The baseline's value over fewer seeds than it has, where a row is paired over those: so that every difference can be checked."""
    notes: dict[str, None] = {}
    rows = {row.id: row.label for row in grid.table.rows}
    for cell in grid.compared():
        if not cell.base or cell.gain is None:
            continue
        base, seeds = grid.cells[cell.base, cell.column], list(cell.gain_per_seed)
        for other in (base, cell):
            if set(other.per_seed) - set(seeds):
                value = sum(other.per_seed[seed] for seed in seeds) / len(seeds)
                shown = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
                text = f"{rows[other.row]} over {shown} alone: {fixed(value, _decimals(other))}"
                notes[text] = None
    return ["; ".join(notes) + "."] if notes else []
