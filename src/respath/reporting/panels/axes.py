"""One function per form of panel that draws its axes: paired differences as dots, bars, lines, small multiples, heat maps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm, Normalize, TwoSlopeNorm
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)
from matplotlib.transforms import ScaledTranslation

from respath.quantities.rounding import fixed, human_tokens, short_count
from respath.quantities.verdicts import TOO_FEW
from respath.reporting.looks import (
    BEHIND,
    HAIR,
    INK,
    PAGE,
    PALETTE,
    SMALL,
    SOFT,
    VERDICT_LOOKS,
    WHITE,
    drawn,
    fitted,
    line_looks,
    spread,
    width_of,
)
from respath.reporting.panels.captions import decimals_of, estimate_text
from respath.reporting.panels.data import COLOURED, Drawn, Line, Mark
from respath.reporting.panels.training import EXTRAPOLATED

#: Every mark of a line gets a marker up to so many of them; a longer line a few.
_MARKED, _A_FEW = 32, 5
#: Most rows and columns of a matrix whose numbers are written into it.
_NUMBERED = 8
#: Inches of a cell that such a number needs.
_CELL = 0.24
#: Shares of a training whose losses would flatten the rest of a panel, and are cut off.
_SKIP = {"difference": 0.08, "tokens": 0.25}
#: Kinds whose intervals are bars, side by side; those of the others are bands.
_BARRED = ("sweep", "sizes", "crossing")
#: Ratio of the ends of an axis or a colour bar below which it needs no powers of ten; of a logarithmic axis at least.
_DECADES, _NARROWEST = 30, 1.5
#: An interval leaves the axis where it is longer than so many times all else.
_LONGEST = 1.6
#: Columns of small multiples.
MANY_COLUMNS = 3
#: Inches of a row of dots, of a label's sample and lines, at most of a label.
ROW, _SAMPLE, _LABEL_LINE, LABEL = 0.27, 0.24, 0.135, 1.25
SEQUENTIAL = "cividis"
DIVERGING = LinearSegmentedColormap.from_list("about", (PALETTE[1], WHITE, PALETTE[2]))

_REFERENCE = {"color": SOFT, "linestyle": (0, (3, 2)), "linewidth": 0.9}
_TEXT = {"fontsize": SMALL, "color": INK}
_QUIET = {"fontsize": SMALL, "color": SOFT}


def is_many(panel: Drawn) -> bool:
    """Are these more models than colours, so that each gets axes of its own?"""
    return panel.form == "lines" and panel.definition.kind != "tokens" and len(_shown(panel)) > COLOURED - 1


def _shown(panel: Drawn) -> list[Line]:
    """Lines of ours; where differences are drawn, the baseline is the line at zero."""
    return [
        line
        for line in panel.of("ours")
        if any(_read(panel, mark) is not None or mark.diverged for mark in line.marks)
    ]


def _read(panel: Drawn, mark: Mark) -> float | None:
    """What is drawn of a mark: its difference, or its level."""
    if mark.value is None or not panel.differences:
        return mark.value
    return mark.difference.value if mark.difference else None


def _ends(panel: Drawn, mark: Mark) -> tuple[float, float] | None:
    """Ends of a mark's interval; beside a level, those of its difference, shifted to where the level is drawn."""
    found = mark.difference
    if found is None or found.low is None or mark.value is None:
        return None
    shift = _read(panel, mark) - found.value
    return found.low + shift, found.high + shift


# --- paired differences, and bars ------------------------------------------------------------------------------------


def dots(axes: Axes, panel: Drawn, look: Mapping) -> None:
    """A row per run: mark, interval, seeds and the printed value; numbers and verdict right of it."""
    rows = panel.of("ours")
    printed = {line.id: line.marks[0] for line in panel.of("printed")}
    digits, room = decimals_of(panel), numbers_room(panel)
    low, high = _row_limits(panel)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(low, high)
    if panel.differences:
        axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
    for y, line in enumerate(rows):
        mark = line.marks[0]
        colour, _, marker = VERDICT_LOOKS.get(mark.verdict, (INK, "", "o"))
        value = _read(panel, mark)
        if (ends := _ends(panel, mark)) is not None:
            _bar(axes, y, ends, colour)
        if mark.difference and len(mark.difference.by_seed) > 1:
            axes.vlines(mark.difference.by_seed, y - 0.2, y + 0.2, color=colour, linewidth=0.9, zorder=3)
        if value is not None:
            face = colour if len(mark.seeds) > 1 else PAGE
            axes.plot(
                [value], [y], marker=marker, color=colour, markerfacecolor=face, markersize=5.5, zorder=4
            )
        if mark.diverged:
            axes.plot([high], [y], marker="x", color=colour, markersize=6, clip_on=False, zorder=4)
        place = _read(panel, printed[line.id]) if line.id in printed else None
        if place is not None:
            axes.plot([place], [y + 0.27], **_PRINTED, zorder=5)
        _row_texts(axes, y, mark, _numbers(mark, digits), room)
    _row_names(axes, rows)
    axes.xaxis.set_major_locator(MaxNLocator(_ticks_that_fit(axes, 5)))
    if panel.differences:
        axes.xaxis.set_major_formatter(_Signed())
        axes.annotate(
            f"← lower\u2003 0 = {drawn(panel.against)} \u2003higher →",
            (0, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            **_QUIET,
        )


_PRINTED = {
    "marker": "D",
    "color": INK,
    "markerfacecolor": PAGE,
    "markersize": 4,
    "linestyle": "none",
    "markeredgewidth": 0.9,
}


def _row_limits(panel: Drawn) -> tuple[float, float]:
    """Room for zero, means, seeds and printed values; an interval much longer than all of them leaves the axis."""
    rows = {line.id for line in panel.of("ours")}
    marks = [line.marks[0] for role in ("ours", "printed") for line in panel.of(role) if line.id in rows]
    values = [value for mark in marks if (value := _read(panel, mark)) is not None]
    values += [
        seed for mark in marks if panel.differences and mark.difference for seed in mark.difference.by_seed
    ]
    values += [0.0] if panel.differences else []
    if not values:
        return -1.0, 1.0
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    ends = [end for mark in marks if (pair := _ends(panel, mark)) for end in pair]
    low = min([low, *(max(end, low - _LONGEST * span) for end in ends)])
    high = max([high, *(min(end, high + _LONGEST * span) for end in ends)])
    room = 0.06 * (high - low)
    return low - room, high + room


def _bar(axes: Axes, y: float, ends: tuple[float, float], colour: str) -> None:
    """An interval; where it leaves the axis it ends in an arrow."""
    low, high = axes.get_xlim()
    axes.hlines(y, max(ends[0], low), min(ends[1], high), color=colour, linewidth=1.6, zorder=2)
    for end, edge, marker in ((ends[0], low, "<"), (ends[1], high, ">")):
        if (end < low) if marker == "<" else (end > high):
            axes.plot([edge], [y], marker=marker, color=colour, markersize=5, clip_on=False, zorder=3)


def _numbers(mark: Mark, digits: int) -> str:
    """What stands right of a row."""
    if mark.diverged:
        return mark.note
    return estimate_text(mark.difference, digits) if mark.difference else "baseline"


def numbers_room(panel: Drawn) -> float:
    """Inches that the rows' numbers take."""
    digits = decimals_of(panel)
    return 0.05 + max(width_of(_numbers(line.marks[0], digits)) for line in panel.of("ours"))


def _row_texts(axes: Axes, y: float, mark: Mark, numbers: str, room: float) -> None:
    """Right of a row: value and interval, then the verdict."""
    at = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    at |= {"ha": "left", "annotation_clip": False}
    axes.annotate(numbers, (1, y), xytext=(9, 0), **at, **(_QUIET if mark.diverged else _TEXT))
    colour, sign, _ = VERDICT_LOOKS.get(mark.verdict, (SOFT, "", "o"))
    one = len(mark.seeds) == 1 and mark.verdict in ("", TOO_FEW)
    words = "one seed" if one else mark.verdict.removesuffix(" at this scale")
    axes.annotate(
        f"{sign} {words}".strip(), (1, y), xytext=(room * 72 + 14, 0), **at, fontsize=SMALL, color=colour
    )


#: Inches of a row's verdict.
VERDICT = 0.98


def _row_names(axes: Axes, rows: Sequence[Line]) -> None:
    """Names left of the rows, and a thin line with its name where a group begins."""
    axes.set_yticks(range(len(rows)), [drawn(fitted(line.label, LABEL + 0.4)) for line in rows])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    for y, (line, before) in enumerate(zip(rows, [None, *rows[:-1]], strict=True)):
        if line.group and (before is None or before.group != line.group):
            if before is not None:
                axes.axhline(y - 0.5, color=HAIR, linewidth=0.7)
            axes.annotate(
                drawn(line.group),
                (0, y - 0.5),
                xycoords=axes.get_yaxis_transform(),
                xytext=(3, -2),
                textcoords="offset points",
                va="top",
                **_QUIET,
            )


class _Signed(Formatter):
    """Ticks of differences: as many decimals as the finest of them needs, and a sign."""

    def set_locs(self, locs: Sequence[float]) -> None:
        self.decimals = max((len(f"{tick:.6f}".rstrip("0").partition(".")[2]) for tick in locs), default=0)

    def __call__(self, value: float, pos: int | None = None) -> str:
        if abs(value) < 1e-12:
            return "0"
        return fixed(value, self.decimals, sign=True).replace("-", "−")


def bars(axes: Axes, panel: Drawn, look: Mapping) -> None:
    """What has a zero: horizontal, the longest first, its value at the end."""
    rows = sorted(panel.of("ours"), key=lambda line: -(line.marks[0].value or 0))
    for y, line in enumerate(rows):
        mark = line.marks[0]
        if mark.value is None:
            continue
        axes.barh(y, mark.value, height=0.6, color=look[line.id]["color"], zorder=2)
        axes.annotate(
            f"{mark.value:,.4g}",
            (mark.value, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
            **_TEXT,
        )
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.02 * max(line.marks[0].value or 0 for line in rows))
    _row_names(axes, rows)


# --- lines -----------------------------------------------------------------------------------------------------------


def lines(axes: Axes, panel: Drawn, look: Mapping, comparable: bool = False) -> None:
    """Lines with the interval of their paired difference; names at their ends."""
    shown = _shown(panel)
    crowd = len(shown) > COLOURED
    places = _places(panel)
    for k, line in enumerate(shown):
        style = look[line.id]
        if crowd and line.slot:
            style = {"color": BEHIND, "linewidth": 0.9, "marker": "none"}
        _line(
            axes,
            panel,
            line,
            style,
            places,
            k - (len(shown) - 1) / 2 if panel.definition.kind in _BARRED else 0,
        )
    if panel.differences or comparable:
        for line in panel.of("printed"):
            _printed(axes, panel, line, look, places)
    if not panel.differences:
        _fits(axes, panel, look)
    _references(axes, panel, places)
    _limits(axes, panel, comparable)
    _x_axis(axes, panel)
    named = [line for line in shown if not (crowd and line.slot)]
    _end_labels(axes, panel, named, look, places)


def _printed(axes: Axes, panel: Drawn, line: Line, look: Mapping, places: Callable) -> None:
    """Printed values as open diamonds in the colour of their model."""
    points = [(places(mark), value) for mark in line.marks if (value := _read(panel, mark)) is not None]
    if points:
        colour = look[line.id]["color"] if line.id in look else INK
        axes.plot(*zip(*points, strict=True), **_PRINTED | {"color": colour}, zorder=5)


def many(cells: Sequence[Axes], panel: Drawn, look: Mapping) -> None:
    """One small panel per model, all others grey behind it, on shared axes."""
    places = _places(panel)
    shown = _shown(panel)
    baseline = next((line for line in shown if line.slot == 0), None)
    for axes, line in zip(cells, [line for line in shown if line is not baseline], strict=False):
        for other in shown:
            if other is not line:
                style = {"color": INK if other is baseline else BEHIND, "linewidth": 0.7, "marker": "none"}
                _line(axes, panel, other, style, places, 0, alone=True)
        _line(axes, panel, line, look[line.id], places, 0)
        for other in panel.of("printed"):
            if other.id == line.id and panel.differences:
                _printed(axes, panel, other, look, places)
        _references(axes, panel, places)
        _limits(axes, panel)
        _x_axis(axes, panel)
        below = cells.index(axes) + MANY_COLUMNS < len(cells)
        axes.set_xlabel("" if below or cells.index(axes) % MANY_COLUMNS else axes.get_xlabel(), loc="left")
        axes.tick_params(labelbottom=not below)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(
            drawn(fitted(line.label, axes.get_position().width * axes.figure.get_figwidth())),
            fontsize=SMALL,
            color=INK,
            pad=3,
        )


def _places(panel: Drawn) -> Callable[[Mark], float]:
    """Where a mark stands: at its x, or, of sizes whose differences are drawn, in its column."""
    if panel.definition.kind != "sizes" or not panel.differences:
        return lambda mark: mark.x
    ticks = _ticks(panel)
    columns = {tick: column for column, tick in enumerate(ticks.values())}
    return lambda mark: columns.get(mark.tick, columns.get(ticks.get(mark.x), mark.x))


def _ticks(panel: Drawn) -> dict[float, str]:
    """Place -> what the axis says there, from left to right."""
    found = {mark.x: mark.tick for line in panel.of("ours") for mark in line.marks if mark.tick}
    return dict(sorted(found.items()))


def _line(
    axes: Axes, panel: Drawn, line: Line, style: Mapping, places: Callable, shift: float, alone: bool = False
) -> None:
    """Connected between neighbours that were measured with the same seeds; open where there was one seed; × where one diverged.

    ``alone``: the course alone, coarsely, behind another line.
    """
    if alone and len(line.marks) > 2 * _MARKED:
        line = dataclasses.replace(line, marks=line.marks[:: -(-len(line.marks) // (2 * _MARKED))])
    dodge = axes.transData + ScaledTranslation(shift * 3 / 72, 0, axes.figure.dpi_scale_trans)
    x, y = [], []
    before: Mark | None = None
    for mark in line.marks:
        value = _read(panel, mark)
        if before is not None and value is not None and before.seeds != mark.seeds:
            x.append(places(mark))
            y.append(math.nan)
        x.append(places(mark))
        y.append(math.nan if value is None else value)
        before = mark if value is not None else None
    plain = {key: value for key, value in style.items() if key != "marker"}
    axes.plot(x, y, **plain, transform=dodge, zorder=3)
    marks = [mark for mark in line.marks if _read(panel, mark) is not None]
    if style["marker"] != "none":
        every = 1 if len(marks) <= _MARKED else max(1, len(marks) // _A_FEW)
        kinds: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for mark in marks[every // 2 :: every]:
            one = len(mark.seeds) == 1 and mark.seeds != (None,)
            extrapolated = mark.note == EXTRAPOLATED
            look = (
                "^" if extrapolated else style["marker"],
                PAGE if one or extrapolated else style["color"],
            )
            kinds.setdefault(look, []).append((places(mark), _read(panel, mark)))
        for (marker, face), points in kinds.items():
            axes.plot(
                *zip(*points, strict=True),
                linestyle="none",
                color=style["color"],
                marker=marker,
                markerfacecolor=face,
                markersize=4.5,
                transform=dodge,
                zorder=4,
            )
    for mark in line.marks:
        if mark.diverged and not alone:
            axes.annotate(
                "×",
                (places(mark), 1),
                xycoords=axes.get_xaxis_transform(),
                ha="center",
                va="center",
                fontsize=11,
                color=style["color"],
                annotation_clip=False,
            )
    if alone:
        return
    found = [(places(mark), *ends) for mark in marks if (ends := _ends(panel, mark))]
    if panel.definition.kind not in _BARRED and len(found) > 1:
        at, low, high = zip(*found, strict=True)
        axes.fill_between(at, low, high, color=style["color"], alpha=0.16, linewidth=0, zorder=2)
    else:
        for at, low, high in found:
            axes.plot([at, at], [low, high], color=style["color"], linewidth=1.1, transform=dodge, zorder=2.5)


def _fits(axes: Axes, panel: Drawn, look: Mapping) -> None:
    """Fitted curves, thin; an arrow between sizes of equal loss."""
    for fit in panel.of("fit"):
        points = [(mark.x, mark.value) for mark in fit.marks]
        if fit.id.endswith(".equal-loss"):
            arrow = {"arrowstyle": "<|-|>", "color": SOFT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", points[0], points[1], arrowprops=arrow, zorder=4)
            continue
        axes.plot(*zip(*points, strict=True), color=look[fit.id.removesuffix(".fit")]["color"], linewidth=0.6)


def _references(axes: Axes, panel: Drawn, places: Callable) -> None:
    """The zero line of differences, and horizontal lines or marks of what is no run of ours."""
    if panel.differences:
        axes.axhline(0, color=INK, linewidth=0.9, zorder=1.5)
        return
    for line in panel.of("reference"):
        for mark in line.marks:
            if mark.x is None:
                axes.axhline(mark.value, **_REFERENCE, zorder=2)
            else:
                axes.plot([places(mark)], [mark.value], marker="_", color=SOFT, markersize=14, zorder=2)


def _limits(axes: Axes, panel: Drawn, comparable: bool = False) -> None:
    """Room for all that is drawn, save the first steps of a training and intervals that would flatten the rest."""
    ours = [
        (mark.x, value, _ends(panel, mark))
        for line in _shown(panel)
        for mark in line.marks
        if (value := _read(panel, mark)) is not None
    ]
    if not ours:
        return
    late = _SKIP.get(panel.definition.kind, 0.0) * max(x for x, *_ in ours)
    values = [value for x, value, _ in ours if x >= late] + ([0.0] if panel.differences else [])
    if panel.differences or comparable:
        values += [
            v for line in panel.of("printed") for mark in line.marks if (v := _read(panel, mark)) is not None
        ]
    if not panel.differences:
        values += [mark.value for line in panel.of("reference") for mark in line.marks]
    low, high = min(values), max(values)
    span = (high - low) or abs(high) * 0.02 or 1.0
    ends = [end for x, _, pair in ours if pair and x >= late for end in pair]
    low = min([low, *(max(end, low - _LONGEST * span) for end in ends)])
    high = max([high, *(min(end, high + _LONGEST * span) for end in ends)])
    scale = getattr(panel.definition.y, "scale", "linear")
    if scale == "log" and low > 0:
        _log_values(axes, low, high)
        return
    if panel.definition.kind == "crossing" and low > 0 and high > _DECADES * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 2, high * 2)
        return
    room = 0.07 * (high - low or span)
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if panel.differences:
        axes.yaxis.set_major_formatter(_Signed())


def _log_values(axes: Axes, low: float, high: float) -> None:
    """A logarithmic y axis; over little more than a decade its ticks are 1, 2 and 5 in plain figures."""
    axes.set_yscale("log")
    axes.set_ylim(low / 1.2, high * 1.2)
    if high < _DECADES * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _x_axis(axes: Axes, panel: Drawn) -> None:
    kind = panel.definition.kind
    marks = [mark for line in panel.of("ours") for mark in line.marks]
    axes.set_xlabel(drawn(panel.names()[0]))
    last = max(mark.x for mark in marks)
    if kind == "sizes" and panel.differences:
        ticks = list(_ticks(panel).values())
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.5, len(ticks) - 0.5)
    elif kind in ("sizes", "crossing"):
        said = _ticks(panel)
        points = list(said) or [mark.x for mark in marks]
        log_ticks(axes, points, lambda x: said.get(x, f"{x:,.0f}"), inches=0.62)
        room = max(max(points) / min(points), _NARROWEST) ** 0.1
        axes.set_xlim(min(points) / room, max(points) * room)
    elif kind == "tokens":
        divisor, unit = human_tokens(last)
        # The steep beginning is beyond the limits.
        axes.set_xlim(_SKIP[kind] * last, last)
        axes.xaxis.set_major_locator(MaxNLocator(_ticks_that_fit(axes, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
        axes.set_xlabel(unit)
    elif kind == "difference":
        axes.set_xlim(0, last)
        axes.xaxis.set_major_locator(MaxNLocator(_ticks_that_fit(axes, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    elif kind in ("sweep", "along"):
        is_log = panel.definition.x.scale == "log"
        points = [mark.x for mark in marks if mark.x > 0 or not is_log]
        low, high = min(points), max(points)
        if is_log:
            log_ticks(axes, points, short_count if low >= 1e4 else _rate)
            room = max(high / low, _NARROWEST) ** 0.08
            axes.set_xlim(low / room, high * room)
        else:
            room = 0.06 * (high - low) or 0.5
            axes.set_xlim(low - room, high + room)
            axes.xaxis.set_major_locator(MaxNLocator(_ticks_that_fit(axes, 5)))
    else:
        first = min(mark.x for mark in marks)
        room = 0.04 * (last - first) or 0.5
        axes.set_xlim(first - room, last + room)
        axes.xaxis.set_major_locator(MaxNLocator(_ticks_that_fit(axes, 9), integer=True))


def _end_labels(axes: Axes, panel: Drawn, named: Sequence[Line], look: Mapping, places: Callable) -> None:
    """Names right of the axes, spread so that none covers another, each with a sample of its line and a leader to its end."""
    entries: list[tuple[float, float, str, dict]] = []
    for line in named:
        mark = next((mark for mark in reversed(line.marks) if _read(panel, mark) is not None), None)
        if mark is not None:
            entries.append((places(mark), _read(panel, mark), line.label, dict(look[line.id])))
    edge = axes.get_xlim()[1]
    if panel.differences and panel.definition.kind != "difference":
        entries.append((edge, 0.0, panel.against, {"color": INK, "linestyle": "-", "marker": "none"}))
    elif not panel.differences:
        for line in panel.of("reference"):
            if line.label not in (entry[2] for entry in entries):
                entries.append((edge, line.marks[0].value, line.label, {**_REFERENCE, "marker": "none"}))
    if not entries or _is_alone(panel):
        return
    figure = axes.figure
    box = axes.get_position()
    width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [to_axes.transform((x, y)) for x, y, *_ in entries]
    wanted = [min(1.0, max(0.0, y)) for _, y in ends]
    texts = [_label(label) for _, _, label, _ in entries]
    most = max(text.count("\n") + 1 for text in texts)
    # Names of several lines stay beside the axes too.
    line, over = _LABEL_LINE / height, (most - 1) * _LABEL_LINE / height / 2
    placed = spread(wanted, most * line, over, 1 - over)
    for (end, _), y, at, text, (_, _, _, style) in zip(ends, wanted, placed, texts, entries, strict=True):
        start, sample, words = 1 + 0.1 / width, 1 + (0.1 + _SAMPLE) / width, 1 + (0.15 + _SAMPLE) / width
        leader = Line2D([min(1.0, end), 1.0, start], [y, y, at], color=BEHIND, linewidth=0.5)
        middle = Line2D([start, (start + sample) / 2, sample], [at] * 3, **style, markevery=[1], markersize=4)
        for line in (leader, middle):
            line.set(transform=axes.transAxes, clip_on=False)
            axes.add_line(line)
        axes.text(words, at, drawn(text), transform=axes.transAxes, va="center", linespacing=1.0, **_TEXT)


def _is_alone(panel: Drawn) -> bool:
    """Is there one line by definition, and not because the others are missing?"""
    return (
        not panel.differences
        and len([line for line in panel.lines if line.role != "fit" and line.role != "printed"]) == 1
    )


def _label(text: str) -> str:
    """A name beside a line in three lines at most; all of it is in the words of the figure."""
    lines = fitted(text, LABEL).split("\n")
    return "\n".join(lines if len(lines) <= 3 else [*lines[:2], f"{lines[2][:-1]}…"])


def label_room(panel: Drawn) -> float:
    """Inches right of the axes that names at the lines' ends take."""
    shown = _shown(panel)
    names = [line.label for line in shown if len(shown) <= COLOURED or not line.slot]
    names += [] if panel.differences else [line.label for line in panel.of("reference")]
    names += [panel.against] if panel.differences and panel.definition.kind != "difference" else []
    if not names or _is_alone(panel):
        return 0.12
    return max((width_of(_label(name)) for name in names), default=0.0) + _SAMPLE + 0.25


# --- axes ------------------------------------------------------------------------------------------------------------


def log_ticks(axes: Axes, values: Sequence[float], show: Callable[[float], str], inches: float = 0.4) -> None:
    """Ticks of a logarithmic x axis at the data, leaving out those whose labels, so many inches wide, would collide.

    Values that hardly differ (one size, counted with and without coefficients) stay close together.
    """
    axes.set_xscale("log")
    low, high = min(values), max(values)
    span = np.log(max(high / low, _NARROWEST))
    gap = min(0.5, inches / (axes.get_position().width * axes.figure.get_figwidth()))
    kept: list[float] = []
    for value in sorted(set(values)):
        if not any(np.log(value / other) < gap * span for other in kept):
            kept.append(value)
    if high < _NARROWEST * low:
        middle = np.sqrt(low * high)
        axes.set_xlim(middle / _NARROWEST, middle * _NARROWEST)
    if len(kept) > 1 and kept[-1] != high and kept[-1] != low:
        kept[-1] = high
    axes.xaxis.set_major_locator(FixedLocator(kept))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))


def _ticks_that_fit(axes: Axes, most: int) -> int:
    """How many ticks have room for their labels."""
    return max(2, min(most, int(axes.get_position().width * axes.figure.get_figwidth() / 0.4)))


def _rate(value: float) -> str:
    """3e-4 rather than 0.0003."""
    if 0 < value < 0.01:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def log_bar(axis: Axis, low: float, high: float) -> None:
    """A handful of ticks in plain figures: powers of ten are too few over two decades, and all between them too many."""
    if high < _DECADES * low:
        axis.set_major_locator(MaxNLocator(4, min_n_ticks=2))
    else:
        steps = (1, 3) if high < 1000 * low else (1,)
        exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
        ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
        axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


# --- heat maps -------------------------------------------------------------------------------------------------------


def values_of(panel: Drawn) -> np.ndarray:
    """The values of a heat map; NaN where there is none, and above the diagonal of a symmetric matrix."""
    values = np.array([[np.nan if v is None else v for v in row] for row in panel.grid.values], dtype=float)
    square = values.shape[0] == values.shape[1] and len(values) > 1
    if square and np.isfinite(values).all() and np.allclose(values, values.T, rtol=1e-6, atol=1e-9):
        values[np.triu_indices(len(values), 1)] = np.nan
    return values


def colours_of(panels: Sequence[Drawn]) -> tuple[Normalize, str | Colormap]:
    """Limits and colours that panels of one quantity share: two colours about a value, or one sequence."""
    values = np.concatenate([array[np.isfinite(array)] for array in map(values_of, panels)])
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    definition = panels[0].definition
    if definition.value.scale == "log":
        positive = values[values > 0]
        low, high = (positive.min(), positive.max()) if len(positive) else (1.0, 10.0)
        return LogNorm(low, high if high > low else low * 10), SEQUENTIAL
    about = getattr(definition, "about", None)
    about = 0.0 if about is None and low < 0 < high else about
    if about is not None:
        reach = max(high - about, about - low) or 1.0
        return TwoSlopeNorm(about, about - reach, about + reach), DIVERGING
    return Normalize(low, high if high > low else low + 1), SEQUENTIAL


def heat(axes: Axes, panel: Drawn, norm: Normalize, colours: str | Colormap, last: bool = True):
    """A matrix with row 1 on top and its numbers where they are few; an array over positions with layer 1 at the bottom."""
    grid, values = panel.grid, values_of(panel)
    matrix = panel.definition.kind == "matrix"
    mesh = axes.pcolormesh(
        grid.x_edges,
        grid.y_edges,
        values,
        cmap=colours,
        norm=norm,
        rasterized=not matrix or values.size > 400,
    )
    axes.set(xlim=(grid.x_edges[0], grid.x_edges[-1]), ylim=(grid.y_edges[0], grid.y_edges[-1]))
    axes.grid(False)
    axes.yaxis.set_major_locator(MaxNLocator(5 if not matrix else 9, integer=True))
    axes.set_xlabel(drawn(panel.definition.x.label) if last else "")
    if matrix:
        axes.invert_yaxis()
        axes.set_aspect("equal", anchor="NW")
        axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    else:
        axes.set_xscale(panel.definition.x.scale)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    cell = axes.get_position().width * axes.figure.get_figwidth() / max(values.shape)
    if matrix and max(values.shape) <= _NUMBERED and cell >= _CELL:
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                at = (grid.x_edges[j] + 0.5, grid.y_edges[i] + 0.5)
                dark = np.mean(mesh.cmap(norm(value))[:3]) < 0.5
                colour = WHITE if dark else "#000000"
                axes.text(
                    *at,
                    fixed(value, 2 if abs(value) < 10 else 0).replace("-", "−"),
                    ha="center",
                    va="center",
                    fontsize=SMALL,
                    color=colour,
                )
    return mesh


def groups_of_heat(panels: Iterable[Drawn]) -> Iterator[list[Drawn]]:
    """Heat maps of one quantity under one name, which share limits and one colour bar."""
    found: dict[tuple[str, str, str], list[Drawn]] = {}
    for panel in panels:
        if panel.form == "heat":
            name = getattr(panel.definition, "series", None) or panel.definition.array
            found.setdefault((panel.definition.kind, name, panel.definition.value.label), []).append(panel)
    yield from found.values()


def looks(panel: Drawn) -> Mapping[str, dict]:
    """Colour, dashes and marker of every line of ours."""
    return line_looks({line.id: line.slot for line in panel.lines if line.role == "ours"})
