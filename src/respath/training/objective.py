"""The loss that is differentiated, at a recipe's precision, and its gradient over one step's sequences."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from respath.config.run import Recipe
from respath.errors import UserError
from respath.model.loss import TrainingLoss
from respath.model.precision import LowPrecision
from respath.training.world import World


def check_precision(precision: str, device: torch.device) -> None:
    """Raise UserError for a precision that the device cannot train in."""
    if precision == "fp16" and device.type == "cpu":
        raise UserError(
            "recipe.precision: fp16 needs a GPU (it scales losses against fp16's small range); on a CPU use bf16 or fp32"
        )


def parameter_dtype(precision: str) -> torch.dtype:
    """Dtype of the parameters that the optimizer changes (coefficients are fp32 in each case).

    A coefficient near 1 that moves by less than 2^-8 would stand still in bf16.
    """
    return torch.bfloat16 if precision == "bf16_params" else torch.float32


def make_objective(model: nn.Module, precision: str) -> nn.Module:
    """A module (rows, context) int64 -> mean next-token loss in fp32.

    ``bf16`` and ``fp16`` run on copies of the fp32 parameters, made in each forward pass, so that gradients arrive and
    add up in fp32; ``fp32`` and ``bf16_params`` run on the parameters themselves.
    """
    compute = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    loss = TrainingLoss(model)
    return loss if compute is None else LowPrecision(loss, compute)


class GradientStep:
    """Gradients of the mean loss over all ranks' sequences of a step, accumulated over micro-batches."""

    def __init__(self, objective: nn.Module, world: World, micro_batch: int, compiled: bool, scaled: bool):
        self.world, self.micro_batch = world, micro_batch
        module: nn.Module = torch.compile(objective) if compiled else objective
        if world.size > 1:
            module = DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
        self.module = module
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=scaled)

    def __call__(self, ids: Tensor) -> Tensor:
        """Add the gradient of ``ids`` (this rank's rows, context); returns this rank's mean loss, a scalar.

        Each micro-batch counts by its rows, so the result does not depend on how rows are cut, but for rounding.
        """
        rows = ids.shape[0]
        total = torch.zeros((), device=ids.device)
        for start in range(0, rows, self.micro_batch):
            part = ids[start : start + self.micro_batch]
            last = start + self.micro_batch >= rows
            with contextlib.nullcontext() if last or self.world.size == 1 else self.module.no_sync():
                loss = self.module(part) * (part.shape[0] / rows)
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total


def rows_per_rank(recipe: Recipe, world: World) -> int:
    """Sequences that each rank sees per step. Raises UserError when the batch cannot be shared out evenly."""
    if recipe.batch_sequences % world.size:
        raise UserError(
            f"recipe.batch_sequences: {recipe.batch_sequences} sequences cannot be shared by {world.size} processes; "
            "start a number of processes that divides them"
        )
    return recipe.batch_sequences // world.size
