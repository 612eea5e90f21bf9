"""What a model is: one Transformer, a residual stream and a value path, as frozen data.

``ModelSpec`` asks its parts what they refuse, store and compute, and knows none of them by name.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from respath.spec.backbones import BACKBONES, BackboneSpec
from respath.spec.document import Document
from respath.spec.layout import Layout
from respath.spec.selectors import Layers, select_layers
from respath.spec.streams import STREAMS, AnyStream
from respath.spec.streams.pre_ln import PreLNSpec
from respath.spec.values import VALUE_PATHS, AnyValuePath
from respath.spec.values.own import OwnSpec


class Sharing(Document):
    """Groups of ``every`` neighbouring layers use what the group's first layer projects (CLA when both are shared)."""

    every: int = Field(ge=2)
    keys: bool = False
    values: bool = False

    @model_validator(mode="after")
    def _shares_something(self) -> Self:
        if not (self.keys or self.values):
            raise ValueError("shares nothing; set keys: true, values: true or both")
        return self

    def check(self, model: ModelSpec) -> None:
        """Raise ValueError for a group larger than the model, and for values that two parts define."""
        if self.every > model.layers:
            raise ValueError(f"sharing.every {self.every} is more than the model's {model.layers} layers")
        if self.values and not model.values.plain:
            raise ValueError(
                f"sharing values every {self.every} layers and the value path {model.values.kind} exclude each other"
            )

    def layout(self, places: Layout) -> Layout:
        """The first layer of each group is where the others read."""
        first = tuple(n - n % self.every for n in range(len(places.key_source)))
        return dataclasses.replace(
            places,
            key_source=first if self.keys else places.key_source,
            value_source=first if self.values else places.value_source,
        )


class AttentionResidual(Document):
    """X'_n = source X_1 + own X_n for the queries, the keys, or the attention matrix after the softmax (Table 6)."""

    of: Literal["query", "key", "attention"]
    layers: Layers
    source: float = 0.5
    own: float = 0.5

    def check(self, model: ModelSpec) -> None:
        """Raise ValueError where there is nothing earlier to add, or where keys are not the layer's own."""
        if self.layers[0] == 1:
            raise ValueError("attention_residual: layer 1 has nothing earlier to add; start at layer 2")
        if self.of == "key" and model.sharing is not None and model.sharing.keys:
            raise ValueError("attention_residual of key and shared keys exclude each other")
        if self.of == "attention" and model.windows is not None:
            raise ValueError(
                "attention_residual of attention adds matrices over the same keys; it excludes windows"
            )

    def layout(self, places: Layout) -> Layout:
        """A residual of attention matrices takes the first layer's to each target's values."""
        if self.of != "attention":
            return places
        return dataclasses.replace(places, rematched=frozenset(layer - 1 for layer in self.layers))

    def unused(self, model: ModelSpec) -> int:
        """Projections before which a fixed 0 stands."""
        if self.own != 0.0:
            return 0
        query = model.projection_size(model.width) if self.of in ("query", "attention") else 0
        key = self.of in ("key", "attention") and model.sharing is None
        return len(self.layers) * (query + (model.projection_size(model.kv_width) if key else 0))


class Windows(Document):
    """Sliding windows by a tiled pattern of S(hort) and L(ong); the last layer is always long."""

    pattern: str = Field("SSSL", pattern="^[SL]+$")
    short: int = Field(ge=1)
    """A token sees itself and this many earlier ones; a long layer sees the whole context."""


class ModelSpec(Document):
    """One Transformer. Widths in channels; layers are numbered from 1."""

    backbone: Literal["llama", "gpt2", "nanochat"] = "llama"
    vocab_size: int = Field(ge=256)
    layers: int = Field(ge=1)
    width: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    ffn_width: int = Field(ge=1)
    norm_eps: float = Field(1e-5, gt=0)
    rope_theta: float = Field(10_000.0, gt=0)
    init_std: float = Field(0.02, gt=0)
    tie_embeddings: bool = False
    stream: AnyStream = PreLNSpec(kind="pre_ln")
    values: AnyValuePath = OwnSpec(kind="own")
    sharing: Sharing | None = None
    attention_residual: AttentionResidual | None = None
    windows: Windows | None = None
    max_positions: int | None = None
    """gpt2 only: rows of the learned position table."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """gpt2 only."""
    init_cut: float | None = Field(None, gt=0)
    """Initial normal draws are cut at this many standard deviations; null does not cut."""
    smear: bool = True
    """nanochat only: each position adds a gated copy of the previous token's normed embedding."""
    x0_scalars: bool = False
    """nanochat only: x <- r_n x + s_n x_0 before each layer, r = 1 and s = 0 at the start."""

    @property
    def head_dim(self) -> int:
        """Channels per head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Channels of one layer's keys (and of its values)."""
        return self.kv_heads * self.head_dim

    @property
    def backbone_spec(self) -> BackboneSpec:
        """What the backbone stores and refuses."""
        return BACKBONES[self.backbone]

    def projection_size(self, outputs: int) -> int:
        """Parameters of one projection of a layer's input to ``outputs`` channels, a bias included."""
        return (self.width + self.backbone_spec.bias) * outputs

    def plain(self) -> ModelSpec:
        """The plain Transformer of the same shape: full key-value heads, own values, Pre-LN, nothing shared."""
        fields = self.model_dump(mode="json") | {
            "kv_heads": self.heads,
            "values": {"kind": "own"},
            "stream": {"kind": "pre_ln"},
            "sharing": None,
            "attention_residual": None,
        }
        return ModelSpec.model_validate_json(json.dumps(fields))

    @model_validator(mode="before")
    @classmethod
    def _resolve_fields(cls, data: Any) -> Any:
        """What parts write in terms of the model's layers (``layers: all``) becomes numbers: equal models are equal specs."""
        if not isinstance(data, Mapping) or not isinstance(data.get("layers"), int):
            return data
        layers = data["layers"]
        for key, kinds in (("values", VALUE_PATHS), ("stream", STREAMS)):
            part = data.get(key)
            if isinstance(part, Mapping) and str(part.get("kind")) in kinds:
                data = {**data, key: kinds[str(part["kind"])].resolve(part, layers)}
        residual = data.get("attention_residual")
        if isinstance(residual, Mapping) and "layers" in residual:
            chosen = {**residual, "layers": select_layers(residual["layers"], layers)}
            data = {**data, "attention_residual": chosen}
        return data

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.head_dim % 2:
            raise ValueError(f"head size {self.head_dim} is odd; rotary embedding turns pairs of channels")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        parts = (self.values, self.stream, self.sharing, self.attention_residual, self.backbone_spec)
        for part in parts:
            if part is not None:
                part.check(self)
        return self
