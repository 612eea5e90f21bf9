"""Paired differences as small drawings in the rows of a table: mean, 95 % interval, seeds and the printed value on one axis."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from markupsafe import Markup

from respath.quantities.verdicts import Outcome

#: Ticks of an axis, about.
_TICKS = 5
#: An interval this many times the median one leaves the axis.
_WIDE = 4.0


@dataclasses.dataclass(frozen=True)
class Axis:
    """``low`` to ``high`` with ``ticks``, of differences in one unit."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> str:
        """The place of a value in per cent of the width, kept on the axis."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}"

    def holds(self, value: float) -> bool:
        """Is a value on the axis?"""
        return self.low <= value <= self.high

    @property
    def labels(self) -> list[tuple[str, str]]:
        """Place and text of each tick."""
        step = self.ticks[1] - self.ticks[0]
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [
            (self.at(tick), "0" if tick == 0 else f"{tick:+.{decimals}f}".replace("-", "−"))
            for tick in self.ticks
        ]


def axis_of(outcomes: Sequence[Outcome]) -> Axis | None:
    """An axis that holds zero and all intervals and seeds but the few that are far wider; printed values never stretch it."""
    spans = [
        (o.interval.low, o.interval.high) if o.interval else (min(o.values), max(o.values))
        for o in outcomes
        if o.values
    ]
    if not spans:
        return None
    widths = sorted(high - low for low, high in spans)
    most = _WIDE * widths[len(widths) // 2]
    kept = [span for span in spans if span[1] - span[0] <= most or most == 0] or spans
    low, high = min(0.0, *(low for low, _ in kept)), max(0.0, *(high for _, high in kept))
    if low == high:
        low, high = -1.0, 1.0
    rough = (high - low) / (_TICKS - 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(k * step, 12) + 0.0 for k in range(first, max(last, first + 1) + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def strip(outcome: Outcome, axis: Axis, mark: str) -> Markup:
    """One row: bar for the interval (an arrow where it leaves the axis), dot for the mean (open without an interval), ticks for
    seeds, a diamond below for the printed value where the axis holds it. ``mark``: class of the verdict."""
    parts = [
        f'<line class="{"z" if tick == 0 else "g"}" x1="{axis.at(tick)}%" x2="{axis.at(tick)}%" y1="0" y2="100%"/>'
        for tick in axis.ticks
    ]
    interval = outcome.interval
    if interval:
        parts.append(
            f'<line class="ci" x1="{axis.at(interval.low)}%" x2="{axis.at(interval.high)}%" y1="42%" y2="42%"/>'
        )
        for end, inwards in ((interval.low, 5), (interval.high, -5)):
            if not axis.holds(end):
                parts.append(
                    _placed(axis, end, "42%", f'<path class="ar" d="M{inwards}-5L0 0L{inwards} 5"/>')
                )
    if len(outcome.values) > 1:
        parts += [
            _placed(axis, value, "42%", '<path class="seed" d="M0-6V6"/>')
            for value in outcome.values
            if axis.holds(value)
        ]
    if outcome.value is not None and axis.holds(outcome.value):
        kind = "dot" if interval else "dot1"
        parts.append(f'<circle class="{kind}" cx="{axis.at(outcome.value)}%" cy="42%" r="4.4"/>')
    if outcome.printed is not None and axis.holds(outcome.printed):
        parts.append(
            _placed(axis, outcome.printed, "78%", '<path class="pr" d="M0-4.4L4.4 0L0 4.4L-4.4 0Z"/>')
        )
    return Markup(
        f'<svg class="strip v-{mark}" width="100%" height="100%" aria-hidden="true">{"".join(parts)}</svg>'
    )


def _placed(axis: Axis, value: float, y: str, mark: str) -> str:
    return f'<svg x="{axis.at(value)}%" y="{y}" style="overflow:visible">{mark}</svg>'
