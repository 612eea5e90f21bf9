"""The arithmetic of routing between residual states, per token, in at least fp32 whatever the states' dtype.

Weights that steer a path (scores, reads, transports, writes) lose their meaning when rounded to bf16: 0.99899 becomes 1. So
the weights are fp32, each result is added up in fp32 and rounded once, and what the backward pass keeps is the states
themselves, never an fp32 copy of them. No function copies or joins states: each reads every state once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """fp32, or fp64 for fp64."""
    return torch.promote_types(dtype, torch.float32)


class _NormedLinear(torch.autograd.Function):
    """(x W^T) / rms(x): the norm is a factor on the product, so that no normed copy of x exists."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide, width = wide_dtype(x.dtype), x.shape[-1]
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        scale = scale.square_().div_(width).add_(eps).rsqrt_()
        out = (x.to(wide) @ weight.to(wide).mT).mul_(scale)
        ctx.save_for_backward(x, weight, out, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, weight, out, scale = ctx.saved_tensors
        wide = out.dtype
        operand = x.to(wide)
        to_product = grad * scale
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            # d scale / d x = -scale^3 x / width, and out = product * scale.
            along = torch.sum(grad * out, -1, keepdim=True).mul_(scale.square()).div_(-x.shape[-1])
            to_x = (to_product @ weight.to(wide)).addcmul_(operand, along).to(x.dtype)
        if ctx.needs_input_grad[1]:
            to_weight = (to_product.flatten(0, -2).mT @ operand.flatten(0, -2)).to(weight.dtype)
        return to_x, to_weight, None


def normed_linear(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """W (x / sqrt(mean(x^2) + eps)), the norm without a gain. x (..., in), weight (out, in) -> (..., out), fp32 or wider."""
    return _NormedLinear.apply(x, weight, eps)


class _WeightedSum(torch.autograd.Function):
    """sum_i weights[..., i] terms[i]."""

    @staticmethod
    def forward(ctx, weights: Tensor, *terms: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *terms)
        total = terms[0] * weights[..., 0, None]
        for i in range(1, len(terms)):
            total.addcmul_(terms[i].to(total.dtype), weights[..., i, None])
        return total.to(terms[0].dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weights, *terms = ctx.saved_tensors
        grad = grad.to(weights.dtype)
        to_weights = None
        if ctx.needs_input_grad[0]:
            to_weights = torch.empty_like(weights)
            for i, term in enumerate(terms):
                to_weights[..., i] = torch.sum(grad * term, -1)
        to_terms = [
            (grad * weights[..., i, None]).to(term.dtype) if wanted else None
            for i, (term, wanted) in enumerate(zip(terms, ctx.needs_input_grad[1:], strict=True))
        ]
        return to_weights, *to_terms


def weighted_sum(terms: Sequence[Tensor], weights: Tensor) -> Tensor:
    """sum_i weights[..., i] terms[i] over separate tensors. terms (..., width) each, weights (..., n) -> (..., width)."""
    return _WeightedSum.apply(weights, *terms)


class _MixLowPrecision(torch.autograd.Function):
    """``mix`` for bf16 and fp16 states: products and sums in fp32, bf16 operands kept."""

    @staticmethod
    def forward(ctx, weights: Tensor, streams: Tensor) -> Tensor:
        ctx.save_for_backward(weights, streams)
        return (weights @ streams.to(weights.dtype)).to(streams.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weights, streams = ctx.saved_tensors
        grad = grad.to(weights.dtype)
        return grad @ streams.to(weights.dtype).mT, (weights.mT @ grad).to(streams.dtype)


def mix(weights: Tensor, streams: Tensor) -> Tensor:
    """out[..., o, :] = sum_s weights[..., o, s] streams[..., s, :]. (..., n, m), (..., m, width) -> (..., n, width)."""
    if weights.dtype != streams.dtype:
        return _MixLowPrecision.apply(weights, streams)
    return weights @ streams


class _WriteLowPrecision(torch.autograd.Function):
    """``write`` for bf16 and fp16 states."""

    @staticmethod
    def forward(ctx, streams: Tensor, weights: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(weights, y)
        return torch.addcmul(streams.to(weights.dtype), weights[..., None], y[..., None, :]).to(streams.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        weights, y = ctx.saved_tensors
        wide = grad.to(weights.dtype)
        to_weights = (wide @ y.to(weights.dtype)[..., None]).squeeze(-1)
        to_y = (weights[..., None, :] @ wide).squeeze(-2).to(y.dtype)
        return grad, to_weights, to_y


def write(streams: Tensor, weights: Tensor, y: Tensor) -> Tensor:
    """out[..., s, :] = streams[..., s, :] + weights[..., s] y. (..., m, width), (..., m), (..., width) -> (..., m, width)."""
    if weights.dtype != streams.dtype:
        return _WriteLowPrecision.apply(streams, weights, y)
    m, width = streams.shape[-2:]
    # As a batched outer product its gradients are batched products too: no (m, width) temporary per token.
    out = torch.baddbmm(streams.reshape(-1, m, width), weights.reshape(-1, m, 1), y.reshape(-1, 1, width))
    return out.view(streams.shape)
