"""Panels of a series against another series of the same analysis: shares against thresholds, ranks against training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from respath.papers.figures import Along
from respath.reporting.panels.data import Drawn, Mark
from respath.reporting.panels.reader import Reader

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def along(reader: Reader, letter: str, panel: Along) -> Drawn:
    """One line per run: means over the seeds that have a number at each place."""
    lines = []
    for line in panel.lines:
        request = reader.request(panel.run, line.run)
        label = line.label or reader.label(request)
        places = reader.series(request, panel.at, label)
        heights = reader.series(request, panel.series, label)
        found: dict[float, list[float]] = {}
        for seed, values in heights.values.items():
            for x, y in zip(places.values.get(seed, ()), values, strict=False):
                if y is not None:
                    found.setdefault(float(x), []).append(y)
        marks = [_mark(x, values) for x, values in sorted(found.items())]
        id = (
            request.variant
            if panel.one_size(reader.artifact.definition.run)
            else f"{request.size}-{request.variant}"
        )
        lines.append(reader.line(request, marks, label=label, id=id))
    return Drawn(letter, panel, tuple(lines), empty="no analysed run")


def _mark(x: float, values: list[float]) -> Mark:
    from respath.quantities.statistics import mean, standard_error

    return Mark(x, mean(values), standard_error(values), len(values))


def draw(axes: Axes, panel: Drawn, look) -> None:
    """Lines with bands; the axis of the places as the panel says."""
    from respath.reporting.panels.axes import _lines, _name

    _lines(axes, panel, look)
    axes.set_xscale(panel.definition.x.scale)
    axes.set_yscale(panel.definition.y.scale)
    _name(axes, panel)
