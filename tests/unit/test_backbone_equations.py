"""Backbones against peers: transformers' GPT-2, and nanochat's recipe in plain functions."""

from __future__ import annotations

import math

import pytest
import torch

from respath.model import build_model
from respath.model.loss import next_token_loss
from tests.unit.backbone_models import SHAPE, WINDOWS, perturbed, some_ids


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_gpt2_is_hugging_faces_gpt2(dtype, atol, tied):
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    from respath.model.export import hugging_face_weights

    model = perturbed("gpt2", dtype=dtype, norm_eps=1e-5, tie_embeddings=tied)
    config = transformers.GPT2Config(
        vocab_size=SHAPE["vocab_size"], n_positions=80, n_embd=32, n_layer=6, n_head=4, n_inner=56, tie_word_embeddings=tied,
        attn_implementation="eager",
    )  # fmt: skip
    peer = transformers.GPT2LMHeadModel(config).to(dtype).eval()
    weights = hugging_face_weights(model.spec, model.state_dict())
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    assert not unexpected and all(
        "attn.bias" in name or (tied and name == "lm_head.weight") for name in missing
    )
    peer.tie_weights()
    ids = some_ids(time=40)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), peer(ids).logits, rtol=0, atol=atol)


def by_the_recipe(model, ids):
    """Logits of the nanochat backbone, token by token and head by head."""
    spec, weight = model.spec, dict(model.named_parameters())
    size = spec.head_dim

    def norm(x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + spec.norm_eps)

    def turned(x):
        out = torch.empty_like(x)
        for t in range(x.shape[1]):
            for j in range(size // 2):
                angle = t * spec.rope_theta ** (-2 * j / size)
                a, b = x[:, t, :, j], x[:, t, :, j + size // 2]
                out[:, t, :, j] = a * math.cos(angle) - b * math.sin(angle)
                out[:, t, :, j + size // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    e = norm(weight["embedding.weight"][ids])
    x = e.clone()
    if spec.smear:
        for t in range(1, ids.shape[1]):
            gate = torch.sigmoid((e[:, t, :24] * weight["entry.gate"].double()).sum(-1, keepdim=True))
            x[:, t] = e[:, t] + weight["entry.scale"].double() * gate * e[:, t - 1]
    x0 = x
    for n in range(spec.layers):
        name = f"layers.{n}"
        if spec.x0_scalars:
            x = weight["stream.own"][n] * x + weight["stream.source"][n] * x0
        h = norm(x)
        q, k, v = (
            (h @ weight[f"{name}.attention.{which}_proj.weight"].T).unflatten(-1, (spec.heads, size))
            for which in "qkv"
        )
        q, k = 1.2 * norm(turned(q)), 1.2 * norm(turned(k))
        long = spec.windows is None or n == spec.layers - 1 or spec.windows.pattern[n % 4] == "L"
        attended = torch.zeros_like(q)
        for t in range(ids.shape[1]):
            start = 0 if long else max(0, t - spec.windows.short)
            for head in range(spec.heads):
                scores = (k[:, start : t + 1, head] @ q[:, t, head, :, None]).squeeze(-1) / math.sqrt(size)
                share = scores.exp() / scores.exp().sum(-1, keepdim=True)
                attended[:, t, head] = (share[..., None] * v[:, start : t + 1, head]).sum(1)
        x = x + attended.flatten(-2) @ weight[f"{name}.attention.o_proj.weight"].T
        up = norm(x) @ weight[f"{name}.mlp.up_proj.weight"].T
        x = x + (up * (up > 0)) ** 2 @ weight[f"{name}.mlp.down_proj.weight"].T
    return 15 * torch.tanh(norm(x) @ weight["head.weight"].T / 15)


@pytest.mark.parametrize("variant", ["nanochat", "nanochat-no-smear", "nanochat-scalars"])
def test_nanochat_computes_the_recipe(variant):
    model, ids = perturbed(variant, rope_theta=100_000.0), some_ids(time=9)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), by_the_recipe(model, ids), rtol=1e-9, atol=1e-9)


def test_capped_logits_of_a_bf16_model_are_fp32_and_bounded():
    model = perturbed("nanochat", dtype=torch.bfloat16)
    with torch.no_grad():
        model.head.weight.mul_(50)
        logits = model(some_ids())
    assert logits.dtype == torch.float32 and 14 < logits.abs().max() <= 15


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_and_its_gradients_see_the_soft_cap(reduction):
    model, ids = perturbed("nanochat"), some_ids(2, 40)
    logits = model(ids[:, :-1])
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction=reduction
    )
    value = next_token_loss(model, ids, reduction)
    torch.testing.assert_close(value.flatten(), expected.flatten(), rtol=1e-12, atol=1e-12)
    parameters = list(model.parameters())
    pairs = zip(
        torch.autograd.grad(value.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
        strict=True,
    )
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_without_tokens_before_it_the_first_token_is_not_smeared():
    smeared, plain = perturbed("nanochat"), perturbed("nanochat-no-smear")
    plain.load_state_dict({name: t for name, t in smeared.state_dict().items() if "entry" not in name})
    ids = some_ids()
    with torch.no_grad():
        a, b = smeared(ids), plain(ids)
    torch.testing.assert_close(a[:, 0], b[:, 0], rtol=0, atol=1e-12)
    assert (a - b)[:, 1:].abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("time", [5, 128, 200, 256, 257, 300, 513])
@pytest.mark.parametrize("window", [3, 130])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_blocks_of_a_window_are_the_definition_with_equal_gradients(time, window, kv_heads):
    from respath.model.kernels import Visibility, attend

    generator = torch.Generator().manual_seed(time)
    q, k, v = (
        torch.randn(2, time, heads, 8, generator=generator, dtype=torch.float64, requires_grad=True)
        for heads in (4, kv_heads, kv_heads)
    )
    seen = Visibility(square=True, aligned=True, mask=None, window=window)
    outs = [attend(q, k, v, seen, kernel) for kernel in ("sdpa", "eager")]
    torch.testing.assert_close(*outs, rtol=0, atol=1e-12)
    weight = torch.randn(outs[0].shape, generator=generator, dtype=torch.float64)
    grads = [torch.autograd.grad((out * weight).sum(), (q, k, v)) for out in outs]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("backbone", ["llama", "gpt2", "nanochat"])
def test_flex_attention_agrees_with_the_definition_forward_and_refuses_a_backward_pass_on_a_cpu(backbone):
    model, ids = perturbed(backbone, **WINDOWS), some_ids()
    with torch.no_grad():
        expected = model(ids)
        model.kernel = "flex"
        torch.testing.assert_close(model(ids), expected, rtol=0, atol=1e-10)
        cache = model.new_cache(2, 13)
        chunks = [model(ids[:, a:b], cache=cache) for a, b in ((0, 7), (7, 8), (8, 13))]
        torch.testing.assert_close(torch.cat(chunks, 1), expected, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="no backward pass"):
        model(ids)


@pytest.mark.parametrize(
    "changes", [WINDOWS, {"kv_heads": 2}, {"values": {"kind": "reuse", "layers": "all"}}]
)
def test_flash_attn_is_taken_where_it_fits_and_is_told_which_keys_are_seen(monkeypatch, changes):
    """The package needs a GPU: a stand-in does, query by query, what its documentation says of its arguments."""
    from respath.model import kernels

    calls = []

    def flash_attn_func(
        q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), deterministic=False
    ):
        assert dropout_p == 0.0 and softmax_scale is None and causal and not deterministic
        calls.append(window_size)
        out, later = torch.empty_like(q), k.shape[1] - q.shape[1]
        for head in range(q.shape[2]):
            own = head // (q.shape[2] // k.shape[2])
            for i in range(q.shape[1]):
                first = 0 if window_size[0] < 0 else max(0, i + later - window_size[0])
                keys = slice(first, i + later + 1)
                scores = torch.einsum("bd,bsd->bs", q[:, i, head], k[:, keys, own]) / math.sqrt(q.shape[3])
                out[:, i, head] = torch.einsum("bs,bsd->bd", scores.softmax(-1), v[:, keys, own])
        return out

    model, ids = perturbed("llama", **changes), some_ids()
    with torch.no_grad():
        expected = model(ids)
        model.kernel = "flash_attn"
        with pytest.raises(ValueError, match=r"respath\[flash\]"):
            model(ids)
        monkeypatch.setattr(kernels, "flash_attn_function", lambda: flash_attn_func)
        monkeypatch.setattr(kernels, "_flash_fits", lambda q, seen: seen.aligned)
        for model.kernel in ("flash_attn", "auto"):
            calls.clear()
            torch.testing.assert_close(model(ids), expected, rtol=0, atol=1e-10)
            if model.kernel == "auto":
                # Only windows: what PyTorch's own function does as well stays with it.
                assert set(calls) == ({(3, 0)} if changes is WINDOWS else set())
                continue
            assert len(calls) == model.spec.layers and ((3, 0) in calls) == (changes is WINDOWS)
            cache = model.new_cache(2, 13)
            chunks = [model(ids[:, a:b], cache=cache) for a, b in ((0, 7), (7, 8), (8, 13))]
            torch.testing.assert_close(torch.cat(chunks, 1), expected, rtol=0, atol=1e-10)
            assert len(calls) == 4 * model.spec.layers


def test_dropout_drops_in_training_only_and_follows_the_generators_state():
    model, ids = build_model({**SHAPE, "backbone": "gpt2", "max_positions": 80, "dropout": 0.1}), some_ids()
    model.eval()
    assert torch.equal(model(ids), model(ids))
    model.train()
    torch.manual_seed(1)
    first, second = model(ids), model(ids)
    torch.manual_seed(1)
    assert torch.equal(first, model(ids)) and not torch.equal(first, second)


def test_dropout_keeps_the_mean_of_what_attention_adds_up():
    from respath.model.kernels import Visibility, attend

    torch.manual_seed(0)
    q = k = torch.zeros(1, 50, 1, 4, dtype=torch.float64)
    v = torch.ones(1, 50, 1, 4, dtype=torch.float64)
    seen = Visibility(square=True, aligned=True, mask=None)
    for kernel in ("eager", "sdpa"):
        out = torch.stack([attend(q, k, v, seen, kernel, 0.1)[0, -1, 0, 0] for _ in range(400)])
        # Each of 50 equal weights is dropped or scaled by 1 / 0.9: deviation sqrt(0.1 / 0.9 / 50) = 0.047 per draw.
        assert abs(out.mean() - 1) < 4 * 0.047 / 20 and 0.03 < out.std() < 0.065


@pytest.mark.parametrize("backbone", ["gpt2", "nanochat"])
def test_dropout_and_recomputed_activations_give_equal_gradients(backbone):
    fields = {"dropout": 0.1} if backbone == "gpt2" else {}
    model, ids = perturbed(backbone, **fields).train(), some_ids()
    parameters, gradients = list(model.parameters()), []
    for model.checkpoint_activations in (False, True):
        torch.manual_seed(4)
        gradients.append(torch.autograd.grad(next_token_loss(model, ids), parameters))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
