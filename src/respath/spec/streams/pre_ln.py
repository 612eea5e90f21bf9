"""Pre-LN: the default hidden residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class PreLNSpec(StreamSpec):
    """x + f(norm(x)): the default hidden residual."""

    kind: Literal["pre_ln"]

    plain: ClassVar[bool] = True

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None."""
        return {}
