"""Small float64 models for the tests of residual streams, at their start or with every parameter perturbed."""

from __future__ import annotations

import torch

from respath.model import build_model
from respath.model.attention import Carried
from respath.model.build import initialise
from tests.unit.noise import with_noise

SHAPE = {
    "vocab_size": 256,
    "layers": 4,
    "width": 32,
    "heads": 4,
    "kv_heads": 2,
    "ffn_width": 48,
    "norm_eps": 1e-12,
}

PRE_LN = {"kind": "pre_ln"}

#: Every stream, with the options that change its wiring.
STREAMS = {
    "pre_ln": PRE_LN,
    "sandwich_ln": {"kind": "sandwich_ln"},
    "lns": {"kind": "lns"},
    "complete_p": {"kind": "complete_p", "base_depth": 2},
    "deepnorm": {"kind": "deepnorm"},
    "keel": {"kind": "keel"},
    "hc": {"kind": "hc"},
    "hc-unmixed": {"kind": "hc", "transport": False},
    "hc-three": {"kind": "hc", "streams": 3},
    "mhc": {"kind": "mhc"},
    "mhc-near-uniform": {"kind": "mhc", "start": "near_uniform", "sinkhorn_rounds": 5},
    "full_attnres": {"kind": "full_attnres"},
    "block_attnres": {"kind": "block_attnres", "length": 3},
    "moda": {"kind": "moda"},
    "moda-post": {"kind": "moda", "norm": "post"},
    "denseformer": {"kind": "denseformer"},
    "hidden_residual": {"kind": "hidden_residual", "source": 0.5, "own": 0.5},
    "hidden_residual-learnable": {"kind": "hidden_residual", "source": 0.0, "own": 1.0, "learnable": True},
    "truncated": {"kind": "truncated", "start": 2},
    "truncated-both": {"kind": "truncated", "start": 1, "both_skips": True},
}


def model(stream: dict, *, dtype=torch.float64, seed: int = 0, **fields):
    """A model at its start, with the stream's own initialisation."""
    return build_model({**SHAPE, **fields, "stream": stream}, dtype=dtype, seed=seed)


def unscaled(stream: dict, **fields):
    """A model whose matrices start as the Pre-LN model's: the stream's factors on initial values are left out."""
    built = model(stream, **fields)
    built.stream.initial_scale = {}
    initialise(built, 0)
    return built


def perturbed(stream: dict, amount: float = 0.2, **fields):
    """A model with noise on every parameter, so that nothing is zero, one or equal to something else."""
    return with_noise(model(stream, **fields), amount, seed=7)


def tokens(batch: int = 2, time: int = 9, seed: int = 3) -> torch.Tensor:
    """Token ids (batch, time)."""
    return torch.randint(0, SHAPE["vocab_size"], (batch, time), generator=torch.Generator().manual_seed(seed))


def gap(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference relative to the largest expected magnitude."""
    return ((actual - expected).abs().max() / expected.abs().max()).item()


class Branches:
    """The sub-layers of a model as plain functions of what they are given: attention and MLP alternate."""

    def __init__(self, model, ids: torch.Tensor):
        self.model = model
        self.embedded = model.embedding(ids)
        self.place = model.place(self.embedded, None, None)
        origin = model.origin(ids, self.embedded, self.place)
        self.carried = Carried(model.values.open(origin), {}, {})

    def norm(self, k: int):
        """The sub-layer's own norm."""
        layer = self.model.layers[k // 2]
        return layer.attention_norm if k % 2 == 0 else layer.mlp_norm

    def __call__(self, k: int, x: torch.Tensor) -> torch.Tensor:
        layer = self.model.layers[k // 2]
        if k % 2 == 1:
            return layer.mlp(x)
        y, self.carried = layer.attention(x, self.model.values, self.carried, self.place)
        return y

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Final norm and head."""
        return self.model.final_norm(x) @ self.model.head_weight.T
