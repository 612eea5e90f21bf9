"""Full attention residuals: each sub-layer reads a softmax mix of the embedding and all earlier outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.parts import StreamSpec
from respath.spec.streams.block_attnres import attention_flops, attention_parameters

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class FullAttnResSpec(StreamSpec):
    """Each sub-layer reads a softmax mix of the embedding and all earlier sub-layer outputs."""

    kind: Literal["full_attnres"]

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Queries and key norms."""
        return attention_parameters(model)

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Scores and mixes."""
        return attention_flops(model, context, 1)
