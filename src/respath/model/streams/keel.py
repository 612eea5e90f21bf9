"""KEEL: x_{k+1} = norm_post_k(alpha x_k + f_k(norm_k(x_k))), alpha = 2 L, the number of sub-layers.

Special layers: the first attention is Pre-LN, x + f(norm(x)), without a post norm; the first MLP has alpha = 1 and its post
norm. The final norm stays.
State: x, (batch, time, width).
Parameters: one RMSNorm per sub-layer but the first, ``post_norms.{k - 1}.weight``, (width,): (2 L - 1) width in all.
Initialisation: gains 1.
Source: KEEL (arXiv 2601.19895); DepthBench (arXiv 2609.32534), Table 1 and Appendix A.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.layers import RMSNorm
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.keel import KeelSpec


class Keel(PreLN):
    """norm_post(alpha x + f(norm(x)))."""

    document = KeelSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.alpha = 2 * spec.layers
        self.post_norms = nn.ModuleList(
            RMSNorm(spec.width, spec.norm_eps) for _ in range(2 * spec.layers - 1)
        )

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The post norm of the enlarged state plus the output; plain sums around the first block."""
        if k == 0:
            return state + y
        return self.post_norms[k - 1](torch.add(y, state, alpha=1 if k == 1 else self.alpha))
