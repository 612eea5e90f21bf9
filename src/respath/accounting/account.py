"""One model's account: parameters, FLOPs and KV bytes under stated conventions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from respath.accounting.cache_size import cache_bytes, elements_per_token
from respath.accounting.flops import as_printed, forward_flops, training_flops_per_token
from respath.accounting.parameters import Parameters, count_parameters
from respath.config.model import ModelSpec
from respath.errors import UserError
from respath.model.resolve import resolve_spec

#: Conventions for a bare spec, which belongs to no paper: those of ResFormer.
CONTEXT, LOGITS, ATTENTION = 2048, "all", "causal"

SpecLike = ModelSpec | Mapping[str, Any] | str


@dataclasses.dataclass(frozen=True)
class Flops:
    """``forward`` is per sequence, ``training_per_token`` three times the forward per token with all logits.

    The components sum to ``forward``, but for a name that says it is the paper's count.
    """

    forward: int
    training_per_token: int
    extra_over_baseline: int
    by_component: dict[str, int]


@dataclasses.dataclass(frozen=True)
class KvCache:
    """``bytes`` are those of bf16 numbers (two each) for the whole batch at full context, token ids (four) included.

    ``elements_per_token`` counts keys and values alone; the ratio is of bytes and not rounded.
    """

    elements_per_token: int | float
    bytes: int
    ratio_to_baseline: float


@dataclasses.dataclass(frozen=True)
class Account:
    """What a model costs. ``ref`` is None for a bare spec."""

    ref: str | None
    shape: dict[str, Any]
    parameters: Parameters
    flops: Flops
    kv_cache: KvCache

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and numbers, as ``respath account --json`` prints them."""
        return dataclasses.asdict(self)


def plain_baseline(spec: ModelSpec) -> ModelSpec:
    """The plain Transformer of the same shape: full key-value heads, own values, Pre-LN, nothing shared."""
    plain = {
        "kv_heads": spec.heads,
        "values": {"kind": "own"},
        "stream": {"kind": "pre_ln"},
        "sharing": None,
        "attention_residual": None,
    }
    return resolve_spec(spec, overrides=plain)


def _shape(spec: ModelSpec, context: int, batch: int, logits: str, attention: str) -> dict[str, Any]:
    names = ("layers", "width", "heads", "kv_heads", "head_dim", "ffn_width", "vocab_size")
    conventions = {"context": context, "batch": batch, "logits": logits, "attention": attention}
    return {name: getattr(spec, name) for name in names} | conventions


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UserError(f"{name}: {value!r} is not {' or '.join(known)}")


def account(
    ref_or_spec: SpecLike,
    *,
    scale: str = "paper",
    context: int | None = None,
    logits: Literal["all", "last"] | None = None,
    attention: Literal["causal", "full"] | None = None,
    batch: int = 1,
    cache: Literal["full", "window"] = "full",
    baseline: SpecLike | None = None,
    training_context: int | None = None,
) -> Account:
    """Account of a ref ``paper/size/variant`` at a scale, or of a spec.

    Unset conventions are the paper's; for a bare spec 2,048 tokens, all logits, causal attention. The
    baseline is the paper's of the same size; for a bare spec the plain Transformer of the same shape.
    ``training_per_token`` is counted at ``training_context`` (by default the paper's, or ``context`` of a
    bare spec). FLOPs are per sequence, whatever ``batch`` is. ``cache="window"`` keeps no more than a layer's
    attention window; where all layers attend to everything it equals ``full``. Raises UserError for an
    unknown ref, variant or convention.
    """
    spec = resolve_spec(ref_or_spec, scale=scale)
    parameters = count_parameters(spec)
    ref = ref_or_spec if isinstance(ref_or_spec, str) else None
    training_attention = attention or ATTENTION
    if ref is not None:
        from respath.config.project import Project

        project = Project.find()
        paper, size, _ = project.parse_ref(ref)
        defaults = project.accounting_defaults(paper)
        training_context = training_context or getattr(defaults, "training_context", None) or defaults.context
        training_attention = defaults.attention
        context, logits = context or defaults.context, logits or defaults.logits
        attention = attention or defaults.attention
        baseline = baseline or f"{paper}/{size}/{defaults.baseline}"
    context, logits, attention = context or CONTEXT, logits or LOGITS, attention or ATTENTION
    training_context = training_context or context
    _one_of("logits", logits, ("all", "last"))
    _one_of("attention", attention, ("causal", "full"))
    _one_of("cache", cache, ("full", "window"))
    for name, value in (("context", context), ("batch", batch)):
        if value < 1:
            raise UserError(f"{name}: {value} is not a positive number")
    reference = plain_baseline(spec) if baseline is None else resolve_spec(baseline, scale=scale)

    components = forward_flops(spec, context, logits, attention)
    forward = sum(components.values())
    held, plainly = (cache_bytes(one, context, batch, cache=cache) for one in (spec, reference))
    return Account(
        ref=ref,
        shape=_shape(spec, context, batch, logits, attention),
        parameters=parameters,
        flops=Flops(
            forward=forward,
            training_per_token=training_flops_per_token(spec, training_context, training_attention),
            extra_over_baseline=forward - sum(forward_flops(reference, context, logits, attention).values()),
            by_component={**components, **as_printed(spec, context)},
        ),
        kv_cache=KvCache(
            elements_per_token=elements_per_token(spec, context, cache),
            bytes=held,
            ratio_to_baseline=float(Fraction(held, plainly)),
        ),
    )
