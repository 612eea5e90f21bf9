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

from respath.model.combine import combine
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.dense import DenseSpec


class DenseValues(ValuePath):
    """All values so far, weighted."""

    document = DenseSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.start = spec.values.initial
        self.keeps_mixed = spec.values.cache == "post_mix"
        lengths = [n + 1 for n in self.targets] if spec.values.learnable else []
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(length)) for length in lengths)

    def weights_of(self, n: int) -> tuple[Tensor | float, ...]:
        """Weights of V_1..V_{n+1} in target layer ``n``."""
        if len(self.weights) == 0:
            return (self.start,) * (n + 1)
        return self.weights[self.targets.index(n)].unbind()

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The weighted sum on target layers, the own value elsewhere. Carried: one value per earlier layer."""
        value = own
        if n in self.targets:
            value = combine([*carried, own], self.weights_of(n))
        return value, (*carried, value if self.keeps_mixed else own)

    def coefficients(self) -> Coefficients:
        """Each target's weights of all values so far; ``source`` and ``own`` are the first and the last of them."""
        rows = [self.weights_of(n) for n in self.targets]
        return {"source": [row[0] for row in rows], "own": [row[-1] for row in rows], "matrix": rows}

    def initial(self, draw) -> dict[str, Tensor]:
        """The spec's number everywhere."""
        return {name: torch.full(parameter.shape, self.start) for name, parameter in self.named_parameters()}
