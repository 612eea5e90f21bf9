"""Pre-LN with nanochat's residual and x_0 scalars: before layer n, x <- own_n x + source_n x_0.

x_0 is the state before the first layer (the normed embedding, after smear). A field of the nanochat backbone,
``x0_scalars``, and not part of Bank of Values' baseline, which leaves it out.
State: (x, x_0), (batch, time, width) each. No special layers: in the first one both terms are x_0.
Parameters: ``own`` and ``source``, (L,). Initialisation: 1 and 0, so that the model starts as Pre-LN.
Source: karpathy/nanochat, January 2026 (there called resid and x0 lambdas).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine
from respath.model.initial import Draw
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec


class ScaledPreLN(PreLN):
    """Pre-LN whose state is rescaled, and reminded of the embedding, before every layer."""

    role = "coefficient"

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.own = nn.Parameter(torch.empty(spec.layers))
        self.source = nn.Parameter(torch.empty(spec.layers))

    def open(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The embedding is the state and x_0."""
        return embedded, embedded

    def read(
        self, state: tuple[Tensor, Tensor], k: int, norm: nn.Module
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The normed state, rescaled first where a layer begins."""
        x, x0 = state
        if k % 2 == 0:
            x = combine([x0, x], [self.source[k // 2], self.own[k // 2]])
        return norm(x), (x, x0)

    def write(
        self, state: tuple[Tensor, Tensor], k: int, y: Tensor, norm: nn.Module
    ) -> tuple[Tensor, Tensor]:
        """The output is added."""
        return state[0] + y, state[1]

    def close(self, state: tuple[Tensor, Tensor]) -> Tensor:
        """The last state."""
        return state[0]

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """The state as it is."""
        return {"own": torch.ones(self.own.shape), "source": torch.zeros(self.source.shape)}
