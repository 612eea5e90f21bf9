"""From a spec to a model with weights that depend on seed, name and shape only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from respath.model.initial import Draw
from respath.model.resolve import resolve_spec
from respath.model.transformer import Transformer
from respath.spec.model import ModelSpec

#: Roles of parameters that stay in at least fp32 in a low-precision model.
WIDE_ROLES = ("coefficient", "routing", "smear")


def _each_module(model: nn.Module):
    return ((prefix, module) for prefix, module in model.named_modules() if hasattr(module, "initial"))


def initialise(model: Transformer, seed: int) -> None:
    """Set every parameter to its initial value. Raises RuntimeError when a module forgets one."""
    parameters = dict(model.named_parameters())
    factors = {
        f"layers.{n}.{part}.weight": factor
        for n in range(model.spec.layers)
        for part, factor in model.stream.initial_scale.items()
    }
    with torch.no_grad():
        for prefix, module in _each_module(model):
            for name, value in module.initial(Draw(seed, prefix, model.spec.init_cut, factors)).items():
                parameters.pop(f"{prefix}.{name}").copy_(value)
    if parameters:
        raise RuntimeError(f"no initial value for {sorted(parameters)}")


def build_model(
    ref_or_spec: ModelSpec | Mapping[str, Any] | str,
    *,
    scale: str = "paper",
    device=None,
    dtype=None,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> Transformer:
    """The model of a spec, or of a ref ``paper/size/variant`` at a scale.

    ``dtype``: of the weights (fp32 by default); coefficients stay in at least fp32. ``overrides`` replaces
    spec fields. On the meta device nothing is drawn or allocated. Raises UserError for an unknown ref or
    field.
    """
    spec = resolve_spec(ref_or_spec, scale=scale, overrides=overrides)
    dtype = dtype or torch.float32
    device = torch.device(device or "cpu")
    with torch.device("meta"):
        model = Transformer(spec).to(dtype)
        wide = torch.promote_types(dtype, torch.float32)
        for name, role in parameter_roles(model).items():
            if role in WIDE_ROLES:
                parameter = model.get_parameter(name)
                parameter.data = parameter.data.to(wide)
    if device.type != "meta":
        # What to_empty does, but its empty_like of meta tensors imports sympy first: a second in every process.
        model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device=device))
        initialise(model, seed)
    return model


def parameter_roles(model: nn.Module) -> dict[str, str]:
    """Role of each parameter, for optimizer groups: matrix, embedding, head, norm, bias, coefficient, routing or smear.

    Coefficients and routing parameters steer which path is taken and stay in at least fp32; routing decays as
    a matrix does, coefficients have a decay and a learning rate of their own.
    """
    roles = {}
    for prefix, module in model.named_modules():
        role = getattr(module, "role", None)
        if role is not None:
            one = isinstance(role, str)
            names = (name for name, _ in module.named_parameters())
            roles |= {f"{prefix}.{name}": role if one else role[name] for name in names}
    return {name: roles[name] for name, _ in model.named_parameters()}
