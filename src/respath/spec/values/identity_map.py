"""Identity mapping: the first layer's value as if its attention matrix were the identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class IdentityMapSpec(TargetedValues):
    """U'_n = own U_n + source V_1: the identity as V_1's attention matrix (ResFormer, Table 7)."""

    kind: Literal["identity_map"]
    source: float = 0.5
    own: float = 0.5

    def check(self, model: ModelSpec) -> None:
        """Values as wide as attention's output."""
        super().check(model)
        self.refuse_grouped(model)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None: both numbers are fixed."""
        return {}

    def unused(self, model: ModelSpec) -> int:
        """With own = 0 attention itself; layers that share keys may still lend theirs."""
        if self.own != 0.0:
            return 0
        query, key = (model.projection_size(width) for width in (model.width, model.kv_width))
        return len(self.layers) * (query + key + (0 if model.sharing else key))

    def starts(self) -> Mapping[str, float]:
        """None is learned."""
        return {}
