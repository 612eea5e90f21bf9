"""Own values: the plain Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import ValuePathSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class OwnSpec(ValuePathSpec):
    """V_n = norm(H_{n-1}) W_n^V: the plain Transformer."""

    kind: Literal["own"]

    plain: ClassVar[bool] = True

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None."""
        return {}

    def starts(self) -> Mapping[str, float]:
        """No coefficients."""
        return {}
