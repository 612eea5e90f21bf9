"""Decoding with every value path: all ways through the cache give the full pass's logits."""

from __future__ import annotations

import pytest
import torch

from respath.model import build_model
from respath.model.kernels import Visibility
from tests.unit.cached_decoding import in_chunks, in_unequal_rows
from tests.unit.value_models import SHAPE, VARIANTS, perturbed, residual, some_ids, spec_of, values

EXACT = {"rtol": 0, "atol": 1e-11}
WINDOWED = {"windows": {"pattern": "SSL", "short": 3}}

#: Short windows beside what reads other tokens' values in a way of its own, on both kinds of embedding entry.
WITH_WINDOWS = {
    "table": values("table", "all", learnable=True) | WINDOWED,
    "table-gated": values("table", gate=True) | WINDOWED,
    "cross-layer": values("cross_layer", "all") | WINDOWED,
    "query-residual": residual("query") | WINDOWED,
    "nanochat-table": values("table", "all", learnable=True) | WINDOWED | {"backbone": "nanochat"},
    "nanochat-embedding": values("embedding", "every-2") | WINDOWED | {"backbone": "nanochat"},
}
BACKBONES = {"gpt2": {"backbone": "gpt2", "max_positions": 16}, "nanochat": {"backbone": "nanochat"}}
#: What adds queries, keys, embeddings or rows, where positions, norms and biases could get in between.
PLACE_SENSITIVE = (
    "embedding-added-learnable",
    "table-learnable",
    "identity-map",
    "cross-layer",
    "query-residual",
)
PLACE_SENSITIVE += ("key-residual", "attention-residual")
ON_BACKBONES = {
    f"{backbone}-{name}": VARIANTS[name] | overrides
    for backbone, overrides in BACKBONES.items()
    for name in PLACE_SENSITIVE
}
CASES = {
    **VARIANTS,
    **{f"windows-{name}": overrides for name, overrides in WITH_WINDOWS.items()},
    **ON_BACKBONES,
}


def model_of(case: str, **fields):
    return perturbed(CASES[case], **fields)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 4])
def test_prefill_single_tokens_and_chunks_equal_the_full_forward(case, batch):
    model, ids = model_of(case), some_ids(batch, 11)
    with torch.no_grad():
        full = model(ids)
        for chunks in ([6, 1, 1, 1, 1, 1], [1] * 11, [4, 5, 2]):
            torch.testing.assert_close(in_chunks(model, ids, chunks), full, **EXACT)


@pytest.mark.parametrize("case", CASES)
def test_rows_of_unequal_length_equal_each_rows_full_forward(case):
    model, ids = model_of(case), some_ids(3, 12)
    with torch.no_grad():
        full = model(ids)
        calls = (([5, 1, 3], 5), ([2, 4, 0], 4), (None, 1), ([0, 3, 2], 3))
        for row, logits in enumerate(in_unequal_rows(model, ids, calls)):
            torch.testing.assert_close(logits, full[row, : len(logits)], **EXACT)


def test_bank_of_values_caches_token_ids_once_and_no_values_of_its_layers():
    model, ids = perturbed("table-learnable"), some_ids(2, 5)
    cache = model.new_cache(2, 8)
    assert set(cache.values) == {0, 1, 2, 3} and set(cache.keys) == set(range(6))
    with torch.no_grad():
        model(ids, cache=cache)
    assert cache.ids.dtype == torch.int32 and torch.equal(cache.ids[:, :5].long(), ids)
    per_token = (6 + 4) * SHAPE["width"] * 8 + 4
    assert cache.nbytes == 2 * 8 * per_token


@pytest.mark.parametrize(
    ("variant", "stored"),
    [
        ("scaled", range(6)),
        ("embedding", range(6)),
        ("table-every-layer", ()),
        ("table-added", range(6)),
        ("table-gated", range(6)),
        ("table-replaced-and-gated", range(6)),
        ("identity-map", range(6)),
        ("cross-layer", range(6)),
        ("attention-residual", range(6)),
        ("attention-residual-svformer", (0,)),
        ("attention-residual-cla2", (0, 2, 4)),
    ],
)
def test_the_cache_stores_no_more_than_the_variant_reads_again(variant, stored):
    cache = build_model(spec_of(variant), device="meta").new_cache(2, 8)
    assert tuple(cache.values) == tuple(stored)
    assert (cache.ids is not None) == (variant == "table-every-layer")


def test_a_short_window_looks_up_only_the_rows_it_sees(monkeypatch):
    model, ids = model_of("windows-table"), some_ids(2, 12)
    looked_up, embed = [], torch.nn.functional.embedding

    def counted(rows, weight, *more):
        if weight.shape[0] == SHAPE["vocab_size"] and weight is not model.embedding.weight:
            looked_up.append(rows.shape[1])
        return embed(rows, weight, *more)

    cache = model.new_cache(2, 12)
    with torch.no_grad():
        model(ids[:, :10], cache=cache)
        monkeypatch.setattr("torch.nn.functional.embedding", counted)
        model(ids[:, 10:11], cache=cache)
    # Pattern SSLSSL, the query and three tokens before it where short.
    assert looked_up == [4, 4, 11, 4, 4, 11]


def test_a_prefill_that_fans_out_takes_the_token_ids_along():
    model, ids = perturbed("table-learnable"), some_ids(2, 8)
    with torch.no_grad():
        cache = model.new_cache(1, 8)
        model(ids[:1, :5], cache=cache)
        fanned = cache.rows([0, 0])
        tails = torch.stack((ids[0, 5:], ids[1, 5:]))
        logits = model(tails, cache=fanned)
        for row in range(2):
            full = model(torch.cat((ids[:1, :5], tails[row : row + 1]), 1))
            torch.testing.assert_close(logits[row], full[0, 5:], **EXACT)


@pytest.mark.parametrize("variant", ["table-learnable", "cross-layer", "attention-residual", "identity-map"])
def test_decoding_in_bf16_stays_near_fp32(variant):
    model, ids = perturbed(variant, dtype=torch.float32), some_ids(2, 9)
    low = perturbed(variant, dtype=torch.float32).to(torch.bfloat16)
    with torch.no_grad():
        expected, cache = model(ids), low.new_cache(2, 9)
        logits = torch.cat([low(ids[:, t : t + 1], cache=cache) for t in range(9)], 1)
    assert (logits - expected).norm() < 0.05 * expected.norm()


def test_a_decoded_token_weighs_both_layers_keys_in_one_softmax():
    from respath.model.values.cross_layer import attend_jointly

    generator = torch.Generator().manual_seed(4)
    q = torch.randn(2, 1, 4, 8, generator=generator)
    pairs = [tuple(torch.randn(2, 6, 4, 8, generator=generator) for _ in range(2)) for _ in range(2)]
    seen = Visibility(square=False, aligned=True, mask=None)
    weights = torch.cat([torch.einsum("bthd,bshd->bhts", q, k) for k, _ in pairs], -1) / 8**0.5
    expected = torch.einsum("bhts,bshd->bthd", weights.softmax(-1), torch.cat([v for _, v in pairs], 1))
    torch.testing.assert_close(attend_jointly(q, pairs, seen), expected, rtol=1e-5, atol=1e-6)
