"""Hyper-connections and mHC: coefficients, transport and paths against direct evaluations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from respath.model.streams.mhc import sinkhorn
from tests.unit.stream_models import Branches, gap, model, perturbed, tokens


def states(m: int = 4, width: int = 32, count: int = 6) -> torch.Tensor:
    return torch.randn(1, count, m, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def direct_hc(part, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[alpha | A] (m, 1 + m) and beta of one token h (m, width), written out."""
    m = h.shape[0]
    value = {name: parameter.detach().numpy() for name, parameter in part.named_parameters()}
    static = np.concatenate([value["read"][:, None], value["transport"]], axis=1)
    mixes, beta = np.zeros((m, 1 + m)), np.zeros(m)
    for s in range(m):
        u = h[s] / np.sqrt(np.mean(h[s] ** 2) + 1e-8)
        for column in range(1 + m):
            mixes[s, column] = static[s, column] + value["gates"][0] * np.tanh(
                u @ value["projection"][column]
            )
        beta[s] = value["write"][s] + value["gates"][1] * np.tanh(u @ value["projection"][1 + m])
    return mixes, beta


def direct_mhc(part, h: np.ndarray, rounds: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """pre (m,), post (m,), R (m, m) of one token h (m, width), written out."""
    m = h.shape[0]
    value = {name: parameter.detach().numpy() for name, parameter in part.named_parameters()}
    flat = h.reshape(-1)
    c = value["projection"] @ (flat / np.sqrt(np.mean(flat**2) + 1e-6))
    gates, bias = value["gates"], value["bias"]
    pre = 1 / (1 + np.exp(-(gates[0] * c[:m] + bias[:m])))
    post = 2 / (1 + np.exp(-(gates[1] * c[m : 2 * m] + bias[m : 2 * m])))
    logits = (gates[2] * c[2 * m :] + bias[2 * m :]).reshape(m, m)
    r = np.exp(logits - logits.max(axis=1, keepdims=True))
    r = r / r.sum(axis=1, keepdims=True) + 1e-6
    r = r / (r.sum(axis=0, keepdims=True) + 1e-6)
    for _ in range(rounds - 1):
        r = r / (r.sum(axis=1, keepdims=True) + 1e-6)
        r = r / (r.sum(axis=0, keepdims=True) + 1e-6)
    return pre, post, r


def test_hc_coefficients_equal_a_direct_evaluation():
    h, part = states(), perturbed({"kind": "hc"}, amount=0.5).stream.sublayers[3]
    mixes, writes = part(h)
    for t in range(h.shape[1]):
        expected, beta = direct_hc(part, h[0, t].numpy())
        np.testing.assert_allclose(mixes[0, t].mT.detach().numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(writes[0, t].detach().numpy(), beta, atol=1e-12)


def test_mhc_coefficients_equal_a_direct_evaluation_with_non_zero_biases():
    # With zero biases, gate * projection + bias and gate * (projection + bias) could not be told apart.
    h, part = states(), perturbed({"kind": "mhc"}, amount=0.5).stream.sublayers[3]
    assert part.bias.abs().min() > 0 and (part.gates - 1).abs().min() > 0.1
    mixes, writes = part(h)
    for t in range(h.shape[1]):
        pre, post, r = direct_mhc(part, h[0, t].numpy())
        np.testing.assert_allclose(mixes[0, t, 0].detach().numpy(), pre, atol=1e-12)
        np.testing.assert_allclose(mixes[0, t, 1:].detach().numpy(), r, atol=1e-12)
        np.testing.assert_allclose(writes[0, t].detach().numpy(), post, atol=1e-12)


def test_the_start_of_mhc_is_near_identity_transport():
    mixes, writes = model({"kind": "mhc"}).stream.sublayers[1](states())
    transport = mixes[0, 0, 1:]
    torch.testing.assert_close(transport.diag(), torch.full((4,), 0.99899).double(), atol=5e-6, rtol=0)
    off = transport[~torch.eye(4, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full((12,), 0.000336).double(), atol=5e-7, rtol=0)
    expected = torch.sigmoid(torch.tensor([-8.0, 8.0, -8.0, -8.0]).double())
    torch.testing.assert_close(mixes[0, 0, 0], expected)
    torch.testing.assert_close(writes[0, 0], torch.ones(4).double())


def test_sinkhorn_makes_doubly_stochastic_matrices():
    logits = torch.randn(4, 4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = sinkhorn(logits, 20)
    assert matrix.min() > 0
    for dim in (0, 1):
        torch.testing.assert_close(matrix.sum(dim), torch.ones(4, 50).double(), atol=1e-5, rtol=0)
    rough = sinkhorn(logits, 1)
    assert (rough.sum(1) - 1).abs().max() > 1e-2


@pytest.mark.parametrize("rounds", [1, 2, 20])
def test_the_gradient_of_sinkhorn_is_that_of_its_rounds(rounds):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 3, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: sinkhorn(x, rounds), (logits,))


@pytest.mark.parametrize("stream", [{"kind": "hc"}, {"kind": "mhc"}], ids=str)
def test_branch_inputs_are_the_sum_over_paths_of_earlier_outputs(stream):
    built = perturbed(stream, amount=0.1)
    branches = Branches(built, tokens())
    state = built.stream.open(branches.embedded)
    # Row vectors (batch, time, m): how the embedding and each output so far enter the streams now.
    paths, outputs = [torch.ones(2, 9, 4).double()], [branches.embedded]
    for k in range(8):
        mixes, writes = built.stream.sublayers[k](state[0])
        x, state = built.stream.read(state, k, torch.nn.Identity())
        rebuilt = sum(
            (path * mixes[..., 0, :]).sum(-1, keepdim=True) * f
            for path, f in zip(paths, outputs, strict=True)
        )
        assert gap(rebuilt, x) < 1e-12
        y = branches(k, branches.norm(k)(x))
        state = built.stream.write(state, k, y, None)
        paths = [(path[..., None, :] @ mixes[..., 1:, :].mT).squeeze(-2) for path in paths] + [writes]
        outputs.append(y)
    assert gap(branches.logits(built.stream.close(state)), built(tokens())) < 1e-12


def loss_gradients(built):
    built(tokens()).square().mean().backward()
    return built.stream.sublayers


def test_every_transport_column_learns():
    for part in loss_gradients(perturbed({"kind": "hc"}, amount=0.1)):
        assert (part.transport.grad.abs() > 0).all()
        assert (part.projection.grad[1:5].abs().sum(dim=1) > 0).all()


def test_without_transport_the_transport_is_dead_and_the_model_another():
    mixed, unmixed = (perturbed({"kind": "hc", "transport": on}, amount=0.1) for on in (True, False))
    assert gap(unmixed(tokens()), mixed(tokens())) > 1e-3
    for part in loss_gradients(unmixed):
        assert not part.transport.grad.any()
        assert not part.projection.grad[1:5].any()
        assert part.projection.grad[0].any() and part.read.grad.all() and part.write.grad.all()


def test_hc_reads_the_sum_and_mhc_the_mean_of_the_streams():
    h = states()
    for kind, expected in (("hc", h.sum(2)), ("mhc", h.mean(2))):
        torch.testing.assert_close(model({"kind": kind}).stream.close((h, None)), expected)
