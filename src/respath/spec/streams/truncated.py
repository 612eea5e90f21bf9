"""Truncated hidden residual: the first blocks do not add their input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class TruncatedSpec(StreamSpec):
    """No skip carries H_{k-1} into H_k for k <= ``start``: H_start is the first that later layers reach (Table 5)."""

    kind: Literal["truncated"]
    start: int = Field(ge=1)
    both_skips: bool = False
    """True also removes the skip around the MLP of the cut layers."""

    @classmethod
    def resolve(cls, fields: Mapping[str, Any], layers: int) -> Mapping[str, Any]:
        """``start: all`` cuts every layer."""
        return {**fields, "start": layers} if fields.get("start") == "all" else fields

    def check(self, model: ModelSpec) -> None:
        """A layer of the model."""
        if self.start > model.layers:
            raise ValueError(f"stream.start {self.start} is not a layer of 1..{model.layers}")

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None."""
        return {}
