"""Printed numbers: load one ``papers/<paper>/reported/*.yaml`` file and answer what the paper prints in a cell.

A reported file holds what the paper prints and nothing that we measured: every cell carries its unit and the
number of decimals that were printed, because the comparison with a regenerated value must not be stricter than
the print. Where the paper contradicts itself, or another version prints another value, both are kept
(``also_printed``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from pydantic import Field, model_validator

from respath.documents import check, line_of, load_yaml
from respath.errors import UserError, did_you_mean
from respath.letters import Text
from respath.spec.document import Document

#: What a paper can print in a cell (strict documents: ``true`` does not become 1, nor ``1`` the text "1").
Value = bool | int | float | str | None


class Source(Document):
    """Where the numbers stand: one of ``table`` and ``figure``, the section and the page of the PDF (from 1)."""

    paper: str
    arxiv: str
    section: Text
    page: int = Field(ge=1)
    table: int | None = None
    figure: int | None = None


class Column(Document):
    """A column's unit (None: the table's) and its usual number of printed decimals."""

    unit: Text | None = None
    decimals: int = Field(ge=0)


class Cell(Document):
    """One printed value. ``value`` None: the paper prints none. ``decimals``, ``unit``: None means the column's.

    ``version``: the version of the paper that prints it, where it is not the source's. ``accuracy``: how exactly the value
    could be read off a drawn figure, in the cell's unit; None for a value that is printed as a number.
    """

    row: str
    column: str
    value: Value
    decimals: int | None = Field(default=None, ge=0)
    unit: Text | None = None
    version: str | None = None
    accuracy: float | None = Field(default=None, gt=0)
    note: Text | None = None


class PrintedCell(Document):
    """Where a number is printed: a file of ``reported/`` (by its name without ending), a row and a column of it."""

    reported: str
    row: str
    column: str


class AlsoPrinted(Document):
    """Another value that the same paper, or another version of it, prints for a cell, and where."""

    row: str
    column: str
    value: Value
    where: str


class Total(Document):
    """A mean or sum that the paper prints: ``of`` columns in each row, or of rows in each column (``within`` these alone)."""

    of: tuple[str, ...] = Field(min_length=2)
    mean: str | None = None
    sum: str | float | None = None
    """The column or row that holds it; a number where it is the same everywhere and not printed."""
    within: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one(self):
        if (self.mean is None) == (self.sum is None):
            raise ValueError("gives exactly one of `mean` and `sum`")
        return self


class DrawnCurve(Document):
    """A curve that the paper draws and does not print, read off: ``values`` in the table's unit after so many ``steps``."""

    row: str
    version: str | None = None
    accuracy: float = Field(gt=0)
    """How exactly a value could be read off."""
    tokens_per_step: int = Field(ge=1)
    steps: tuple[int, ...]
    values: tuple[float, ...]

    @model_validator(mode="after")
    def _points(self):
        if len(self.steps) != len(self.values) or list(self.steps) != sorted(set(self.steps)):
            raise ValueError("has as many rising `steps` as `values`")
        return self


class Reported(Document):
    """The printed numbers of one table or figure."""

    source: Source
    title: Text
    unit: Text
    columns: dict[str, Column] = Field(min_length=1)
    rows: tuple[str, ...] = Field(min_length=1)
    cells: tuple[Cell, ...]
    notes: tuple[Text, ...] = ()
    also_printed: tuple[AlsoPrinted, ...] = ()
    totals: tuple[Total, ...] = ()
    curves: tuple[DrawnCurve, ...] = ()

    def curve(self, row: str) -> list[tuple[float, float]]:
        """Tokens and value of each point of a row's drawn curve; none where no curve was read off."""
        return [
            (float(step * curve.tokens_per_step), value)
            for curve in self.curves
            if curve.row == row
            for step, value in zip(curve.steps, curve.values, strict=True)
        ]

    def cell(self, row: str, column: str) -> Cell:
        """The cell; one without a value where the paper prints none there. UserError for an unknown name."""
        problems = []
        if row not in self.rows:
            problems.append(f"{self.title}: row {row!r} is not reported{did_you_mean(row, self.rows)}")
        if column not in self.columns:
            problems.append(
                f"{self.title}: column {column!r} is not reported{did_you_mean(column, self.columns)}"
            )
        if problems:
            raise UserError(problems)
        for cell in self.cells:
            if cell.row == row and cell.column == column:
                return cell
        return Cell(row=row, column=column, value=None)

    def value(self, row: str, column: str) -> bool | int | float | str | None:
        """The printed value, in ``unit_of(row, column)``; None where the paper prints none."""
        return self.cell(row, column).value

    def unit_of(self, row: str, column: str) -> str:
        """The unit of a cell: its own, else its column's, else the table's."""
        return self.cell(row, column).unit or self.columns[column].unit or self.unit

    def decimals(self, row: str, column: str) -> int:
        """Decimals that the print resolves: the finer of the cell's and the column's.

        A cell that prints *fewer* digits than its column has dropped trailing zeros (the ResFormer tables print
        2.722, 2.72 and 2.7 under one another), so the column's resolution still holds; reading 2.7 as 2.7 +- 0.05
        would accept every model of that table.
        """
        return max(self.cell(row, column).decimals or 0, self.columns[column].decimals)

    def half_unit(self, row: str, column: str) -> float | None:
        """Half a unit of the last printed digit, or what reading it off resolves, in the cell's unit; None without a number."""
        cell = self.cell(row, column)
        if isinstance(cell.value, bool) or not isinstance(cell.value, int | float):
            return None
        return cell.accuracy or float(Decimal(5).scaleb(-self.decimals(row, column) - 1))


def shown_decimals(value: float) -> int:
    """Decimals needed to write ``value`` exactly in its shortest form: 2.7389 -> 4, 6e-4 -> 4, 2048 -> 0."""
    return max(0, -int(Decimal(repr(value)).normalize().as_tuple().exponent))


def load_reported(path: str | Path) -> Reported:
    """Read and check one reported file.

    Errors: UserError with one line per problem (``file:line: key: problem; remedy``): unreadable YAML, missing or
    unknown keys, a cell of an undeclared row or column, a cell given twice, more digits in a value than its decimals.
    """
    reported = check(Reported, load_yaml(path), path)
    problems = []
    for keys, problem in _inconsistencies(reported):
        key = ".".join(str(part) for part in keys)
        problems.append(f"{path}:{line_of(path, keys)}: {key}: {problem}")
    if problems:
        raise UserError(problems)
    return reported


def _inconsistencies(reported: Reported) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Keys and problem (with remedy) of everything that one field alone cannot show."""
    if (reported.source.table is None) == (reported.source.figure is None):
        yield ("source",), "must name exactly one of `table` and `figure`; keep the one that is transcribed"
    for index, row in enumerate(reported.rows):
        if row in reported.rows[:index]:
            yield ("rows", index), f"{row!r} is listed twice; give each row its own id"
    entries_of = {kind: getattr(reported, kind) for kind in ("cells", "also_printed", "curves")}
    for kind, entries in entries_of.items():
        for index, entry in enumerate(entries):
            if entry.row not in reported.rows:
                hint = did_you_mean(entry.row, reported.rows)
                yield (kind, index, "row"), f"{entry.row!r} is not in `rows`{hint}; add it there"
            if kind != "curves" and entry.column not in reported.columns:
                hint = did_you_mean(entry.column, reported.columns)
                yield (kind, index, "column"), f"{entry.column!r} is not in `columns`{hint}; declare it there"
    seen = set()
    for index, cell in enumerate(reported.cells):
        name = f"row {cell.row!r}, column {cell.column!r}"
        if (cell.row, cell.column) in seen:
            yield ("cells", index), f"{name} is given twice; keep one and put the other under `also_printed`"
        seen.add((cell.row, cell.column))
        if cell.column not in reported.columns or isinstance(cell.value, bool | str) or cell.value is None:
            continue
        decimals = reported.columns[cell.column].decimals if cell.decimals is None else cell.decimals
        if shown_decimals(cell.value) > decimals:
            yield (
                ("cells", index, "value"),
                f"{cell.value} ({name}) has more than {decimals} decimals; correct it, or give the cell its own `decimals`",
            )
    yield from _slips(reported)
    if not seen - {(row, column) for row in reported.rows for column in reported.columns}:
        yield from _broken_totals(reported)


def _slips(reported: Reported) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Numbers of another order of magnitude than all others of their column and unit, as a lost decimal point makes them."""
    columns: dict[tuple[str, str | None], list[tuple[int, float]]] = {}
    for index, cell in enumerate(reported.cells):
        if isinstance(cell.value, int | float) and not isinstance(cell.value, bool):
            columns.setdefault((cell.column, cell.unit), []).append((index, abs(cell.value)))
    for entries in columns.values():
        usual = statistics.median(value for _, value in entries)
        far = [(index, value) for index, value in entries if not usual / 7 < value < 7 * usual]
        near = [value for _, value in entries if usual / 2 <= value <= 2 * usual]
        if len(far) == 1 and len(near) == len(entries) - 1 >= 3 and reported.cells[far[0][0]].note is None:
            yield (
                ("cells", far[0][0], "value"),
                f"{far[0][1]} is of another order than the {len(near)} others of its column, about {usual:.3g}; correct it, or "
                "say in a `note` that it is printed so",
            )


def _broken_totals(reported: Reported) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Printed means and sums that are not those of the printed numbers, rounding aside."""
    for index, total in enumerate(reported.totals):
        in_rows = set(total.of) <= set(reported.columns)
        names = [*total.of, *(name for name in (total.mean, total.sum) if isinstance(name, str))]
        across, along = (reported.columns, reported.rows) if in_rows else (reported.rows, reported.columns)
        unknown = [name for name in names if name not in across] + [n for n in total.within if n not in along]
        if unknown:
            yield ("totals", index), f"{unknown[0]!r} is no row or column{did_you_mean(unknown[0], across)}"
            continue
        holder = total.sum if total.mean is None else total.mean
        for other in total.within or along:
            places = {name: (other, name) if in_rows else (name, other) for name in names}
            parts = [reported.value(*places[name]) for name in total.of]
            printed = reported.value(*places[holder]) if isinstance(holder, str) else holder
            numbers = [value for value in parts if isinstance(value, int | float)]
            if not isinstance(printed, int | float) or len(numbers) < len(parts):
                continue
            count = 1 if total.mean is None else len(parts)
            slack = math.fsum(reported.half_unit(*places[name]) or 0.0 for name in total.of) / count
            slack += (reported.half_unit(*places[holder]) or 0.0) if isinstance(holder, str) else 0.0
            found = math.fsum(numbers) / count
            if abs(found - printed) > slack + 1e-9:
                what, at = (
                    ("sum" if total.mean is None else "mean"),
                    f" for {holder}" if isinstance(holder, str) else "",
                )
                yield (
                    ("totals", index),
                    f"the {what} of {', '.join(total.of)} in {other} is {found:.6g}, and {printed} is printed{at}; correct the number",
                )
