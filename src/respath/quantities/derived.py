"""Metrics that are functions of other quantities, seed by seed. Each names its inputs, so that planning knows what it needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from respath.config.request import RunRequest, merged
from respath.quantities import curves
from respath.quantities.analyses import CATALOGUE
from respath.quantities.quantity import Quantity, Reading, is_number, missing

#: Inputs and own facts at one seed -> the value. ``inputs`` are in the order of ``Derived.inputs``.
Compute = Callable[[Quantity, Sequence[Reading]], Reading]
#: A quantity and the paper's baseline variant -> what it is computed from.
Inputs = Callable[[Quantity, str], tuple[Quantity, ...]]


@dataclasses.dataclass(frozen=True)
class Derived:
    """One derived metric.

    ``inputs``: the quantities that it is computed from, given the paper's baseline variant. ``compute``: its value at one seed
    from theirs; called only where all of them are measured. ``compares``: it needs ``against`` and is itself the comparison;
    otherwise ``against`` is subtracted, as from any metric. ``worst``: where a diverged run's value ranks, as of kinds.
    """

    title: str
    inputs: Inputs
    compute: Compute
    unit: str = ""
    compares: bool = False
    along: bool = False
    worst: int = 0


def _recipe(request: RunRequest, *names: str) -> tuple[Quantity, ...]:
    return tuple(Quantity(f"spec.recipe.{name}", request, own_scale=True) for name in names)


def _losses(curve: Mapping[str, list]) -> dict[int, float]:
    return dict(zip(curve["step"], curve["loss"], strict=True))


# --- training curves -----------------------------------------------------------------------------------------------


def _early_inputs(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
    return (Quantity("train.curve", quantity.subject), *_recipe(quantity.run, "warmup_steps", "steps"))


def _early(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
    curve, first, steps = (reading.value for reading in inputs)
    last = first + max(1, steps // 10)
    losses = [loss for step, loss in _losses(curve).items() if first < step <= last]
    if not losses:
        return missing("the curve has no point early in training")
    return Reading(math.fsum(losses) / len(losses))


def _critical_inputs(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
    other = quantity.run.model_copy(update={"variant": baseline})
    curve = (Quantity("train.curve", quantity.subject), Quantity("train.curve", other))
    return (*curve, *_recipe(quantity.run, "steps"))


def _critical(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
    """A crossing that is not reached counts as the last step plus one, later than any that was observed, and the reading says so;
    where a prolonged line would cross is told, never counted."""
    curve, base, total = (reading.value for reading in inputs)
    steps, difference = curves.relative_loss(_losses(curve), _losses(base), total)
    if not steps:
        return missing("the two curves share no step")
    found = curves.critical_point(steps, difference, total)
    if found and found.observed:
        return Reading(found.step)
    beyond = f"; its prolonged line crosses at step {found.step:,.0f}" if found else ""
    return Reading(total + 1, reason=f"{named(quantity.run)}: not reached in {total:,} steps{beyond}")


# --- savings -------------------------------------------------------------------------------------------------------


def _parameter_inputs(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
    """Per size: the losses of both sides, and the parameters of the one compared with, at the chosen scale."""
    found = []
    for change in quantity.along:
        left, right = (merged(side, change) for side in (quantity.run, quantity.other))
        found += [Quantity("loss.mean", left), Quantity("loss.mean", right)]
        counted = RunRequest(size=right.size, variant=right.variant)
        found += [Quantity("account.parameters.total", counted, own_scale=True)]
    return tuple(found)


def _parameter_saving(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
    """Left's loss is a quadratic in the logarithm of its parameters; at each size the saving is 1 - N / N_right, with N where the
    quadratic has right's loss (ResFormer Figure 2 a). On v1's printed losses this gives 10.6 %, near v3's printed 10.4 %."""
    left, right, parameters = ([reading.value for reading in inputs[start::3]] for start in range(3))
    if len(set(parameters)) < 3:
        return missing("a quadratic needs three different sizes")
    saved = curves.saving_at_equal_loss(parameters, left, right)
    if saved is None:
        return missing(NO_FIT)
    return Reading(100 * saved)


#: Why a fit through losses that are there saves no parameters.
NO_FIT = "the quadratic does not reach the losses that it is compared with"


def _both_curves(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
    return tuple(Quantity("train.validation", side) for side in (quantity.run, quantity.other))


def _data_saving(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
    """Where left's validation loss first is right's final one, as the paper reads it (every 2B tokens)."""
    left, right = (reading.value for reading in inputs)
    saved = curves.tokens_saved(left, right)
    return missing(curves.NEVER_REACHES) if saved is None else Reading(100 * saved)


def _cost_inputs(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
    sides = (quantity.run, quantity.other)
    per_side = (_recipe(side, "training_flops", "tokens") for side in sides)
    return (*_both_curves(quantity, baseline), *(one for costs in per_side for one in costs))


def _compute_multiplier(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
    """Training FLOPs after which left's validation loss first is right's final one, over right's. Left's rate has not decayed
    there, so a run of that budget would do better: a bound from above."""
    left, right, *costs = (reading.value for reading in inputs)
    saved = curves.tokens_saved(left, right)
    if saved is None:
        return missing(curves.NEVER_REACHES)
    (flops, tokens), (other_flops, other_tokens) = costs[:2], costs[2:]
    return Reading((1 - saved) * (flops / tokens) / (other_flops / other_tokens))


# --- coefficients ----------------------------------------------------------------------------------------------------


def _of_coefficients(series: str, pick: Callable[[list[float]], float]) -> tuple[Inputs, Compute]:
    """What is picked of the learned coefficients of a value path's layers, first layer first."""

    def inputs(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
        return (Quantity(f"analysis.coefficients.{series}", quantity.subject),)

    def compute(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
        found = [value for value in inputs[0].value if value is not None]
        return Reading(pick(found)) if found else missing(f"no layer has a coefficient {series}")

    return inputs, compute


# --- ratios --------------------------------------------------------------------------------------------------------


def _ratio(metric: str) -> Derived:
    def inputs(quantity: Quantity, baseline: str) -> tuple[Quantity, ...]:
        return Quantity(metric, quantity.run), Quantity(metric, quantity.other)

    def compute(quantity: Quantity, inputs: Sequence[Reading]) -> Reading:
        left, right = (reading.value for reading in inputs)
        if not (is_number(left) and is_number(right)):
            return missing("no numbers to divide")
        return Reading(left / right) if right else missing(f"{metric} of {named(quantity.other)} is 0")

    return Derived(f"{metric}, the run's over the other's", inputs, compute, "1", compares=True)


def named(request: RunRequest) -> str:
    """A run in a sentence: ``82M identity T 512 peak_lr 0.003``."""
    parts = [request.size, request.variant]
    parts += [f"T {request.context}"] if request.context else []
    parts += [f"{key} {value}" for key, value in request.recipe.items()]
    return " ".join(filter(None, parts))


#: Every derived metric by its name.
DERIVED: dict[str, Derived] = {
    "curve.early": Derived(
        "mean training loss over the first tenth of the steps after the warm-up",
        _early_inputs,
        _early,
        "nats/token",
        worst=1,
    ),
    "curve.critical_step": Derived(
        "step from which on the smoothed training loss stays above the baseline's of the same size, length and recipe",
        _critical_inputs,
        _critical,
        "steps",
    ),
    "scaling.parameter_saving": Derived(
        "per cent of parameters saved at equal loss, mean over sizes",
        _parameter_inputs,
        _parameter_saving,
        "%",
        compares=True,
        along=True,
    ),
    "scaling.data_saving": Derived(
        "per cent of training tokens saved at equal loss", _both_curves, _data_saving, "%", compares=True
    ),
    "scaling.compute_multiplier": Derived(
        "training FLOPs to the other's final validation loss, over the other's",
        _cost_inputs,
        _compute_multiplier,
        "1",
        compares=True,
    ),
    "coefficients.source_least": Derived(
        "smallest coefficient, in absolute value, of the reused or looked-up value over the layers that take it",
        *_of_coefficients("source", lambda found: min(map(abs, found))),
        "1",
    ),
    "coefficients.source_last": Derived(
        "the same, in absolute value, of the last layer",
        *_of_coefficients("source", lambda found: abs(found[-1])),
        "1",
    ),
    "coefficients.own_most": Derived(
        "largest coefficient of the layer's own value over the layers that have one",
        *_of_coefficients("own", max),
        "1",
    ),
    **{
        f"analysis.{module}.{ratio}": _ratio(f"analysis.{module}.{scalar}")
        for module, outputs in CATALOGUE.items()
        for ratio, scalar in outputs.ratios.items()
    },
}
