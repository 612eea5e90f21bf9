"""Scaled values: the layer's own value times a learned scalar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class ScaledSpec(TargetedValues):
    """V'_n = gamma_n V_n with a learned gamma that starts at 1 (Bank of Values, Table 1)."""

    kind: Literal["scaled"]

    first_target: ClassVar[int] = 1

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """One gamma per target."""
        return {"coefficients": len(self.layers)}

    def starts(self) -> Mapping[str, float]:
        """1."""
        return {"own": 1.0}
