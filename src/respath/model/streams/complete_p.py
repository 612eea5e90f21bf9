"""CompleteP: x_{k+1} = x_k + m^(-a) f_k(norm_k(x_k)), m = layers / base_depth.

The factor is constant and the same for all branches; with it learning rate and Adam's epsilon of the layers' parameters are
multiplied by m^(a - 1) and m^(-a) (``CompletePSpec.recipe``). a = 1 is CompleteP, a = 1/2 depth-muP. No parameters, no special layers;
at the base depth it is Pre-LN.
State: x, (batch, time, width).
Source: Dey et al., 2025 (arXiv 2505.01618); DepthBench's public arm examples/pretrain_preln_mup.py, base depth 24, which the paper
(arXiv 2609.32534) does not report.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.complete_p import CompletePSpec


class CompleteP(PreLN):
    """x + m^-a f(norm(x))."""

    document = CompletePSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.factor = spec.stream.multiplier(spec.layers)

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The output is added, smaller in a deeper model."""
        return state + self.factor * y
