"""DenseFormer: a depth-weighted average after every block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class DenseFormerSpec(StreamSpec):
    """After every block a learned weighted sum over the embedding and all block outputs (depth-weighted average)."""

    kind: Literal["denseformer"]
    dilation: int = Field(1, ge=1)
    period: int = Field(1, ge=1)

    def check(self, model: ModelSpec) -> None:
        """Something to average."""
        if max(self.period, self.dilation) > model.layers:
            raise ValueError(
                f"denseformer with period {self.period} and dilation {self.dilation} averages nothing "
                f"in {model.layers} layers"
            )

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Block n weighs every d-th of the n + 1 states up to its own."""
        averaged = range(self.period, model.layers + 1, self.period)
        return {"coefficients": sum(n // self.dilation + 1 for n in averaged)}
