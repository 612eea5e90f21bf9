"""Gradients against central differences of the loss."""

from __future__ import annotations

import torch
from torch import nn

from respath.model.loss import next_token_loss


def assert_gradients_are_slopes(model: nn.Module, ids: torch.Tensor) -> None:
    """The gradient of the mean loss, along one random direction of all parameters, is the loss's slope in it (float64)."""
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    gradients = torch.autograd.grad(next_token_loss(model, ids), parameters)
    slope = sum((g * v).sum() for g, v in zip(gradients, direction, strict=True))

    def loss_at(step):
        with torch.no_grad():
            for parameter, v in zip(parameters, direction, strict=True):
                parameter += step * v
            value = next_token_loss(model, ids)
            for parameter, v in zip(parameters, direction, strict=True):
                parameter -= step * v
        return value

    step = 1e-6
    torch.testing.assert_close((loss_at(step) - loss_at(-step)) / (2 * step), slope, rtol=1e-5, atol=1e-7)
