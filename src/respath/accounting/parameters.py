"""How many numbers a model stores, by group, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from respath.config import model as specs
from respath.config.model import ModelSpec
from respath.errors import UserError
from respath.model.layout import layout


@dataclass(frozen=True)
class Parameters:
    """Counts. ``backbone`` leaves out embedding, head and final norm; ``live`` takes part in the forward pass."""

    total: int
    backbone: int
    embedding: int
    head: int
    live: int
    by_group: dict[str, int]


def _value_path(spec: ModelSpec) -> int:
    values = spec.values
    targets = len(getattr(values, "layers", ()))
    match values:
        case specs.MixValues():
            if not values.coefficients.learnable:
                return 0
            if values.coefficients.parameterisation == "free":
                return 2 * targets
            shares = spec.layers if values.coefficients.parameterisation == "softmax_all" else targets
            return shares + 1 + targets
        case specs.DenseValues():
            # Layer n weighs V_1..V_n.
            return sum(values.layers) if values.learnable else 0
        case specs.ReuseValues():
            return targets if values.learnable else 0
        case specs.OwnValues() | specs.NeutrenoValues():
            return 0
    raise UserError(f"values.kind: no parameter count for {values.kind!r} yet")


def _stream(spec: ModelSpec) -> int:
    stream = spec.stream
    match stream:
        case specs.PreLN():
            return 0
        case specs.DenseFormer():
            # Block n weighs every d-th of the n + 1 states up to its own.
            averaged = range(stream.period, spec.layers + 1, stream.period)
            return sum(n // stream.dilation + 1 for n in averaged)
    raise UserError(f"stream.kind: no parameter count for {stream.kind!r} yet")


def count_parameters(spec: ModelSpec) -> Parameters:
    """Parameters of a spec. Raises UserError for a spec without a closed form."""
    for field, plain in (("backbone", "llama"), ("attention_residual", None), ("windows", None)):
        if getattr(spec, field) != plain:
            raise UserError(f"{field}: no account of {getattr(spec, field)!r} yet")
    home = layout(spec)
    d, kv = spec.width, spec.kv_width
    embedding = spec.vocab_size * d
    head = 0 if spec.tie_embeddings else spec.vocab_size * d
    groups = {
        "embedding": embedding,
        "query": spec.layers * d * d,
        "key": len(home.key_layers) * d * kv,
        "value": len(home.value_layers) * d * kv,
        "output": spec.layers * d * d,
        "mlp": spec.layers * 3 * d * spec.ffn_width,
        "norms": (2 * spec.layers + 1) * d,
        "coefficients": _value_path(spec) + _stream(spec),
        "head": head,
    }
    total = sum(groups.values())
    return Parameters(
        total=total,
        backbone=total - embedding - head - d,
        embedding=embedding,
        head=head,
        live=total,
        by_group=groups,
    )
