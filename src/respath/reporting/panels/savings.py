"""How savings at equal loss are told: per cent, with their standard error over seeds and what the fit leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from respath.comparison.statistics import mean, standard_error

Direction = Literal["fewer", "more"]


class Saved(NamedTuple):
    """Per cent saved: one value per seed, and the mean when a fit leaves out one size, for each of them."""

    by_seed: Sequence[float]
    without_one: Sequence[float] = ()


def saving_texts(
    of: str, direction: Direction, saved: Mapping[str, Saved], printed: float | None
) -> tuple[str, ...]:
    """A heading and one line per label that has values; nothing when none has."""
    sign = 1 if direction == "fewer" else -1
    lines = []
    for label, (by_seed, without_one) in saved.items():
        if not by_seed:
            continue
        value, error = mean(list(by_seed)), standard_error(list(by_seed))
        text = f"{label} {sign * value:.1f}" + (f" ± {error:.1f}" if error is not None else "") + " %"
        if len(without_one) > 1:
            low, high = sorted(sign * end for end in (min(without_one), max(without_one)))
            text += f" ({low:.1f} to {high:.1f})"
        lines.append(text.replace("-", "−"))
    if not lines:
        return ()
    head = f"{direction} {of} at equal loss:"
    return (head, *lines, *([f"printed {printed:g} %"] if printed is not None else []))
