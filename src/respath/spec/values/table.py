"""Bank of Values: rows of a token table, alone or beside the layer's own value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.layout import Layout
from respath.spec.values.embedding import BesideOwn

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec

#: Channels of the layer's input that a gate reads.
GATE_CHANNELS = 12


class TableSpec(BesideOwn):
    """V'_n[t] = source E_n[token_t] (Bank of Values), or added to V_n; the replaced W^V does not exist."""

    kind: Literal["table"]
    shared: bool = False
    """One table for all target layers."""
    gate: bool = False
    """3 sigmoid(w x[0:12]) per token and KV head instead of ``source`` (nanochat's value embeddings)."""
    start: Literal["aligned", "uniform"] = "aligned"
    """aligned: row t is the layer's initial W^V applied to the normed initial embedding of t."""
    stored: Literal["fp32", "bf16"] = "fp32"
    """What the tables, and with them their moments, are kept in; the authors keep them in bf16."""

    def check(self, model: ModelSpec) -> None:
        """A gate stands for ``source``, and reads channels that are there."""
        super().check(model)
        if self.gate and (self.learnable or self.source != 1.0):
            raise ValueError("the table's gate stands in the place of source; leave out source and learnable")
        if self.gate and model.width < GATE_CHANNELS:
            raise ValueError(f"the table's gate reads {GATE_CHANNELS} channels; the model is narrower")

    def layout(self, places: Layout) -> Layout:
        """Replaced values have no W^V; without a gate, which depends on context, they are found again by token id."""
        if self.combine == "add":
            return places
        looked_up = frozenset() if self.gate else self.indices
        return dataclasses.replace(places, tabled=self.indices, looked_up=looked_up)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Tables, gates, and coefficients."""
        targets = len(self.layers)
        return {
            "coefficients": targets * len(self.starts()),
            "tables": (1 if self.shared else targets) * model.vocab_size * model.kv_width,
            "gates": targets * GATE_CHANNELS * model.kv_heads if self.gate else 0,
        }

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Gates; rows are gathered."""
        if not self.gate:
            return {}
        return {"gates": 2 * context * GATE_CHANNELS * model.kv_heads * len(self.layers)}
