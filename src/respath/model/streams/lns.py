"""LayerNorm Scaling: x_{k+1} = x_k + f_k(l^(-1/2) norm_k(x_k)), l the block's number from 1.

The factor is constant and the same for a block's attention and MLP; the final norm is not scaled. No special
layers (the first block's factor is 1), no parameters. Not to be combined with an initialisation that shrinks with depth (the
authors' warning).
State: x, (batch, time, width).
Source: Sun et al., 2025 (arXiv 2502.05795); DepthBench (arXiv 2609.32534), Table 1.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.streams.pre_ln import PreLN
from respath.spec.streams.lns import LayerNormScalingSpec


class LayerNormScaling(PreLN):
    """x + f(norm(x) / sqrt(l))."""

    document = LayerNormScalingSpec

    def read(self, state: Tensor, k: int, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """The normed state, smaller in later blocks."""
        return norm(state) * (k // 2 + 1) ** -0.5, state
