"""Decoding: every way of feeding a sequence through the cache gives the logits of the full forward pass."""

from __future__ import annotations

import pytest
import torch

from respath.model import build_model
from respath.spec.cost import cache_bytes, elements_per_token
from respath.spec.model import ModelSpec
from tests.unit.cached_decoding import in_chunks, in_unequal_rows
from tests.unit.model_cases import VARIANTS, perturbed, some_ids, spec_of

EXACT = {"rtol": 0, "atol": 1e-10}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("batch", [1, 4])
def test_prefill_and_single_tokens_and_chunks_equal_the_full_forward(variant, batch):
    model, ids = perturbed(variant), some_ids(batch, 11)
    with torch.no_grad():
        full = model(ids)
        for chunks in ([6, 1, 1, 1, 1, 1], [1] * 11, [11], [4, 5, 2], [1, 10]):
            torch.testing.assert_close(in_chunks(model, ids, chunks), full, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_unequal_length_equal_each_rows_full_forward(variant):
    model, ids = perturbed(variant), some_ids(3, 12)
    with torch.no_grad():
        full = model(ids)
        # Prefill, ragged chunks, a row that pauses, single tokens for all, and rows that end apart.
        calls = (([5, 1, 3], 5), ([2, 4, 0], 4), (None, 1), ([1, 1, 1], 3), ([0, 3, 2], 3))
        for row, logits in enumerate(in_unequal_rows(model, ids, calls)):
            torch.testing.assert_close(logits, full[row, : len(logits)], **EXACT)


def test_lengths_may_be_a_tensor_and_padding_does_not_matter():
    model, ids = perturbed("svformer"), some_ids(2, 6)
    first, second = (model.new_cache(2, 8) for _ in range(2))
    other = ids.clone()
    other[0, 2:] = 1
    lengths = torch.tensor([2, 6])
    a, b = model(ids, cache=first, lengths=lengths), model(other, cache=second, lengths=lengths.tolist())
    torch.testing.assert_close(a[0, :2], b[0, :2], **EXACT)
    torch.testing.assert_close(model(ids[:, :1], cache=first), model(ids[:, :1], cache=second), **EXACT)


def test_the_cache_ends_at_max_time_with_one_sentence_and_is_left_as_it_was():
    model, ids = perturbed("transformer"), some_ids(2, 6)
    cache = model.new_cache(2, 8)
    model(ids, cache=cache)
    with pytest.raises(ValueError, match="holds 8 tokens per row; this chunk would make it 9") as caught:
        model(ids[:, :3], cache=cache)
    assert "\n" not in str(caught.value) and cache.lengths == (6, 6)
    with pytest.raises(ValueError, match="8 tokens"):
        model(ids[:, :3], cache=cache, lengths=[1, 3])
    torch.testing.assert_close(
        model(ids[:, :2], cache=cache)[:, 0], model(torch.cat([ids, ids], 1))[:, 6], **EXACT
    )


def test_wrong_batches_and_lengths_are_refused():
    model, ids = perturbed("transformer"), some_ids(2, 6)
    with pytest.raises(ValueError, match="2 rows"):
        model(some_ids(3, 2), cache=model.new_cache(2, 8))
    for lengths in ([7, 1], [-1, 2], [1]):
        with pytest.raises(ValueError, match="lengths"):
            model(ids, cache=model.new_cache(2, 8), lengths=lengths)
    with pytest.raises(ValueError, match="lengths needs a cache"):
        model(ids, lengths=[1, 2])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_cache_takes_the_bytes_of_the_closed_form(variant, dtype):
    spec = spec_of(variant)
    cache = build_model(spec, dtype=torch.float64).new_cache(3, 50, dtype=dtype)
    assert cache.nbytes == cache_bytes(spec, 50, 3, dtype.itemsize)
    stored = [*cache.keys.values(), *cache.values.values()]
    assert cache.nbytes == sum(tensor.untyped_storage().nbytes() for tensor in stored)
    assert len({tensor.data_ptr() for tensor in stored}) == len(stored)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_cached_tensor_is_filled_and_read(variant):
    model, ids = perturbed(variant), some_ids(2, 6)
    cache = model.new_cache(2, 8)
    with torch.no_grad():
        model(ids, cache=cache)
        expected = model(ids[:, :1], cache=cache)
    for store in (cache.keys, cache.values):
        for tensor in store.values():
            assert tensor[:, :7].abs().amax(dim=(2, 3)).min() > 0 and not tensor[:, 7:].any()
            kept = tensor.clone()
            # A tensor that no later token read would leave the logits alone.
            tensor[:, :6] += 0.5
            cache.lengths = (6, 6)
            with torch.no_grad():
                assert (model(ids[:, :1], cache=cache) - expected).abs().max() > 1e-6
            tensor.copy_(kept)


@pytest.mark.parametrize(
    ("layers", "overrides", "percent"),
    [
        (8, {"values": {"kind": "reuse", "layers": "all"}}, 56.25),
        (8, {"values": {"kind": "reuse", "layers": "all"}, "kv_heads": 2}, 14.0625),
        (8, {"sharing": {"every": 2, "keys": True, "values": True}}, 50.0),
        (8, {"kv_heads": 4}, 50.0),
        (8, {"kv_heads": 1}, 12.5),
        (8, {"sharing": {"every": 2, "keys": True, "values": True}, "kv_heads": 2}, 12.5),
        (8, {"values": {"kind": "reuse", "layers": "6..8"}}, 81.25),
        (24, {"values": {"kind": "reuse", "layers": "all"}}, 100 * 25 / 48),
    ],
)
def test_variants_keep_the_share_of_the_cache_that_the_paper_derives(layers, overrides, percent):
    shape = {"vocab_size": 256, "layers": layers, "width": 64, "heads": 8, "kv_heads": 8, "ffn_width": 64}
    full, small = (
        ModelSpec.model_validate(shape),
        ModelSpec.model_validate_json(_json({**shape, **overrides})),
    )
    assert 100 * elements_per_token(small) / elements_per_token(full) == percent
    caches = [build_model(spec, device="meta").new_cache(2, 16) for spec in (small, full)]
    assert 100 * caches[0].nbytes / caches[1].nbytes == percent


def _json(value) -> str:
    import json

    return json.dumps(value)


def test_a_bf16_cache_serves_an_fp32_model():
    model, ids = perturbed("learnable", dtype=torch.float32), some_ids(2, 9)
    cache = model.new_cache(2, 9, dtype=torch.bfloat16)
    with torch.no_grad():
        logits = torch.cat([model(ids[:, :5], cache=cache), model(ids[:, 5:], cache=cache)], dim=1)
    assert (logits - model(ids)).abs().max() < 0.05 * model(ids).abs().max()
