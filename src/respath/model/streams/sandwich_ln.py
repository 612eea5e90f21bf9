"""Sandwich-LN (also called Peri-LN): x_{k+1} = x_k + norm_out_k(f_k(norm_k(x_k))).

State: x, (batch, time, width). No special layers; the final norm stays.
Parameters: one RMSNorm per sub-layer, ``output_norms.{k}.weight``, (width,): 2 L width in all.
Initialisation: gains 1, not scaled with depth.
Source: DepthBench (arXiv 2609.32534), Table 1 and Appendix A; the same wiring as Gemma 2.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.layers import RMSNorm
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.sandwich_ln import SandwichLNSpec


class SandwichLN(PreLN):
    """x + norm_out(f(norm(x)))."""

    document = SandwichLNSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.output_norms = nn.ModuleList(RMSNorm(spec.width, spec.norm_eps) for _ in range(2 * spec.layers))

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The normed output is added."""
        return state + self.output_norms[k](y)
