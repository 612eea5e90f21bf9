"""DeepNorm: x_{k+1} = LN_k(alpha x_k + f_k(x_k)), alpha = (2 L)^(1/4).

The branch reads the state without a norm; LN_k is LayerNorm (mean removed, gain, no bias) and stands in the place and under
the name of the sub-layer's own norm, so that a model has as many parameters as Pre-LN. The final norm before the head
stays an RMSNorm.
State: x, (batch, time, width). No special layers, no parameters of its own.
Initialisation: values, attention output and all three MLP matrices start smaller by (8 L)^(-1/4); queries and keys do not.
Source: Wang et al., 2022 (arXiv 2203.00555), decoder-only column of its Table; DepthBench (arXiv 2609.32534), Appendix A.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.layers import LayerNorm
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.deepnorm import DeepNormSpec


class DeepNorm(PreLN):
    """LN(alpha x + f(x))."""

    document = DeepNormSpec

    sublayer_norm = LayerNorm

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.alpha = (2 * spec.layers) ** 0.25
        beta = (8 * spec.layers) ** -0.25
        matrices = ("attention.v_proj", "attention.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        self.initial_scale = dict.fromkeys(matrices, beta)

    def read(self, state: Tensor, k: int, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """The state as it is."""
        return state, state

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The norm of the enlarged state plus the output."""
        return norm(torch.add(y, state, alpha=self.alpha))
