"""Means, standard errors and t intervals over a handful of seeds, or of model sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

#: Two-sided confidence of every interval, and the power at which an effect counts as detectable.
CONFIDENCE, POWER = 0.95, 0.80


@dataclasses.dataclass(frozen=True)
class Interval:
    """t interval of a mean (or of an estimate): ``low`` to ``high`` at CONFIDENCE, from ``n`` values.

    ``detectable``: the smallest distance from a bound at which an interval of this many values, with this spread, would
    clear the bound with probability POWER: (t(0.975) + t(0.80)) standard errors.
    """

    mean: float
    stderr: float
    low: float
    high: float
    n: int
    detectable: float


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ValueError for no values."""
    if not values:
        raise ValueError("the mean of no values")
    return math.fsum(values) / len(values)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean (n - 1 in the variance); None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (n - 1) / n)


def t_interval(values: Sequence[float]) -> Interval:
    """t interval of the mean of two or more values. Raises ValueError for fewer: one seed has no spread."""
    if len(values) < 2:
        raise ValueError(f"an interval needs at least two values, got {len(values)}")
    from scipy.stats import t  # heavy, and only claims need it

    n, centre, stderr = len(values), mean(values), standard_error(values)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * stderr
    detectable = detectable_effect(stderr * math.sqrt(n), n)
    return Interval(centre, stderr, centre - half, centre + half, n, detectable)


def jackknife_interval(estimate: float, without_one: Sequence[float]) -> Interval:
    """Interval of an estimate from n units by Tukey's delete-one jackknife.

    ``without_one``: the estimate recomputed n times, each time without one unit. With their mean m the standard error is
    sqrt((n - 1) / n * sum((e - m)^2)), and the interval is the estimate ± t(0.975, n - 1) standard errors: it always holds
    the estimate, which the mere range of ``without_one`` need not. Raises ValueError for fewer than two.
    """
    if len(without_one) < 2:
        raise ValueError(f"a jackknife needs at least two values, got {len(without_one)}")
    from scipy.stats import t  # as above

    n = len(without_one)
    centre = mean(without_one)
    stderr = math.sqrt(math.fsum((value - centre) ** 2 for value in without_one) * (n - 1) / n)
    half = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * stderr
    detectable = detectable_effect(stderr * math.sqrt(n), n)
    return Interval(estimate, stderr, estimate - half, estimate + half, n, detectable)


def detectable_effect(std: float, n: int) -> float:
    """Smallest effect that ``n`` paired differences of this standard deviation would show with probability POWER."""
    from scipy.stats import t

    quantiles = float(t.ppf(0.5 + CONFIDENCE / 2, n - 1)) + float(t.ppf(POWER, n - 1))
    return quantiles * std / math.sqrt(n)
