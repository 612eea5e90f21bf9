"""Values projected from the embedding: V'_n = source_n x_0 W^V_n (+ own_n V_n) on the target layers.

x_0 (batch, time, width) is the normed embedding of the token, after smear where the backbone smears
(nanochat: then it is not free of context). The llama backbone norms it without a gain, so that all layers
share one x_0; a layer's own gain starts at 1 and would be the same at the start. W^V_n is the layer's own
projection:

* ``replace``: it is applied to x_0 and not to the layer's input.
* ``add``: to both, V_n = x W^V_n being the plain value, with the same matrix.

Parameters (learnable only): ``source``, and with ``add`` also ``own``, (targets,) each. Initialisation: the
spec's numbers (the paper's learned sum starts at source 0, own 1; its fixed one has 0.5 and 0.5). The cache
stores the values as any other.
Source: Bank of Values (arXiv 2606.02780), Table 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.combine import combine, scalars
from respath.model.origin import Origin
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.embedding import EmbeddingSpec


class EmbeddingValues(ValuePath):
    """The embedding under the layer's value projection, alone or beside the layer's own value."""

    document = EmbeddingSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.start = {"source": spec.values.source, "own": spec.values.own}
        if spec.values.combine == "replace":
            del self.start["own"]
        self.learnable = spec.values.learnable
        if self.learnable:
            for name in self.start:
                self.register_parameter(name, nn.Parameter(torch.empty(len(self.targets))))

    def weights(self) -> tuple[tuple[Tensor | float, ...], ...]:
        """Coefficients of each target layer: source, and own where it is added."""
        if self.learnable:
            return tuple(scalars(self.get_parameter(name)) for name in self.start)
        return tuple((number,) * len(self.targets) for number in self.start.values())

    def open(self, origin: Origin) -> tuple:
        """Carried: x_0 and the coefficients."""
        return origin.x0, self.weights()

    def mix(
        self, n: int, own: Tensor | None, carried: tuple, x: Tensor, project: nn.Module
    ) -> tuple[Tensor, tuple]:
        """The weighted sum on target layers, the own value elsewhere."""
        if n not in self.targets:
            return own, carried
        x0, weights = carried
        terms = [project(x0)] if own is None else [project(x0), own]
        at = self.targets.index(n)
        return combine(terms, [of_kind[at] for of_kind in weights]), carried

    def coefficients(self) -> Coefficients:
        """Of the projected embedding, and of the own value where it is added."""
        return dict(zip(self.start, self.weights(), strict=True))

    def initial(self, draw) -> dict[str, Tensor]:
        """The spec's numbers."""
        return {
            name: torch.full(parameter.shape, self.start[name]) for name, parameter in self.named_parameters()
        }
