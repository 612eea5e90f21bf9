"""Small models of each backbone for the tests, at their start or with every parameter perturbed."""

from __future__ import annotations

import torch

from respath.documents import check
from respath.model import build_model
from respath.spec.model import ModelSpec
from tests.unit.noise import with_noise

SHAPE = {
    "vocab_size": 259,
    "layers": 6,
    "width": 32,
    "heads": 4,
    "kv_heads": 4,
    "ffn_width": 56,
    "norm_eps": 1e-12,
}

#: A short layer sees itself and three earlier tokens.
WINDOWS = {"windows": {"pattern": "SSSL", "short": 3}}

BACKBONES = {
    "llama": {},
    "llama-windows": WINDOWS,
    "gpt2": {"backbone": "gpt2", "max_positions": 80},
    "gpt2-tied": {"backbone": "gpt2", "max_positions": 80, "tie_embeddings": True},
    "nanochat": {"backbone": "nanochat", **WINDOWS},
    "nanochat-no-smear": {"backbone": "nanochat", "smear": False, **WINDOWS},
    "nanochat-scalars": {"backbone": "nanochat", "x0_scalars": True},
}


def path(kind: str, layers="last-third", **fields) -> dict:
    """Overrides that choose a value path."""
    return {"values": {"kind": kind, "layers": layers, **fields}}


#: Value paths that differ in what they need of a backbone and of a cache.
PATHS = {
    "own": {},
    "gqa2": {"kv_heads": 2},
    "mix": path("mix", "all", coefficients={"source": 0.5, "own": 0.5, "learnable": True}),
    "reuse": path("reuse", "all"),
    "share": {"sharing": {"every": 2, "keys": True, "values": True}},
    "embedding": path("embedding", learnable=True),
    "embedding-added": path("embedding", combine="add", source=0.5, own=0.5),
    "table": path("table", learnable=True),
    "table-gated": path("table", "every-2", combine="add", own=1.0, gate=True, start="uniform"),
    "cross-layer": path("cross_layer", "all"),
    "attention-residual": {"attention_residual": {"of": "attention", "layers": "all"}},
    "hc": {"stream": {"kind": "hc"}},
    "block-attnres": {"stream": {"kind": "block_attnres", "length": 3}},
}


def spec_of(backbone: str, value_path: str = "own", **fields) -> ModelSpec:
    """The spec of a backbone with a value path (or stream) in the small shape."""
    overrides = {**SHAPE, **BACKBONES[backbone], **PATHS[value_path], **fields}
    if value_path in ("hc", "block-attnres"):
        overrides.pop("x0_scalars", None)
    return check(ModelSpec, overrides, "test")


def perturbed(backbone: str, value_path: str = "own", dtype=torch.float64, **fields):
    """A model with noise on every parameter: untouched, output projections may be zero and prove nothing."""
    return with_noise(build_model(spec_of(backbone, value_path, **fields), dtype=dtype)).eval()


def some_ids(batch: int = 2, time: int = 13, seed: int = 3) -> torch.Tensor:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(SHAPE["vocab_size"], (batch, time), generator=generator)
