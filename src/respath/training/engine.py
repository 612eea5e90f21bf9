"""What takes the optimizer steps: plain PyTorch, in one process or in several with DistributedDataParallel.

An engine has

* ``step(ids) -> (loss, gradient norm)``: one optimizer step on this rank's rows, at the learning rates that the optimizer's groups
  carry. The loss is this rank's, the norm that of the whole gradient before clipping. A gradient that is not finite changes nothing.
* ``tensors() -> {"<state>/<parameter>": tensor}`` and ``load(tensors, state)``: the optimizer's state in whole tensors, whatever the
  engine and the number of ranks, so that any of them takes up the other's checkpoint. All ranks call ``tensors`` together.
* ``state() -> dict``: what a checkpoint keeps beside tensors.
* ``scale``: the ``LossScale``, to be told of each step's norm.
* ``close()``: to be called before the process group ends.

``respath.training.zero`` has the other engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from respath.spec.recipe import Recipe
from respath.training.objective import GradientStep, LossScale
from respath.training.optimizer import load_optimizer_tensors, optimizer_tensors
from respath.training.planning import Plan
from respath.training.steps import Steps
from respath.training.world import World


class TorchEngine:
    """Steps of a PyTorch optimizer."""

    def __init__(
        self,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        world: World,
        plan: Plan,
    ):
        self.optimizer, self.largest_norm = optimizer, recipe.grad_clip or math.inf
        self.parameters = list(objective.parameters())
        self.gradients = GradientStep(objective, world, plan.micro_batch, plan.compile)
        self.scale = LossScale(recipe.precision == "fp16")

    def step(self, ids: Tensor) -> tuple[float, float]:
        """See the module."""
        scale = self.scale.value
        local_loss = self.gradients(ids, scale)
        if scale != 1.0:
            torch._foreach_mul_(
                [parameter.grad for parameter in self.parameters if parameter.grad is not None], 1 / scale
            )
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.largest_norm)
        # The only place that waits for the device.
        loss, grad_norm = torch.stack([local_loss, norm.to(local_loss.dtype)]).tolist()
        if math.isfinite(grad_norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, grad_norm

    def tensors(self) -> dict[str, Tensor]:
        """See the module."""
        return optimizer_tensors(self.optimizer)

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """See the module."""
        load_optimizer_tensors(self.optimizer, tensors)
        if "loss_scale" in state:
            self.scale.load(state["loss_scale"])

    def state(self) -> dict[str, Any]:
        """See the module."""
        return {"loss_scale": self.scale.state()} if self.scale.enabled else {}

    def close(self) -> None:
        """Nothing to give back."""


def build(steps: Steps, world: World, plan: Plan) -> TorchEngine:
    """The engine of a run's steps."""
    return TorchEngine(steps.objective, steps.optimizer, steps.spec.recipe, world, plan)
