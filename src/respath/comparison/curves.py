"""Quantities that claims take from training curves and from fits over sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from respath.comparison.readings import Reading, missing, read_run
from respath.comparison.results import Results, imported
from respath.config.project import Project, Run
from respath.config.request import RunRequest

#: Steps over which a difference of training losses is smoothed before a crossing is read off (decision critical-point), and
#: the largest share of a shorter training: 100 of 40 steps would leave a straight line.
SMOOTHING_STEPS, SMOOTHING_SHARE = 100, 0.05
#: Share of a training, at its end, whose line is prolonged to a crossing that lies beyond it (the authors take 1,000 steps).
EXTRAPOLATED_SHARE = 0.1
#: Why an imported run has no curve.
NO_CURVE = "imported, without a training curve"
#: Why a model with both curves at hand saves no tokens.
NEVER_REACHES = "its training loss never reaches the other's final one"


def smooth(values: Sequence[float], width: int) -> np.ndarray:
    """Centred moving average of ``width`` points; near the ends over the points that there are. Shape: as ``values``."""
    values = np.asarray(values, dtype=float)
    if width <= 1 or len(values) == 0:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
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
    slope, intercept = np.polyfit(*zip(*last, strict=True), 1)
    crossing = -intercept / slope if slope > 0 else math.inf
    return CriticalPoint(float(crossing), False) if steps[-1] < crossing < math.inf else None


def _curve(results: Results, run: Run) -> tuple[dict[str, list] | None, Reading | None]:
    record = results.train(run.id)
    if record is None:
        return None, missing("not trained")
    if record.get("status") == "diverged":
        return None, Reading(state="diverged", reason=record.get("reason") or "training diverged")
    if not record.get("curve", {}).get("step"):
        return None, missing(NO_CURVE if imported(record) else "train.json holds no curve")
    return record["curve"], None


def early_loss(results: Results, run: Run) -> Reading:
    """Mean training loss over the first tenth of the steps after the warm-up (ResFormer Figure 10, early in training)."""
    curve, problem = _curve(results, run)
    if problem:
        return problem
    first = run.spec.recipe.warmup_steps
    last = first + max(1, run.spec.recipe.steps // 10)
    losses = [loss for step, loss in zip(curve["step"], curve["loss"], strict=True) if first < step <= last]
    return (
        Reading(math.fsum(losses) / len(losses))
        if losses
        else missing("the curve has no point early in training")
    )


def critical_step(project: Project, results: Results, paper: str, request: RunRequest, seed: int) -> Reading:
    """First step after which the smoothed loss stays above the baseline's of the same size, length and recipe.

    A crossing that is not reached counts as the last step plus one, later than any that was observed, and the reading says
    so; where a prolonged line would cross is told, never counted.
    """
    run = project.resolve(paper, request, seed)
    baseline = request.model_copy(update={"variant": project.accounting_defaults(paper).baseline})
    curve, problem = _curve(results, run)
    base, base_problem = _curve(results, project.resolve(paper, baseline, seed))
    if problem or base_problem:
        return problem or base_problem
    total = run.spec.recipe.steps
    losses = [dict(zip(one["step"], one["loss"], strict=True)) for one in (curve, base)]
    steps, difference = relative_loss(*losses, total)
    if not steps:
        return missing("the two curves share no step")
    found = critical_point(steps, difference, total)
    if found and found.observed:
        return Reading(found.step)
    beyond = f"; its prolonged line crosses at step {found.step:,.0f}" if found else ""
    return Reading(total + 1, reason=f"{run.id}: not reached in {total:,} steps{beyond}")


def parameter_saving(
    project: Project, results: Results, paper: str, sizes: Sequence[tuple[RunRequest, RunRequest]], seed: int
) -> Reading:
    """Per cent of parameters saved at equal loss, mean over sizes (ResFormer Figure 2 a).

    Left's loss is a quadratic in the logarithm of its parameters; at each size the saving is 1 - N / N_right, with N where
    the quadratic has right's loss. On v1's printed losses this gives 10.6 %, near v3's printed 10.4 %.
    """
    parameters, left_losses, right_losses = [], [], []
    for left, right in sizes:
        readings = [
            read_run(results, project.resolve(paper, side, seed), "loss.mean") for side in (left, right)
        ]
        for reading in readings:
            if reading.state != "measured":
                return reading
        account = results.account(
            paper, left.size, right.variant, "paper" if project.scale.id == "paper" else "scale"
        )
        if account is None:
            return missing(f"{results.accounts_path(paper)} has no {left.size}/{right.variant}")
        parameters.append(account["parameters"]["total"])
        left_losses.append(readings[0].value)
        right_losses.append(readings[1].value)
    if len(set(parameters)) < 3:
        return missing("a quadratic needs three different sizes")
    saved = saving_at_equal_loss(parameters, left_losses, right_losses)
    return (
        Reading(100 * saved)
        if saved is not None
        else missing("the quadratic does not reach the losses that it is compared with")
    )


def parameters_at_loss(
    parameters: Sequence[float], losses: Sequence[float], loss: float, near: float
) -> float | None:
    """Parameters at which a quadratic of ``losses`` in log ``parameters`` has ``loss``; None where it never has.

    A quadratic has each loss twice; the branch that falls with size is the one near ``near``, a number of parameters.
    """
    fit = np.polyfit(np.log(np.asarray(parameters, dtype=float)), losses, 2)
    roots = [root.real for root in np.roots(fit - [0.0, 0.0, loss]) if abs(root.imag) < 1e-9]
    log = math.log(near)
    return math.exp(min(roots, key=lambda root: abs(root - log))) if roots else None


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


def data_saving(
    project: Project, results: Results, paper: str, left: RunRequest, right: RunRequest, seed: int
) -> Reading:
    """Per cent of training tokens saved at equal loss: where left's smoothed training loss first is right's final one.

    The paper reads validation losses every 2B tokens; train.json holds the training curve.
    """
    curves = []
    for request in (left, right):
        curve, problem = _curve(results, project.resolve(paper, request, seed))
        if problem:
            return problem
        curves.append(curve)
    losses = [smooth(curve["loss"], max(1, len(curve["loss"]) // 20)) for curve in curves]
    reached = np.flatnonzero(losses[0] <= losses[1][-1])
    if len(reached) == 0:
        return missing(NEVER_REACHES)
    return Reading(100 * (1 - curves[0]["tokens"][reached[0]] / curves[1]["tokens"][-1]))
