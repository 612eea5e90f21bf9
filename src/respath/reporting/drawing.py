"""Drawing a series with matplotlib: one style, one look per variant (colour and dashes), labels beside the lines."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from respath.config.paper import Curves
from respath.config.paper import Figure as Definition
from respath.reporting.series import Series, human_tokens, short_count, spread

STYLE = Path(__file__).with_name("respath.mplstyle")

#: Dashes that differ without colour, in the order of variants.yaml; the baseline is first and solid.
DASHES = (
    (0, ()),
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (4, 1.2, 1, 1.2)),
    (0, (8, 2)),
    (0, (4, 1.2, 1, 1.2, 1, 1.2)),
    (0, (2.2, 1.2)),
    (0, (8, 1.5, 2, 1.5)),
    (0, (1, 2.2)),
    (0, (10, 1.2, 1, 1.2)),
)
MARKERS = "osD^vPX<>*"

#: Inches.
_WIDTH = 7.2
#: Shares of a training whose losses would flatten the rest of a panel, and are cut off.
_SKIP_LOSS, _SKIP_DIFFERENCE = 0.4, 0.15
#: Least distance of tick labels on a logarithmic axis, as a share of its length.
_TICK_GAP = 0.22
#: Points of font size per inch of axes height that one label needs.
_LABEL_POINTS = 10.5


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The figure style on top of matplotlib's own defaults: a user's matplotlibrc changes nothing."""
    with matplotlib.style.context(STYLE, after_reset=True):
        yield


def looks(series: Series) -> dict[str, dict]:
    """Colour, dashes and marker of every variant: by its place in variants.yaml, moved on where two would be alike."""
    used: set[int] = set()
    chosen = {}
    for variant, rank in sorted(series.ranks.items(), key=lambda item: item[1]):
        index = rank % len(DASHES)
        while index in used and len(used) < len(DASHES):
            index = (index + 1) % len(DASHES)
        used.add(index)
        chosen[variant] = {
            "color": series.colours[variant],
            "linestyle": DASHES[index],
            "marker": MARKERS[index],
        }
    return chosen


def draw(series: Series, definition: Definition, note: str) -> Figure:
    """The figure of a series; ``note`` (scale and seeds) stands above the panels. Call inside ``style()``."""
    figure = _curves(series, definition) if isinstance(definition, Curves) else _scaling(series, definition)
    figure.text(0.008, 0.985, note, fontsize=8, color="#555555", va="top", ha="left", style="italic")
    foot = " ".join(series.notes)
    if foot:
        figure.text(
            0.008,
            0.012,
            _wrapped(foot, 165),
            fontsize=7,
            color="#555555",
            va="bottom",
            ha="left",
            parse_math=False,
        )
    return figure


def _wrapped(text: str, width: int) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) + 1 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def _axes(series: Series, widths: list[float], label_share: float) -> tuple[Figure, list[Axes]]:
    """Panels of relative widths; room at the right for leaders (``label_share`` of the figure) and the longest label."""
    figure = Figure(figsize=(_WIDTH, 3.1))
    longest = max(
        TextPath((0, 0), label, size=8, prop=FontProperties()).get_extents().x1
        for label in series.labels.values()
    )
    right = 1 - label_share - (longest / 72 + 0.12) / _WIDTH
    foot = 0.165 + 0.035 * len(_wrapped(" ".join(series.notes), 165).splitlines()) * bool(series.notes)
    grid = figure.add_gridspec(
        1, len(widths), width_ratios=widths, left=0.08, right=right, top=0.84, bottom=foot, wspace=0.3
    )
    return figure, [figure.add_subplot(grid[0, index]) for index in range(len(widths))]


def _lines(
    axes: Axes, series: Series, panel: str, *, bands: bool, marked: bool = False
) -> dict[str, tuple[float, float]]:
    """Draw a panel's lines; the last point of each."""
    ends = {}
    for variant, look in looks(series).items():
        points = series.of(panel, variant)
        if not points:
            continue
        x, y = [p.x for p in points], [p.y for p in points]
        look = look if marked else {key: value for key, value in look.items() if key != "marker"}
        axes.plot(x, y, **look)
        errors = [p.stderr for p in points]
        if bands and None not in errors:
            low, high = np.array(y) - errors, np.array(y) + errors
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        if marked and None not in errors:
            axes.errorbar(x, y, yerr=errors, fmt="none", ecolor=look["color"], elinewidth=0.8, capsize=0)
        ends[variant] = (x[-1], y[-1])
    return ends


def _label_lines(axes: Axes, series: Series, ends: dict[str, tuple[float, float]]) -> None:
    """Names right of the axes, spread so that none covers another, each tied to its line's end by a leader of its dashes."""
    if not ends:
        return
    figure = axes.figure
    height = axes.get_position().height * figure.get_size_inches()[1] * 72
    low, high = axes.get_ylim()
    names = list(ends)
    # In axes fractions: labels stay beside the axes even when a line ends outside the shown range.
    wanted = [min(1.0, max(0.0, (ends[name][1] - low) / (high - low))) for name in names]
    placed = spread(wanted, _LABEL_POINTS / height, 0.0, 1.0)
    look = looks(series)
    for name, y_end, y_label in zip(names, wanted, placed, strict=True):
        colour, dashes = look[name]["color"], look[name]["linestyle"]
        axes.add_line(
            Line2D(
                [1.0, 1.03, 1.06],
                [y_end, y_end, y_label],
                transform=axes.transAxes,
                color="#bbbbbb",
                linewidth=0.5,
                clip_on=False,
            )
        )
        sample = Line2D(
            [1.06, 1.16],
            [y_label, y_label],
            transform=axes.transAxes,
            color=colour,
            linestyle=dashes,
            clip_on=False,
        )
        axes.add_line(sample)
        # Labels are data: a dollar in one is a dollar.
        look_of_text = {"fontsize": 8, "va": "center", "ha": "left", "color": "#222222", "parse_math": False}
        axes.text(1.18, y_label, series.labels[name], transform=axes.transAxes, **look_of_text)


def _token_axis(axes: Axes, points: list) -> None:
    longest = max((p.x for p in points), default=1.0)
    divisor, unit = human_tokens(longest)
    axes.set_xlim(0, longest * 1.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / divisor:g}"))
    axes.set_xlabel(unit)


def _robust_limits(axes: Axes, series: Series, panel: str, skip: float, pad: float = 0.06) -> None:
    """Limits that fit the lines after the first ``skip`` of training: the initial fall would flatten the rest."""
    points = [p for p in series.points if p.panel == panel]
    if not points:
        return
    late = [p.y for p in points if p.x >= skip * max(q.x for q in points)]
    span = max(late) - min(late) or abs(late[0]) * 0.01 or 1.0
    axes.set_ylim(min(late) - pad * span, max(late) + pad * span)


def _apart(ticks: list[float]) -> list[float]:
    """Ticks whose labels do not collide on a logarithmic axis: the ends, and those between with room on both sides."""
    gap = _TICK_GAP * math.log(ticks[-1] / ticks[0])
    kept = ticks[:1]
    for tick in ticks[1:-1]:
        if math.log(tick / kept[-1]) >= gap and math.log(ticks[-1] / tick) >= gap:
            kept.append(tick)
    return [*kept, ticks[-1]] if len(ticks) > 1 else kept


def _empty(axes: Axes, text: str) -> None:
    axes.text(
        0.5,
        0.5,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=8,
        color="#777777",
        style="italic",
    )
    axes.set_xticks([])
    axes.set_yticks([])


def _curves(series: Series, definition: Definition) -> Figure:
    figure, (left, right) = _axes(series, [1, 1.15], label_share=0.062)
    suffix = f", {series.window}" if series.window else ""
    for axes, panel, title in (
        (left, "loss", "Training loss"),
        (right, "difference", "Difference from the baseline"),
    ):
        points = [p for p in series.points if p.panel == panel]
        axes.set_title(f"{title} (nats/token)")
        if not points:
            _empty(axes, "no finished run")
            continue
        if panel == "difference":
            axes.axhline(0, color="#999999", linewidth=0.6)
        ends = _lines(axes, series, panel, bands=panel == "difference")
        _robust_limits(axes, series, panel, _SKIP_LOSS if panel == "loss" else _SKIP_DIFFERENCE)
        _token_axis(axes, points)
        if panel == "difference":
            title = f"Difference from {series.labels[definition.baseline]} (nats/token)"
            axes.set_title(title, parse_math=False)
            _label_lines(axes, series, ends)
    if suffix:
        left.set_xlabel(f"{left.get_xlabel()}{suffix}")
    return figure


def _scaling(series: Series, definition: Definition) -> Figure:
    figure, panels = _axes(series, [1, 0.8, 1], label_share=0.046)
    titles = ("Validation loss by size", "Printed in the paper", f"Training loss, {definition.curve_size}")
    for axes, panel, title in zip(panels, ("size", "paper", "loss"), titles, strict=True):
        points = [p for p in series.points if p.panel == panel]
        axes.set_title(title)
        if not points:
            _empty(axes, "nothing printed" if panel == "paper" else "no finished run")
            continue
        ends = _lines(axes, series, panel, bands=panel == "loss", marked=panel != "loss")
        if panel == "loss":
            _robust_limits(axes, series, panel, _SKIP_LOSS)
            _token_axis(axes, points)
            _label_lines(axes, series, ends)
            continue
        axes.set_xscale("log")
        # Ticks where the models are: one per size, read off the baseline's line (or the first that is drawn).
        first = next(iter(ends))
        ticks = [p.x for p in series.of(panel, definition.baseline if definition.baseline in ends else first)]
        axes.xaxis.set_major_locator(FixedLocator(_apart(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
        axes.margins(x=0.12)
        axes.set_xlabel("non-embedding parameters")
    panels[0].set_ylabel("nats per token")
    if series.window:
        panels[2].set_xlabel(f"{panels[2].get_xlabel()}, {series.window}")
    return figure
