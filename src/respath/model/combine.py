"""Weighted sums of activations whose weights stay in fp32 while the sum stays in the activations' dtype."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class _LowPrecisionSum(torch.autograd.Function):
    """sum_i w_i x_i in fp32, rounded once; saves the low-precision x_i rather than fp32 copies."""

    @staticmethod
    def forward(ctx, count: int, *tensors: Tensor) -> Tensor:
        weights, terms = tensors[:count], tensors[count:]
        ctx.count = count
        ctx.save_for_backward(*tensors)
        total = terms[-1].float() * weights[-1]
        for weight, term in zip(weights[:-1], terms[:-1], strict=True):
            total.addcmul_(term.float(), weight)
        return total.to(terms[-1].dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        saved = ctx.saved_tensors  # asked for once: recomputation hands them out once
        weights, terms = saved[: ctx.count], saved[ctx.count :]
        need = ctx.needs_input_grad[1:]
        to_weights = [
            torch.sum(grad * term, dtype=torch.float32).to(weight.dtype) if wanted else None
            for weight, term, wanted in zip(weights, terms, need[: ctx.count], strict=True)
        ]
        to_terms = [
            (grad * weight).to(term.dtype) if wanted else None
            for weight, term, wanted in zip(weights, terms, need[ctx.count :], strict=True)
        ]
        return None, *to_weights, *to_terms


def scalars(vector: Tensor) -> tuple[Tensor, ...]:
    """The entries of a coefficient vector, to be carried from layer to layer.

    Of a copy: hooks on modules (PyTorch's flop counter) refuse views that were made of a parameter without
    gradient.
    """
    return vector.clone().unbind()


def _is_one(weight: Tensor | float) -> bool:
    return not isinstance(weight, Tensor) and weight == 1.0


def combine(terms: Sequence[Tensor], weights: Sequence[Tensor | float]) -> Tensor:
    """sum_i weights[i] terms[i]; the result has the terms' dtype.

    Weights are numbers or 0-dimensional tensors. A learnable weight in fp32 keeps its precision although the
    terms are bf16: rounding it first would hide changes below 0.2 % from the forward pass.
    """
    last = terms[-1]
    if isinstance(weights[-1], Tensor) and last.dtype in (torch.bfloat16, torch.float16):
        return _LowPrecisionSum.apply(len(weights), *weights, *terms)
    total = last if _is_one(weights[-1]) and len(terms) > 1 else last * weights[-1]
    for weight, term in zip(weights[:-1], terms[:-1], strict=True):
        if isinstance(weight, Tensor):
            total = torch.addcmul(total, term, weight)
        else:
            total = torch.add(total, term, alpha=weight)
    return total
