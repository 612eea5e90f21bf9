"""LayerNorm Scaling: norms that shrink with depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class LayerNormScalingSpec(StreamSpec):
    """x + f(l^-0.5 norm(x)), l the block's number from 1, constant."""

    kind: Literal["lns"]

    replaces_norms: ClassVar[bool] = True

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None."""
        return {}
