"""Scaled values: V'_n = gamma_n V_n with a learned scalar on the target layers.

Parameters: ``scale``, (targets,). Initialisation: 1, so that the model starts as the plain Transformer.
Source: Bank of Values (arXiv 2606.02780), Table 1, the row that gives the plain value what the other rows'
values have.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine, scalars
from respath.model.origin import Origin
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.scaled import ScaledSpec


class ScaledValues(ValuePath):
    """The layer's own value times a scalar."""

    document = ScaledSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.scale = nn.Parameter(torch.empty(len(self.targets)))

    def open(self, origin: Origin) -> tuple:
        """Carried: the target layers' scales."""
        return scalars(self.scale)

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The own value, scaled on target layers."""
        if n not in self.targets:
            return own, carried
        return combine([own], [carried[self.targets.index(n)]]), carried

    def coefficients(self) -> Coefficients:
        """The scales."""
        return {"own": self.scale}

    def initial(self, draw) -> dict[str, Tensor]:
        """Ones."""
        return {"scale": torch.ones(self.scale.shape)}
