"""Hyper-connections: several copies of the residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from respath.spec.parts import StreamSpec

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


def mixing_flops(streams: int, products: int, model: ModelSpec, context: int) -> dict[str, int]:
    """One product that reads and transports (``products`` results per token), and one that writes."""
    each = 2 * context * streams * model.width * 2 * model.layers
    return {"stream_mix": each * products, "stream_write": each}


class HyperConnectionsSpec(StreamSpec):
    """Several copies of the residual; a sub-layer reads a mix, writes to all, and the copies mix among themselves."""

    kind: Literal["hc"]
    streams: int = Field(4, ge=2)
    transport: bool = True
    """False leaves the copies unmixed: a bug of public code, kept as a named ablation."""

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Read, transport and write weights per sub-layer: a static part each, a projection of each stream, two gates."""
        m, sublayers = self.streams, 2 * model.layers
        return {
            "coefficients": sublayers * (m * m + 2 * m),
            "routing": sublayers * 2,
            "stream_projections": sublayers * (m + 2) * model.width,
        }

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Every stream is projected; then one product reads and transports, one writes."""
        m = self.streams
        projection = 2 * context * model.width * m * (m + 2) * 2 * model.layers
        mixes = mixing_flops(m, m + 1 if self.transport else 1, model, context)
        return {"stream_projection": projection, **mixes}

    def unused(self, model: ModelSpec) -> int:
        """Without transport: its static part, and the projection's rows for it."""
        return 0 if self.transport else 2 * model.layers * self.streams * (self.streams + model.width)
