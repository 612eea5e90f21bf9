"""AdamW with parameter groups by role: what decays, and which learning rate each parameter follows."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

import torch

from respath.config.run import Recipe
from respath.errors import UserError, did_you_mean


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


def make_optimizer(
    parameters: Mapping[str, torch.nn.Parameter], roles: Mapping[str, str], recipe: Recipe
) -> torch.optim.AdamW:
    """Fused AdamW over ``parameters``. Each group carries ``role``, ``factor`` and the ``names`` of its parameters.

    Raises UserError for a parameter without a role and for a pattern in ``recipe.lr_multipliers`` that matches nothing.
    """
    if missing := sorted(set(parameters) - set(roles)):
        raise UserError(
            f"model: no role is known for the parameters {missing[:5]}; see respath.model.parameter_roles"
        )
    roles = {name: roles[name] for name in parameters}
    factors = learning_rate_factors(roles, recipe)
    groups: dict[tuple, dict] = {}
    for name, parameter in parameters.items():
        key = (roles[name], factors[name])
        group = groups.setdefault(
            key,
            {
                "params": [],
                "names": [],
                "role": roles[name],
                "factor": factors[name],
                "weight_decay": weight_decay(roles[name], recipe),
            },
        )
        group["params"].append(parameter)
        group["names"].append(name)
    return torch.optim.AdamW(
        list(groups.values()),
        lr=recipe.peak_lr,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.adam_eps,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group the schedule's value times its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["factor"]


_STATES = ("exp_avg", "exp_avg_sq", "step")


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimizer's state as ``<state>/<parameter>`` tensors."""
    return {
        f"{state}/{name}": optimizer.state[parameter][state]
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        if parameter in optimizer.state
        for state in _STATES
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if f"step/{name}" in tensors:
                optimizer.state[parameter] = {
                    state: tensors[f"{state}/{name}"].to(parameter.device) for state in _STATES
                }
