"""Hidden residual: H'_n = lambda_{n,1} H_0 + lambda_{n,2} H_n after every block; H_0 is the raw embedding.

H_n is the block's Pre-LN output on H'_{n-1}, and H'_n replaces it as the state. With 1/2 and 1/2 the state is halved at every
block, which may explain by itself why that start is worse.
State: (x, H_0), each (batch, time, width). No special layers.
Parameters (learnable only): ``source`` and ``own``, (L,). Initialisation: the spec's two numbers.
Source: ResFormer (arXiv 2410.17897), Section 4.4 and Table 4 (whose caption says H_0 where the text's formula says H_1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.hidden_residual import HiddenResidualSpec


class HiddenResidual(PreLN):
    """Pre-LN with a second skip from the embedding to every block's output."""

    document = HiddenResidualSpec

    role = "coefficient"

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.start = {"source": spec.stream.source, "own": spec.stream.own}
        if spec.stream.learnable:
            self.source = nn.Parameter(torch.empty(spec.layers))
            self.own = nn.Parameter(torch.empty(spec.layers))
        self.learnable = spec.stream.learnable

    def weights(self, n: int) -> tuple[Tensor | float, Tensor | float]:
        """lambda_1 and lambda_2 of block ``n`` (0-based)."""
        if self.learnable:
            return self.source[n], self.own[n]
        return self.start["source"], self.start["own"]

    def open(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The embedding is the state and H_0."""
        return embedded, embedded

    def read(
        self, state: tuple[Tensor, Tensor], k: int, norm: nn.Module
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The normed state."""
        return norm(state[0]), state

    def write(
        self, state: tuple[Tensor, Tensor], k: int, y: Tensor, norm: nn.Module
    ) -> tuple[Tensor, Tensor]:
        """The output is added; after an MLP the embedding is mixed in."""
        x, embedded = state
        x = x + y
        return (x if k % 2 == 0 else combine([embedded, x], self.weights(k // 2))), embedded

    def close(self, state: tuple[Tensor, Tensor]) -> Tensor:
        """The last state."""
        return state[0]

    def initial(self, draw) -> dict[str, Tensor]:
        """The spec's numbers."""
        return {
            name: torch.full(parameter.shape, self.start[name]) for name, parameter in self.named_parameters()
        }
