"""Value paths: which values a layer's attention mixes, one module per kind.

A value path names its ``document`` (fields, checks and cost, in ``respath.spec.values``) and has four methods. ``carried`` is a tuple of tensors that travels from layer to layer as an
argument; what a path wants to remember it returns, and nothing is kept on the module.

* ``open(origin) -> carried``: before the first layer; ``origin`` holds token ids and normed embedding.
* ``mix(n, own, carried, x, project) -> (value, carried)``: layer ``n`` (0-based) projected ``own`` and
  attends over ``value``. ``x`` is its normed input, ``project`` its W^V; ``own`` is None where W^V is not
  applied to the input, ``project`` where there is no W^V. Not called for layers that read another layer's
  values; which do what is ``respath.spec.layout``.
* ``finish(n, attended, own, carried) -> attended``: after attention, on concatenated heads, before the output
  projection.
* ``coefficients() -> {name: one number per target layer}``: what weighs ``source`` and ``own`` now; empty where nothing does.

``own`` and ``value`` are raw projections at full key-value width (batch, time, kv_heads * head_dim): before
the split into heads, without rotary embedding, before the cache. Where values are looked up by token id,
``value`` is that of all tokens that attention sees, (batch, keys, kv_width).
"""

from __future__ import annotations

from respath.model.registry import module_of
from respath.model.values.own import ValuePath
from respath.spec.model import ModelSpec


def build_values(spec: ModelSpec) -> ValuePath:
    """The value path of a spec."""
    return module_of(type(spec.values))(spec)
