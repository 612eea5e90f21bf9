"""States, values and received attention of every layer in one forward pass, by listening to the model's own calls."""

from __future__ import annotations

import contextlib
import dataclasses

import torch
from torch import Tensor

from respath.measure.analyses.received import received
from respath.measure.analyses.replacing import listening
from respath.model.transformer import Transformer


@dataclasses.dataclass
class Trace:
    """What one batch of sequences looked like inside a model of L layers.

    ``hidden``: L + 1 states (batch, time, width), the first before layer 1; after layer n it is what the final norm would
    see if the model ended there (streams with several copies, or a mix over depth, have their own way to end). ``normed``: the
    last state after the final norm, same shape.
    ``own``: L raw projections of the layer's own value (batch, time, kv_width), None where a layer has none. ``values``:
    what the layer's attention mixes, same shape, the scale that the value path puts on attention's output included.
    ``attention``: L times the attention that each token receives, (batch, time) float64; empty if not asked for.
    """

    hidden: list[Tensor] = dataclasses.field(default_factory=list)
    own: list[Tensor | None] = dataclasses.field(default_factory=list)
    values: list[Tensor] = dataclasses.field(default_factory=list)
    attention: list[Tensor] = dataclasses.field(default_factory=list)
    normed: Tensor | None = None

    @property
    def first_value(self) -> Tensor:
        """V_1: the first layer's own projection, or what it attends over where it has none."""
        return self.values[0] if self.own[0] is None else self.own[0]


def trace(model: Transformer, ids: Tensor, attention: bool = True) -> Trace:
    """Run a model on ids (batch, time) and keep what ``Trace`` names; ``attention``: received attention too (slower)."""
    path, stream, layers = model.values, model.stream, model.spec.layers
    found = Trace(own=[None] * layers, values=[None] * layers)
    if attention:
        found.attention = [None] * layers

    def opened(arguments, state):
        found.hidden.append(stream.close(state))

    def written(arguments, state):
        if arguments[1] % 2 == 1:
            found.hidden.append(stream.close(state))

    def mixed(arguments, result):
        n, own = arguments[:2]
        found.own[n] = own

    def attended(n: int):
        def hear(arguments, result):
            given = arguments[0]
            found.values[n] = given.v.flatten(-2)
            if attention:
                found.attention[n] = received(model.layers[n].attention, given)

        return hear

    def finished(arguments, result):
        n, _, own, carried = arguments
        if own is None:
            # Attention is linear in the values: what such a path does to its output it does to them.
            found.values[n] = type(path).finish(path, n, found.values[n], None, carried)

    with contextlib.ExitStack() as stack, torch.inference_mode():
        stack.enter_context(listening(stream, "open", opened))
        stack.enter_context(listening(stream, "write", written))
        stack.enter_context(listening(path, "mix", mixed))
        stack.enter_context(listening(path, "finish", finished))
        for n, layer in enumerate(model.layers):
            stack.enter_context(listening(layer.attention, "attended", attended(n)))
        found.normed = model.hidden(ids)
    return found
