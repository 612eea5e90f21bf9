"""Truncated hidden residual: no skip carries H_{n-1} into H_n for the blocks n <= start.

In a cut block the attention's output alone is what its MLP reads and adds to: H_n = A + f_mlp(norm(A)), A = f_attention(norm(
H_{n-1})). H_start is then the first state that later blocks reach through skips. ``both_skips`` also removes the one around
the MLP: H_n = f_mlp(norm(A)). Other blocks are Pre-LN.
State: x, (batch, time, width). No parameters.
Source: ResFormer (arXiv 2410.17897), Section 4.4 and Table 5, H_1 = Layer_1(H_0); which skips inside a block go is not printed.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.truncated import TruncatedSpec


class Truncated(PreLN):
    """Pre-LN whose first blocks do not add their input."""

    document = TruncatedSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.start, self.both_skips = spec.stream.start, spec.stream.both_skips

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The output is added, or replaces the state where the skip is cut."""
        cut = k // 2 < self.start and (k % 2 == 0 or self.both_skips)
        return y if cut else state + y
