"""How savings at equal loss are told: per cent with an interval that holds them, or not at all, with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from respath.papers.scales import Scale
from respath.quantities.rounding import fixed
from respath.quantities.statistics import Interval

Direction = Literal["fewer", "more"]


@dataclasses.dataclass(frozen=True)
class Saving:
    """Per cent that a variant saves at equal loss (below 0: needs more); None where the fit has no such point.

    ``interval``: at 95 %, around the value; of what, is said where it is made (``sizes.parameters_saved``,
    ``training.tokens_saved``). ``reason``: why the value is not told in the figure; empty when it is. The CSV has it anyway.
    """

    variant: str
    label: str
    value: float | None
    interval: Interval | None = None
    seeds: int = 1
    reason: str = ""

    @property
    def told(self) -> bool:
        """May the figure say it?"""
        return not self.reason


def unfit(scale: Scale) -> str:
    """Why no number may be fitted through a scale's losses; empty when some may."""
    return "" if scale.fits else f"scale {scale.id} only shows that everything runs"


def saving_texts(
    of: str, direction: Direction, savings: Sequence[Saving], printed: float | None
) -> tuple[str, ...]:
    """Lines for a corner of the panel: a heading and one line per saving that is told, and what the paper prints."""
    sign = 1 if direction == "fewer" else -1
    lines = []
    for saving in savings:
        if saving.told:
            low, high = sorted(sign * end for end in (saving.interval.low, saving.interval.high))
            lines.append(
                f"{saving.label} {fixed(sign * saving.value, 1)} % ({fixed(low, 1)} to {fixed(high, 1)})".replace(
                    "-", "−"
                )
            )
    head = f"{direction} {of} at equal loss"
    if not lines:
        return (f"{head}: printed {printed:g} %",) if printed is not None else ()
    return (f"{head} (95 %):", *lines, *([f"printed {printed:g} %"] if printed is not None else []))


def untold(savings: Sequence[Saving]) -> list[str]:
    """Sentences for the foot: whose savings the panel does not tell, and why."""
    reasons: dict[str, list[str]] = {}
    for saving in savings:
        if not saving.told:
            reasons.setdefault(saving.reason, []).append(saving.label)
    return [f"No saving told of {', '.join(labels)}: {reason}." for reason, labels in reasons.items()]
