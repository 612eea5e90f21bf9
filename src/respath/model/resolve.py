"""From what a caller has (a ref, a spec, a mapping) to a ModelSpec, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from respath.documents import check
from respath.spec.model import ModelSpec


def resolve_spec(
    ref_or_spec: ModelSpec | Mapping[str, Any] | str,
    *,
    scale: str = "paper",
    overrides: Mapping[str, Any] | None = None,
) -> ModelSpec:
    """The spec of a ref ``paper/size/variant`` at a scale, of a mapping of spec fields, or the spec itself.

    ``overrides`` replaces whole fields (``{"norm_eps": 1e-12}``). Raises UserError for an unknown ref or
    field.
    """
    if isinstance(ref_or_spec, str):
        from respath.papers.resolve import papers_at

        spec = papers_at(scale).model(ref_or_spec)
    elif isinstance(ref_or_spec, ModelSpec):
        spec = ref_or_spec
    else:
        spec = check(ModelSpec, dict(ref_or_spec), "model spec")
    if overrides:
        spec = check(ModelSpec, {**spec.model_dump(mode="json"), **overrides}, "overrides")
    return spec
