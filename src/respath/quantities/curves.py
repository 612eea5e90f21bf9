"""What is read off training curves and fits over sizes: pure functions of numbers."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

#: Steps over which a difference of training losses is smoothed before a crossing is read off (decision critical-point), and
#: the largest share of a shorter training: 100 of 40 steps would leave a straight line.
SMOOTHING_STEPS, SMOOTHING_SHARE = 100, 0.05
#: Share of a training, at its end, whose line is prolonged to a crossing that lies beyond it (the authors take 1,000 steps).
EXTRAPOLATED_SHARE = 0.1
#: Why a model with both curves at hand saves no tokens.
NEVER_REACHES = "its validation loss never reaches the other's final one"


def smooth(values: Sequence[float], width: int) -> np.ndarray:
    """Centred moving average of ``width`` points; near the ends over the points that there are. Shape: as ``values``."""
    import numpy as np

    points = np.asarray(values, dtype=float)
    if width <= 1 or len(points) == 0:
        return points
    sums = np.concatenate([[0.0], np.cumsum(points)])
    index = np.arange(len(values))
    low = np.maximum(0, index - (width - 1) // 2)
    high = np.minimum(len(values), index + width // 2 + 1)
    return (sums[high] - sums[low]) / (high - low)


def smoothing_steps(steps: int) -> int:
    """Steps of the moving average over a difference of training losses, in a training of ``steps``."""
    return max(1, round(min(SMOOTHING_STEPS, SMOOTHING_SHARE * steps)))


def relative_loss(
    curve: Mapping[int, float], baseline: Mapping[int, float], total: int
) -> tuple[list[int], list[float]]:
    """Steps that both curves (step -> loss) have, and the smoothed difference there; ``total`` steps of training."""
    steps = sorted(step for step in curve if step in baseline)
    if not steps:
        return [], []
    spacing = max(1, steps[-1] // len(steps))
    width = max(1, round(smoothing_steps(total) / spacing))
    return steps, smooth([curve[step] - baseline[step] for step in steps], width).tolist()


@dataclasses.dataclass(frozen=True)
class CriticalPoint:
    """Step from which on a difference of losses stays positive. Not ``observed``: a prolonged line says so."""

    step: float
    observed: bool


def critical_point(steps: Sequence[int], difference: Sequence[float], total: int) -> CriticalPoint | None:
    """Where a smoothed difference has become positive for good; None when it neither is nor heads there.

    While it is still negative at the end, a least-squares line through the last tenth of the training is prolonged
    (ResFormer Figure 10, right).
    """
    import numpy as np

    if not steps:
        return None
    behind = [index for index, value in enumerate(difference) if value <= 0]
    if not behind:
        return CriticalPoint(steps[0], True)
    if behind[-1] + 1 < len(steps):
        return CriticalPoint(steps[behind[-1] + 1], True)
    last = [(s, d) for s, d in zip(steps, difference, strict=True) if s > (1 - EXTRAPOLATED_SHARE) * total]
    if len(last) < 2:
        return None
    slope, intercept = np.polyfit([s for s, _ in last], [d for _, d in last], 1)
    crossing = -intercept / slope if slope > 0 else math.inf
    return CriticalPoint(float(crossing), False) if steps[-1] < crossing < math.inf else None


def parameters_at_loss(
    parameters: Sequence[float], losses: Sequence[float], loss: float, near: float
) -> float | None:
    """Parameters at which a quadratic of ``losses`` in log ``parameters`` has ``loss``; None where it never has.

    A quadratic has each loss twice; the branch that falls with size is the one near ``near``, a number of parameters.
    """
    import numpy as np

    fit = np.polyfit(np.log(np.asarray(parameters, dtype=float)), losses, 2)
    # A nearly flat fit reaches a loss at more parameters than a double holds: nowhere.
    largest = math.log(sys.float_info.max)
    roots = [
        root.real
        for root in np.roots(fit - [0.0, 0.0, loss])
        if abs(root.imag) < 1e-9 and root.real < largest
    ]
    log = math.log(near)
    return math.exp(min(roots, key=lambda root: abs(root - log))) if roots else None


def quadratic_fit(
    parameters: Sequence[float], losses: Sequence[float], points: int = 40
) -> list[tuple[float, float]]:
    """A least-squares quadratic in log parameters, at ``points`` places between the smallest and the largest model."""
    import numpy as np

    fit = np.polyfit(np.log(np.asarray(parameters, dtype=float)), losses, 2)
    places = np.geomspace(min(parameters), max(parameters), points)
    return [(float(n), float(np.polyval(fit, np.log(n)))) for n in places]


def exponential_fit(
    x: Sequence[float], y: Sequence[float], ends: tuple[float, float], points: int = 60
) -> tuple[str, list[float], list[float]]:
    """a exp(b x) by least squares of the logarithm: its formula, and its values at ``points`` places between two ends."""
    import numpy as np

    slope, intercept = np.polyfit(x, np.log(y), 1)
    # A flat fit has a slope of rounding dust.
    slope = 0.0 if abs(slope) * max(ends) < 1e-9 else slope
    places = np.geomspace(*ends, points)
    formula = f"{math.exp(intercept):.4g} exp({slope:.3g} T)".replace("-", "−")
    return formula, places.tolist(), np.exp(intercept + slope * places).tolist()


def saving_at_equal_loss(
    parameters: Sequence[float], left: Sequence[float], right: Sequence[float]
) -> float | None:
    """Mean over sizes of 1 - N / N_right at equal loss; None where the fitted quadratic never has that loss."""
    savings = []
    for size, loss in zip(parameters, right, strict=True):
        equal = parameters_at_loss(parameters, left, loss, size)
        if equal is None:
            return None
        savings.append(1 - equal / size)
    return math.fsum(savings) / len(savings)


def tokens_saved(left: Mapping[str, list], right: Mapping[str, list]) -> float | None:
    """Share of tokens after which left's loss first is right's final one, from 1; None where it never is.

    Curves: lists ``tokens`` and ``loss`` of equal length, losses on the same validation rows; left's is taken as straight between
    its points.
    """
    final = right["loss"][-1]
    reached = next((k for k, loss in enumerate(left["loss"]) if loss <= final), None)
    if reached is None:
        return None
    tokens = left["tokens"][reached]
    if reached and left["loss"][reached - 1] > final:
        (first, before), loss = (left[key][reached - 1] for key in ("tokens", "loss")), left["loss"][reached]
        tokens = first + (tokens - first) * (before - final) / (before - loss)
    return 1 - tokens / right["tokens"][-1]
