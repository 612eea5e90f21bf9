"""Residual streams: how a sub-layer reads the state and how its output enters it, one module per kind.

A stream has four methods; the state is whatever it makes it, passed from call to call and kept nowhere else.

* ``open(embedded) -> state``: the state before the first sub-layer.
* ``read(state, k, norm) -> x``: what sub-layer ``k`` (0-based; even: attention, odd: MLP) computes on.
* ``write(state, k, y, norm) -> state``: how the sub-layer's output enters.
* ``close(state) -> x``: what the final norm sees.

``norm`` is the sub-layer's own norm; the stream decides where it stands. All tensors are (batch, time, width).
"""

from __future__ import annotations

from torch import nn

from respath.config.model import ModelSpec
from respath.model.streams.denseformer import DenseFormer
from respath.model.streams.pre_ln import PreLN

STREAMS: dict[str, type[nn.Module]] = {"pre_ln": PreLN, "denseformer": DenseFormer}


def build_stream(spec: ModelSpec) -> nn.Module:
    """The residual stream of a spec."""
    return STREAMS[spec.stream.kind](spec)
