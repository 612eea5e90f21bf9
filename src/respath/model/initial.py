"""Initial values: each a pure function of seed, name and shape, whatever else the model holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Uniform(NamedTuple):
    """Uniform on [-bound, bound]; a plain number in its place is a normal draw's deviation."""

    bound: float


def initial_tensor(
    seed: int, name: str, shape: tuple[int, ...], start: float | Uniform, cut: float | None = None
) -> Tensor:
    """A draw in fp32 from a generator seeded by SHA-256 of (seed, name).

    ``start``: the deviation of N(0, start), or ``Uniform``. ``cut``: a normal draw stays within that many
    deviations (and is not stretched to make up for it).
    """
    digest = hashlib.sha256(f"{seed}|{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    if isinstance(start, Uniform):
        return torch.empty(shape).uniform_(-start.bound, start.bound, generator=generator)
    if cut is None:
        return torch.randn(shape, generator=generator) * start
    drawn = torch.empty(shape)
    return nn.init.trunc_normal_(drawn, 0.0, 1.0, -cut, cut, generator=generator) * start


class Draw:
    """What a module's ``initial`` draws its parameters with: ``draw(name, shape, start)`` for its own names.

    ``factors``: what draws are multiplied by, for the full names that are there (a stream may want smaller
    matrices).
    """

    def __init__(
        self, seed: int, prefix: str, cut: float | None = None, factors: Mapping[str, float] | None = None
    ):
        self.seed, self.prefix, self.cut, self.factors = seed, prefix, cut, factors or {}

    def __call__(self, name: str, shape: tuple[int, ...], start: float | Uniform) -> Tensor:
        """The initial value of the module's parameter ``name``."""
        return self.elsewhere(f"{self.prefix}.{name}", shape, start)

    def elsewhere(self, full_name: str, shape: tuple[int, ...], start: float | Uniform) -> Tensor:
        """What a parameter of that full name begins as, in whatever module, whether or not it exists."""
        drawn = initial_tensor(self.seed, full_name, tuple(shape), start, self.cut)
        return drawn * self.factors[full_name] if full_name in self.factors else drawn
