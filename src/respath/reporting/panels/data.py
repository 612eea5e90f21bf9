"""What a figure of panels shows, as plain data: lines of marks and grids of values, ready to be drawn or written as rows."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import Literal

from respath.papers.figures import Panel
from respath.reporting.panels.savings import Saving

#: ours: measured. printed: by the paper. reference: a horizontal line. fit: computed through ours. diverged: places without a value.
Role = Literal["ours", "printed", "reference", "fit", "diverged"]

HEAD = (
    *(
        "figure",
        "panel",
        "kind",
        "role",
        "line",
        "label",
        "x_name",
        "x",
        "y_name",
        "y",
        "value_name",
        "value",
    ),
    *("stderr", "seeds", "difference", "difference_stderr", "note"),
)


@dataclasses.dataclass(frozen=True)
class Mark:
    """One drawn value: the mean over ``seeds``, with its standard error (None for one seed).

    ``difference`` is from the panel's reference run, paired over seeds. ``x`` is None for a horizontal line, ``value`` where
    ``seeds`` runs diverged.
    """

    x: float | None
    value: float | None
    stderr: float | None = None
    seeds: int = 1
    difference: float | None = None
    difference_stderr: float | None = None
    note: str = ""

    @property
    def whisker(self) -> float | None:
        """Half the length of the error bar: of the paired difference where there is one, for that is what is read off."""
        return self.stderr if self.difference_stderr is None else self.difference_stderr


@dataclasses.dataclass(frozen=True)
class Line:
    """Marks that belong together. ``colour`` and ``rank`` are the variant's: its place in variants.yaml picks the dashes."""

    id: str
    label: str
    colour: str
    rank: int
    marks: tuple[Mark, ...]
    role: Role = "ours"


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
    """One panel with what there is to draw. ``texts`` stand where no data are; ``places``: label and group of each bar."""

    letter: str
    definition: Panel
    lines: tuple[Line, ...] = ()
    grid: Grid | None = None
    places: tuple[tuple[str, str], ...] = ()
    texts: tuple[str, ...] = ()
    savings: tuple[Saving, ...] = ()
    """Savings at equal loss, told or not: the CSV has all of them."""
    x_points: tuple[float, ...] = ()
    """Where the x axis has room and ticks, drawn or not; none: where marks are."""
    x_label: str = ""
    empty: str = "no finished run"
    """What an empty panel says."""

    @property
    def is_empty(self) -> bool:
        """Is there nothing of our own to draw?"""
        return self.grid is None and not any(
            line.marks for line in self.lines if line.role in ("ours", "diverged")
        )

    def of(self, role: Role) -> list[Line]:
        """Lines of one role that have marks."""
        return [line for line in self.lines if line.role == role and line.marks]

    def names(self) -> tuple[str, str, str]:
        """Names of x, y and value."""
        panel = self.definition
        x = self.x_label or panel.x.label
        return (x, panel.y.label, panel.value.label) if self.grid else (x, "", panel.y.label)


@dataclasses.dataclass(frozen=True)
class Shown:
    """Everything that one figure shows."""

    target: str
    panels: tuple[Drawn, ...]
    notes: tuple[str, ...]
    comparable: bool = False
    """May printed values share an axis with ours?"""

    def panel(self, letter: str) -> Drawn:
        """A panel by its letter, from A in the order of figures.yaml."""
        return next(panel for panel in self.panels if panel.letter == letter)

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
                    errors = (m.stderr, m.seeds, m.difference, m.difference_stderr, m.note)
                    row = (
                        line.role,
                        line.id,
                        line.label,
                        x_name,
                        m.x,
                        "",
                        None,
                        value_name,
                        m.value,
                        *errors,
                    )
                    writer.writerow(_texts((*start, *row)))
            for saving in panel.savings:
                writer.writerow(_texts((*start, *_saving_row(saving, x_name))))
            if panel.grid:
                grid = panel.grid
                for x, y, value in grid.cells():
                    row = (
                        "ours",
                        grid.id,
                        grid.label,
                        x_name,
                        x,
                        y_name,
                        y,
                        value_name,
                        value,
                        None,
                        grid.seeds,
                    )
                    writer.writerow(_texts((*start, *row, None, None, "")))
        return stream.getvalue()


def _saving_row(saving: Saving, of: str) -> tuple[object, ...]:
    interval = saving.interval
    note = "; ".join(
        [
            *([f"95 %: {interval.low!r} to {interval.high!r}"] if interval else []),
            *filter(None, [saving.reason]),
        ]
    )
    error = interval.stderr if interval else None
    names = ("saving", saving.variant, saving.label, of, None, "", None, f"fewer {of} at equal loss (%)")
    return (*names, saving.value, error, saving.seeds, None, None, note)


def _texts(row: Sequence[object]) -> list[str]:
    return ["" if value is None else repr(value) if isinstance(value, float) else str(value) for value in row]
