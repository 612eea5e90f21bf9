"""Manifold-constrained hyper-connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from respath.spec.parts import StreamSpec
from respath.spec.streams.hc import mixing_flops

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class ManifoldHyperConnectionsSpec(StreamSpec):
    """Hyper-connections whose transport is doubly stochastic (Sinkhorn)."""

    kind: Literal["mhc"]
    streams: int = Field(4, ge=2)
    start: Literal["gap8", "near_uniform"] = "gap8"
    """gap8: biases of +-8, near-identity transport; near_uniform: the earlier start (projection std 0.02, bias 0)."""
    sinkhorn_rounds: int = Field(20, ge=1)

    @property
    def outputs(self) -> int:
        """Coefficients per token and sub-layer: m reads, m writes, m m of the transport."""
        return self.streams * (self.streams + 2)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Per sub-layer: biases and three gates, and one projection of the joined streams."""
        sublayers = 2 * model.layers
        return {
            "coefficients": sublayers * (self.outputs + 3),
            "stream_projections": sublayers * self.outputs * self.streams * model.width,
        }

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """The joined streams are projected; then one product reads and transports, one writes."""
        projection = 2 * context * self.streams * model.width * self.outputs * 2 * model.layers
        return {
            "stream_projection": projection,
            **mixing_flops(self.streams, self.streams + 1, model, context),
        }
