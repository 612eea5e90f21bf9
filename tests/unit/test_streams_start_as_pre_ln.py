"""Streams that compute Pre-LN's function at initialisation, given Pre-LN's weights (float64, norm eps 1e-12)."""

from __future__ import annotations

import functools

import pytest
import torch

from respath.model.streams import mhc
from tests.unit.stream_models import PRE_LN, gap, model, perturbed, tokens, unscaled


def with_weights_of_pre_ln(stream: dict):
    """The stream's model at its start with the other parameters of a perturbed Pre-LN model, and that model."""
    plain, built = perturbed(PRE_LN), model(stream)
    missing, unexpected = built.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected, "a parameter of Pre-LN has another name under this stream"
    assert all(name.startswith("stream.") for name in missing)
    return built, plain


@pytest.mark.parametrize(
    "stream",
    [
        {"kind": "hc"},
        {"kind": "hc", "streams": 2},
        {"kind": "full_attnres"},
        *({"kind": "block_attnres", "length": b} for b in (1, 2, 3, 4, 5)),
        {"kind": "denseformer"},
        {"kind": "denseformer", "dilation": 2, "period": 2},
        {"kind": "hidden_residual", "source": 0.0, "own": 1.0, "learnable": True},
    ],
    ids=str,
)
def test_the_stream_starts_as_pre_ln(stream):
    built, plain = with_weights_of_pre_ln(stream)
    assert gap(built(tokens()), plain(tokens())) < 1e-10


def test_mhc_starts_as_pre_ln_up_to_the_epsilon_of_its_sinkhorn():
    # All streams are equal, so only row sums of the transport and the reads' sum matter. The reads' sum is a factor that the
    # norm takes out. The last step of each Sinkhorn divides columns by their sum + 1e-6, which makes every row sum (the start is
    # symmetric) 1 - 1e-6: after 2 L = 8 transports an old contribution weighs 8e-6 less. The norms and branches that follow
    # may enlarge this tenfold.
    built, plain = with_weights_of_pre_ln({"kind": "mhc"})
    difference = gap(built(tokens()), plain(tokens()))
    assert 1e-9 < difference < 8 * 1e-6 * 10


def test_mhc_without_the_epsilon_starts_exactly_as_pre_ln(monkeypatch):
    monkeypatch.setattr(mhc, "sinkhorn", functools.partial(mhc.sinkhorn, eps=0.0))
    built, plain = with_weights_of_pre_ln({"kind": "mhc"})
    assert gap(built(tokens()), plain(tokens())) < 1e-10


def test_mhc_with_the_earlier_start_does_not_start_as_pre_ln():
    built, plain = with_weights_of_pre_ln({"kind": "mhc", "start": "near_uniform"})
    assert gap(built(tokens()), plain(tokens())) > 1e-4


@pytest.mark.parametrize("kind", ["hc", "mhc"])
def test_several_streams_start_with_smaller_output_matrices(kind):
    built, plain = model({"kind": kind}), model(PRE_LN)
    for name, value in plain.state_dict().items():
        factor = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        assert torch.equal(built.state_dict()[name], factor * value), name
    assert gap(built(tokens()), plain(tokens())) > 1e-2
    assert gap(unscaled({"kind": kind})(tokens()), plain(tokens())) < 1e-4


def test_deepnorm_starts_values_outputs_and_mlps_smaller():
    built, plain = model({"kind": "deepnorm"}), model(PRE_LN)
    smaller = ("v_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight", "down_proj.weight")
    assert set(built.state_dict()) == set(plain.state_dict())
    for name, value in plain.state_dict().items():
        factor = (8 * 4) ** -0.25 if name.endswith(smaller) else 1.0
        torch.testing.assert_close(built.state_dict()[name], factor * value, rtol=1e-6, atol=0)


def test_hidden_residual_with_zero_and_one_is_pre_ln_bit_for_bit():
    plain = perturbed(PRE_LN)
    built = model({"kind": "hidden_residual", "source": 0.0, "own": 1.0})
    built.load_state_dict(plain.state_dict())
    assert torch.equal(built(tokens()), plain(tokens()))
