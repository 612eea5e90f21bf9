"""Drawing a figure of panels: where the panels stand, their legends, head and foot. One function per kind draws the axes."""

from __future__ import annotations

import itertools
import math
import string

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from respath.papers.figures import Panels
from respath.reporting.looks import WIDTH, drawn, fitted, head_and_foot, width_of, wrapped
from respath.reporting.panels import axes as kinds
from respath.reporting.panels.data import Drawn, Shown

#: Inches: the head, one line of the foot, one line of a legend, the length of a legend's sample, space between entries.
_HEAD, _FOOT_LINE, _LEGEND_LINE, _SAMPLE, _GAP = 0.25, 0.125, 0.14, 0.3, 0.13
_LEGEND_SIZE = 7.5
#: Inches of a panel's width that its axis labels take.
_LABELS = 0.65
#: Share of a panel's width that printed values take.
_PRINTED = 0.3

Entry = tuple[Line2D, str]


def draw(shown: Shown, definition: Panels, note: str) -> Figure:
    """The figure; ``note`` (scale and seeds) stands above the panels. Call inside ``style()``."""
    rows = definition.layout or (string.ascii_uppercase[: len(definition.panels)],)
    foot = " ".join(shown.notes)
    looks = {panel.letter: kinds.looks(panel) for panel in shown.panels}
    entries = {p.letter: [] if p.is_empty else kinds.entries(p, looks[p.letter]) for p in shown.panels}
    shared = _that_fit(_shared(entries), WIDTH - 0.2)
    legend_rows = _rows_of(shared, WIDTH - 0.2)[0] if shared else 0
    head_height = _HEAD + legend_rows * _LEGEND_LINE + (0.04 if legend_rows else 0)
    foot_height = _FOOT_LINE * len(wrapped(foot).splitlines()) + 0.06 if foot else 0.03
    height = head_height + definition.height * len(rows) + foot_height
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(
        rect=(0, foot_height / height, 1, 1 - (head_height + foot_height) / height),
        w_pad=0.05,
        h_pad=0.05,
        wspace=0.02,
        hspace=0.02,
    )
    mosaic, widths = _mosaic(rows, {panel.letter for panel in shown.panels if _has_own_printed(panel)})
    places = figure.subplot_mosaic(mosaic, empty_sentinel=".", width_ratios=widths)
    for panel in shown.panels:
        axes = places[panel.letter]
        titled = "" if len(shown.panels) == 1 else f"{panel.letter.lower()}  "
        whole = WIDTH * _share(mosaic, widths, panel.letter)
        width = whole - _LABELS
        own = [] if shared else _that_fit(entries[panel.letter], width)
        rows_here, columns = _rows_of(own, width)
        title = axes.set_title(
            drawn(fitted(f"{titled}{panel.definition.title}", whole - 0.3, 9)),
            pad=4 + (rows_here * _LEGEND_LINE * 72 + 2 if own else 0),
        )
        title.set_fontsize(9 if len(rows) < 3 else 8)
        printed = places.get(panel.letter.lower())
        if panel.is_empty:
            kinds.empty(axes, "\n".join((panel.empty, *panel.texts)))
        else:
            kinds.DRAW[panel.definition.kind](axes, panel, looks[panel.letter])
        if own:
            _legend(axes, own, columns)
        if printed is not None:
            kinds.printed(printed, panel, looks[panel.letter])
            if shown.comparable and not panel.is_empty:
                kinds.same_heights(axes, printed)
    kinds.align(figure, places, shown)
    if shared:
        _shared_legend(figure, shared, 1 - _HEAD / height)
    head_and_foot(figure, note, foot)
    # Laid out once: sizes of text hardly depend on the resolution, and every drawing would do it again.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    kinds.settle_texts(figure, places, shown)
    return figure


def _has_own_printed(panel: Drawn) -> bool:
    """Do printed values stand in axes of their own? (Beside bars they are numbers.)"""
    return panel.definition.kind in ("sweep", "sizes") and bool(panel.of("printed"))


def _mosaic(rows: tuple[str, ...], with_printed: set[str]) -> tuple[list[list[str]], list[float]]:
    """The layout with equal neighbouring columns as one, and their widths.

    Where printed values have axes of their own (in lower case), the last column of their panel is split for them.
    """
    columns: list[list[str]] = []
    widths: list[float] = []
    for column in (list(letters) for letters in zip(*rows, strict=True)):
        if columns and column == columns[-1]:
            widths[-1] += 1
        else:
            columns.append(column)
            widths.append(1)
    for letter in sorted(with_printed):
        own = [index for index, column in enumerate(columns) if letter in column]
        wide = sum(widths[index] for index in own)
        last = own[-1]
        taken = min(_PRINTED * wide, 0.9 * widths[last])
        widths[last : last + 1] = [widths[last] - taken, taken]
        beside = [letter.lower() if cell == letter else cell for cell in columns[last]]
        columns.insert(last + 1, beside)
    return [list(row) for row in zip(*columns, strict=True)], widths


def _share(mosaic: list[list[str]], widths: list[float], letter: str) -> float:
    """Share of the figure's width that a panel takes."""
    row = next(row for row in mosaic if letter in row)
    return sum(width for cell, width in zip(row, widths, strict=True) if cell == letter) / sum(widths)


def _shared(entries: dict[str, list[Entry]]) -> list[Entry]:
    """One legend for all panels, where each draws some lines of the fullest one in the same look; else none."""
    filled = [found for found in entries.values() if found]
    if len(filled) < 2:
        return []
    fullest = max(filled, key=len)
    known = {text: _described(sample) for sample, text in fullest}
    extra: dict[str, Entry] = {}
    for sample, text in (entry for found in filled for entry in found):
        if known.get(text) == _described(sample):
            continue
        if text in known or sample.get_gid() != kinds.REFERENCE:
            return []
        extra.setdefault(text, (sample, text))
    return [*fullest, *extra.values()]


def _described(sample: Line2D) -> tuple:
    return (sample.get_color(), str(sample.get_linestyle()), sample.get_marker())


def _that_fit(entries: list[Entry], width: float) -> list[Entry]:
    """Entries whose names take several lines where one would not fit into ``width`` inches."""
    return [(sample, fitted(text, width - _SAMPLE - _GAP, _LEGEND_SIZE)) for sample, text in entries]


def _rows_of(entries: list[Entry], width: float) -> tuple[int, int]:
    """Lines and columns of a legend that fits into ``width`` inches; matplotlib fills columns from the top."""
    if not entries:
        return 0, 0
    widths = [_SAMPLE + width_of(text, _LEGEND_SIZE) for _, text in entries]
    lines = [text.count("\n") + 1 for _, text in entries]
    for rows in range(1, len(entries)):
        columns = math.ceil(len(entries) / rows)
        short, longer = divmod(len(entries), columns)
        counts = [short + 1] * longer + [short] * (columns - longer)
        ends = list(itertools.accumulate(counts))
        taken = [max(widths[end - count : end]) for count, end in zip(counts, ends, strict=True)]
        if sum(taken) + _GAP * columns <= width:
            starts = [end - count for count, end in zip(counts, ends, strict=True)]
            names = [lines[start:end] for start, end in zip(starts, ends, strict=True)]
            return sum(max(row) for row in itertools.zip_longest(*names, fillvalue=0)), columns
    return sum(lines), 1


_LEGEND = {
    "fontsize": _LEGEND_SIZE,
    "frameon": False,
    "handlelength": 2.1,
    "handletextpad": 0.5,
    "columnspacing": 1.0,
    "labelspacing": 0.2,
    "borderpad": 0.0,
}


def _legend(axes: Axes, entries: list[Entry], columns: int) -> None:
    """Between title and axes, where no line can be under it."""
    axes.legend(
        *_handles_and_labels(entries),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.3,
        ncols=columns,
        **_LEGEND,
    )


def _shared_legend(figure: Figure, entries: list[Entry], top: float) -> None:
    legend = figure.legend(
        *_handles_and_labels(entries),
        loc="upper left",
        bbox_to_anchor=(0.008, top),
        borderaxespad=0.0,
        ncols=_rows_of(entries, WIDTH - 0.2)[1],
        **_LEGEND,
    )
    # Its place is reserved already.
    legend.set_in_layout(False)


def _handles_and_labels(entries: list[Entry]) -> tuple[list[Line2D], list[str]]:
    return [sample for sample, _ in entries], [drawn(text) for _, text in entries]
