"""Mixture-of-depths attention: attention also reads earlier layers' keys and values at its own token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class MoDASpec(StreamSpec):
    """Pre-LN, and attention that also reads the keys and values of earlier layers at the same token."""

    kind: Literal["moda"]
    norm: Literal["pre", "post"] = "pre"

    reads_depth: ClassVar[bool] = True

    def check(self, model: ModelSpec) -> None:
        """Nothing else may redefine attention."""
        plain = model.values.plain and model.sharing is None and model.attention_residual is None
        if not plain:
            raise ValueError(
                "moda defines its own attention over depth; it excludes value paths, sharing and residuals"
            )
        if model.backbone != "llama":
            raise ValueError(f"moda is defined on the llama backbone, not on {model.backbone}")

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """A key and value projection of every MLP input but the last."""
        return {"stream_projections": (model.layers - 1) * 2 * model.width * model.kv_width}

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Block i (from 0) reads 2 i keys and values of its own token."""
        each = 2 * context * model.width * model.layers * (model.layers - 1)
        return {
            "depth_projection": 2 * context * model.width * 2 * model.kv_width * (model.layers - 1),
            "depth_scores": each,
            "depth_mix": each,
        }
