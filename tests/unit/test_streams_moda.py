"""Mixture-of-depths attention: one softmax over sequence keys and depth keys, and which slots there are."""

from __future__ import annotations

import math

import pytest
import torch

from respath.errors import UserError
from respath.model.depth_attention import attend_over_depth
from respath.model.kernels import Visibility
from respath.model.rope import rotate
from tests.unit.stream_models import SHAPE, Branches, gap, model, perturbed, tokens


def direct(built, ids: torch.Tensor) -> torch.Tensor:
    """Logits token by token and head by head, by the definition."""
    spec, f = built.spec, Branches(built, ids)
    heads, size = spec.heads, spec.head_dim
    groups = heads // spec.kv_heads
    h, slots = f.embedded, []
    for layer, (block, weights) in enumerate(
        zip(built.layers, [*built.stream.depth_projections, None], strict=True)
    ):
        x = block.attention_norm(h)
        q = rotate((x @ block.attention.q_proj.weight.T).unflatten(-1, (-1, size)), f.place.cos, f.place.sin)
        raw = (x @ block.attention.k_proj.weight.T).unflatten(-1, (-1, size))
        v = (x @ block.attention.v_proj.weight.T).unflatten(-1, (-1, size))
        k = rotate(raw, f.place.cos, f.place.sin)
        assert len(slots) == 2 * layer
        out = torch.zeros_like(q)
        for b in range(ids.shape[0]):
            for t in range(ids.shape[1]):
                for head in range(heads):
                    group = head // groups
                    keys = [k[b, s, group] for s in range(t + 1)] + [key[b, t, group] for key, _ in slots]
                    values = [v[b, s, group] for s in range(t + 1)] + [
                        value[b, t, group] for _, value in slots
                    ]
                    scores = torch.stack(keys) @ q[b, t, head] / math.sqrt(size)
                    out[b, t, head] = scores.softmax(0) @ torch.stack(values)
        slots.append((raw, v))
        h = h + out.flatten(-2) @ block.attention.o_proj.weight.T
        x = block.mlp_norm(h)
        if weights is not None:
            key, value = (x @ weights.weight.T).chunk(2, dim=-1)
            slots.append((key.unflatten(-1, (-1, size)), value.unflatten(-1, (-1, size))))
        h = h + block.mlp(x)
    return f.logits(h)


@pytest.mark.parametrize("kernel", ["auto", "eager"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_moda_equals_its_definition(kv_heads, kernel):
    built = perturbed({"kind": "moda"}, layers=3, kv_heads=kv_heads)
    built.kernel = kernel
    ids = tokens(batch=2, time=5)
    with torch.no_grad():
        assert gap(built(ids), direct(built, ids)) < 1e-12


def joint_gradients(kernel: str, kv_heads: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)

    def numbers(heads: int) -> torch.Tensor:
        drawn = torch.randn(2, 7, heads, 8, generator=generator, dtype=torch.float64)
        return drawn.to(dtype).requires_grad_()

    q, k, v = numbers(4), numbers(kv_heads), numbers(kv_heads)
    depth = [(numbers(kv_heads), numbers(kv_heads)) for _ in range(3)]
    seen = Visibility(square=True, aligned=True, mask=None)
    out = attend_over_depth(q, k, v, depth, seen, kernel)
    loss = (out.double() * torch.randn(out.shape, generator=generator, dtype=torch.float64)).sum()
    return [out, *torch.autograd.grad(loss, [q, k, v, *(part for pair in depth for part in pair)])]


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_the_merged_kernel_has_the_gradients_of_the_definition(kv_heads):
    expected = joint_gradients("eager", kv_heads, torch.float64)
    for actual, wanted in zip(joint_gradients("auto", kv_heads, torch.float64), expected, strict=True):
        assert gap(actual, wanted) < 1e-12


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_merged_kernels_gradients_are_finite_differences(kv_heads):
    generator = torch.Generator().manual_seed(6)
    heads = (4, kv_heads, kv_heads, *(kv_heads,) * 4)
    numbers = [
        torch.randn(1, 3, count, 4, generator=generator, dtype=torch.float64, requires_grad=True)
        for count in heads
    ]
    seen = Visibility(square=True, aligned=True, mask=None)

    def joint(q, k, v, *depth):
        return attend_over_depth(q, k, v, (depth[:2], depth[2:]), seen)

    assert torch.autograd.gradcheck(joint, numbers)


def test_the_merged_kernel_follows_the_definition_in_bf16():
    expected = joint_gradients("eager", 2, torch.bfloat16)
    for actual, wanted in zip(joint_gradients("auto", 2, torch.bfloat16), expected, strict=True):
        assert actual.dtype == torch.bfloat16
        assert gap(actual.float(), wanted.float()) < 0.02


def test_the_last_block_has_no_depth_projection_and_all_others_learn():
    built = perturbed({"kind": "moda"})
    assert len(built.stream.depth_projections) == SHAPE["layers"] - 1
    built(tokens()).square().mean().backward()
    for projection in built.stream.depth_projections:
        assert (projection.weight.grad.abs().sum(dim=1) > 0).all()


def test_the_cache_of_moda_stores_no_depth_slots():
    caches = [model(stream).new_cache(2, 16) for stream in ({"kind": "moda"}, {"kind": "pre_ln"})]
    assert caches[0].nbytes == caches[1].nbytes


def test_depth_keys_are_those_of_the_token_itself():
    # Changing a later token must not reach an earlier one through the depth slots.
    built, ids = perturbed({"kind": "moda"}), tokens()
    other = ids.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 256
    torch.testing.assert_close(built(other)[:, :5], built(ids)[:, :5])


@pytest.mark.parametrize(
    "values", [{"kind": "reuse", "layers": "all"}, {"kind": "dense", "layers": "all"}], ids=str
)
def test_moda_refuses_value_paths(values):
    with pytest.raises(UserError, match="moda"):
        model({"kind": "moda"}, values=values)
