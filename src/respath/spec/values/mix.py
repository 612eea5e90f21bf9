"""Mixed values: a source layer's value and the layer's own, weighted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from respath.spec.document import Document
from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class MixCoefficients(Document):
    """Two scalars per target layer, lambda_{n,1} for the source value and lambda_{n,2} for the layer's own."""

    source: float
    own: float
    learnable: bool = False
    parameterisation: Literal["free", "softmax_all", "softmax_targets"] = "free"
    """free: one scalar each. softmax_all / softmax_targets: lambda_{n,1} = scale * softmax(logits)_n over all
    layers or over the target layers only, one shared scale (ResFormer-Plus); ``source`` is then its value at
    the start."""

    @model_validator(mode="after")
    def _learnable_softmax(self) -> Self:
        if self.parameterisation != "free" and not self.learnable:
            raise ValueError(f"parameterisation {self.parameterisation} needs learnable: true")
        return self


class MixSpec(TargetedValues):
    """V'_n = lambda_{n,1} V_source + lambda_{n,2} V_n on the target layers (ResFormer, Eq. 5)."""

    kind: Literal["mix"]
    source: int | Literal["previous"] = 1
    coefficients: MixCoefficients
    cache: Literal["pre_mix", "post_mix"] = "pre_mix"
    """``previous`` only: V_{n-1} as projected (pre_mix), or as that layer attended over it (post_mix)."""
    rescale: Literal["none", "token", "token_head"] = "none"
    """Give the mix the norm of V_n, per token over all heads, or per token and head (ResFormer, Table 11)."""

    def check(self, model: ModelSpec) -> None:
        """A source before every target, and something to attend over."""
        if self.source == "previous":
            super().check(model)
        else:
            if self.cache == "post_mix":
                raise ValueError(
                    "values.cache: post_mix belongs to source: previous; another layer's value is added as projected"
                )
            self.refuse_source(self.source, model)
        fixed = not self.coefficients.learnable
        self.refuse_zero(fixed and self.coefficients.source == 0.0 and self.coefficients.own == 0.0)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Two scalars per target; or logits, one shared scale, and each target's own coefficient."""
        targets = len(self.layers)
        if not self.coefficients.learnable:
            return {}
        if self.coefficients.parameterisation == "free":
            return {"coefficients": 2 * targets}
        shares = model.layers if self.coefficients.parameterisation == "softmax_all" else targets
        return {"coefficients": shares + 1 + targets}

    def unused(self, model: ModelSpec) -> int:
        """W^V of targets before whose own value stands a fixed 0, unless layer n + 1 still takes V_n."""
        if self.coefficients.learnable or self.coefficients.own != 0.0:
            return 0
        targets = set(self.layers)
        if self.source == "previous" and self.cache == "pre_mix" and self.coefficients.source:
            targets -= {n - 1 for n in targets}
        return len(targets) * model.projection_size(model.kv_width)

    def starts(self) -> Mapping[str, float]:
        """The two numbers."""
        if not self.coefficients.learnable:
            return {}
        return {"source": self.coefficients.source, "own": self.coefficients.own}
