"""One forward pass with all that stands between its blocks, so that another can go on from any of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from respath.measure.analyses.replacing import listening
from respath.model.attention import Carried, Place
from respath.model.loss import head_cross_entropy
from respath.model.transformer import Transformer


class Walk(NamedTuple):
    """States of the residual stream between blocks, L + 1 of them, with what is carried beside each; ``hidden``: the normed final state."""

    states: list[Any]
    carried: list[Carried]
    place: Place
    hidden: Tensor


def walk(model: Transformer, ids: Tensor) -> Walk:
    """Run a model on ids (batch, time)."""
    calls: list[tuple] = []
    with listening(model, "sublayer", lambda arguments, result: calls.append((arguments, result))):
        hidden = model.hidden(ids)
    before = [arguments for arguments, _ in calls if arguments[0] % 2 == 0]
    state, carried = calls[-1][1]
    return Walk(
        [*(entry[1] for entry in before), state],
        [*(entry[2] for entry in before), carried],
        before[0][3],
        hidden,
    )


def resumed(model: Transformer, seen: Walk, block: int) -> list[Any]:
    """The L + 1 states of a pass that goes on before ``block`` from what was seen; ``model`` may have changed from there on."""
    state, carried = seen.states[block], seen.carried[block]
    states = seen.states[: block + 1]
    for k in range(2 * block, 2 * model.spec.layers):
        state, carried = model.sublayer(k, state, carried, seen.place)
        if k % 2:
            states.append(state)
    return states


def summed_loss(model: Transformer, hidden: Tensor, targets: Tensor) -> float:
    """Sum of the cross entropy, in nats, of normed final states (batch, time, width) against targets (batch, time)."""
    losses = head_cross_entropy(hidden, model.head_weight, targets, "none", model.softcap)
    return float(losses.double().sum())
