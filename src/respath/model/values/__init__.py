"""Value paths: which values a layer's attention mixes, one module per kind.

A value path has three methods. ``carried`` is a tuple of tensors that travels from layer to layer as an
argument; what a path wants to remember it returns, and nothing is kept on the module.

* ``open(origin) -> carried``: before the first layer; ``origin`` holds token ids and normed embedding.
* ``mix(n, own, carried, x, project) -> (value, carried)``: layer ``n`` (0-based) projected ``own`` and
  attends over ``value``. ``x`` is its normed input, ``project`` its W^V; ``own`` is None where W^V is not
  applied to the input, ``project`` where there is no W^V. Not called for layers that read another layer's
  values; which do what is ``respath.model.layout``.
* ``finish(n, attended, own, carried) -> attended``: after attention, on concatenated heads, before the output
  projection.

``own`` and ``value`` are raw projections at full key-value width (batch, time, kv_heads * head_dim): before
the split into heads, without rotary embedding, before the cache. Where values are looked up by token id,
``value`` is that of all tokens that attention sees, (batch, keys, kv_width).
"""

from __future__ import annotations

from torch import nn

from respath.config.model import ModelSpec
from respath.model.values.cross_layer import CrossLayerValues
from respath.model.values.dense import DenseValues
from respath.model.values.embedding import EmbeddingValues
from respath.model.values.identity_map import IdentityMapValues
from respath.model.values.mix import MixedValues
from respath.model.values.neutreno import NeutrenoValues
from respath.model.values.own import OwnValues
from respath.model.values.reuse import ReusedValues
from respath.model.values.scaled import ScaledValues
from respath.model.values.table import TableValues

VALUE_PATHS: dict[str, type[nn.Module]] = {
    "own": OwnValues,
    "mix": MixedValues,
    "dense": DenseValues,
    "reuse": ReusedValues,
    "scaled": ScaledValues,
    "embedding": EmbeddingValues,
    "table": TableValues,
    "neutreno": NeutrenoValues,
    "identity_map": IdentityMapValues,
    "cross_layer": CrossLayerValues,
}


def build_values(spec: ModelSpec) -> nn.Module:
    """The value path of a spec."""
    return VALUE_PATHS[spec.values.kind](spec)
