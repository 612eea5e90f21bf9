"""Rotary position embedding: pairs of channels turn by an angle proportional to the position (Su et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotations(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of ``positions`` (time,) or (batch, time) -> each (..., time, 1, head_dim / 2) in ``dtype``.

    Angle of pair j at position t: t * theta^(-2 j / head_dim), worked out in at least fp32.
    """
    wide = torch.promote_types(dtype, torch.float32)
    powers = torch.arange(0, head_dim, 2, device=positions.device, dtype=wide) / head_dim
    angles = positions[..., None].to(wide) * theta**-powers
    return angles.cos().to(dtype)[..., None, :], angles.sin().to(dtype)[..., None, :]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn channel j with channel j + head_dim / 2 (the Llama convention). x (batch, time, heads, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
