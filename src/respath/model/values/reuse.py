"""Reused values: V'_n = scale_n V_source on the target layers, which have no W^V.

SVFormer reuses V_1 in every layer; Sparse-ResFormer (V_1 only) in layers 6 to 8. Keys, queries and output
projections stay per layer; V_1 carries no rotary embedding. That attention reads the source's values is a
matter of ``respath.spec.layout``; the cache holds them once, unscaled: attention is linear in the values, so
the scale is applied to its output.

Parameters (learnable only): ``scale``, (targets,). Initialisation: the spec's number (1).
Source: ResFormer (arXiv 2410.17897), Section 3.3 and Table 3; with a scale, Bank of Values (arXiv
2606.02780), Table 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine, scalars
from respath.model.origin import Origin
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.reuse import ReuseSpec


class ReusedValues(ValuePath):
    """A source layer's value, scaled."""

    document = ReuseSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.start = spec.values.scale
        self.scale = nn.Parameter(torch.empty(len(self.targets))) if spec.values.learnable else None

    def open(self, origin: Origin) -> tuple:
        """Carried: the target layers' scales."""
        return (self.start,) * len(self.targets) if self.scale is None else scalars(self.scale)

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple) -> Tensor:
        """Attention's output, scaled on target layers."""
        if n not in self.targets or (self.scale is None and self.start == 1.0):
            return attended
        return combine([attended], [carried[self.targets.index(n)]])

    def coefficients(self) -> Coefficients:
        """The scales, of the reused value."""
        return {"source": (self.start,) * len(self.targets) if self.scale is None else self.scale}

    def initial(self, draw) -> dict[str, Tensor]:
        """The spec's number."""
        return {name: torch.full(parameter.shape, self.start) for name, parameter in self.named_parameters()}
