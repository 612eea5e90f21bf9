"""Streams that place, scale or repeat norms, and those that cut or add skips, against their equations."""

from __future__ import annotations

import pytest
import torch

from tests.unit.stream_models import PRE_LN, STREAMS, Branches, gap, model, perturbed, tokens


def rms(x, gain):
    return x / (x.square().mean(-1, keepdim=True) + 1e-12).sqrt() * gain


def sandwich_ln(built, f, h, k):
    out = built.stream.output_norms[k].weight
    return h + rms(f(k, rms(h, f.norm(k).weight)), out)


def lns(built, f, h, k):
    return h + f(k, rms(h, f.norm(k).weight) / (k // 2 + 1) ** 0.5)


def complete_p(built, f, h, k):
    return h + f(k, rms(h, f.norm(k).weight)) / 2


def deepnorm(built, f, h, k):
    x = (2 * 4) ** 0.25 * h + f(k, h)
    centred = x - x.mean(-1, keepdim=True)
    return rms(centred, f.norm(k).weight)


def keel(built, f, h, k):
    alpha = 1 if k <= 1 else 8
    x = alpha * h + f(k, rms(h, f.norm(k).weight))
    return x if k == 0 else rms(x, built.stream.post_norms[k - 1].weight)


def moda_post(built, f, h, k):
    y = f(k, h)
    f.carried = built.stream.carry(f.carried, k, h)
    return rms(h + y, f.norm(k).weight)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("sandwich_ln", sandwich_ln),
        ("lns", lns),
        ("complete_p", complete_p),
        ("deepnorm", deepnorm),
        ("keel", keel),
        ("moda-post", moda_post),
    ],
)
def test_the_stream_equals_its_equation(name, step):
    built = perturbed(STREAMS[name])
    f = Branches(built, tokens())
    h = f.embedded
    for k in range(8):
        h = step(built, f, h, k)
    assert gap(built(tokens()), f.logits(h)) < 1e-12


@pytest.mark.parametrize("learnable", [False, True])
def test_hidden_residual_mixes_the_raw_embedding_into_every_block_output(learnable):
    built = perturbed({"kind": "hidden_residual", "source": 0.3, "own": 0.6, "learnable": learnable})
    f = Branches(built, tokens())
    h = f.embedded
    for k in range(8):
        h = h + f(k, f.norm(k)(h))
        if k % 2 == 1:
            n = k // 2
            source, own = (built.stream.source[n], built.stream.own[n]) if learnable else (0.3, 0.6)
            h = source * f.embedded + own * h
    assert gap(built(tokens()), f.logits(h)) < 1e-12


def test_truncated_at_one_gives_layer_one_without_its_skip():
    built = perturbed({"kind": "truncated", "start": 1})
    f = Branches(built, tokens())
    attended = f(0, f.norm(0)(f.embedded))
    h = attended + f(1, f.norm(1)(attended))
    for k in range(2, 8):
        h = h + f(k, f.norm(k)(h))
    assert gap(built(tokens()), f.logits(h)) < 1e-12


@pytest.mark.parametrize(("both", "start"), [(False, 2), (True, 2), (True, 4)])
def test_truncated_cuts_every_block_up_to_its_start(both, start):
    built = perturbed({"kind": "truncated", "start": start, "both_skips": both})
    f = Branches(built, tokens())
    h = f.embedded
    for k in range(8):
        y = f(k, f.norm(k)(h))
        cut = k // 2 + 1 <= start and (k % 2 == 0 or both)
        h = y if cut else h + y
    assert gap(built(tokens()), f.logits(h)) < 1e-12


def test_no_two_streams_compute_the_same_function():
    ids = tokens()
    plain = perturbed(PRE_LN)
    for name, stream in STREAMS.items():
        if name == "pre_ln":
            continue
        built = perturbed(stream)
        built.load_state_dict(plain.state_dict(), strict=False)
        assert gap(built(ids), plain(ids)) > 1e-6, name


def test_norms_of_deepnorm_have_no_bias_and_the_final_norm_keeps_the_mean():
    built = model({"kind": "deepnorm"})
    x = torch.randn(3, 32).double() + 5
    assert built.layers[0].attention_norm(x).mean(-1).abs().max() < 1e-12
    assert built.final_norm(x).mean(-1).abs().min() > 0.5
