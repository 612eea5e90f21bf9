"""Value paths: which values a layer's attention mixes, one module per kind.

A value path has three methods. ``carried`` is a tuple of tensors that travels from layer to layer as an
argument; what a path wants to remember it returns, and nothing is kept on the module.

* ``open() -> carried``: before the first layer.
* ``mix(n, own, carried) -> (value, carried)``: layer ``n`` (0-based) projected ``own`` and attends over
  ``value``. Called only for layers that project values: which do is ``respath.model.layout``.
* ``finish(n, attended, own, carried) -> attended``: after attention, on concatenated heads, before the output
  projection.

``own`` and ``value`` are raw projections at full key-value width (batch, time, kv_heads * head_dim): before
the split into heads, without rotary embedding, before the cache.
"""

from __future__ import annotations

from torch import nn

from respath.config.model import ModelSpec
from respath.model.values.dense import DenseValues
from respath.model.values.mix import MixedValues
from respath.model.values.neutreno import NeutrenoValues
from respath.model.values.own import OwnValues
from respath.model.values.reuse import ReusedValues

VALUE_PATHS: dict[str, type[nn.Module]] = {
    "own": OwnValues,
    "mix": MixedValues,
    "dense": DenseValues,
    "reuse": ReusedValues,
    "neutreno": NeutrenoValues,
}


def build_values(spec: ModelSpec) -> nn.Module:
    """The value path of a spec."""
    return VALUE_PATHS[spec.values.kind](spec)
