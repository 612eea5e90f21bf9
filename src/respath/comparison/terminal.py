"""A table of the comparison on a terminal: each cell printed, ours, their difference, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from respath.quantities.quantity import is_number
from respath.quantities.rounding import fixed

if TYPE_CHECKING:
    from rich.table import Table


def number(value: Any, decimals: int | None, sign: bool = False) -> str:
    """A value of a cell as its table shows it."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not is_number(value):
        return str(value)
    shown = fixed(value, 3 if decimals is None else decimals, sign)
    return shown if abs(value) < 10_000 else f"{float(shown):,.{decimals or 0}f}"


def cells_of(table: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of text. Of ``ours - printed`` and ``from baseline`` only what some cell has."""
    cells = table["cells"]
    optional = {"ours - printed": "delta", "from baseline": "gain", "printed": "printed"}
    heads = ["row", "column", "printed", "ours", "ours - printed", "from baseline", "status"]
    heads = [
        head
        for head in heads
        if head not in optional or any(cell[optional[head]] is not None for cell in cells)
    ]
    reasons = list(dict.fromkeys(cell["reason"] for cell in cells if cell["reason"]))
    rows = []
    for cell in cells:
        mark = f" [{reasons.index(cell['reason']) + 1}]" if cell["reason"] else ""
        texts = {
            "row": cell["row"],
            "column": cell["column"],
            "printed": number(cell["printed"], cell["printed_decimals"]),
            "ours": number(cell["ours"], cell["decimals"]),
            "ours - printed": number(cell["delta"], cell["decimals"], sign=True),
            "from baseline": number(cell["gain"], cell["decimals"], sign=True)
            + (f" ({number(cell['printed_gain'], cell['decimals'], sign=True)})" if cell["printed_gain"] is not None else ""),
            "status": cell["status"] + mark,
        }  # fmt: skip
        rows.append([texts[head] for head in heads])
    return heads, rows


def reasons_of(table: dict[str, Any]) -> Iterator[str]:
    """What the marks of ``cells_of`` stand for."""
    reasons = dict.fromkeys(cell["reason"] for cell in table["cells"] if cell["reason"])
    yield from (f"[{number}] {reason}" for number, reason in enumerate(reasons, 1))


def rich_table(heads: list[str], rows: list[list[str]], title: str = "") -> Table:
    """A table that is never cut: numbers keep their width, names are folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), title=title or None,
        title_justify="left", title_style="bold",
    )  # fmt: skip
    for head in heads:
        text = head in ("row", "column", "status", "target", "why", "stage")
        table.add_column(
            head, justify="left" if text else "right", no_wrap=not text, overflow="fold" if text else "crop"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def tables(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Heading and table of every artifact of a comparison; None for a figure, which has no cells."""
    for paper in document["papers"].values():
        for table in paper["tables"].values():
            yield f"{table['target']}: {table['title']}", table
        for figure in paper["figures"].values():
            yield f"{figure['target']}: {figure['title']}", None
