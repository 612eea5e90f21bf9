"""The variants and shapes that the model and accounting tests run through."""

from __future__ import annotations

import torch

from respath.documents import check
from respath.model import build_model
from respath.spec.model import ModelSpec
from tests.unit.noise import with_noise


def mix(source: float = 0.5, own: float = 0.5, layers="all", origin=1, rescale="none", **more) -> dict:
    """A mixed value path."""
    coefficients = {"source": source, "own": own, **more}
    return {
        "values": {
            "kind": "mix",
            "source": origin,
            "layers": layers,
            "coefficients": coefficients,
            "rescale": rescale,
        }
    }


#: Overrides of a 4-layer model with 4 heads, by name.
VARIANTS = {
    "transformer": {},
    "gqa2": {"kv_heads": 2},
    "mqa": {"kv_heads": 1},
    "tied": {"tie_embeddings": True},
    "identity": mix(),
    "identity-gqa2": {"kv_heads": 2, **mix()},
    "constant-2": mix(2.0, 1.0),
    "sparse": mix(5.0, 1.0, layers="3.."),
    "from-layer-2": mix(layers="3..", origin=2),
    "previous": mix(1.0, 1.0, origin="previous"),
    "learnable": mix(learnable=True),
    "learnable-sparse": mix(learnable=True, layers=[2, 4]),
    "plus": mix(1.0, 0.5, learnable=True, parameterisation="softmax_all"),
    "plus-softmax-targets": mix(1.0, 0.5, learnable=True, parameterisation="softmax_targets"),
    "rescaled": mix(2.0, 1.0, rescale="token"),
    "rescaled-per-head": mix(2.0, 1.0, rescale="token_head"),
    "dense": {"values": {"kind": "dense", "layers": "all", "learnable": True}},
    "dense-constant": {"values": {"kind": "dense", "layers": [3, 4], "initial": 0.7}},
    "dense-postmix": {"values": {"kind": "dense", "layers": "all", "learnable": True, "cache": "post_mix"}},
    "svformer": {"values": {"kind": "reuse", "layers": "all"}},
    "svformer-gqa4": {"kv_heads": 1, "values": {"kind": "reuse", "layers": "all"}},
    "sparse-v1only": {"values": {"kind": "reuse", "layers": "3.."}},
    "reuse-scaled": {"values": {"kind": "reuse", "layers": "all", "learnable": True, "scale": 0.8}},
    "svformer-share-keys": {
        "values": {"kind": "reuse", "layers": "all"},
        "sharing": {"every": 2, "keys": True},
    },
    "neutreno": {"values": {"kind": "neutreno", "layers": "all"}},
    "cla2": {"sharing": {"every": 2, "keys": True, "values": True}},
    "cla3-gqa2": {"kv_heads": 2, "sharing": {"every": 3, "keys": True, "values": True}},
    "share-values": {"sharing": {"every": 2, "values": True}},
    "share-keys": {"sharing": {"every": 2, "keys": True}},
    "share-keys-learnable": {"sharing": {"every": 2, "keys": True}, **mix(learnable=True)},
    "denseformer": {"stream": {"kind": "denseformer"}},
    "denseformer-2x2": {"stream": {"kind": "denseformer", "dilation": 2, "period": 2}},
    "denseformer-identity": {"stream": {"kind": "denseformer"}, **mix()},
}

#: Small, with a feed-forward width and vocabulary that are no multiples of anything.
SHAPE = {
    "vocab_size": 259,
    "layers": 4,
    "width": 32,
    "heads": 4,
    "kv_heads": 4,
    "ffn_width": 56,
    "norm_eps": 1e-12,
}


def spec_of(variant: str, **shape) -> ModelSpec:
    """The spec of a named variant in the small shape, or in another."""
    return check(ModelSpec, {**SHAPE, **shape, **VARIANTS[variant]}, variant)


def perturbed(variant: str, dtype=torch.float64, seed: int = 0, **shape):
    """A model whose every parameter is away from its initial value, so that tests of wiring cannot pass emptily."""
    model = build_model(spec_of(variant, **shape), dtype=dtype, seed=seed)
    return with_noise(model, seed=seed + 1).eval()


def some_ids(batch: int = 2, time: int = 11, seed: int = 3, vocab: int = SHAPE["vocab_size"]) -> torch.Tensor:
    """Random token ids."""
    return torch.randint(vocab, (batch, time), generator=torch.Generator().manual_seed(seed))
