"""What a model spec refuses, beyond what the tests of values and backbones do: one sentence each."""

from __future__ import annotations

import pytest

from respath.documents import check
from respath.errors import UserError
from respath.spec.model import ModelSpec

SHAPE = {"vocab_size": 256, "layers": 4, "width": 32, "heads": 4, "kv_heads": 4, "ffn_width": 48}
KEYS = {"sharing": {"every": 2, "keys": True}}
MIX = {"source": 0.5, "own": 0.5}


def stream(kind: str, **fields) -> dict:
    return {"stream": {"kind": kind, **fields}}


def values(kind: str, layers="all", **fields) -> dict:
    return {"values": {"kind": kind, "layers": layers, **fields}}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"heads": 32, "kv_heads": 32}, "head size 1 is odd"),
        ({"sharing": {"every": 2}}, "shares nothing"),
        ({"sharing": {"every": 1, "keys": True}}, "greater than or equal to 2"),
        (stream("moda") | {"backbone": "gpt2", "max_positions": 8}, "moda is defined on the llama backbone"),
        (stream("moda") | {"backbone": "nanochat"}, "moda is defined on the llama backbone"),
        (stream("moda") | KEYS, "excludes value paths, sharing and residuals"),
        (stream("moda") | {"attention_residual": {"of": "query", "layers": "all"}}, "excludes value paths"),
        (stream("truncated", start=5), "stream.start 5 is not a layer of 1..4"),
        (stream("truncated", start=0), "greater than or equal to 1"),
        (stream("block_attnres", length=9), "longer than the model's 8"),
        (stream("block_attnres", blocks=3), "8 sub-layers do not divide into 3 blocks"),
        (stream("denseformer", period=5), "averages nothing in 4 layers"),
        (stream("denseformer", dilation=5), "averages nothing in 4 layers"),
        (stream("hc", streams=1), "greater than or equal to 2"),
        *(
            (stream(kind) | {"backbone": "gpt2", "max_positions": 8}, f"{kind} replaces the norms")
            for kind in ("deepnorm", "keel", "sandwich_ln", "lns")
        ),
        (stream("keel") | {"backbone": "nanochat"}, "nanochat has its own"),
        (values("mix", source=5, coefficients=MIX), "values.source 5 is not a layer"),
        (values("mix", source=0, coefficients=MIX), "values.source 0 is not a layer"),
        (values("reuse", source=-1), "values.source -1 is not a layer"),
        (values("mix", coefficients={"source": 0.0, "own": 0.0}), "mix attends over is always 0"),
        (values("dense", initial=0.0), "dense attends over is always 0"),
        (values("reuse", scale=0.0), "reuse attends over is always 0"),
        (values("table", source=0.0), "table attends over is always 0"),
        (values("embedding", source=0.0), "embedding attends over is always 0"),
        (stream("hidden_residual", source=0.0, own=0.0), "makes every state 0"),
        ({"sharing": {"every": 5, "keys": True}}, "more than the model's 4 layers"),
        (values("mix", [1, 2], source="previous", coefficients=MIX), "no earlier value"),
        (values("dense", [1, 2]), "no earlier value"),
        (values("neutreno", [1]), "no earlier value"),
        (values("reuse") | {"sharing": {"every": 2, "values": True}}, "exclude each other"),
        (values("mix", "some", coefficients=MIX), "selects no layers"),
        (values("mix", "3..9", coefficients=MIX), "the model has layers 1..4"),
        ({"smear": False}, "smear belongs to the nanochat backbone"),
        ({"smear": False, "backbone": "gpt2", "max_positions": 8}, "smear belongs to the nanochat backbone"),
        ({"max_positions": 8}, "belong to the gpt2 backbone"),
        ({"x0_scalars": True}, "belong to the nanochat backbone"),
        ({"init_cut": -3.0}, "greater than 0"),
        ({"windows": {"short": 0}}, "greater than or equal to 1"),
    ],
    ids=str,
)
def test_a_meaningless_spec_is_refused_with_one_sentence(overrides, words):
    with pytest.raises(UserError, match=words) as caught:
        check(ModelSpec, {**SHAPE, **overrides}, "spec")
    assert len(caught.value.lines) == 1
