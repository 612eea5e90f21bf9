"""Routing arithmetic: values and gradients against plain tensor expressions, and precision for bf16 states."""

from __future__ import annotations

import pytest
import torch

from respath.model.routing import mix, normed_linear, weighted_sum, write


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def plain_normed_linear(x, weight, eps):
    return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt()) @ weight.mT


CASES = {
    "normed_linear": (
        lambda x, w: normed_linear(x, w, 1e-3),
        lambda x, w: plain_normed_linear(x, w, 1e-3),
        (numbers(2, 3, 5), numbers(4, 5)),
    ),
    "weighted_sum": (
        lambda w, *terms: weighted_sum(terms, w),
        lambda w, *terms: sum(w[..., i, None] * term for i, term in enumerate(terms)),
        (numbers(2, 3, 3), *(numbers(2, 3, 5, seed=i) for i in range(3))),
    ),
    "mix": (
        mix,
        lambda w, s: (w[..., None] * s[..., None, :, :]).sum(-2),
        (numbers(2, 3, 5, 4), numbers(2, 3, 4, 6)),
    ),
    "write": (
        write,
        lambda s, w, y: s + w[..., None] * y[..., None, :],
        (numbers(2, 3, 4, 6), numbers(2, 3, 4), numbers(2, 3, 6)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_function_equals_its_expression(case):
    function, expression, arguments = CASES[case]
    torch.testing.assert_close(function(*arguments), expression(*arguments), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(function, arguments)


#: Which arguments are weights (fp32 whatever the states' dtype).
WEIGHTS = {"normed_linear": (), "weighted_sum": (0,), "mix": (0,), "write": (1,)}


@pytest.mark.parametrize("case", CASES)
def test_bf16_states_are_combined_in_fp32_and_rounded_once(case):
    function, expression, arguments = CASES[case]
    low = [
        argument.detach().to(torch.float32 if i in WEIGHTS[case] else torch.bfloat16).requires_grad_()
        for i, argument in enumerate(arguments)
    ]
    exact = [argument.detach().double().requires_grad_() for argument in low]
    out, expected = function(*low), expression(*exact)
    assert out.dtype == (torch.float32 if case == "normed_linear" else torch.bfloat16)
    # One rounding to bf16 moves a value by 2**-8 of itself at most; sums in fp32 by far less, in any order.
    rounding = 1e-5 if case == "normed_linear" else 2**-8
    torch.testing.assert_close(out.float(), expected.float(), rtol=rounding, atol=1e-6)
    grad = torch.ones_like(expected)
    gradients = torch.autograd.grad(out, low, grad.to(out.dtype))
    for argument, actual, wanted in zip(
        low, gradients, torch.autograd.grad(expected, exact, grad), strict=True
    ):
        assert actual.dtype == argument.dtype
        # Two roundings: of the gradient that comes in, and of the one that goes out.
        torch.testing.assert_close(actual.double(), wanted, rtol=2**-7, atol=1e-5)


def test_a_transport_near_one_is_not_rounded_away():
    # 0.99899, the diagonal at mHC's start, is 1 in bf16, and its distance from 1 would be lost.
    weights = torch.tensor([[[0.99899, -1.0]]])
    streams = torch.full((1, 2, 4), 192.0, dtype=torch.bfloat16)
    assert not (weights.bfloat16() @ streams).any()
    torch.testing.assert_close(
        mix(weights, streams).float(), torch.full((1, 1, 4), -0.19392), rtol=2**-8, atol=0
    )
