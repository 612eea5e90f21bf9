"""One function per kind of panel that draws its axes, and the looks of lines."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from respath.reporting.looks import DASHES, MARKERS, dash_indices, legible
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
#: Mark of a horizontal line's sample in a legend.
REFERENCE = "reference"
#: Sequential, and monotone in grey too.
COLOURS = "cividis"
_QUIET = "#777777"


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
    if len(found) == 1 and panel.definition.kind not in ("sweep", "bars", "crossing"):
        return []
    return [(sample, text) for text, sample in found.items()]


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
    axes.text(0.5, 0.5, text, transform=axes.transAxes, **look)
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
    axes.set_xlabel(x, parse_math=False)
    axes.set_ylabel(value, parse_math=False)


def _texts(axes: Axes, panel: Drawn, corner: str) -> None:
    if not panel.texts:
        return
    bottom, left = corner.startswith("lower"), corner.endswith("left")
    axes.text(
        0.03 if left else 0.97,
        0.04 if bottom else 0.96,
        "\n".join(panel.texts),
        transform=axes.transAxes,
        ha="left" if left else "right",
        va="bottom" if bottom else "top",
        fontsize=6.5,
        color="#333333",
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
        zorder=4,
    )


def _log_ticks(axes: Axes, values: Sequence[float], show: Callable[[float], str], gap: float = 0.13) -> None:
    """Ticks of a logarithmic x axis at the data, leaving out those whose labels would collide."""
    axes.set_xscale("log")
    low, high = min(values), max(values)
    kept: list[float] = []
    for value in sorted(set(values)):
        near = [other for other in kept if high > low and np.log(value / other) < gap * np.log(high / low)]
        if not near:
            kept.append(value)
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
    """Lines with whiskers over a number."""
    _lines(axes, panel, look, whiskers=True)
    _sweep_axis(axes, panel, [mark.x for line in panel.of("ours") for mark in line.marks])
    _name(axes, panel)


def _sweep_axis(axes: Axes, panel: Drawn, values: Sequence[float]) -> None:
    if panel.definition.x.scale == "log":
        _log_ticks(axes, values, _rate)
        axes.margins(x=0.08)


def printed(axes: Axes, beside: Axes, panel: Drawn, look: Looks) -> None:
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
        _log_ticks(axes, values, short_count, gap=0.3)
    elif panel.definition.x.scale == "log":
        _log_ticks(axes, values, _rate, gap=0.2)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        if panel.definition.kind == "sweep" and not panel.is_empty:
            axes.set_xlim(beside.get_xlim())
    axes.margins(x=0.15, y=0.12)
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
    axes.set_xticks(range(count), [label for label, _ in panel.places])
    axes.xaxis.grid(False)
    longest = max(len(label) for label, _ in panel.places)
    if longest * count > 42:
        axes.tick_params(axis="x", rotation=90, labelsize=7.5)
    for text in axes.get_xticklabels():
        text.set_parse_math(False)
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
                names[start],
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
    """Lines around zero, with limits that the first steps do not flatten."""
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
    _log_ticks(axes, [mark.x for mark in line.marks], lambda value: f"{value:,.0f}")
    values = [mark.value for mark in line.marks]
    low, high = min(values), max(values)
    if high > _DECADES * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 2, high * 2)
    else:
        room = max(0.2 * (high - low), 0.1 * high)
        axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.margins(x=0.12)
    _texts(axes, panel, "upper left")
    _name(axes, panel)


def tokens(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Losses at every tenth of the training."""
    _lines(axes, panel, look)
    _robust(axes, panel, _SKIP["tokens"])
    last = max(mark.x for line in panel.of("ours") for mark in line.marks)
    divisor, unit = human_tokens(last)
    axes.set_xlim(0, last * 1.03)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
    _texts(axes, panel, "upper right")
    _name(axes, panel)
    axes.set_xlabel(unit)


def sizes(axes: Axes, panel: Drawn, look: Looks) -> None:
    """Marks at the models, the fits through them, and an arrow between sizes of equal loss."""
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
    _log_ticks(axes, [mark.x for line in panel.of("ours") for mark in line.marks], short_count, gap=0.16)
    axes.margins(x=0.1)
    _texts(axes, panel, "upper right")
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
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=5.5, color=colour)
    bar = axes.figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(panel.definition.value.label, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_linewidth(0.4)
    axes.set_xlabel(panel.definition.x.label)
    axes.set_ylabel(panel.definition.y.label)


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
        axes.set_ylabel(panel.definition.y.label if spec.colspan.start == 0 else "", fontsize=8)
        last = panel is panels[-1] or len(columns) > 1
        axes.set_xlabel(panel.definition.x.label if last else "", fontsize=8)
        if not last:
            axes.tick_params(labelbottom=False)
    shared = [places[panel.letter] for panel in panels]
    bar = figure.colorbar(mesh, ax=shared, location="bottom", fraction=0.05, pad=0.01, aspect=26)
    bar.set_label(panels[0].definition.value.label, fontsize=8)
    if isinstance(norm, LogNorm) and norm.vmax < _DECADES * norm.vmin:
        # Powers of ten are too few, and those between them too wide.
        bar.ax.xaxis.set_major_locator(MaxNLocator(4, min_n_ticks=2))
        bar.ax.xaxis.set_minor_locator(NullLocator())
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_linewidth(0.4)


DRAW: dict[str, Callable[[Axes, Drawn, Looks], None]] = {
    "sweep": sweep,
    "bars": bars,
    "layers": layers,
    "checkpoints": layers,
    "matrix": matrix,
    "positions": positions,
    "ranks": ranks,
    "difference": difference,
    "crossing": crossing,
    "tokens": tokens,
    "sizes": sizes,
}
