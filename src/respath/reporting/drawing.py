"""Drawing training curves with matplotlib: one style, one look per variant (colour and dashes), labels beside the lines."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from respath.papers.figures import Curves
from respath.reporting.looks import (
    DASHES,
    MARKERS,
    WIDTH,
    dash_indices,
    drawn,
    fitted,
    head_and_foot,
    legible,
    style,
    width_of,
    wrapped,
)
from respath.reporting.series import Series, human_tokens, spread

#: Shares of a training whose losses would flatten the rest of a panel, and are cut off.
_SKIP_LOSS, _SKIP_DIFFERENCE = 0.4, 0.15
#: Markers on each line.
_MARKERS = 6
#: Points of font size per inch of axes height that one label needs.
_LABEL_POINTS = 10.5
#: Points of the labels' font, and inches of the longest.
_LABEL_SIZE, _WIDEST_LABEL = 8, 1.9

__all__ = ["DASHES", "draw", "looks", "style"]


def looks(series: Series) -> dict[str, dict]:
    """Colour, dashes and marker of every variant: by its place in variants.yaml, moved on where two would be alike."""
    order = sorted(series.ranks, key=series.ranks.get)
    indices = dash_indices([series.ranks[variant] for variant in order])
    return {
        variant: {
            "color": legible(series.colours[variant]),
            "linestyle": DASHES[index],
            "marker": MARKERS[index],
        }
        for variant, index in zip(order, indices, strict=True)
    }


def draw(series: Series, definition: Curves, note: str) -> Figure:
    """The figure of a series; ``note`` (scale and seeds) stands above the panels. Call inside ``style()``."""
    figure = _curves(series, definition)
    head_and_foot(figure, note, " ".join(series.notes))
    return figure


def _axes(series: Series, widths: list[float], label_share: float) -> tuple[Figure, list[Axes]]:
    """Panels of relative widths; room at the right for leaders (``label_share`` of the figure) and the longest label."""
    figure = Figure(figsize=(WIDTH, 3.1))
    longest = max(width_of(label, _LABEL_SIZE) for label in _end_labels(series).values())
    right = 1 - label_share - (longest + 0.12) / WIDTH
    foot = 0.165 + 0.035 * len(wrapped(" ".join(series.notes)).splitlines()) * bool(series.notes)
    grid = figure.add_gridspec(
        1, len(widths), width_ratios=widths, left=0.08, right=right, top=0.84, bottom=foot, wspace=0.3
    )
    return figure, [figure.add_subplot(grid[0, index]) for index in range(len(widths))]


def _end_labels(series: Series) -> dict[str, str]:
    """The names beside the lines' ends, long ones on several lines."""
    return {variant: fitted(label, _WIDEST_LABEL, _LABEL_SIZE) for variant, label in series.labels.items()}


def _lines(axes: Axes, series: Series, panel: str, *, bands: bool) -> dict[str, tuple[float, float]]:
    """Draw a panel's lines; the last point of each."""
    ends = {}
    found = looks(series)
    for place, (variant, look) in enumerate(found.items()):
        points = series.of(panel, variant)
        if not points:
            continue
        x, y = [p.x for p in points], [p.y for p in points]
        # A few markers, no two lines' at the same steps: ten dashes alone are hard to tell apart in grey.
        apart = max(1, len(points) // _MARKERS)
        axes.plot(x, y, **look, markevery=(place * apart // len(found), apart), markersize=3)
        errors = [p.stderr for p in points]
        if bands and None not in errors:
            low, high = np.array(y) - errors, np.array(y) + errors
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
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
    labels = _end_labels(series)
    most = max(labels[name].count("\n") + 1 for name in names)
    placed = spread(wanted, most * _LABEL_POINTS / height, 0.0, 1.0)
    look = looks(series)
    for name, y_end, y_label in zip(names, wanted, placed, strict=True):
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
            [1.06, 1.11, 1.16],
            [y_label] * 3,
            transform=axes.transAxes,
            **look[name],
            markevery=[1],
            markersize=3,
            clip_on=False,
        )
        axes.add_line(sample)
        look_of_text = {"fontsize": _LABEL_SIZE, "va": "center", "ha": "left", "color": "#222222"}
        axes.text(1.18, y_label, drawn(labels[name]), transform=axes.transAxes, **look_of_text)


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


def _curves(series: Series, definition: Curves) -> Figure:
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
            named = f"Difference from {series.labels[definition.baseline]} (nats/token)"
            if width_of(named, 9) < axes.get_position().width * WIDTH + 1:
                axes.set_title(drawn(named))
            _label_lines(axes, series, ends)
    if suffix:
        left.set_xlabel(f"{left.get_xlabel()}{suffix}")
    return figure
