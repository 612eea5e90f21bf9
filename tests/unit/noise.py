"""Noise on every parameter of a model: at its start, zeros and ones would let tests of wiring pass emptily."""

from __future__ import annotations

import torch


def with_noise(model: torch.nn.Module, amount: float = 0.2, seed: int = 1) -> torch.nn.Module:
    """The model itself, each parameter moved by ``amount`` times a standard normal draw."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += amount * noise.to(parameter.dtype)
    return model
