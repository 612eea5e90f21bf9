"""How savings at equal loss are given: per cent with an interval that holds them, or not at all, with the reason."""

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
    ``training.tokens_saved``). ``reason``: why the caption does not give the value; empty when it does. The CSV has it anyway.
    """

    variant: str
    label: str
    value: float | None
    interval: Interval | None = None
    seeds: int = 1
    reason: str = ""

    @property
    def given(self) -> bool:
        """May the caption say it?"""
        return not self.reason


def unfit(scale: Scale) -> str:
    """Why no number may be fitted through a scale's losses; empty when some may."""
    return "" if scale.fits else f"scale {scale.id} only shows that everything runs"


def saving_sentence(of: str, direction: Direction, savings: Sequence[Saving], printed: float | None) -> str:
    """One sentence: who saves how much with which interval, and what the paper prints; empty where neither is known."""
    sign = 1 if direction == "fewer" else -1
    parts = []
    for saving in savings:
        if saving.given:
            low, high = sorted(sign * end for end in (saving.interval.low, saving.interval.high))
            numbers = f"{fixed(sign * saving.value, 1)} % [{fixed(low, 1)}, {fixed(high, 1)}]".replace(
                "-", "−"
            )
            parts.append(f"{saving.label} {numbers}")
    parts += [f"printed {printed:g} %"] if printed is not None else []
    return f"{direction.capitalize()} {of} at equal loss: {'; '.join(parts)}." if parts else ""


def withheld(savings: Sequence[Saving]) -> list[str]:
    """Sentences for the caption: whose savings it does not give, and why."""
    reasons: dict[str, list[str]] = {}
    for saving in savings:
        if not saving.given:
            reasons.setdefault(saving.reason, []).append(saving.label)
    return [f"No saving of {', '.join(labels)}: {reason}." for reason, labels in reasons.items()]
