"""What a model is: one Transformer, a residual stream and a value path, as frozen data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from respath.config.documents import Document

Layers = tuple[int, ...]


def select_layers(selector: Any, layers: int, first: int = 2) -> Layers:
    """Turn a layer selector into 1-based layer numbers.

    ``all`` (from ``first`` to the last), ``"6..8"``, ``"6.."``, ``last-third`` (0-based index >= floor(2L/3), as in
    Bank of Values), ``every-2`` (the parity of the last layer), one number, or a list of numbers.
    Raises ValueError when a number is outside 1..layers.
    """
    if isinstance(selector, int) and not isinstance(selector, bool):
        chosen = [selector]
    elif isinstance(selector, list | tuple):
        chosen = list(selector)
    elif selector == "all":
        chosen = list(range(first, layers + 1))
    elif selector == "last-third":
        chosen = [n for n in range(1, layers + 1) if n - 1 >= 2 * layers // 3]
    elif selector == "every-2":
        chosen = [n for n in range(1, layers + 1) if n % 2 == layers % 2]
    elif isinstance(selector, str) and (match := re.fullmatch(r"(\d+)\.\.(\d*)", selector)):
        chosen = list(range(int(match[1]), int(match[2] or layers) + 1))
    else:
        raise ValueError(f"{selector!r} selects no layers; write a list, '6..8', '6..', all, last-third or every-2")
    wrong = [n for n in chosen if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= layers]
    if wrong or not chosen:
        raise ValueError(f"{selector!r} names layers {wrong or 'none'}, but the model has layers 1..{layers}")
    return tuple(sorted(set(chosen)))


# --- residual streams: how a sub-layer reads the state and how its output enters it --------------------------------


class PreLN(Document):
    """x + f(norm(x)): the default hidden residual."""

    kind: Literal["pre_ln"]


class DenseFormer(Document):
    """After every block a learned weighted sum over the embedding and all block outputs (depth-weighted average)."""

    kind: Literal["denseformer"]
    dilation: int = Field(1, ge=1)
    period: int = Field(1, ge=1)


Stream = Annotated[PreLN | DenseFormer, Field(discriminator="kind")]

# --- value paths: which values a layer's attention mixes -----------------------------------------------------------


class OwnValues(Document):
    """V_n = norm(H_{n-1}) W_n^V: the plain Transformer."""

    kind: Literal["own"]


class MixCoefficients(Document):
    """Two scalars per target layer, lambda_{n,1} for the source value and lambda_{n,2} for the layer's own."""

    source: float
    own: float
    learnable: bool = False
    parameterisation: Literal["free", "softmax_all", "softmax_targets"] = "free"
    """free: one scalar each. softmax_all / softmax_targets: lambda_{n,1} = scale * softmax(logits)_n over all
    layers or over the target layers only, one shared scale (ResFormer-Plus); ``source`` is then its value at
    the start."""

    @model_validator(mode="after")
    def _learnable_softmax(self):
        if self.parameterisation != "free" and not self.learnable:
            raise ValueError(f"parameterisation {self.parameterisation} needs learnable: true")
        return self


class MixValues(Document):
    """V'_n = lambda_{n,1} V_source + lambda_{n,2} V_n on the target layers (ResFormer, Eq. 5)."""

    kind: Literal["mix"]
    source: int | Literal["previous"] = 1
    layers: Layers
    coefficients: MixCoefficients


class DenseValues(Document):
    """V'_n = sum over i <= n of lambda_{n,i} V_i (Dense-ResFormer, Section 3.2)."""

    kind: Literal["dense"]
    layers: Layers
    initial: float = 1.0
    learnable: bool = False
    cache: Literal["pre_mix", "post_mix"] = "pre_mix"
    """which V_i are summed: as projected (pre_mix), or as already mixed by their own layer (post_mix)."""


class ReuseValues(Document):
    """V'_n = V_source on the target layers, whose W^V does not exist (SVFormer; Sparse-ResFormer, V1 only)."""

    kind: Literal["reuse"]
    source: int = 1
    layers: Layers


class NeutrenoValues(Document):
    """U_n = Attn(Q_n, K_n, V_n) + strength (V_1 - V_n), before the output projection (NeuTRENO, Eq. 3)."""

    kind: Literal["neutreno"]
    layers: Layers
    strength: float = 0.4


Values = Annotated[
    OwnValues | MixValues | DenseValues | ReuseValues | NeutrenoValues,
    Field(discriminator="kind"),
]


class Sharing(Document):
    """Groups of ``every`` neighbouring layers use what the group's first layer projects (CLA when both are shared)."""

    every: int = Field(ge=2)
    keys: bool = False
    values: bool = False

    @model_validator(mode="after")
    def _shares_something(self):
        if not (self.keys or self.values):
            raise ValueError("shares nothing; set keys: true, values: true or both")
        return self


class ModelSpec(Document):
    """One Transformer. Widths in channels; layers are numbered from 1."""

    backbone: Literal["llama"] = "llama"
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
    stream: Stream = PreLN(kind="pre_ln")
    values: Values = OwnValues(kind="own")
    sharing: Sharing | None = None

    @property
    def head_dim(self) -> int:
        """Channels per head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Channels of one layer's keys (and of its values)."""
        return self.kv_heads * self.head_dim

    @model_validator(mode="before")
    @classmethod
    def _resolve_selectors(cls, data: Any) -> Any:
        """Layer selectors become numbers here, so that equal models are equal specs."""
        if not isinstance(data, Mapping) or not isinstance(data.get("layers"), int):
            return data
        values = data.get("values")
        if isinstance(values, Mapping) and "layers" in values and values.get("kind") != "own":
            data = {**data, "values": {**values, "layers": select_layers(values["layers"], data["layers"])}}
        return data

    @model_validator(mode="after")
    def _makes_sense(self):
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.head_dim % 2:
            raise ValueError(f"head size {self.head_dim} is odd; rotary embedding turns pairs of channels")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        values, sharing = self.values, self.sharing
        targets = getattr(values, "layers", ())
        if isinstance(values, MixValues | ReuseValues) and isinstance(values.source, int):
            if values.source > self.layers:
                raise ValueError(f"values.source {values.source} is not a layer of 1..{self.layers}")
            early = [n for n in targets if n <= values.source]
            if early:
                raise ValueError(f"layers {early} cannot use the value of layer {values.source}, which is not above them")
        elif targets and targets[0] == 1:
            raise ValueError("layer 1 has no earlier value to use; start at layer 2")
        if isinstance(values, NeutrenoValues) and self.kv_heads != self.heads:
            raise ValueError("neutreno adds values to the attention output, so it needs kv_heads equal to heads")
        if sharing is not None and sharing.values and not isinstance(values, OwnValues):
            raise ValueError(f"sharing values every {sharing.every} layers and the value path {values.kind} exclude each other")
        return self


def identity(document: Document) -> dict[str, Any]:
    """The fields that differ from their defaults: what hashes and command lines carry.

    A field added later with a default leaves the identity of existing specs as it is.
    """
    return document.model_dump(mode="json", exclude_defaults=True)
