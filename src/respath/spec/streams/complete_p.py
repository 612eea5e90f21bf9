"""CompleteP: Pre-LN whose branches, rates and epsilons follow the depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class CompletePSpec(StreamSpec):
    """x + m^-a f(norm(x)), m = layers / base_depth; rate and epsilon of the layers' parameters times m^(a - 1) and m^-a."""

    kind: Literal["complete_p"]
    base_depth: int = Field(ge=1)
    """Layers at which it is Pre-LN under the recipe as it stands."""
    exponent: float = Field(1.0, ge=0.5, le=1)
    """a: 1 is CompleteP, 1/2 depth-muP."""

    def multiplier(self, layers: int) -> float:
        """m^-a, twelve digits."""
        return float(f"{(layers / self.base_depth) ** -self.exponent:.12g}")

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None."""
        return {}

    def recipe(self, model: ModelSpec) -> Mapping[str, Any]:
        """What the optimizer does to the layers' parameters."""
        m = model.layers / self.base_depth
        factors = {"lr_multipliers": m ** (self.exponent - 1), "eps_multipliers": m**-self.exponent}
        return {
            name: {"layers.*": float(f"{factor:.12g}")} for name, factor in factors.items() if factor != 1
        }
