"""Our AdamW is PyTorch's, bit for bit, and a process that trains with it imports no compiler."""

import os
import subprocess
import sys

import pytest
import torch

from respath.spec.recipe import Recipe
from respath.training.adamw import AdamW
from respath.training.optimizer import make_optimizer
from tests.project_copy import ROOT

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "fused": True}


def trained(kind) -> list[torch.Tensor]:
    """Parameters and moments after four steps, one without a gradient for the second group."""
    generator = torch.Generator().manual_seed(0)
    parameters = [
        torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (7,), (2, 2))
    ]
    groups = [
        {"params": parameters[:2], "weight_decay": 0.1},
        {"params": parameters[2:], "weight_decay": 0.0},
    ]
    optimizer = kind(groups, **SETTINGS)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
        for parameter in parameters[: 2 if step == 1 else 3]:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert all(parameter.grad is None for parameter in parameters)
    moments = [optimizer.state[p][name] for p in parameters for name in ("exp_avg", "exp_avg_sq", "step")]
    return [*parameters, *moments]


def test_every_step_is_pytorchs_bit_for_bit():
    for ours, theirs in zip(trained(AdamW), trained(torch.optim.AdamW), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("recipe", ["adamw", "muon_adamw"])
def test_a_step_of_a_recipe_imports_no_compiler(recipe):
    code = f"""
import sys, torch
from respath.training.adamw import AdamW
from respath.training.muon import MuonAdamW
weight, gain = torch.nn.Parameter(torch.ones(4, 3)), torch.nn.Parameter(torch.ones(3))
if {recipe!r} == "adamw":
    optimizer = AdamW([weight, gain], lr=0.1, fused=True)
else:
    matrices = {{"params": [weight], "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "beta2": 0.9, "iterations": 2}}
    optimizer = MuonAdamW([matrices], [{{"params": [gain]}}], lr=0.1)
for parameter in (weight, gain):
    parameter.grad = torch.ones_like(parameter)
optimizer.step()
optimizer.zero_grad()
assert (weight != 1).all() and (gain != 1).all()
sys.exit("torch._dynamo" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_a_factor_on_epsilon_reaches_the_parameters_of_its_pattern_alone():
    recipe = Recipe(
        steps=2,
        warmup_steps=1,
        peak_lr=1e-2,
        final_lr=0.0,
        context=8,
        batch_sequences=1,
        eps_multipliers={"layers.*": 0.5},
    )
    parameters = {name: torch.nn.Parameter(torch.ones(2)) for name in ("layers.0.w", "head")}
    groups = make_optimizer(parameters, dict.fromkeys(parameters, "matrix"), recipe).param_groups
    assert {group["names"][0]: group["eps"] for group in groups} == {"layers.0.w": 5e-9, "head": 1e-8}
