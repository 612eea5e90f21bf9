"""PyTorch's fused AdamW without the import of PyTorch's compiler.

``torch.optim`` wraps what an optimizer does, so that optimizers could be compiled. The wrappers import ``torch._dynamo`` when they
are first called: about two seconds of CPU time, a good part of what a short training takes. Optimizers are not compiled here, so
the functions under the wrappers are called. The numbers are PyTorch's, bit for bit.
"""

from __future__ import annotations

import fnmatch
import inspect
import math
from typing import Any

import torch

from respath.spec.recipe import Recipe

# Taken before there is any optimizer: making one wraps ``step`` once more.
_STEP = inspect.unwrap(torch.optim.AdamW.step)


class Uncompiled:
    """Goes before an optimizer among the bases of a class that is not used inside compiled functions."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(Uncompiled, torch.optim.AdamW):
    """``torch.optim.AdamW``."""

    @torch.no_grad()
    def step(self, closure=None):
        """One update of all parameters that have a gradient."""
        return _STEP(self, closure)


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
    return own.get(role, recipe.optimizer.weight_decay)


def settings(name: str, parameter: torch.nn.Parameter, role: str, recipe: Recipe) -> dict[str, Any]:
    """Group settings of a parameter; see ``respath.training.optimizer``."""
    found = {"role": role, "weight_decay": weight_decay(role, recipe)}
    factors = [f for pattern, f in recipe.eps_multipliers.items() if fnmatch.fnmatchcase(name, pattern)]
    return found | ({"eps": recipe.optimizer.eps * math.prod(factors)} if factors else {})


def defaults(recipe: Recipe) -> dict[str, Any]:
    """AdamW's own settings, of whatever optimizer has it."""
    chosen = recipe.optimizer
    return {"lr": recipe.peak_lr, "betas": (chosen.beta1, chosen.beta2), "eps": chosen.eps}


def build(groups: list[dict[str, Any]], recipe: Recipe) -> AdamW:
    """The optimizer of the groups."""
    return AdamW(groups, fused=True, **defaults(recipe))


def scheduled(group: dict[str, Any], recipe: Recipe, step: int) -> dict[str, Any]:
    """What changes with the step beside the learning rate: nothing."""
    return {}
