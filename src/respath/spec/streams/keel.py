"""KEEL: an enlarged residual with a norm before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class KeelSpec(StreamSpec):
    """norm_post(alpha x + f(norm_pre(x))), alpha = 2L; the first attention is Pre-LN, the first MLP has alpha = 1."""

    kind: Literal["keel"]

    replaces_norms: ClassVar[bool] = True

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """One norm more per sub-layer but the first."""
        return {"norms": (2 * model.layers - 1) * model.width}
