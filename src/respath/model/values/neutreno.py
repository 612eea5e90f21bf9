"""NeuTRENO: U_n = Attn(Q_n, K_n, V_n) + strength (V_1 - V_n) on the target layers.

Added on concatenated heads before the output projection, per token; V_1 and V_n are raw projections, so
key-value width must equal the width. The strength is a fixed number. Layer 1 is left alone. No parameters.
Source: Nguyen et al., 2023 (arXiv 2312.00751); as in ResFormer (arXiv 2410.17897), Eq. 3, and its authors'
code, strength 0.4.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.neutreno import NeutrenoSpec


class NeutrenoValues(ValuePath):
    """Attention's output pulled towards the first layer's value."""

    document = NeutrenoSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.strength = spec.values.strength

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The own value; the first layer's is carried on."""
        return own, carried if carried else (own,)

    def finish(self, n: int, attended: Tensor, own: Tensor, carried: tuple[Tensor, ...]) -> Tensor:
        """The correction on target layers."""
        if n not in self.targets:
            return attended
        return torch.add(attended, carried[0] - own, alpha=self.strength)

    def coefficients(self) -> Coefficients:
        """None: the strength weighs a difference of values, after attention."""
        return {}
