"""DeepNorm: an enlarged residual, normed after the sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class DeepNormSpec(StreamSpec):
    """LayerNorm(alpha x + f(x)), alpha = (2L)^(1/4); V, output and MLP matrices start smaller by (8L)^(-1/4)."""

    kind: Literal["deepnorm"]

    replaces_norms: ClassVar[bool] = True

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None: its norms stand in the place of the backbone's."""
        return {}
