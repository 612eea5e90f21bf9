"""Sandwich-LN: a norm before and after each sub-layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class SandwichLNSpec(StreamSpec):
    """x + norm_out(f(norm_in(x))), both norms with gains that start at 1 (also called Peri-LN)."""

    kind: Literal["sandwich_ln"]

    replaces_norms: ClassVar[bool] = True

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """One norm more per sub-layer."""
        return {"norms": 2 * model.layers * model.width}
