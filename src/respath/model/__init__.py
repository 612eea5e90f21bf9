"""The one Transformer that every paper's variants configure. Importing this package does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respath.model.transformer import Transformer


def build_model(
    ref_or_spec: Any,
    *,
    scale: str = "paper",
    device=None,
    dtype=None,
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
) -> Transformer:
    """Build the model of a ModelSpec or of a ref ``paper/size/variant``; see ``respath.model.build.build_model``."""
    from respath.model.build import build_model as build

    return build(ref_or_spec, scale=scale, device=device, dtype=dtype, seed=seed, overrides=overrides)


def parameter_roles(model) -> dict[str, str]:
    """Role of each parameter, for optimizer groups; see ``respath.model.build.parameter_roles``."""
    from respath.model.build import parameter_roles as roles

    return roles(model)


__all__ = ["build_model", "parameter_roles"]
