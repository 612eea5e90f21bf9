"""Where the panels of a figure stand, in inches: titles, axes, room for names, colour bars. ``axes`` draws what is in them."""

from __future__ import annotations

import dataclasses
import math

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from respath.papers.figures import Panels
from respath.reporting.looks import INK, NORMAL, SMALL, SOFT, WIDTH, drawn, fitted, width_of
from respath.reporting.panels import axes as forms
from respath.reporting.panels.captions import axis_name
from respath.reporting.panels.data import Drawn, Shown

#: Inches: room left of axes for ticks, below for ticks and name, between panels, one line of a title and of a name.
_LEFT, _BOTTOM, _GAP, _TITLE, _NAME = 0.55, 0.42, 0.16, 0.17, 0.15
#: How much wider bold letters are.
_BOLD = 1.14
#: Inches of a colour bar with its ticks and name, of a small multiple, and right of it.
_BAR, _CELL, _RIGHT = 0.62, 1.15, 0.1


@dataclasses.dataclass(frozen=True)
class Box:
    """A panel's place in inches from the top left."""

    x: float
    y: float
    width: float
    height: float


def draw(shown: Shown, definition: Panels, comparable: bool = False) -> Figure:
    """The figure of all panels that have something to show. Call inside ``style()``."""
    bars = {panel.letter: group for group in forms.groups_of_heat(shown.filled) for panel in group}
    last = {group[-1].letter for group in bars.values()}
    boxes, height = _boxes(shown, definition, last)
    figure = Figure(figsize=(WIDTH, height))
    places: dict[str, Axes] = {}
    for panel in shown.filled:
        box = boxes[panel.letter]
        top = box.y + _head(figure, panel, box, len(shown.panels) > 1)
        if forms.is_many(panel):
            forms.many(_cells(figure, panel, box, top), panel, forms.looks(panel))
            continue
        inner = _inner(panel, box, top, panel.letter in last)
        places[panel.letter] = axes = _axes(figure, inner)
        if panel.form == "heat":
            norm, colours = forms.colours_of(bars[panel.letter])
            mesh = forms.heat(axes, panel, norm, colours, panel.letter in last)
            if panel.letter in last:
                _colour_bar(figure, mesh, panel, inner)
        elif panel.form == "lines":
            forms.lines(axes, panel, forms.looks(panel), comparable)
        else:
            draw_rows = forms.dots if panel.form == "dots" else forms.bars
            draw_rows(axes, panel, forms.looks(panel))
            axes.set_xlabel(drawn(axis_name(panel)), loc="left")
    _share(shown, places)
    if not boxes:
        text = "\n".join(
            fitted(" ".join(shown.notes) or "Nothing is measured yet.", WIDTH - 0.4).splitlines()[:6]
        )
        figure.text(0.2 / WIDTH, 0.5, drawn(text), fontsize=SMALL, color=SOFT, va="center")
    return figure


# --- places ----------------------------------------------------------------------------------------------------------


def _boxes(shown: Shown, definition: Panels, last: set[str]) -> tuple[dict[str, Box], float]:
    """Places of the panels that have something to show, and the figure's height.

    The layout holds as long as all of it is there; else panels follow each other, as many to a row. Rows of dots and small
    multiples are as wide as the figure.
    """
    filled = {panel.letter: panel for panel in shown.filled}
    rows = definition.layout or ("".join(panel.letter for panel in shown.panels),)
    wide = {
        letter for letter, panel in filled.items() if panel.form in ("dots", "bars") or forms.is_many(panel)
    }
    if len(filled) < len(shown.panels) or wide:
        most = max(len(dict.fromkeys(row)) for row in rows)
        found: list[str] = []
        for letter in filled:
            if letter in wide or not found or set(found[-1]) & wide or len(found[-1]) >= most:
                found.append("")
            found[-1] += letter
        rows = tuple(found)
    boxes: dict[str, Box] = {}
    y = 0.04
    for index, row in enumerate(rows):
        height = max(_height(filled[letter], definition, letter in last) for letter in row)
        for letter in dict.fromkeys(row):
            if letter in boxes:
                continue
            spanned = sum(letter in other for other in rows[index:])
            width = (WIDTH + _GAP) * row.count(letter) / len(row) - _GAP
            x = (WIDTH + _GAP) * row.index(letter) / len(row)
            boxes[letter] = Box(x, y, width, height * spanned + _GAP * (spanned - 1))
        y += height + _GAP
    return boxes, max(y - _GAP, 0.6)


def _height(panel: Drawn, definition: Panels, last: bool) -> float:
    if panel.form in ("dots", "bars"):
        return 0.95 + forms.ROW * len(panel.of("ours"))
    if forms.is_many(panel):
        count = sum(line.slot != 0 for line in panel.of("ours"))
        return 0.85 + _CELL * math.ceil(count / forms.MANY_COLUMNS)
    return definition.height + (_BAR + 0.2 if panel.form == "heat" and last else 0)


def _head(figure: Figure, panel: Drawn, box: Box, several: bool) -> float:
    """Title, and below it what the values are; how many inches they take."""
    letter = f"{panel.letter.lower()}  " if several else ""
    title = fitted(f"{letter}{panel.title}", box.width / _BOLD, NORMAL).split("\n")
    rows = panel.form in ("dots", "bars")
    name = [] if rows else fitted(axis_name(panel), box.width).split("\n")
    used = 0.12
    for line, size, colour, step in (
        *((line, NORMAL, INK, _TITLE) for line in title),
        *((line, SMALL, SOFT, _NAME) for line in name),
    ):
        weight = "bold" if size == NORMAL and "$" not in drawn(line) else "normal"
        at = (box.x / WIDTH, 1 - (box.y + used) / figure.get_figheight())
        figure.text(*at, drawn(line), fontsize=size, color=colour, va="baseline", fontweight=weight)
        used += step
    return used + (0.08 if rows else -0.05)


def _inner(panel: Drawn, box: Box, top: float, last: bool) -> Box:
    """The axes inside a box, without what stands around them."""
    left, right = _LEFT, forms.label_room(panel) if panel.form == "lines" else 0.12
    bottom = _BOTTOM
    if panel.form in ("dots", "bars"):
        names = (width_of(fitted(line.label, forms.LABEL + 0.4)) for line in panel.of("ours"))
        left = max(names) + 0.15
        right = forms.numbers_room(panel) + forms.VERDICT + 0.15 if panel.form == "dots" else 0.7
    if any("\n" in mark.tick for line in panel.of("ours") for mark in line.marks):
        bottom += 0.14
    if panel.form == "heat":
        left = 0.35
        bottom = _BOTTOM + _BAR if last else 0.2
    return Box(box.x + left, top, box.width - left - right, box.y + box.height - top - bottom)


def _axes(figure: Figure, box: Box) -> Axes:
    height = figure.get_figheight()
    return figure.add_axes(
        (box.x / WIDTH, 1 - (box.y + box.height) / height, box.width / WIDTH, box.height / height)
    )


def _cells(figure: Figure, panel: Drawn, box: Box, top: float) -> list[Axes]:
    """Axes of small multiples, row by row."""
    count = sum(line.slot != 0 for line in panel.of("ours"))
    rows = math.ceil(count / forms.MANY_COLUMNS)
    width = (box.width + _GAP) / forms.MANY_COLUMNS
    height = (box.y + box.height - top - _BOTTOM) / rows
    cells = []
    for index in range(count):
        row, column = divmod(index, forms.MANY_COLUMNS)
        left = box.x + column * width + _LEFT
        place = Box(left, top + row * height + 0.18, width - _LEFT - _GAP - _RIGHT, height - 0.26)
        cells.append(_axes(figure, place))
    return cells


def _colour_bar(figure: Figure, mesh, panel: Drawn, inner: Box) -> None:
    """Below the last of the heat maps that share it."""
    width = min(inner.width, 2.2)
    bar_axes = _axes(figure, Box(inner.x, inner.y + inner.height + _BOTTOM + 0.05, width, 0.09))
    bar = figure.colorbar(mesh, cax=bar_axes, orientation="horizontal")
    bar.set_label(drawn(panel.definition.value.label), fontsize=SMALL, color=SOFT)
    if isinstance(mesh.norm, LogNorm):
        forms.log_bar(bar.ax.xaxis, mesh.norm.vmin, mesh.norm.vmax)
    bar.outline.set_linewidth(0.4)


def _share(shown: Shown, places: dict[str, Axes]) -> None:
    """Panels of one series of ranks have one axis."""
    series: dict[str, list[Axes]] = {}
    for panel in shown.filled:
        if panel.definition.kind == "ranks":
            series.setdefault(panel.definition.series, []).append(places[panel.letter])
    for axes in series.values():
        low, high = min(a.get_ylim()[0] for a in axes), max(a.get_ylim()[1] for a in axes)
        for one in axes:
            one.set_ylim(low, high)
