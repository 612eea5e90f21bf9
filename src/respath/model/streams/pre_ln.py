"""Pre-LN: x_{k+1} = x_k + f_k(norm_k(x_k)).

State: x, (batch, time, width). No parameters, no special layers.
Source: Xiong et al., 2020; the plain Transformer of ResFormer (arXiv 2410.17897, Section 3.1).
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.config.model import ModelSpec


class PreLN(nn.Module):
    """x + f(norm(x))."""

    def __init__(self, spec: ModelSpec):
        super().__init__()

    def open(self, embedded: Tensor) -> Tensor:
        """The embedding is the state."""
        return embedded

    def read(self, state: Tensor, k: int, norm: nn.Module) -> Tensor:
        """The normed state."""
        return norm(state)

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The output is added."""
        return state + y

    def close(self, state: Tensor) -> Tensor:
        """The state itself."""
        return state
