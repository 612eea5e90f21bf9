"""Attention residuals: sources, boundaries and weights against a direct evaluation."""

from __future__ import annotations

import math

import pytest
import torch

from tests.unit.stream_models import Branches, gap, model, perturbed, tokens


def direct(built, ids: torch.Tensor, length: int) -> tuple[torch.Tensor, list[int]]:
    """Logits by the definition, with all sources kept, and the number of sources of each reader."""
    stream, branches = built.stream, Branches(built, ids)
    outputs, counts = [], []

    def mixed(k: int) -> torch.Tensor:
        blocks = [outputs[start : start + length] for start in range(0, k, length)]
        sources = torch.stack([branches.embedded, *(torch.stack(block).sum(0) for block in blocks)])
        keys = sources / (sources.square().mean(-1, keepdim=True) + built.spec.norm_eps).sqrt()
        scores = (keys * stream.key_gains[k - 1]) @ stream.queries[k - 1]
        counts.append(len(sources))
        return (scores.softmax(0)[..., None] * sources).sum(0)

    for k in range(2 * built.spec.layers):
        x = branches.embedded if k == 0 else mixed(k)
        outputs.append(branches(k, branches.norm(k)(x)))
    return branches.logits(mixed(2 * built.spec.layers)), counts


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8])
def test_block_attnres_equals_its_definition(length):
    built = perturbed({"kind": "block_attnres", "length": length})
    expected, _ = direct(built, tokens(), length)
    assert gap(built(tokens()), expected) < 1e-12


def test_full_attnres_equals_its_definition_and_blocks_of_one():
    built, blocks = perturbed({"kind": "full_attnres"}), perturbed({"kind": "block_attnres", "length": 1})
    expected, counts = direct(built, tokens(), 1)
    assert gap(built(tokens()), expected) < 1e-12
    assert counts == list(range(2, 10))
    assert torch.equal(built(tokens()), blocks(tokens()))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_a_reader_has_one_source_more_than_blocks_begun(length):
    built = model({"kind": "block_attnres", "length": length}, layers=6)
    state = built.stream.open(torch.zeros(1, 1, 32).double())
    for k in range(12):
        if k > 0:
            assert len(built.stream.sources(state)) == 1 + math.ceil(k / length)
            assert built.stream.weights(state, k).shape == (1, 1, 1 + math.ceil(k / length))
        state = built.stream.write(state, k, torch.ones(1, 1, 32).double(), None)
    assert len(built.stream.sources(state)) == 1 + math.ceil(12 / length)


@pytest.mark.parametrize("layers", [4, 8])
def test_eight_blocks_give_the_head_nine_sources(layers):
    built = model({"kind": "block_attnres", "blocks": 8}, layers=layers)
    state = built.stream.open(torch.zeros(1, 1, 32).double())
    for k in range(2 * layers):
        state = built.stream.write(state, k, torch.ones(1, 1, 32).double(), None)
    assert built.stream.weights(state, 2 * layers).shape[-1] == 9


def test_every_query_and_key_gain_learns():
    built = perturbed({"kind": "block_attnres", "length": 3})
    built(tokens()).square().mean().backward()
    assert built.stream.queries.grad.any(dim=1).all()
    assert built.stream.key_gains.grad.any(dim=1).all()


def test_weights_are_fp32_for_bf16_sources():
    built = model({"kind": "full_attnres"}, dtype=torch.bfloat16)
    with torch.no_grad():
        built.stream.queries.normal_()
    state = built.stream.open(torch.randn(1, 3, 32).bfloat16())
    state = built.stream.write(state, 0, torch.randn(1, 3, 32).bfloat16(), None)
    weights = built.stream.weights(state, 1)
    assert weights.dtype == torch.float32
    assert built.stream.mixed(state, 1).dtype == torch.bfloat16
