"""Decoding with every backbone gives the full forward pass, whatever the chunks, past the window too."""

from __future__ import annotations

import pytest
import torch

from respath.spec.cost import cache_bytes
from tests.unit.backbone_models import BACKBONES, PATHS, perturbed, some_ids, spec_of
from tests.unit.cached_decoding import in_chunks, in_unequal_rows

EXACT = {"rtol": 0, "atol": 1e-10}

PAIRS = [(backbone, "own") for backbone in BACKBONES]
PAIRS += [("nanochat", value_path) for value_path in PATHS if value_path not in ("own", "attention-residual")]
PAIRS += [("gpt2", value_path) for value_path in ("mix", "reuse", "table", "hc", "attention-residual")]
PAIRS += [("llama-windows", value_path) for value_path in ("gqa2", "reuse", "table", "cross-layer")]


@pytest.mark.parametrize(("backbone", "value_path"), PAIRS)
@pytest.mark.parametrize("batch", [1, 4])
def test_prefill_and_single_tokens_and_chunks_equal_the_full_forward(backbone, value_path, batch):
    model, ids = perturbed(backbone, value_path), some_ids(batch)
    with torch.no_grad():
        full = model(ids)
        # A prompt of one token, prompts inside and past the window of 3, chunks that cross it.
        for chunks in ([1] * 13, [13], [2, 1, 1, 1, 8], [7, 1, 1, 4], [5, 5, 3]):
            torch.testing.assert_close(in_chunks(model, ids, chunks), full, **EXACT)


@pytest.mark.parametrize(("backbone", "value_path"), PAIRS)
def test_rows_of_unequal_length_equal_each_rows_full_forward(backbone, value_path):
    model, ids = perturbed(backbone, value_path), some_ids(3)
    with torch.no_grad():
        full = model(ids)
        calls = (([6, 1, 0], 6), ([1, 1, 1], 1), ([0, 4, 2], 5), (None, 1), ([3, 0, 5], 6))
        for row, logits in enumerate(in_unequal_rows(model, ids, calls)):
            torch.testing.assert_close(logits, full[row, : len(logits)], **EXACT)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_bf16_decoding_stays_within_rounding_of_the_bf16_forward(backbone):
    model, ids = perturbed(backbone, dtype=torch.bfloat16), some_ids()
    with torch.no_grad():
        full, decoded = model(ids), in_chunks(model, ids, [5, 1, 1, 1, 5])
    # 2^-8 per rounding, through six layers of perturbed weights.
    assert (decoded - full).abs().max() <= 0.05 * full.abs().max()


@pytest.mark.parametrize("value_path", ["own", "table", "reuse"])
@pytest.mark.parametrize("backbone", ["llama", "gpt2", "nanochat"])
def test_one_prefill_fans_out_to_rows_that_continue_on_their_own(backbone, value_path):
    model, ids = perturbed(backbone, value_path), some_ids(2)
    with torch.no_grad():
        cache = model.new_cache(2, 7)
        model(ids[:, :7], cache=cache, lengths=[7, 5])
        copies = cache.rows([1, 0, 1], 13)
        assert copies.lengths == (5, 7, 5) and copies.max_time == 13 and cache.lengths == (7, 5)
        rest = some_ids(3, 4, seed=9)
        continued = model(rest, cache=copies)
        for row, source in enumerate([1, 0, 1]):
            whole = torch.cat([ids[source, : (7, 5)[source]], rest[row]])[None]
            torch.testing.assert_close(continued[row], model(whole)[0, -4:], **EXACT)
        # The source is left as it was.
        torch.testing.assert_close(cache.rows([0]).keys[0], cache.keys[0][:1], **EXACT)


def test_a_fan_out_into_too_small_a_cache_is_refused():
    model, ids = perturbed("llama"), some_ids(1, 6)
    cache = model.new_cache(1, 8)
    model(ids, cache=cache)
    with pytest.raises(ValueError, match="holds 6 tokens"):
        cache.rows([0, 0], 5)


def test_a_token_smears_across_a_chunks_border():
    model, ids = perturbed("nanochat"), some_ids(1, 6)
    with torch.no_grad():
        cache = model.new_cache(1, 6)
        model(ids[:, :3], cache=cache)
        expected = model(ids[:, 3:5], cache=cache.rows([0]))
        cache.previous.zero_()
        assert (model(ids[:, 3:5], cache=cache) - expected)[:, 0].abs().max() > 1e-6


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_cache_takes_the_bytes_of_the_closed_form(backbone):
    for value_path in PATHS:
        if value_path == "attention-residual" and "windows" in BACKBONES[backbone]:
            continue
        spec = spec_of(backbone, value_path)
        cache = perturbed(backbone, value_path).new_cache(3, 50, dtype=torch.bfloat16)
        assert cache.nbytes == cache_bytes(spec, 50, 3), value_path


def test_a_short_layer_neither_sees_nor_is_moved_by_a_token_beyond_its_window():
    model = perturbed("llama", layers=2, windows={"pattern": "S", "short": 3})
    ids = some_ids(1, 9)
    changed = ids.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 259
    # Layer 1 is short, layer 2 long: so look at what layer 1 attends to.
    layer, seen = model.layers[0].attention, {}
    layer.o_proj.register_forward_hook(
        lambda module, inputs, output: seen.setdefault("out", []).append(output)
    )
    with torch.no_grad():
        model(ids), model(changed)
    gap = (seen["out"][0] - seen["out"][1]).abs().amax(-1)[0]
    assert (gap[:4] > 1e-9).all() and torch.equal(gap[4:], torch.zeros(5, dtype=gap.dtype))


def test_learned_positions_end_with_one_sentence():
    model, ids = perturbed("gpt2", max_positions=8), some_ids(1, 9)
    with pytest.raises(ValueError, match="8 learned positions; this call would need 9"):
        model(ids)
    cache = model.new_cache(1, 20)
    model(ids[:, :8], cache=cache)
    with pytest.raises(ValueError, match="8 learned positions"):
        model(ids[:, :1], cache=cache)
    assert cache.lengths == (8,)
