"""Optimizers with parameter groups by role: what decays, and which learning rate each parameter follows."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

import torch

from respath.errors import UserError, did_you_mean
from respath.spec.recipe import Recipe, learning_rate
from respath.training.adamw import AdamW
from respath.training.muon import MuonAdamW, decay_at, momentum_at


def learning_rate_factors(roles: Mapping[str, str], recipe: Recipe) -> dict[str, float]:
    """Factor on the schedule for every parameter: its role's, times those of all patterns that match its name.

    A product, because it does not depend on the patterns' order (which a content-addressed spec does not keep).
    Raises UserError for a pattern that matches no parameter.
    """
    factors = {
        name: recipe.coefficient_lr_multiplier if role == "coefficient" else 1.0
        for name, role in roles.items()
    }
    problems = []
    for pattern, factor in sorted(recipe.lr_multipliers.items()):
        matched = [name for name in roles if fnmatch.fnmatchcase(name, pattern)]
        if not matched:
            problems.append(
                f"recipe.lr_multipliers: {pattern!r} matches no parameter{did_you_mean(pattern, roles)}"
            )
        for name in matched:
            factors[name] *= factor
    if problems:
        raise UserError(problems)
    return factors


def weight_decay(role: str, recipe: Recipe) -> float:
    """Decay of a role: matrices, embeddings and head as in the recipe; coefficients and norms their own; biases and smear none.

    ResFormer's HF Trainer decays everything but norms and biases (whether the coefficients were among it is open);
    DepthBench's authors decay the norms too (decision norm-decay).
    """
    own = {
        "coefficient": recipe.coefficient_weight_decay,
        "norm": recipe.norm_weight_decay,
        "bias": 0.0,
        "smear": 0.0,
    }
    return own.get(role, recipe.weight_decay)


def adamw_group(name: str, role: str) -> str | None:
    """Which of ``recipe.groups`` a parameter of the recipe muon_adamw belongs to; None for a matrix (Muon's) or an unknown role.

    A coefficient called ``own`` weighs what the layer has anyway (its value, or its residual): it moves a hundred times slower in
    nanochat, where it is a group of its own.
    """
    if role == "coefficient":
        return "own_coefficients" if name.endswith(".own") else "coefficients"
    return {"head": "head", "embedding": "embedding", "table": "tables", "smear": "smear"}.get(role)


def _settings(name: str, parameter: torch.nn.Parameter, role: str, recipe: Recipe) -> dict[str, Any]:
    """The group settings of one parameter, but for its ``factor``; parameters with equal ones share a group.

    Raises UserError where the recipe says nothing about a parameter.
    """
    if recipe.optimizer == "adamw":
        return {"role": role, "weight_decay": weight_decay(role, recipe)}
    if role == "matrix" and parameter.dim() == 2:
        muon = recipe.muon
        return {
            "role": role,
            "shape": tuple(parameter.shape),
            "beta2": muon.beta2,
            "iterations": muon.orthogonalisation_steps,
        }
    group = adamw_group(name, role)
    if group is None:
        raise UserError(
            f"recipe.optimizer: muon_adamw has no settings for {name} (role {role}, {parameter.dim()} dimensions); "
            "train this model with optimizer adamw"
        )
    if group not in recipe.groups:
        raise UserError(
            f"recipe.groups: {group} is missing, but the model has {name}; give its lr, beta1 and beta2"
        )
    chosen = recipe.groups[group]
    return {
        "role": role,
        "group": group,
        "relative_lr": chosen.lr / recipe.peak_lr,
        "betas": (chosen.beta1, chosen.beta2),
        "weight_decay": chosen.weight_decay,
    }


def _groups(
    parameters: Mapping[str, torch.nn.Parameter], roles: Mapping[str, str], recipe: Recipe
) -> list[dict[str, Any]]:
    factors = learning_rate_factors(roles, recipe)
    groups: dict[tuple, dict[str, Any]] = {}
    for name, parameter in parameters.items():
        settings = _settings(name, parameter, roles[name], recipe)
        factor = factors[name] * settings.pop("relative_lr", 1.0)
        key = (factor, *settings.items())
        group = groups.setdefault(key, {"params": [], "names": [], "factor": factor, **settings})
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def make_optimizer(
    parameters: Mapping[str, torch.nn.Parameter], roles: Mapping[str, str], recipe: Recipe
) -> torch.optim.Optimizer:
    """Fused AdamW, or Muon with it, over ``parameters``. Each group carries ``role``, ``factor`` and its parameters' ``names``.

    Raises UserError for a parameter without a role or settings and for a pattern in ``recipe.lr_multipliers`` that matches nothing.
    """
    if missing := sorted(set(parameters) - set(roles)):
        raise UserError(
            f"model: no role is known for the parameters {missing[:5]}; see respath.model.parameter_roles"
        )
    groups = _groups(parameters, {name: roles[name] for name in parameters}, recipe)
    adamw = {"lr": recipe.peak_lr, "betas": (recipe.beta1, recipe.beta2), "eps": recipe.adam_eps}
    if recipe.optimizer == "adamw":
        return AdamW(groups, fused=True, **adamw)
    return MuonAdamW(
        [group for group in groups if "shape" in group],
        [group for group in groups if "shape" not in group],
        dtype=None if recipe.precision == "fp32" else torch.bfloat16,
        **adamw,
    )


def set_schedule(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> float:
    """Give every group what the recipe says for 0-based ``step``; returns the schedule's learning rate, without factors."""
    lr = learning_rate(recipe, step)
    for group in optimizer.param_groups:
        group["lr"] = lr * group["factor"]
        if "shape" in group:
            group |= {"momentum": momentum_at(recipe, step), "weight_decay": decay_at(recipe, step)}
    return lr


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state as ``<state>/<parameter>`` tensors."""
    return {
        f"{state}/{name}": value
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        for state, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        state, _, name = key.partition("/")
        found.setdefault(name, {})[state] = value
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if name in found:
                optimizer.state[parameter] = {
                    state: value.to(parameter.device) for state, value in found[name].items()
                }
