"""NeuTRENO: attention's output pulled towards the first layer's value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class NeutrenoSpec(TargetedValues):
    """U_n = Attn(Q_n, K_n, V_n) + strength (V_1 - V_n), before the output projection (NeuTRENO, Eq. 3)."""

    kind: Literal["neutreno"]
    strength: float = 0.4

    def check(self, model: ModelSpec) -> None:
        """Values as wide as attention's output."""
        super().check(model)
        self.refuse_grouped(model)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None: the strength is fixed."""
        return {}

    def starts(self) -> Mapping[str, float]:
        """No coefficients."""
        return {}
