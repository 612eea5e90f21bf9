"""Dense values: V'_n = sum over i <= n of lambda_{n,i} V_i on the target layers.

``pre_mix`` sums values as projected, ``post_mix`` what earlier layers attended over (their mixed value). No
normalisation.
Parameters (learnable only): one vector per target layer, ``weights.{j}``, (n,), ordered from layer 1 to layer
n.
Initialisation: every coefficient the spec's number (1). Layer 1 has nothing earlier and stays unmixed.
Source: Dense-ResFormer, arXiv 2410.17897, Section 3.2 and Table 3 (which sums unprimed V_i, hence pre_mix by
default).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.config.model import ModelSpec
from respath.model.combine import combine
from respath.model.values.own import OwnValues


class DenseValues(OwnValues):
    """All values so far, weighted."""

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.targets = tuple(layer - 1 for layer in spec.values.layers)
        self.start = spec.values.initial
        self.keeps_mixed = spec.values.cache == "post_mix"
        lengths = [n + 1 for n in self.targets] if spec.values.learnable else []
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(length)) for length in lengths)

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The weighted sum on target layers, the own value elsewhere. Carried: one value per earlier layer."""
        value = own
        if n in self.targets:
            learned = len(self.weights) > 0
            weights = self.weights[self.targets.index(n)].unbind() if learned else (self.start,) * (n + 1)
            value = combine([*carried, own], weights)
        return value, (*carried, value if self.keeps_mixed else own)

    def initial(self, draw) -> dict[str, Tensor]:
        """The spec's number everywhere."""
        return {name: torch.full(parameter.shape, self.start) for name, parameter in self.named_parameters()}
