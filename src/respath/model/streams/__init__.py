"""Residual streams: how a sub-layer reads the state and how its output enters it, one module per kind.

A stream names its ``document`` (fields, checks and cost, in ``respath.spec.streams``) and has five methods; the state is whatever it makes it, passed from call to call and kept nowhere else.

* ``open(embedded) -> state``: the state before the first sub-layer.
* ``read(state, k, norm) -> (x, state)``: what sub-layer ``k`` (0-based; even: attention, odd: MLP) computes on, and the state
  that waits for its output. (A read may work on the state: hyper-connections transport it and find the write
  weights.)
* ``write(state, k, y, norm) -> state``: how the sub-layer's output enters.
* ``carry(carried, k, x) -> carried``: what a sub-layer's input hands to later attention (MoDA).
* ``close(state) -> x``: what the final norm sees.

``norm`` is the sub-layer's own norm, the backbone's unless the stream has a ``sublayer_norm``; the stream
decides where it stands. x and y are (batch, time, width). ``initial_scale`` gives factors on initial values
of matrices of every layer (``attention.o_proj``). A module's ``role`` (for optimizer groups) is one word, or
one per parameter.
"""

from __future__ import annotations

from torch import nn

from respath.model.backbones import backbone
from respath.model.registry import module_of
from respath.model.streams.pre_ln import PreLN
from respath.model.streams.scaled_pre_ln import ScaledPreLN
from respath.spec.model import ModelSpec


def build_stream(spec: ModelSpec) -> PreLN:
    """The residual stream of a spec."""
    return ScaledPreLN(spec) if spec.x0_scalars else module_of(type(spec.stream))(spec)


def sublayer_norm(spec: ModelSpec) -> nn.Module:
    """A new norm of a sub-layer: the backbone's, unless the stream brings its own."""
    own = module_of(type(spec.stream)).sublayer_norm
    return backbone(spec).norm() if own is None else own(spec.width, spec.norm_eps)
