"""What a model is: one Transformer, a residual stream and a value path, as frozen data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from respath.documents import Document

Layers = tuple[int, ...]


def select_layers(selector: Any, layers: int, first: int = 2) -> Layers:
    """Turn a layer selector into 1-based layer numbers.

    ``all`` (from ``first`` to the last), ``"6..8"``, ``"6.."``, ``last-third`` (0-based index >= floor(2L/3), as in
    Bank of Values), ``every-2`` (the parity of the last layer, from ``first``), one number, or a list of numbers.
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
        chosen = [n for n in range(first, layers + 1) if n % 2 == layers % 2]
    elif isinstance(selector, str) and (match := re.fullmatch(r"(\d+)\.\.(\d*)", selector)):
        chosen = list(range(int(match[1]), int(match[2] or layers) + 1))
    else:
        raise ValueError(
            f"{selector!r} selects no layers; write a list, '6..8', '6..', all, last-third or every-2"
        )
    wrong = [n for n in chosen if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= layers]
    if wrong or not chosen:
        raise ValueError(f"{selector!r} names layers {wrong or 'none'}, but the model has layers 1..{layers}")
    return tuple(sorted(set(chosen)))


# --- residual streams: how a sub-layer reads the state and how its output enters it --------------------------------


class PreLN(Document):
    """x + f(norm(x)): the default hidden residual."""

    kind: Literal["pre_ln"]


class SandwichLN(Document):
    """x + norm_out(f(norm_in(x))), both norms with gains that start at 1 (also called Peri-LN)."""

    kind: Literal["sandwich_ln"]


class LayerNormScaling(Document):
    """x + f(l^-0.5 norm(x)), l the block's number from 1, constant."""

    kind: Literal["lns"]


class DeepNorm(Document):
    """LayerNorm(alpha x + f(x)), alpha = (2L)^(1/4); V, output and MLP matrices start smaller by (8L)^(-1/4)."""

    kind: Literal["deepnorm"]


class Keel(Document):
    """norm_post(alpha x + f(norm_pre(x))), alpha = 2L; the first attention is Pre-LN, the first MLP has alpha = 1."""

    kind: Literal["keel"]


class HyperConnections(Document):
    """Several copies of the residual; a sub-layer reads a mix, writes to all, and the copies mix among themselves."""

    kind: Literal["hc"]
    streams: int = Field(4, ge=2)
    transport: bool = True
    """False leaves the copies unmixed: a bug of public code, kept as a named ablation."""


class ManifoldHyperConnections(Document):
    """Hyper-connections whose transport is doubly stochastic (Sinkhorn)."""

    kind: Literal["mhc"]
    streams: int = Field(4, ge=2)
    start: Literal["gap8", "near_uniform"] = "gap8"
    """gap8: biases of +-8, near-identity transport; near_uniform: the earlier start (projection std 0.02, bias 0)."""
    sinkhorn_rounds: int = Field(20, ge=1)


class FullAttnRes(Document):
    """Each sub-layer reads a softmax mix of the embedding and all earlier sub-layer outputs."""

    kind: Literal["full_attnres"]


class BlockAttnRes(Document):
    """As full_attnres, over sums of ``length`` sub-layers each."""

    kind: Literal["block_attnres"]
    length: int = Field(ge=1)
    """Sub-layers per block; variants may write ``blocks: 8`` instead and get 2L/8."""


class MoDA(Document):
    """Pre-LN, and attention that also reads the keys and values of earlier layers at the same token."""

    kind: Literal["moda"]
    norm: Literal["pre", "post"] = "pre"


class HiddenResidual(Document):
    """H'_n = source H_0 + own H_n after each block (ResFormer, Section 4.4, Table 4)."""

    kind: Literal["hidden_residual"]
    source: float
    own: float
    learnable: bool = False


class Truncated(Document):
    """No skip carries H_{k-1} into H_k for k <= ``start``: H_start is the first that later layers reach (Table 5)."""

    kind: Literal["truncated"]
    start: int = Field(ge=1)
    both_skips: bool = False
    """True also removes the skip around the MLP of the cut layers."""


class DenseFormer(Document):
    """After every block a learned weighted sum over the embedding and all block outputs (depth-weighted average)."""

    kind: Literal["denseformer"]
    dilation: int = Field(1, ge=1)
    period: int = Field(1, ge=1)


Stream = Annotated[
    PreLN
    | SandwichLN
    | LayerNormScaling
    | DeepNorm
    | Keel
    | HyperConnections
    | ManifoldHyperConnections
    | FullAttnRes
    | BlockAttnRes
    | MoDA
    | HiddenResidual
    | Truncated
    | DenseFormer,
    Field(discriminator="kind"),
]

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
    cache: Literal["pre_mix", "post_mix"] = "pre_mix"
    """``previous`` only: V_{n-1} as projected (pre_mix), or as that layer attended over it (post_mix)."""
    rescale: Literal["none", "token", "token_head"] = "none"
    """Give the mix the norm of V_n, per token over all heads, or per token and head (ResFormer, Table 11)."""


class DenseValues(Document):
    """V'_n = sum over i <= n of lambda_{n,i} V_i (Dense-ResFormer, Section 3.2)."""

    kind: Literal["dense"]
    layers: Layers
    initial: float = 1.0
    learnable: bool = False
    cache: Literal["pre_mix", "post_mix"] = "pre_mix"
    """which V_i are summed: as projected (pre_mix), or as already mixed by their own layer (post_mix)."""


class ReuseValues(Document):
    """V'_n = scale V_source on the target layers, whose W^V does not exist (SVFormer; Sparse, V1 only; BoV's V1)."""

    kind: Literal["reuse"]
    source: int = 1
    layers: Layers
    scale: float = 1.0
    learnable: bool = False


class ScaledValues(Document):
    """V'_n = gamma_n V_n with a learned gamma that starts at 1 (Bank of Values, Table 1)."""

    kind: Literal["scaled"]
    layers: Layers


class EmbeddingValues(Document):
    """V'_n = source x_0 W_n^V + own V_n, x_0 the normed embedding after smear (Bank of Values, Table 1).

    With own = 0 and not learnable-own the layer's values are a projection of the embedding alone.
    """

    kind: Literal["embedding"]
    layers: Layers
    source: float = 1.0
    own: float = 0.0
    learnable: bool = False
    combine: Literal["replace", "add"] = "replace"


class TableValues(Document):
    """V'_n[t] = source E_n[token_t] (Bank of Values), or added to V_n; the replaced W^V does not exist."""

    kind: Literal["table"]
    layers: Layers
    shared: bool = False
    """One table for all target layers."""
    source: float = 1.0
    own: float = 0.0
    learnable: bool = False
    combine: Literal["replace", "add"] = "replace"
    gate: bool = False
    """3 sigmoid(w x[0:12]) per token and KV head instead of ``source`` (nanochat's value embeddings)."""
    start: Literal["aligned", "uniform"] = "aligned"
    """aligned: row t is the layer's initial W^V applied to the normed initial embedding of t."""


class IdentityMapValues(Document):
    """U'_n = own U_n + source V_1: the identity as V_1's attention matrix (ResFormer, Table 7)."""

    kind: Literal["identity_map"]
    layers: Layers
    source: float = 0.5
    own: float = 0.5


class CrossLayerValues(Document):
    """One softmax over [K_n, K_1] mixing [V_n, V_1] (ResFormer, Table 7)."""

    kind: Literal["cross_layer"]
    layers: Layers


class NeutrenoValues(Document):
    """U_n = Attn(Q_n, K_n, V_n) + strength (V_1 - V_n), before the output projection (NeuTRENO, Eq. 3)."""

    kind: Literal["neutreno"]
    layers: Layers
    strength: float = 0.4


Values = Annotated[
    OwnValues
    | MixValues
    | DenseValues
    | ReuseValues
    | ScaledValues
    | EmbeddingValues
    | TableValues
    | NeutrenoValues
    | IdentityMapValues
    | CrossLayerValues,
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


class AttentionResidual(Document):
    """X'_n = source X_1 + own X_n for the queries, the keys, or the attention matrix after the softmax (Table 6)."""

    of: Literal["query", "key", "attention"]
    layers: Layers
    source: float = 0.5
    own: float = 0.5


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
    stream: Stream = PreLN(kind="pre_ln")
    values: Values = OwnValues(kind="own")
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

    @model_validator(mode="before")
    @classmethod
    def _resolve_selectors(cls, data: Any) -> Any:
        """Layer selectors become numbers here, so that equal models are equal specs."""
        if not isinstance(data, Mapping) or not isinstance(data.get("layers"), int):
            return data
        layers = data["layers"]
        for key in ("values", "attention_residual"):
            part = data.get(key)
            if isinstance(part, Mapping) and "layers" in part:
                # A layer can have its own table or projection of the embedding without an earlier layer.
                first = 1 if part.get("kind") in ("scaled", "embedding", "table") else 2
                data = {**data, key: {**part, "layers": select_layers(part["layers"], layers, first)}}
        stream = data.get("stream")
        if isinstance(stream, Mapping) and "blocks" in stream and isinstance(stream["blocks"], int):
            blocks = stream["blocks"]
            if blocks < 1 or 2 * layers % blocks:
                raise ValueError(f"{2 * layers} sub-layers do not divide into {blocks} blocks")
            rest = {name: value for name, value in stream.items() if name != "blocks"}
            data = {**data, "stream": {**rest, "length": 2 * layers // blocks}}
        if isinstance(stream, Mapping) and stream.get("kind") == "truncated" and stream.get("start") == "all":
            data = {**data, "stream": {**stream, "start": layers}}
        return data

    @model_validator(mode="after")
    def _makes_sense(self):
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.head_dim % 2:
            raise ValueError(f"head size {self.head_dim} is odd; rotary embedding turns pairs of channels")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        values, sharing, stream = self.values, self.sharing, self.stream
        targets = getattr(values, "layers", ())
        own_layer = isinstance(values, ScaledValues | EmbeddingValues | TableValues)
        if isinstance(values, MixValues | ReuseValues) and isinstance(values.source, int):
            if isinstance(values, MixValues) and values.cache == "post_mix":
                raise ValueError(
                    "values.cache: post_mix belongs to source: previous; another layer's value is added as projected"
                )
            if not 1 <= values.source <= self.layers:
                raise ValueError(f"values.source {values.source} is not a layer of 1..{self.layers}")
            early = [n for n in targets if n <= values.source]
            if early:
                raise ValueError(
                    f"layers {early} cannot use the value of layer {values.source}, which is not above them"
                )
        elif targets and targets[0] == 1 and not own_layer:
            raise ValueError("layer 1 has no earlier value to use; start at layer 2")
        if isinstance(values, NeutrenoValues | IdentityMapValues) and self.kv_heads != self.heads:
            raise ValueError(
                f"{values.kind} adds values to the attention output, so it needs kv_heads equal to heads"
            )
        if _always_zero(values):
            raise ValueError(f"values: with these coefficients what {values.kind} attends over is always 0")
        if isinstance(stream, HiddenResidual) and not (stream.source or stream.own or stream.learnable):
            raise ValueError("stream: source and own are both 0, which makes every state 0")
        if sharing is not None and sharing.every > self.layers:
            raise ValueError(f"sharing.every {sharing.every} is more than the model's {self.layers} layers")
        if sharing is not None and sharing.values and not isinstance(values, OwnValues):
            raise ValueError(
                f"sharing values every {sharing.every} layers and the value path {values.kind} exclude each other"
            )
        if isinstance(values, EmbeddingValues | TableValues):
            if values.combine == "replace" and values.own:
                raise ValueError(
                    "values.own weighs the layer's own value, which combine: replace leaves out; use combine: add"
                )
            if values.combine == "add" and not values.own and not values.learnable:
                raise ValueError(
                    "combine: add with own 0 that is not learned adds to nothing; give own, or use combine: replace"
                )
        if isinstance(values, TableValues) and values.gate and (values.learnable or values.source != 1.0):
            raise ValueError("the table's gate stands in the place of source; leave out source and learnable")
        if sharing is not None and sharing.keys and isinstance(values, CrossLayerValues):
            raise ValueError("cross_layer reads each layer's own keys; it excludes sharing keys")
        residual = self.attention_residual
        if residual is not None:
            if residual.layers[0] == 1:
                raise ValueError("attention_residual: layer 1 has nothing earlier to add; start at layer 2")
            if residual.of == "key" and sharing is not None and sharing.keys:
                raise ValueError("attention_residual of key and shared keys exclude each other")
            if residual.of == "attention" and self.windows is not None:
                raise ValueError(
                    "attention_residual of attention adds matrices over the same keys; it excludes windows"
                )
            if residual.of == "attention" and isinstance(values, CrossLayerValues):
                raise ValueError(
                    "attention_residual of attention and cross_layer both redefine the attention matrix; choose one"
                )
        if isinstance(stream, MoDA):
            if not isinstance(values, OwnValues) or sharing is not None or residual is not None:
                raise ValueError(
                    "moda defines its own attention over depth; it excludes value paths, sharing and residuals"
                )
            if self.backbone != "llama":
                raise ValueError(f"moda is defined on the llama backbone, not on {self.backbone}")
        if isinstance(stream, Truncated) and stream.start > self.layers:
            raise ValueError(f"stream.start {stream.start} is not a layer of 1..{self.layers}")
        if isinstance(stream, DenseFormer) and max(stream.period, stream.dilation) > self.layers:
            raise ValueError(
                f"denseformer with period {stream.period} and dilation {stream.dilation} averages nothing "
                f"in {self.layers} layers"
            )
        if isinstance(stream, BlockAttnRes) and stream.length > 2 * self.layers:
            raise ValueError(
                f"a block of {stream.length} sub-layers is longer than the model's {2 * self.layers}"
            )
        if self.backbone != "llama" and stream.kind in ("deepnorm", "keel", "sandwich_ln", "lns"):
            raise ValueError(
                f"{stream.kind} replaces the norms of the llama backbone; {self.backbone} has its own"
            )
        if self.backbone == "gpt2" and self.max_positions is None:
            raise ValueError("the gpt2 backbone learns positions: give max_positions")
        if self.backbone != "gpt2" and (self.max_positions is not None or self.dropout):
            raise ValueError(f"max_positions and dropout belong to the gpt2 backbone, not to {self.backbone}")
        if self.backbone != "nanochat" and self.x0_scalars:
            raise ValueError(f"x0_scalars belong to the nanochat backbone, not to {self.backbone}")
        if self.backbone != "nanochat" and not self.smear:
            raise ValueError(f"smear belongs to the nanochat backbone; {self.backbone} has none to leave out")
        if self.x0_scalars and stream.kind != "pre_ln":
            raise ValueError(f"x0_scalars rescale the pre_ln residual; they exclude the stream {stream.kind}")
        if self.backbone == "nanochat" and self.smear and self.width < 24:
            raise ValueError(
                f"smear's gate reads 24 channels and the model has {self.width}; set smear: false"
            )
        if isinstance(values, TableValues) and values.gate and self.width < 12:
            raise ValueError("the table's gate reads 12 channels; the model is narrower")
        return self


def _always_zero(values: Document) -> bool:
    """Whether fixed coefficients leave a value path nothing."""
    match values:
        case MixValues(coefficients=MixCoefficients(learnable=False, source=0.0, own=0.0)):
            return True
        case ReuseValues(learnable=False, scale=0.0) | DenseValues(learnable=False, initial=0.0):
            return True
        case EmbeddingValues(combine="replace") | TableValues(combine="replace"):
            return not values.learnable and values.source == 0.0
    return False


def identity(document: Document) -> dict[str, Any]:
    """The fields that differ from their defaults: what hashes and command lines carry.

    A field added later with a default leaves the identity of existing specs as it is.
    """
    return document.model_dump(mode="json", exclude_defaults=True)
