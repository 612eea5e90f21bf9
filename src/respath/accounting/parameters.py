"""How many numbers a model stores, and how many of them it uses, by group, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from respath.config import model as specs
from respath.config.model import ModelSpec
from respath.model.layout import Layout, layout

#: Channels of the layer's input that a table's gate reads, and of the embedding that smear's gate reads (nanochat).
GATE_CHANNELS, SMEAR_CHANNELS = 12, 24


@dataclass(frozen=True)
class Parameters:
    """Counts. ``backbone`` leaves out embedding, head and final norm; ``live`` takes part in the forward pass.

    ``embedding`` includes learned positions. ``by_group`` sums to ``total``.
    """

    total: int
    backbone: int
    embedding: int
    head: int
    live: int
    by_group: dict[str, int]


def _value_path(spec: ModelSpec) -> dict[str, int]:
    """What the value path adds: coefficients, tables, gates."""
    values = spec.values
    targets = len(getattr(values, "layers", ()))
    match values:
        case specs.MixValues(coefficients=specs.MixCoefficients(learnable=True, parameterisation="free")):
            return {"coefficients": 2 * targets}
        case specs.MixValues(coefficients=specs.MixCoefficients(learnable=True, parameterisation=how)):
            # Logits, one shared scale, and each target's own coefficient.
            return {"coefficients": (spec.layers if how == "softmax_all" else targets) + 1 + targets}
        case specs.DenseValues(learnable=True):
            # Layer n weighs V_1..V_n.
            return {"coefficients": sum(values.layers)}
        case specs.ScaledValues() | specs.ReuseValues(learnable=True):
            return {"coefficients": targets}
        case specs.EmbeddingValues(learnable=True):
            return {"coefficients": targets * (2 if values.combine == "add" else 1)}
        case specs.TableValues():
            # A gate stands in the place of the table's coefficient.
            each = int(not values.gate) + int(values.combine == "add")
            return {
                "coefficients": targets * each if values.learnable else 0,
                "tables": (1 if values.shared else targets) * spec.vocab_size * spec.kv_width,
                "gates": targets * GATE_CHANNELS * spec.kv_heads if values.gate else 0,
            }
    return {}


def _stream(spec: ModelSpec) -> dict[str, int]:
    """What the residual stream adds, by group."""
    stream, d, sublayers = spec.stream, spec.width, 2 * spec.layers
    match stream:
        case specs.PreLN() | specs.LayerNormScaling() | specs.DeepNorm() | specs.Truncated():
            return {}
        case specs.SandwichLN():
            return {"norms": sublayers * d}
        case specs.Keel():
            return {"norms": (sublayers - 1) * d}
        case specs.HyperConnections():
            # Read, transport and write weights: a static part each, a projection of each stream, two gates.
            m = stream.streams
            static, projection = m * m + 2 * m, (m + 2) * d
            return {
                "coefficients": sublayers * static,
                "routing": sublayers * 2,
                "stream_projections": sublayers * projection,
            }
        case specs.ManifoldHyperConnections():
            outputs = stream.streams * (stream.streams + 2)
            return {
                "coefficients": sublayers * (outputs + 3),
                "stream_projections": sublayers * outputs * stream.streams * d,
            }
        case specs.FullAttnRes() | specs.BlockAttnRes():
            # One query and one key norm for every sub-layer but the first, and for the head.
            return {"norms": sublayers * d, "routing": sublayers * d}
        case specs.MoDA():
            return {"stream_projections": (spec.layers - 1) * 2 * d * spec.kv_width}
        case specs.HiddenResidual():
            return {"coefficients": sublayers} if stream.learnable else {}
        case specs.DenseFormer():
            # Block n weighs every d-th of the n + 1 states up to its own.
            averaged = range(stream.period, spec.layers + 1, stream.period)
            return {"coefficients": sum(n // stream.dilation + 1 for n in averaged)}
    raise AssertionError(f"no parameter count for the stream {stream.kind}")


def _backbone(spec: ModelSpec, home: Layout) -> dict[str, int]:
    """Embedding, attention, MLP, norms and head."""
    d, kv, hidden = spec.width, spec.kv_width, spec.ffn_width
    # gpt2 has a bias beside every weight but the head's; nanochat's norms have no gain.
    bias = int(spec.backbone == "gpt2")
    groups = {
        "embedding": spec.vocab_size * d,
        "query": spec.layers * (d + bias) * d,
        "key": len(home.key_layers) * (d + bias) * kv,
        "value": len(home.value_projections) * (d + bias) * kv,
        "output": spec.layers * (d + bias) * d,
        "mlp": spec.layers * ((3 if spec.backbone == "llama" else 2) * d * hidden + bias * (hidden + d)),
        "norms": 0 if spec.backbone == "nanochat" else (2 * spec.layers + 1) * d,
        "coefficients": 0,
        "head": 0 if spec.tie_embeddings else spec.vocab_size * d,
    }
    if spec.backbone == "gpt2":
        groups["norm_biases"] = groups["norms"]
        groups["positions"] = spec.max_positions * d
    if spec.backbone == "nanochat":
        groups["coefficients"] += 2 * spec.layers if spec.x0_scalars else 0
        groups["smear"] = SMEAR_CHANNELS + 1 if spec.smear else 0
    return groups


def _final_norm(spec: ModelSpec) -> int:
    """Parameters of the norm before the head."""
    return {"llama": 1, "gpt2": 2, "nanochat": 0}[spec.backbone] * spec.width


def _unused(spec: ModelSpec) -> int:
    """Parameters that exist and change nothing: a fixed coefficient of 0 stands before what they compute."""
    values, residual, stream = spec.values, spec.attention_residual, spec.stream
    rows = spec.width + (1 if spec.backbone == "gpt2" else 0)
    query, key = rows * spec.width, rows * spec.kv_width
    targets = set(getattr(values, "layers", ()))
    unused = 0
    match values:
        case specs.MixValues(coefficients=specs.MixCoefficients(learnable=False, own=0.0)):
            if values.source == "previous" and values.cache == "pre_mix" and values.coefficients.source:
                # V_n still feeds layer n + 1.
                targets -= {n - 1 for n in targets}
            unused += len(targets) * key
        case specs.IdentityMapValues(own=0.0):
            # Attention itself goes unused; layers that share keys may still lend theirs.
            unused += len(targets) * (query + key) + (0 if spec.sharing else len(targets) * key)
    if residual is not None and residual.own == 0.0:
        layers = len(residual.layers)
        if residual.of in ("query", "attention"):
            unused += layers * query
        if residual.of in ("key", "attention") and spec.sharing is None:
            unused += layers * key
    if isinstance(stream, specs.HyperConnections) and not stream.transport:
        # The static transport, and the projection's rows for it.
        unused += 2 * spec.layers * stream.streams * (stream.streams + spec.width)
    return unused


def count_parameters(spec: ModelSpec) -> Parameters:
    """Parameters of a spec, as the module stores them: a projection that a variant replaces does not exist."""
    home = layout(spec)
    groups = _backbone(spec, home)
    for extra in (_value_path(spec), _stream(spec)):
        for group, count in extra.items():
            groups[group] = groups.get(group, 0) + count
    total = sum(groups.values())
    embedding, head = groups["embedding"] + groups.get("positions", 0), groups["head"]
    return Parameters(
        total=total,
        backbone=total - embedding - head - _final_norm(spec),
        embedding=embedding,
        head=head,
        live=total - _unused(spec),
        by_group=groups,
    )


def stored_with_replaced_projections(spec: ModelSpec) -> int:
    """Parameters of a checkpoint that keeps the W^V which a variant replaces, as Bank of Values' public code does."""
    missing = spec.layers - len(layout(spec).value_projections)
    return count_parameters(spec).total + missing * spec.width * spec.kv_width
