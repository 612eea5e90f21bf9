"""Probe of mixture-of-depths attention: an additive residual, and depth slots that a skipped block leaves empty."""

from __future__ import annotations

import torch
from torch import Tensor

from respath.measure.analyses.probes.plain import PostNorm, Probe
from respath.model.attention import Carried
from respath.model.transformer import Transformer


class MixtureOfDepths(Probe):
    """Skip: the identity; the block's two depth slots hold zeros, which still take softmax mass in the authors' scripts.

    Corrected, later attention has no such slots. Swap: the extra projection travels; the last block has none, so that the other
    block's stays in place.
    """

    artefact = "the empty depth slots of a skipped block still take softmax mass"

    def __init__(self, model: Transformer):
        super().__init__(model)
        self.no_paths = PostNorm.no_paths if model.stream.post else ""

    def corrects(self, block: int) -> bool:
        """Nothing reads the last block's slots."""
        return block < self.layers - 1

    def handed_on(self, before: Carried, after: Carried, corrected: bool) -> Carried:
        """Two slots of zeros, or none."""
        if corrected:
            return after._replace(depth=before.depth)
        key, value = after.depth[-1]
        empty = (torch.zeros_like(key), torch.zeros_like(value))
        return after._replace(depth=(*before.depth, empty, empty))

    def parameters_of(self, k: int) -> dict[str, Tensor]:
        """The projection of an MLP's input to a depth key and value."""
        projections = self.stream.depth_projections
        return {"depth": projections[k // 2].weight} if k % 2 and k // 2 < len(projections) else {}
