"""Dense values: all values so far, weighted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class DenseSpec(TargetedValues):
    """V'_n = sum over i <= n of lambda_{n,i} V_i (Dense-ResFormer, Section 3.2)."""

    kind: Literal["dense"]
    initial: float = 1.0
    learnable: bool = False
    cache: Literal["pre_mix", "post_mix"] = "pre_mix"
    """which V_i are summed: as projected (pre_mix), or as already mixed by their own layer (post_mix)."""

    def check(self, model: ModelSpec) -> None:
        """Something to attend over."""
        super().check(model)
        self.refuse_zero(not self.learnable and self.initial == 0.0)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Layer n weighs V_1..V_n."""
        return {"coefficients": sum(self.layers)} if self.learnable else {}

    def starts(self) -> Mapping[str, float]:
        """Every weight the same number."""
        return {"matrix": self.initial} if self.learnable else {}
