"""Printed numbers: load one ``papers/<paper>/reported/*.yaml`` file and answer what the paper prints in a cell.

A reported file holds what the paper prints and nothing that we measured: every cell carries its unit and the
number of decimals that were printed, because the comparison with a regenerated value must not be stricter than
the print. Where the paper contradicts itself, or another version prints another value, both are kept
(``also_printed``).
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from respath.errors import UserError, did_you_mean

#: What a paper can print in a cell. Strict, so that ``true`` does not become 1 and ``1`` not ``"1"``.
Value = StrictBool | StrictInt | StrictFloat | StrictStr | None


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Frozen):
    """Where the numbers stand: one of ``table`` and ``figure``, the section and the page of the PDF (from 1)."""

    paper: StrictStr
    arxiv: StrictStr
    section: StrictStr
    page: StrictInt = Field(ge=1)
    table: StrictInt | None = None
    figure: StrictInt | None = None


class Column(_Frozen):
    """A column's unit (None: the table's) and its usual number of printed decimals."""

    unit: StrictStr | None = None
    decimals: StrictInt = Field(ge=0)


class Cell(_Frozen):
    """One printed value. ``value`` None: the paper prints none. ``decimals``, ``unit``: None means the column's."""

    row: StrictStr
    column: StrictStr
    value: Value
    decimals: StrictInt | None = Field(default=None, ge=0)
    unit: StrictStr | None = None
    note: StrictStr | None = None


class AlsoPrinted(_Frozen):
    """Another value that the same paper, or another version of it, prints for a cell, and where."""

    row: StrictStr
    column: StrictStr
    value: Value
    where: StrictStr


class Reported(_Frozen):
    """The printed numbers of one table or figure."""

    source: Source
    title: StrictStr
    unit: StrictStr
    columns: dict[StrictStr, Column] = Field(min_length=1)
    rows: tuple[StrictStr, ...] = Field(min_length=1)
    cells: tuple[Cell, ...]
    notes: tuple[StrictStr, ...] = ()
    also_printed: tuple[AlsoPrinted, ...] = ()

    def cell(self, row: str, column: str) -> Cell:
        """The cell; one without a value where the paper prints none there. UserError for an unknown name."""
        problems = []
        if row not in self.rows:
            problems.append(f"{self.title}: row {row!r} is not reported{did_you_mean(row, self.rows)}")
        if column not in self.columns:
            problems.append(f"{self.title}: column {column!r} is not reported{did_you_mean(column, self.columns)}")
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
        """Half a unit of the last printed digit, in the cell's unit; None where no number is printed."""
        value = self.value(row, column)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(Decimal(5).scaleb(-self.decimals(row, column) - 1))


def shown_decimals(value: int | float) -> int:
    """Decimals needed to write ``value`` exactly in its shortest form: 2.7389 -> 4, 6e-4 -> 4, 2048 -> 0."""
    return max(0, -int(Decimal(repr(value)).normalize().as_tuple().exponent))


def load_reported(path: str | Path) -> Reported:
    """Read and check one reported file.

    Errors: UserError with one line per problem (``file: key: problem; remedy``): unreadable YAML, missing or unknown
    keys, a cell of an undeclared row or column, a cell given twice, more digits in a value than its decimals say.
    """
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; reported numbers live in papers/<paper>/reported/") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else "?"
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"{path}:{line}: not valid YAML ({problem}); correct this line") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: the file holds no mapping; start it with `source:`, `title:`, `columns:`, ...")
    try:
        reported = Reported.model_validate(raw)
    except ValidationError as error:
        raise UserError([_explain(path, raw, problem) for problem in error.errors()]) from None
    problems = [f"{path}: {line}" for line in _inconsistencies(reported)]
    if problems:
        raise UserError(problems)
    return reported


def _explain(path: Path, raw: dict[str, Any], problem: Any) -> str:
    """One line for one pydantic problem; a cell is named by its row and column, not by its place in the list."""
    where = ".".join(str(part) for part in problem["loc"])
    if len(problem["loc"]) > 1 and problem["loc"][0] in ("cells", "also_printed"):
        entry = raw[problem["loc"][0]][problem["loc"][1]]
        if isinstance(entry, dict):
            where += f" (row {entry.get('row')!r}, column {entry.get('column')!r})"
    if problem["type"] == "extra_forbidden":
        return f"{path}: {where}: unknown key; remove it or correct its spelling"
    if problem["type"] == "missing":
        return f"{path}: {where}: missing; add this key"
    return f"{path}: {where}: {problem['msg'][:1].lower() + problem['msg'][1:]}; correct the value"


def _inconsistencies(reported: Reported) -> list[str]:
    problems = []
    if (reported.source.table is None) == (reported.source.figure is None):
        problems.append("source: names neither or both of `table` and `figure`; name the one that is transcribed")
    for row in sorted({row for row in reported.rows if reported.rows.count(row) > 1}):
        problems.append(f"rows: {row!r} is listed twice; give each row its own id")
    seen = set()
    for kind, entries in (("cells", reported.cells), ("also_printed", reported.also_printed)):
        for entry in entries:
            where = f"{kind} (row {entry.row!r}, column {entry.column!r})"
            if entry.row not in reported.rows:
                problems.append(f"{where}: row is not in `rows`{did_you_mean(entry.row, reported.rows)}; add it there")
            if entry.column not in reported.columns:
                hint = did_you_mean(entry.column, reported.columns)
                problems.append(f"{where}: column is not in `columns`{hint}; declare it there")
    for cell in reported.cells:
        where = f"cells (row {cell.row!r}, column {cell.column!r})"
        if (cell.row, cell.column) in seen:
            problems.append(f"{where}: given twice; keep one and put the other under `also_printed`")
        seen.add((cell.row, cell.column))
        if cell.column not in reported.columns or isinstance(cell.value, bool | str) or cell.value is None:
            continue
        decimals = reported.columns[cell.column].decimals if cell.decimals is None else cell.decimals
        if shown_decimals(cell.value) > decimals:
            problems.append(
                f"{where}: value {cell.value} has more digits than decimals: {decimals}; "
                "correct the value, or give the cell its own `decimals`"
            )
    return problems
