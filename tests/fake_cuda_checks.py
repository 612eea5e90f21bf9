"""What runs on a GPU, without one: devices, kernels and their flags, memory, and sums in fp32."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from respath.model import build_model, kernels
from respath.model.loss import head_cross_entropy, next_token_loss
from tests.fake_cuda import fake_cuda, kept_bytes, on_cuda, required
from tests.unit.paper_variants import REFS, small_spec

BF16 = torch.bfloat16


def gigabytes_a_row(ref: str, context: int = 2048) -> float:
    model = build_model(ref, device="meta")
    with fake_cuda():
        on_cuda(model, BF16)
        ids = torch.zeros(1, context + 1, dtype=torch.int64, device="cuda")
        return kept_bytes(model, lambda: next_token_loss(model, ids)) / 2**30


def one_of_each_kind():
    """The first variant of each combination of backbone, residual stream and value path."""
    chosen = {}
    for paper, variant in REFS:
        spec = small_spec(paper, variant)
        chosen.setdefault((spec.backbone, spec.stream.kind, spec.values.kind), (paper, variant, spec))
    return chosen.values()


def test_every_kind_of_model_trains_prefills_decodes_and_scores_on_the_device_it_is_on():
    required()
    for paper, variant, spec in one_of_each_kind():
        model = build_model(spec, device="meta")
        with fake_cuda():
            on_cuda(model, BF16)
            ids = torch.zeros(2, 9, dtype=torch.int64, device="cuda")
            try:
                assert next_token_loss(model, ids).device.type == "cuda"
                assert next_token_loss(model, ids, reduction="none").shape == (2, 8)
                with torch.no_grad():
                    cache = model.new_cache(2, 12)
                    assert model(ids[:, :6], cache=cache).device.type == "cuda"
                    assert model(ids[:, 6:7], cache=cache).shape[:2] == (2, 1)
                    uneven = model.new_cache(2, 12)
                    model(ids[:, :6], cache=uneven, lengths=[6, 3])
                    assert model(ids[:, :2], cache=uneven, lengths=[2, 1]).device.type == "cuda"
            except Exception as error:
                raise AssertionError(f"{paper}/{variant}: {error}") from error


def test_moda_keeps_no_matrix_of_time_by_time():
    required()
    plain, moda = (gigabytes_a_row(f"depthbench/400M-L24/{name}") for name in ("pre-ln", "moda"))
    # 16.9 GiB by the definition. Beside Pre-LN: projections of keys and values, weights of the depth slots, fp32 log-sums.
    assert plain < moda < 1.6 * plain


@pytest.fixture
def flash_attn(monkeypatch):
    """A flash-attn package that records its calls."""
    calls = []

    def flash_attn_func(q, k, v, **options):
        calls.append(options)
        return torch.empty_like(q)

    package = types.ModuleType("flash_attn")
    package.flash_attn_func = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    kernels.flash_attn_function.cache_clear()
    yield calls
    kernels.flash_attn_function.cache_clear()


def windowed_call(kernel: str = "auto", window: int | None = 4) -> None:
    with fake_cuda():
        q, k, v = (torch.empty(1, 32, 4, 16, dtype=BF16, device="cuda") for _ in range(3))
        seen = kernels.Visibility(square=True, aligned=True, mask=None, window=window)
        assert kernels.attend(q, k, v, seen, kernel).shape == q.shape


def test_a_flash_package_without_its_function_counts_as_not_installed(monkeypatch):
    required()
    monkeypatch.setitem(sys.modules, "flash_attn", types.ModuleType("flash_attn"))
    kernels.flash_attn_function.cache_clear()
    try:
        windowed_call()
        with pytest.raises(ValueError, match="needs the flash-attn package"):
            windowed_call("flash_attn")
    finally:
        kernels.flash_attn_function.cache_clear()


@pytest.mark.parametrize("wanted", [True, False])
def test_the_flash_package_hears_whether_results_must_repeat(flash_attn, wanted):
    required()
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    try:
        windowed_call()
    finally:
        torch.use_deterministic_algorithms(before)
    assert [call["deterministic"] for call in flash_attn] == [wanted]
    assert flash_attn[0]["window_size"] == (4, 0) and flash_attn[0]["causal"]


def test_attention_without_a_window_stays_pytorchs_own_function(flash_attn):
    required()
    windowed_call(window=None)
    assert not flash_attn
    windowed_call("flash_attn", window=None)
    assert flash_attn[0]["window_size"] == (-1, 0)


def test_grouped_queries_in_fp32_reach_the_kernel_with_equal_heads(monkeypatch):
    required()
    heads = []

    def record(q, k, v, **options):
        heads.append((q.shape[1], k.shape[1], options["enable_gqa"]))
        return q

    with fake_cuda():
        monkeypatch.setattr(kernels.F, "scaled_dot_product_attention", record)
        seen = kernels.Visibility(square=True, aligned=True, mask=None)
        for dtype in (torch.float32, BF16):
            q = torch.empty(1, 8, 4, 16, dtype=dtype, device="cuda")
            kernels.attend(q, q[:, :, :2], q[:, :, :2], seen, "sdpa")
    assert heads == [(4, 4, False), (4, 2, True)]


def test_the_heads_gradient_is_summed_in_fp32_over_all_chunks(monkeypatch):
    from respath.model import layers, loss

    monkeypatch.setattr(layers, "CPU_HAS_BF16", True)
    monkeypatch.setattr(loss, "CHUNK_LOGITS", {"cpu": 1, "other": 1})  # 64 rows a chunk
    # Equal logits: each row's error is 1/2 and -1/2. The first chunk's product is 32 + 2^-8, which bf16 rounds to 32; the
    # second takes 32 away.
    x = torch.cat([torch.ones(63, 1), torch.full((1, 1), 1 + 2**-7), -torch.ones(64, 1)]).to(BF16)
    weight = torch.zeros(2, 1, dtype=BF16, requires_grad=True)
    head_cross_entropy(x, weight, torch.zeros(128, dtype=torch.int64), "sum").backward()
    assert weight.grad.flatten().tolist() == [-(2**-8), 2**-8]
