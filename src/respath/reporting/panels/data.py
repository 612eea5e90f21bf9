"""What a figure shows, as plain data: lines of marks and grids of values, ready to be drawn, put into words or written as rows."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import Literal

from respath.papers.figures import Panel
from respath.reporting.panels.savings import Saving

#: ours: measured. printed: by the paper. reference: a horizontal line. fit: computed through ours.
Role = Literal["ours", "printed", "reference", "fit"]

#: Models of a paper with colours of their own, the baseline included; the others are grey.
COLOURED = 6
#: Marks of a line at most.
MOST_MARKS = 400

HEAD = (
    *("figure", "panel", "kind", "role", "line", "label", "x_name", "x", "y_name", "y", "value_name", "value"),
    *("seeds", "difference", "low", "high", "verdict", "note"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A difference from another run, paired over seeds: mean, values by seed, and its 95 % interval (None for one seed)."""

    value: float
    by_seed: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Mark:
    """One drawn value: the mean over ``seeds``; None where nothing was measured, or a seed diverged (``diverged``: how many).

    ``difference`` is what is read off, and the only thing with an interval. ``verdict``: on what the paper prints of it.
    ``x`` is None for a horizontal line. ``tick``: what the axis says at ``x``.
    """

    x: float | None
    value: float | None
    seeds: tuple[int | None, ...] = ()
    difference: Estimate | None = None
    verdict: str = ""
    diverged: int = 0
    note: str = ""
    tick: str = ""

    @property
    def is_there(self) -> bool:
        """Was something measured, or lost?"""
        return self.value is not None or bool(self.diverged)

    def at(self, tick: str) -> Mark:
        """The same with what the axis says there."""
        return dataclasses.replace(self, tick=tick)


@dataclasses.dataclass(frozen=True)
class Line:
    """Marks that belong together, from left to right. ``slot``: the colour of its model in the whole paper."""

    id: str
    label: str
    slot: int
    marks: tuple[Mark, ...]
    role: Role = "ours"
    group: str = ""

    @property
    def measured(self) -> list[Mark]:
        """Marks that have a value."""
        return [mark for mark in self.marks if mark.value is not None]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A heat map: ``values[row][column]`` with the borders of its cells; None where there is no value."""

    id: str
    label: str
    values: tuple[tuple[float | None, ...], ...]
    x_edges: tuple[float, ...]
    y_edges: tuple[float, ...]
    seeds: int = 1

    def cells(self) -> Iterator[tuple[float, float, float]]:
        """Middle x, middle y and value of every cell that has one."""
        for i, row in enumerate(self.values):
            for j, value in enumerate(row):
                if value is not None:
                    x = (self.x_edges[j] + self.x_edges[j + 1]) / 2
                    yield x, (self.y_edges[i] + self.y_edges[i + 1]) / 2, value


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One panel with what there is to draw.

    ``against``: name of the run that differences are from. ``differences``: are they drawn, and not the levels? ``sentences``
    go into the caption. ``empty``: why there is nothing. ``unit``: of the metric, where it decides the form. ``title``: with the
    sizes that were measured; ``size``: the only one of the panel's.
    """

    letter: str
    definition: Panel
    lines: tuple[Line, ...] = ()
    grid: Grid | None = None
    against: str = ""
    differences: bool = False
    savings: tuple[Saving, ...] = ()
    """Savings at equal loss, given in the caption or not: the CSV has all of them."""
    sentences: tuple[str, ...] = ()
    x_label: str = ""
    unit: str = ""
    title: str = ""
    size: str = ""
    empty: str = "no finished run"

    @property
    def is_empty(self) -> bool:
        """Is there nothing of our own to draw?"""
        return self.grid is None and not self.of("ours")

    @property
    def form(self) -> Literal["dots", "bars", "heat", "lines"]:
        """How it is drawn. Bars only where zero means none; what has no order is dots."""
        if self.grid is not None:
            return "heat"
        if self.definition.kind != "bars":
            return "lines"
        return (
            "bars" if not self.differences and self.unit in ("bytes", "FLOP", "s", "parameters") else "dots"
        )

    def of(self, role: Role) -> list[Line]:
        """Lines of one role that have something to show."""
        return [
            line for line in self.lines if line.role == role and any(mark.is_there for mark in line.marks)
        ]

    def names(self) -> tuple[str, str, str]:
        """Names of x, y and value."""
        panel = self.definition
        x = self.x_label or panel.x.label
        return (x, panel.y.label, panel.value.label) if self.grid else (x, "", panel.y.label)


@dataclasses.dataclass(frozen=True)
class Shown:
    """Everything that one figure shows. ``notes``: what is missing, and why."""

    target: str
    panels: tuple[Drawn, ...]
    notes: tuple[str, ...] = ()

    def panel(self, letter: str) -> Drawn:
        """A panel by its letter, from A in the order of figures.yaml."""
        return next(panel for panel in self.panels if panel.letter == letter)

    @property
    def filled(self) -> tuple[Drawn, ...]:
        """Panels that have something to draw: the others leave the figure."""
        return tuple(panel for panel in self.panels if not panel.is_empty)

    def csv_text(self) -> str:
        """One row per value, in full precision."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEAD)
        for panel in self.panels:
            x_name, y_name, value_name = panel.names()
            start = (self.target, panel.letter, panel.definition.kind)
            for line in panel.lines:
                for m in line.marks:
                    if m.value is None and not m.note and not m.diverged:
                        continue
                    d = m.difference or Estimate(None)
                    row = (line.role, line.id, line.label, x_name, m.x, "", None, value_name, m.value)
                    end = (len(m.seeds) or None, d.value, d.low, d.high, m.verdict, m.note)
                    writer.writerow(_texts((*start, *row, *end)))
            for saving in panel.savings:
                writer.writerow(_texts((*start, *_saving_row(saving, x_name))))
            for x, y, value in panel.grid.cells() if panel.grid else ():
                row = ("ours", panel.grid.id, panel.grid.label, x_name, x, y_name, y, value_name, value)
                writer.writerow(_texts((*start, *row, panel.grid.seeds, None, None, None, "", "")))
        return stream.getvalue()


def _saving_row(saving: Saving, of: str) -> tuple[object, ...]:
    low, high = (saving.interval.low, saving.interval.high) if saving.interval else (None, None)
    names = ("saving", saving.variant, saving.label, of, None, "", None, f"fewer {of} at equal loss (%)")
    return (*names, saving.value, saving.seeds, None, low, high, "", saving.reason)


def _texts(row: Sequence[object]) -> list[str]:
    return ["" if value is None else repr(value) if isinstance(value, float) else str(value) for value in row]
