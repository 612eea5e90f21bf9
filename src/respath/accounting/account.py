"""The account of a model under its paper's conventions, or under stated ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from respath.errors import UserError
from respath.model.resolve import resolve_spec
from respath.spec.cost import Account, account_of
from respath.spec.model import ModelSpec

#: Conventions for a bare spec, which belongs to no paper: those of ResFormer.
CONTEXT, LOGITS, ATTENTION = 2048, "all", "causal"

SpecLike = ModelSpec | Mapping[str, Any] | str


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
    ref = ref_or_spec if isinstance(ref_or_spec, str) else None
    training_attention: str = attention or ATTENTION
    if ref is not None:
        from respath.papers.resolve import papers_at

        library = papers_at(scale).library
        paper, size, _ = library.parse_ref(ref)
        defaults = library.folder(paper).paper.accounting
        training_context = training_context or getattr(defaults, "training_context", None) or defaults.context
        training_attention = defaults.attention
        context, logits = context or defaults.context, logits or defaults.logits
        attention = attention or defaults.attention
        baseline = baseline or f"{paper}/{size}/{defaults.baseline}"
    context, counted, pairs = context or CONTEXT, str(logits or LOGITS), str(attention or ATTENTION)
    training_context = training_context or context
    _one_of("logits", counted, ("all", "last"))
    _one_of("attention", pairs, ("causal", "full"))
    _one_of("cache", cache, ("full", "window"))
    for name, value in (("context", context), ("batch", batch)):
        if value < 1:
            raise UserError(f"{name}: {value} is not a positive number")
    reference = spec.plain() if baseline is None else resolve_spec(baseline, scale=scale)

    return account_of(
        spec,
        reference,
        context=context,
        logits=counted,
        attention=pairs,
        batch=batch,
        cache=cache,
        training_context=training_context,
        training_attention=training_attention,
        ref=ref,
    )
