"""Optimizers with parameter groups by role: what decays, and which learning rate each parameter follows.

The module of an optimizer's document has

* ``settings(name, parameter, role, recipe) -> dict``: the settings of one parameter's group, without its learning rate (but for a
  ``relative_lr``); parameters with equal ones share a group. UserError where the recipe says nothing about a parameter.
* ``build(groups, recipe) -> optimizer``.
* ``scheduled(group, recipe, step) -> dict``: what else of a group changes with the 0-based step.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from respath.errors import UserError, did_you_mean
from respath.spec.recipe import Recipe, learning_rate


def module_of(recipe: Recipe) -> ModuleType:
    """The module of the recipe's optimizer; imported when it is asked for."""
    return importlib.import_module(recipe.optimizer.module)


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


def _groups(
    parameters: Mapping[str, torch.nn.Parameter], roles: Mapping[str, str], recipe: Recipe
) -> list[dict[str, Any]]:
    factors, kind = learning_rate_factors(roles, recipe), module_of(recipe)
    groups: dict[tuple, dict[str, Any]] = {}
    for name, parameter in parameters.items():
        settings = kind.settings(name, parameter, roles[name], recipe)
        factor = factors[name] * settings.pop("relative_lr", 1.0)
        key = (factor, *settings.items())
        group = groups.setdefault(key, {"params": [], "names": [], "factor": factor, **settings})
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def make_optimizer(
    parameters: Mapping[str, torch.nn.Parameter], roles: Mapping[str, str], recipe: Recipe
) -> torch.optim.Optimizer:
    """The recipe's optimizer over ``parameters``. Each group carries ``role``, ``factor`` and its parameters' ``names``.

    Raises UserError for a parameter without a role or settings and for a pattern in ``recipe.lr_multipliers`` that matches nothing.
    """
    if missing := sorted(set(parameters) - set(roles)):
        raise UserError(
            f"model: no role is known for the parameters {missing[:5]}; see respath.model.parameter_roles"
        )
    groups = _groups(parameters, {name: roles[name] for name in parameters}, recipe)
    return module_of(recipe).build(groups, recipe)


def set_schedule(optimizer: torch.optim.Optimizer, recipe: Recipe, step: int) -> float:
    """Give every group what the recipe says for 0-based ``step``; returns the schedule's learning rate, without factors."""
    lr, kind = learning_rate(recipe, step), module_of(recipe)
    for group in optimizer.param_groups:
        group["lr"] = lr * group["factor"]
        group |= kind.scheduled(group, recipe, step)
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
