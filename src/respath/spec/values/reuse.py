"""Reused values: a source layer's value, in layers that have no W^V."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.layout import Layout
from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class ReuseSpec(TargetedValues):
    """V'_n = scale V_source on the target layers, whose W^V does not exist (SVFormer; Sparse, V1 only; BoV's V1)."""

    kind: Literal["reuse"]
    source: int = 1
    scale: float = 1.0
    learnable: bool = False

    def check(self, model: ModelSpec) -> None:
        """A source before every target, and something to attend over."""
        self.refuse_source(self.source, model)
        self.refuse_zero(not self.learnable and self.scale == 0.0)

    def layout(self, places: Layout) -> Layout:
        """Targets read the source's values."""
        values = [self.source - 1 if n in self.indices else own for n, own in enumerate(places.value_source)]
        return dataclasses.replace(places, value_source=tuple(values))

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """One scale per target."""
        return {"coefficients": len(self.layers)} if self.learnable else {}

    def starts(self) -> Mapping[str, float]:
        """The scale."""
        return {"source": self.scale} if self.learnable else {}
