"""DenseFormer: after block n, X_n <- sum over i <= n of a_{n,i} X_i, where X_0 is the embedding.

X_i on the right-hand side are block outputs *before* their own averaging; the average replaces the state that
the next block reads. With dilation d only the i with (n - i) divisible by d take part; with period p only
every p-th block is averaged. Attention and MLP inside a block add to the state as in Pre-LN. No special layers: the
first block averages the embedding too, and the last average is what the final norm sees.

State: (x, X_0, ..., X_n), each (batch, time, width).
Parameters: one vector per averaged block, ``weights.{j}``, ordered from the earliest X_i to X_n.
Initialisation: 1 for the last entry, 0 for the others, so that the model starts as Pre-LN.
Source: Pagliardini et al., 2024 (arXiv 2402.02622); outputs are cached before averaging
as in the authors' code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.denseformer import DenseFormerSpec


class DenseFormer(PreLN):
    """Depth-weighted average after every block."""

    document = DenseFormerSpec

    role = "coefficient"

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.dilation = spec.stream.dilation
        self.averaged = tuple(n for n in range(1, spec.layers + 1) if n % spec.stream.period == 0)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.empty(len(self.sources(n)))) for n in self.averaged
        )

    def sources(self, n: int) -> range:
        """Which of X_0..X_n block ``n`` (1-based) averages."""
        return range(n % self.dilation, n + 1, self.dilation)

    def open(self, embedded: Tensor) -> tuple[Tensor, ...]:
        """The embedding is the state and X_0."""
        return embedded, embedded

    def read(self, state: tuple[Tensor, ...], k: int, norm: nn.Module) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The normed state."""
        return norm(state[0]), state

    def write(self, state: tuple[Tensor, ...], k: int, y: Tensor, norm: nn.Module) -> tuple[Tensor, ...]:
        """The output is added; after an MLP the sum is a block output and the average becomes the state."""
        x, outputs = state[0] + y, state[1:]
        if k % 2 == 0:
            return x, *outputs
        n = len(outputs)
        outputs = (*outputs, x)
        if n in self.averaged:
            weights = self.weights[self.averaged.index(n)]
            x = combine([outputs[i] for i in self.sources(n)], weights.unbind())
        return x, *outputs

    def close(self, state: tuple[Tensor, ...]) -> Tensor:
        """The last state."""
        return state[0]

    def initial(self, draw) -> dict[str, Tensor]:
        """Only the block's own output counts at the start."""
        vectors = {f"weights.{j}": torch.zeros(weight.shape) for j, weight in enumerate(self.weights)}
        for vector in vectors.values():
            vector[-1] = 1.0
        return vectors
