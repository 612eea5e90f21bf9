"""Residual streams: how a sub-layer reads the state and how its output enters it, one module per kind.

A stream has five methods; the state is whatever it makes it, passed from call to call and kept nowhere else.

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

from respath.config.model import ModelSpec
from respath.model.backbones import backbone
from respath.model.streams.block_attnres import BlockAttnRes
from respath.model.streams.deepnorm import DeepNorm
from respath.model.streams.denseformer import DenseFormer
from respath.model.streams.full_attnres import FullAttnRes
from respath.model.streams.hc import HyperConnections
from respath.model.streams.hidden_residual import HiddenResidual
from respath.model.streams.keel import Keel
from respath.model.streams.lns import LayerNormScaling
from respath.model.streams.mhc import ManifoldHyperConnections
from respath.model.streams.moda import MoDA
from respath.model.streams.pre_ln import PreLN
from respath.model.streams.sandwich_ln import SandwichLN
from respath.model.streams.scaled_pre_ln import ScaledPreLN
from respath.model.streams.truncated import Truncated

STREAMS: dict[str, type[PreLN]] = {
    "pre_ln": PreLN,
    "sandwich_ln": SandwichLN,
    "lns": LayerNormScaling,
    "deepnorm": DeepNorm,
    "keel": Keel,
    "hc": HyperConnections,
    "mhc": ManifoldHyperConnections,
    "full_attnres": FullAttnRes,
    "block_attnres": BlockAttnRes,
    "moda": MoDA,
    "denseformer": DenseFormer,
    "hidden_residual": HiddenResidual,
    "truncated": Truncated,
}


def build_stream(spec: ModelSpec) -> PreLN:
    """The residual stream of a spec."""
    return ScaledPreLN(spec) if spec.x0_scalars else STREAMS[spec.stream.kind](spec)


def sublayer_norm(spec: ModelSpec) -> nn.Module:
    """A new norm of a sub-layer: the backbone's, unless the stream brings its own."""
    own = STREAMS[spec.stream.kind].sublayer_norm
    return backbone(spec).norm() if own is None else own(spec.width, spec.norm_eps)
