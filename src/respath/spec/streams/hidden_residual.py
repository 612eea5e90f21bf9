"""Hidden residual: a second skip from the embedding to every block's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class HiddenResidualSpec(StreamSpec):
    """H'_n = source H_0 + own H_n after each block (ResFormer, Section 4.4, Table 4)."""

    kind: Literal["hidden_residual"]
    source: float
    own: float
    learnable: bool = False

    def check(self, model: ModelSpec) -> None:
        """States that are not all 0."""
        if not (self.source or self.own or self.learnable):
            raise ValueError("stream: source and own are both 0, which makes every state 0")

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Two scalars per block."""
        return {"coefficients": 2 * model.layers} if self.learnable else {}
