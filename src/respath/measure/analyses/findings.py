"""What one analysis found: numbers, series over layers, and arrays, as plain data for JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Findings:
    """Results of one module under the names of ``respath.quantities.analyses``.

    ``reason`` says why names are missing or null: what this variant does not have.
    """

    scalars: dict[str, float | None] = dataclasses.field(default_factory=dict)
    series: dict[str, list] = dataclasses.field(default_factory=dict)
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: arrays by their shape, numbers that are not finite as null."""
        content: dict[str, Any] = {"scalars": plain(self.scalars), "series": plain(self.series)}
        if self.arrays:
            content["arrays"] = {name: list(array.shape) for name, array in self.arrays.items()}
        if self.reason:
            content["reason"] = self.reason
        return content


def plain(value: Any) -> Any:
    """Nested numbers as JSON has them; None for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None if value is None or not math.isfinite(value) else float(value)


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that exist; None where there is none."""
    present = [value for value in values if value is not None]
    return math.fsum(present) / len(present) if present else None


def ratio(top: float | None, bottom: float | None) -> float | None:
    """A quotient; None where it has no meaning."""
    return top / bottom if top is not None and bottom else None


def layers_without(series: Sequence[Any], what: str) -> str | None:
    """``layers 2-4 have no ...`` for the entries that are None; None when there is none of them."""
    absent = [n for n, value in enumerate(series, start=1) if value is None]
    if not absent:
        return None
    runs: list[list[int]] = []
    for n in absent:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    named = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"layer{'s' * (len(absent) > 1)} {named} {'have' if len(absent) > 1 else 'has'} no {what}"
