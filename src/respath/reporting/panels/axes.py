"""One function per kind of panel that draws its axes, and the looks of lines."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from respath.quantities.rounding import fixed
from respath.reporting.looks import DASHES, MARKERS, dash_indices, drawn, fitted, legible
from respath.reporting.panels.along import draw as along_series
from respath.reporting.panels.data import Drawn, Mark, Shown
from respath.reporting.panels.training import EXTRAPOLATED
from respath.reporting.series import human_tokens, short_count

Look = dict[str, object]
Looks = Mapping[str, Look]

#: Every mark of a line gets a marker up to so many of them.
_MARKED = 32
#: Cells of a matrix whose numbers are written into it.
_NUMBERED = 100
#: Share of a training whose losses would flatten the rest of a panel.
_SKIP = {"difference": 0.08, "tokens": 0.4}
#: Ratio of the ends of an axis or a colour bar below which it needs no powers of ten.
_DECADES = 30
#: Ratio of the ends of a logarithmic axis at least.
_NARROWEST = 1.5
#: Mark of a horizontal line's sample in a legend.
REFERENCE = "reference"
#: Sequential, and monotone in grey too.
COLOURS = "cividis"
_QUIET = "#777777"
#: Inches of a bar's name in one line.
_LONGEST_TICK = 1.3


# --- looks -----------------------------------------------------------------------------------------------------------


def looks(panel: Drawn) -> Looks:
    """Colour, dashes and marker of every line of ours by id.

    Lines that share a colour run from dark to light where nothing else is drawn; beside others the first keeps its own.
    """
    ours = [line for line in panel.lines if line.role == "ours"]
    ours = list({line.id: line for line in ours}.values())
    indices = dash_indices([line.rank for line in ours])
    found = {}
    ramp = len(ours) > 2 and len({line.colour for line in ours}) == 1
    for line, index in zip(ours, indices, strict=True):
        alike = [other.id for other in ours if other.colour == line.colour]
        colour = _shade(line.colour, alike.index(line.id), len(alike), ramp)
        found[line.id] = {"color": colour, "linestyle": DASHES[index], "marker": MARKERS[index]}
    return found


def _shade(colour: str, k: int, n: int, ramp: bool) -> tuple[float, float, float]:
    """The k-th of n shades of a colour: a ramp from dark to light, or the colour itself and lighter ones."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*legible(colour))
    low, high = (0.2, 0.64) if ramp else (lightness, min(0.74, lightness + 0.24))
    return colorsys.hls_to_rgb(hue, low + (high - low) * k / max(1, n - 1), saturation)


def entries(panel: Drawn, look: Looks) -> list[tuple[Line2D, str]]:
    """Samples and names for a legend: lines of ours, then horizontal lines and named fits; none for heat maps and bars."""
    found: dict[str, Line2D] = {}
    if panel.grid is not None:
        return []
    if panel.definition.kind not in ("bars", "crossing"):
        for line in panel.of("ours"):
            style = dict(look[line.id])
            if panel.definition.kind == "difference":
                style.pop("marker")
            if line.id in _single(panel):
                style["linestyle"] = "none"
            found[line.label] = Line2D([], [], **style)
    for line in panel.of("reference"):
        if not line.marks[0].note:
            found.setdefault(line.label, Line2D([], [], gid=REFERENCE, **_REFERENCE))
    if panel.definition.kind == "crossing":
        for line in panel.of("fit"):
            found[line.label] = Line2D([], [], **_FIT)
    if _alone(panel) and len(found) == 1 and panel.definition.kind not in ("sweep", "bars", "crossing"):
        return []
    return [(sample, text) for text, sample in found.items()]


def _alone(panel: Drawn) -> bool:
    """Is there one line by definition, and not because the others are missing?"""
    return len([line for line in panel.lines if line.role == "ours"]) < 2


def _single(panel: Drawn) -> set[str]:
    """Lines of a sweep that are one point by definition, and not because the others are missing."""
    if panel.definition.kind != "sweep":
        return set()
    ours = [line for line in panel.lines if line.role == "ours"]
    return {line.id for line, spec in zip(ours, panel.definition.lines, strict=True) if len(spec.points) == 1}


_REFERENCE = {"color": "#555555", "linestyle": (0, (3, 2)), "linewidth": 0.9}
_FIT = {"color": "#555555", "linestyle": (0, (2, 1.5)), "linewidth": 0.8}


# --- parts -----------------------------------------------------------------------------------------------------------


def empty(axes: Axes, text: str) -> None:
    """Axes without data say why."""
    look = {"ha": "center", "va": "center", "fontsize": 8, "color": _QUIET, "style": "italic"}
    axes.text(0.5, 0.5, drawn(text), transform=axes.transAxes, **look)
    axes.set_xticks([])
    axes.set_yticks([])


def _columns(marks: Sequence[Mark]) -> tuple[list[float], list[float], list[float] | None]:
    errors = [mark.whisker for mark in marks]
    return (
        [mark.x for mark in marks],
        [mark.value for mark in marks],
        None if None in errors else errors,
    )


def _lines(axes: Axes, panel: Drawn, look: Looks, *, whiskers: bool = False) -> None:
    """All lines of ours, with error bars (whiskers) or bands, and the horizontal lines."""
    for line in panel.of("ours"):
        style = dict(look[line.id])
        x, y, errors = _columns(line.marks)
        if len(line.marks) > _MARKED:
            style.pop("marker")
        elif len(line.marks) == 1:
            style["linestyle"] = "none"
        axes.plot(x, y, **style, zorder=3)
        if errors is None:
            continue
        if whiskers or len(x) == 1:
            axes.errorbar(x, y, yerr=errors, fmt="none", ecolor=style["color"], elinewidth=0.9, zorder=2.5)
        else:
            low, high = np.array(y) - errors, np.array(y) + errors
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
    for line in panel.of("reference"):
        if not line.marks[0].note:
            axes.axhline(line.marks[0].value, **_REFERENCE, zorder=2)


def _name(axes: Axes, panel: Drawn) -> None:
    x, _, value = panel.names()
    axes.set_xlabel(drawn(x))
    axes.set_ylabel(drawn(value))


def log_ticks(axes: Axes, values: Sequence[float], show: Callable[[float], str], gap: float = 0.13) -> None:
    """Ticks of a logarithmic x axis at the data, leaving out those whose labels would collide.

    Values that hardly differ (one size, counted with and without coefficients) stay close together.
    """
    axes.set_xscale("log")
    low, high = min(values), max(values)
    span = np.log(max(high / low, _NARROWEST))
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


def _log_values(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic y axis; over little more than a decade its ticks are 1, 2 and 5 in plain figures."""
    axes.set_yscale("log")
    positive = [value for value in values if value > 0]
    if positive and max(positive) < _DECADES * min(positive):
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _rate(value: float) -> str:
    """3e-4 rather than 0.0003."""
    if 0 < value < 0.01:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}"


# --- kinds -----------------------------------------------------------------------------------------------------------


def sweep(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Lines with whiskers over a number; the axis has room for every point of the definition, drawn or not."""
    _lines(axes, panel, look, whiskers=True)
    if panel.definition.x.scale == "log":
        log_ticks(axes, panel.x_points, short_count if min(panel.x_points) >= 1e4 else _rate)
    axes.set_xlim(*_sweep_limits(panel))
    for line in panel.of("diverged"):
        # Where there is no loss there is no height: a cross at the upper edge.
        x = [mark.x for mark in line.marks]
        colour = look[line.id]["color"]
        axes.plot(x, [0.97] * len(x), "x", color=colour, transform=axes.get_xaxis_transform(), markersize=6)
    _name(axes, panel)


def _sweep_limits(panel: Drawn) -> tuple[float, float]:
    """Ends of the x axis of a sweep, the same for ours and for what is printed."""
    low, high = min(panel.x_points), max(panel.x_points)
    if panel.definition.x.scale == "log":
        room = max(high / low, _NARROWEST) ** 0.08
        return low / room, high * room
    room = 0.05 * (high - low) or 0.5
    return low - room, high + room


def printed(axes: Axes, panel: Drawn, look: Looks) -> None:
    """What the paper prints, in narrow axes of its own: another scale's losses are no match for these."""
    for line in panel.of("printed"):
        x, y, _ = _columns(line.marks)
        style = dict(look.get(line.id) or {"color": legible(line.colour), "marker": "o", "linestyle": "-"})
        axes.plot(x, y, **(style | {"markerfacecolor": "white", "linewidth": 0.9}), zorder=3)
    for line in panel.of("reference"):
        if line.marks[0].note:
            axes.axhline(line.marks[0].value, **_REFERENCE, zorder=2)
    values = [mark.x for line in panel.of("printed") for mark in line.marks]
    if panel.definition.kind == "sizes":
        log_ticks(axes, values, short_count, gap=0.3)
    elif panel.definition.x.scale == "log":
        log_ticks(axes, values, _rate, gap=0.2)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.margins(x=0.15, y=0.12)
    if panel.definition.kind == "sweep":
        axes.set_xlim(*_sweep_limits(panel))
    axes.set_title("printed", fontsize=8, color=_QUIET, style="italic")
    axes.tick_params(labelsize=7)


def same_heights(axes: Axes, beside: Axes) -> None:
    """Equal losses at equal heights, at a scale whose losses may be compared with the printed ones."""
    limits = [limit for one in (axes, beside) for limit in one.get_ylim()]
    for one in (axes, beside):
        one.set_ylim(min(limits), max(limits))


def bars(axes: Axes, panel: Drawn, look: Looks) -> None:
    """A stem from the reference to each value: what is read off is the distance."""
    base = next((line.marks[0].value for line in panel.of("reference") if not line.marks[0].note), None)
    colours = list(dict.fromkeys(line.colour for line in panel.of("ours")))
    for line in panel.of("ours"):
        mark, colour = line.marks[0], legible(line.colour)
        marker = MARKERS[colours.index(line.colour) % len(MARKERS)]
        if base is not None:
            axes.vlines(mark.x, base, mark.value, color=colour, linewidth=2.4, alpha=0.45, zorder=2)
        axes.plot(
            [mark.x], [mark.value], color=colour, marker=marker, linestyle="none", markersize=5.5, zorder=3
        )
        if mark.whisker is not None:
            axes.errorbar(
                [mark.x],
                [mark.value],
                yerr=[mark.whisker],
                fmt="none",
                ecolor="#333333",
                elinewidth=0.9,
                zorder=3.5,
            )
    if base is not None:
        axes.axhline(base, **_REFERENCE, zorder=2)
    count = len(panel.places)
    axes.set_xlim(-0.6, count - 0.4)
    axes.set_xticks(range(count), [drawn(fitted(label, _LONGEST_TICK, 7.5)) for label, _ in panel.places])
    axes.xaxis.grid(False)
    longest = max(len(re.sub(r"[$_{}\\]", "", label)) for label, _ in panel.places)
    if longest * count > 42:
        axes.tick_params(axis="x", rotation=90, labelsize=7.5)
    _groups(axes, panel)
    axes.margins(y=0.1)
    _printed_numbers(axes, panel)
    _name(axes, panel)


def _groups(axes: Axes, panel: Drawn) -> None:
    """A thin line between groups of bars, and their names at the top."""
    start = 0
    names = [group for _, group in panel.places]
    for place in range(1, len(names) + 1):
        if place < len(names) and names[place] == names[start]:
            continue
        if place < len(names):
            axes.axvline(place - 0.5, color="#cccccc", linewidth=0.7)
        if names[start]:
            middle = (start + place - 1) / 2
            axes.annotate(
                drawn(names[start]),
                (middle, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -2),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=7,
                color=_QUIET,
                style="italic",
            )
        start = place


def _printed_numbers(axes: Axes, panel: Drawn) -> None:
    """Printed values as numbers in a row under the highest mark's level, inside room made for them."""
    marks = [(line.marks[0].x, line.marks[0].value) for line in panel.of("printed")]
    note = next((line.marks[0].value for line in panel.of("reference") if line.marks[0].note), None)
    if not marks and note is None:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.3 * (high - low), high)
    look = {
        "xycoords": ("data", "axes fraction"),
        "ha": "center",
        "va": "bottom",
        "fontsize": 6.5,
        "color": "#333333",
    }
    for x, value in marks:
        axes.annotate(f"{value:g}", (x, 0.02), rotation=90, **look)
    text = "printed" + (f" (reference {note:g})" if note is not None else "")
    axes.annotate(
        text, (0.01, 0.205), xycoords="axes fraction", fontsize=6.5, color=_QUIET, style="italic", va="bottom"
    )


def layers(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Lines over the layer's number."""
    _lines(axes, panel, look)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    if panel.definition.y.scale == "log":
        _log_values(axes, [mark.value for line in panel.of("ours") for mark in line.marks])
    _name(axes, panel)


def difference(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Lines, with zero in sight and limits that the first steps do not flatten."""
    axes.axhline(0, color="#888888", linewidth=0.7)
    plain = {
        name: {key: value for key, value in style.items() if key != "marker"} for name, style in look.items()
    }
    for line in panel.of("ours"):
        x, y, errors = _columns(line.marks)
        axes.plot(x, y, **plain[line.id], zorder=3)
        if errors is not None:
            low, high = np.array(y) - errors, np.array(y) + errors
            axes.fill_between(x, low, high, color=plain[line.id]["color"], alpha=0.18, linewidth=0)
    _robust(axes, panel, _SKIP["difference"])
    low, high = axes.get_ylim()
    room = 0.04 * (high - low)
    axes.set_ylim(min(low, -room), max(high, room))
    longest = max(mark.x for line in panel.of("ours") for mark in line.marks)
    axes.set_xlim(0, longest)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _name(axes, panel)


def _robust(axes: Axes, panel: Drawn, skip: float) -> None:
    marks = [mark for line in panel.of("ours") for mark in line.marks]
    last = max(mark.x for mark in marks)
    late = [mark.value for mark in marks if mark.x >= skip * last]
    span = max(late) - min(late) or abs(late[0]) * 0.01 or 1.0
    axes.set_ylim(min(late) - 0.1 * span, max(late) + 0.1 * span)


def crossing(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Filled marks were observed, hollow ones are extrapolated."""
    (line,) = panel.of("ours")
    style = look[line.id]
    for mark in line.marks:
        face = "white" if mark.note == EXTRAPOLATED else style["color"]
        axes.plot(
            [mark.x],
            [mark.value],
            color=style["color"],
            marker="o",
            markersize=6,
            markerfacecolor=face,
            zorder=3,
        )
        if mark.stderr is not None:
            axes.errorbar(
                [mark.x], [mark.value], yerr=[mark.stderr], fmt="none", ecolor=style["color"], elinewidth=0.9
            )
    for fit in panel.of("fit"):
        x, y, _ = _columns(fit.marks)
        axes.plot(x, y, **_FIT)
    log_ticks(axes, [mark.x for mark in line.marks], lambda value: f"{value:,.0f}")
    values = [mark.value for mark in line.marks]
    if max(values) > _DECADES * min(values):
        axes.set_yscale("log")
        axes.set_ylim(min(values) / 2, max(values) * 2)
    else:
        ends = [mark.value + sign * (mark.stderr or 0) for mark in line.marks for sign in (-1, 1)]
        low, high = min(ends), max(ends)
        room = max(0.2 * (high - low), 0.1 * high)
        axes.set_ylim(max(0, low - room), high + room)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.margins(x=0.12)
    _name(axes, panel)


def tokens(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Losses at every tenth of the training."""
    _lines(axes, panel, look)
    _robust(axes, panel, _SKIP["tokens"])
    last = max(mark.x for line in panel.of("ours") for mark in line.marks)
    divisor, unit = human_tokens(last)
    axes.set_xlim(0, last * 1.03)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
    _name(axes, panel)
    axes.set_xlabel(unit)


def sizes(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Marks at the models, the fits through them, and an arrow between sizes of equal loss; room for every size."""
    for fit in panel.of("fit"):
        x, y, _ = _columns(fit.marks)
        if fit.id.endswith(".equal-loss"):
            arrow = {"arrowstyle": "<|-|>", "color": "#333333", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (x[0], y[0]), (x[1], y[1]), arrowprops=arrow, zorder=4)
            continue
        colour = look[fit.id.removesuffix(".fit")]["color"]
        axes.plot(x, y, color=colour, linewidth=0.6, alpha=0.8)
    for line in panel.of("ours"):
        style = look[line.id]
        x, y, errors = _columns(line.marks)
        fitted = any(fit.id == f"{line.id}.fit" for fit in panel.of("fit"))
        axes.plot(x, y, **(style | ({"linestyle": "none"} if fitted else {})), zorder=3)
        if errors is not None:
            axes.errorbar(x, y, yerr=errors, fmt="none", ecolor=style["color"], elinewidth=0.9)
    drawn = [mark.x for line in panel.of("ours") for mark in line.marks]
    log_ticks(axes, panel.x_points or drawn, short_count, gap=0.16)
    ends = (*panel.x_points, *drawn)
    room = (max(ends) / min(ends)) ** 0.1
    if max(ends) > _NARROWEST * min(ends):
        axes.set_xlim(min(ends) / room, max(ends) * room)
    _name(axes, panel)


def ranks(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Lines over the layer's number, largest value on top."""
    layers(axes, panel, look)


def matrix(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Row 1 on top; small matrices carry their numbers."""
    grid = panel.grid
    values = np.array([[np.nan if v is None else v for v in row] for row in grid.values], dtype=float)
    norm = _norm([values], panel.definition.value.scale)
    mesh = axes.pcolormesh(grid.x_edges, grid.y_edges, values, cmap=COLOURS, norm=norm, rasterized=True)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.grid(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(9, integer=True))
    if values.size <= _NUMBERED:
        for x, y, value in grid.cells():
            colour = "white" if norm(value) < 0.55 else "black"
            axes.text(
                x, y, fixed(value, 2).replace("-", "−"), ha="center", va="center", fontsize=5.5, color=colour
            )
    bar = axes.figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(drawn(panel.definition.value.label), fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_linewidth(0.4)
    axes.set_xlabel(drawn(panel.definition.x.label))
    axes.set_ylabel(drawn(panel.definition.y.label))


#: Where lines of text may stand, as (horizontal, vertical), the first without data being taken.
_PLACES = tuple((across, along) for along in ("top", "bottom") for across in ("right", "left", "center"))
_EDGE = {"left": 0.03, "right": 0.97, "bottom": 0.04, "top": 0.96, "center": 0.5}


def settle_texts(figure: Figure, places: Mapping[str, Axes], shown: Shown) -> None:
    """Write each panel's lines of text where nothing is drawn; where there is no such place, the panel gets room at its top.

    What is drawn is read off the picture itself, without its grid: lines, bands, whiskers and arrows alike.
    """
    panels = [panel for panel in shown.panels if panel.texts and not panel.is_empty]
    if not panels:
        return
    texts = {}
    for panel in panels:
        look = {"fontsize": 6.5, "color": "#333333", "zorder": 4}
        axes = places[panel.letter]
        width = 0.9 * axes.get_window_extent().width / figure.dpi
        lines = "\n".join(fitted(line, width, look["fontsize"]) for line in panel.texts)
        texts[panel.letter] = axes.text(0.5, 0.5, drawn(lines), transform=axes.transAxes, **look)
        texts[panel.letter].set_in_layout(False)
    ink = _ink(figure, list(texts.values()))
    crowded = [panel for panel in panels if not _settled(places[panel.letter], texts[panel.letter], ink)]
    for panel in crowded:
        axes, text = places[panel.letter], texts[panel.letter]
        share = text.get_window_extent().height / axes.get_window_extent().height + 0.08
        low, _ = axes.get_ylim()
        above = axes.transAxes.transform((0, 1 + share / (1 - min(share, 0.5))))
        axes.set_ylim(low, axes.transData.inverted().transform(above)[1])
        if shown.comparable and (beside := places.get(panel.letter.lower())):
            beside.set_ylim(axes.get_ylim())
    if crowded:
        ink = _ink(figure, list(texts.values()))
    for panel in crowded:
        _settled(places[panel.letter], texts[panel.letter], ink, least=True)


def _ink(figure: Figure, without: Sequence[Text]) -> np.ndarray:
    """Where the figure, which was laid out, is not white, (rows from the bottom, columns) in pixels, without grids and these
    texts."""
    canvas = FigureCanvasAgg(figure)
    grids = [
        line for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for line in axis.get_gridlines()
    ]
    hidden = [artist for artist in (*grids, *without) if artist.get_visible()]
    for artist in hidden:
        artist.set_visible(False)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[::-1, :, :3]
    for artist in hidden:
        artist.set_visible(True)
    return (picture < 250).any(axis=2)


def _settled(axes: Axes, text: Text, ink: np.ndarray, least: bool = False) -> bool:
    """Move a text to the first place without ink, or (``least``) to the one with the least; False where there is none."""
    found = []
    for across, along in _PLACES:
        text.set(ha=across, ma=across, va=along, position=(_EDGE[across], _EDGE[along]))
        box = text.get_window_extent().padded(3)
        rows, columns = slice(int(box.y0), int(box.y1) + 1), slice(int(box.x0), int(box.x1) + 1)
        found.append(int(ink[rows, columns].sum()))
        if not found[-1]:
            return True
    if least:
        across, along = _PLACES[found.index(min(found))]
        text.set(ha=across, ma=across, va=along, position=(_EDGE[across], _EDGE[along]))
    return False


def _norm(arrays: Sequence[np.ndarray], scale: str) -> Normalize:
    """Limits of the colours over all arrays that share them."""
    values = np.concatenate([array[np.isfinite(array)].ravel() for array in arrays])
    if scale == "log":
        positive = values[values > 0]
        low, high = (positive.min(), positive.max()) if len(positive) else (1.0, 10.0)
        return LogNorm(low, high if high > low else low * 10)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    return Normalize(low, high if high > low else low + 1)


def positions(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Axes of a heat map over positions; ``align`` draws it, because panels of one array share their colours."""
    axes.set_xscale(panel.definition.x.scale)
    axes.grid(False)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(labelsize=7)


def align(figure: Figure, places: Mapping[str, Axes], shown: Shown) -> None:
    """What panels of a kind share: colours of one array, limits of one series of ranks."""
    arrays: dict[str, list[Drawn]] = {}
    series: dict[str, list[Drawn]] = {}
    for panel in shown.panels:
        if panel.is_empty:
            continue
        if panel.definition.kind == "positions":
            arrays.setdefault(panel.definition.array, []).append(panel)
        elif panel.definition.kind == "ranks":
            series.setdefault(panel.definition.series, []).append(panel)
    for panels in arrays.values():
        _shared_heat(figure, places, panels)
    for panels in series.values():
        axes = [places[panel.letter] for panel in panels]
        low, high = min(a.get_ylim()[0] for a in axes), max(a.get_ylim()[1] for a in axes)
        for one in axes:
            one.set_ylim(low, high)


def _shared_heat(figure: Figure, places: Mapping[str, Axes], panels: Sequence[Drawn]) -> None:
    heats = [
        np.array([[np.nan if v is None else v for v in row] for row in p.grid.values], dtype=float)
        for p in panels
    ]
    norm = _norm(heats, panels[0].definition.value.scale)
    mesh = None
    for panel, heat in zip(panels, heats, strict=True):
        axes = places[panel.letter]
        grid = panel.grid
        mesh = axes.pcolormesh(grid.x_edges, grid.y_edges, heat, cmap=COLOURS, norm=norm, rasterized=True)
        axes.set_xlim(grid.x_edges[0], grid.x_edges[-1])
        axes.set_ylim(grid.y_edges[0], grid.y_edges[-1])
    columns = {places[panel.letter].get_subplotspec().colspan.start for panel in panels}
    for panel in panels:
        axes = places[panel.letter]
        spec = axes.get_subplotspec()
        axes.set_ylabel(drawn(panel.definition.y.label) if spec.colspan.start == 0 else "", fontsize=8)
        last = panel is panels[-1] or len(columns) > 1
        axes.set_xlabel(drawn(panel.definition.x.label) if last else "", fontsize=8)
        if not last:
            axes.tick_params(labelbottom=False)
    shared = [places[panel.letter] for panel in panels]
    bar = figure.colorbar(mesh, ax=shared, location="bottom", fraction=0.05, pad=0.01, aspect=26)
    bar.set_label(drawn(panels[0].definition.value.label), fontsize=8)
    if isinstance(norm, LogNorm):
        log_bar(bar.ax.xaxis, norm.vmin, norm.vmax)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_linewidth(0.4)


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
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


DRAW: dict[str, Callable[[Axes, Drawn, Looks], None]] = {
    "sweep": sweep,
    "bars": bars,
    "layers": layers,
    "checkpoints": layers,
    "along": along_series,
    "matrix": matrix,
    "positions": positions,
    "ranks": ranks,
    "difference": difference,
    "crossing": crossing,
    "tokens": tokens,
    "sizes": sizes,
}
