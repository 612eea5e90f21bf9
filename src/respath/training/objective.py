"""The loss that is differentiated, at a recipe's precision, and its gradient over one step's sequences."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from respath.errors import UserError
from respath.model.build import WIDE_ROLES
from respath.model.loss import TrainingLoss
from respath.model.precision import LowPrecision
from respath.spec.recipe import Precision, Recipe
from respath.training.world import World


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raise UserError for a precision that the device cannot train in."""
    if precision == "fp16" and device.type == "cpu":
        raise UserError(
            "recipe.precision: fp16 needs a GPU (it scales losses against fp16's small range); on a CPU use bf16 or fp32"
        )


def parameter_dtype(precision: Precision) -> torch.dtype:
    """Dtype of the parameters that the optimizer changes (coefficients are fp32 in each case).

    A coefficient near 1 that moves by less than 2^-8 would stand still in bf16.
    """
    return torch.bfloat16 if precision == "bf16_params" else torch.float32


def make_objective(model: nn.Module, precision: Precision) -> nn.Module:
    """A module (rows, context) int64 -> mean next-token loss in fp32.

    ``bf16``, ``bf16_all`` and ``fp16`` run on copies of the fp32 parameters, made in each forward pass, so that gradients
    arrive and add up in fp32; ``fp32`` and ``bf16_params`` run on the parameters themselves. Whatever engine steps, the
    objective is the same: precision is part of a run, the engine is not.
    """
    loss = TrainingLoss(model)
    if precision in ("fp32", "bf16_params"):
        return loss
    compute = torch.float16 if precision == "fp16" else torch.bfloat16
    return LowPrecision(loss, compute, () if precision == "bf16_all" else WIDE_ROLES)


class LossScale:
    """Factor on the loss that keeps fp16 gradients in fp16's range; always 1 where nothing needs it.

    A power of two, so that scaling rounds nothing: halved when a gradient overflowed, whose step is left out, and doubled
    after 1,000 steps without one (DeepSpeed's numbers, without its hysteresis).
    """

    FIRST, GROWTH_STEPS = 2.0**16, 1000

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self.value = self.FIRST if enabled else 1.0
        self.good_steps = 0

    def update(self, norm: float) -> bool:
        """Take note of a step's gradient norm; returns whether the scale is to blame for one that is not finite."""
        if not self.enabled:
            return False
        to_blame = not math.isfinite(norm) and self.value > 1.0
        self.good_steps = self.good_steps + 1 if math.isfinite(norm) else 0
        if not self.good_steps:
            self.value = max(1.0, self.value / 2)
        elif self.good_steps % self.GROWTH_STEPS == 0:
            self.value *= 2
        return to_blame

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"value": self.value, "good_steps": self.good_steps}

    def load(self, state: Mapping[str, float]) -> None:
        """Put back what ``state`` gave."""
        self.value, self.good_steps = float(state["value"]), int(state["good_steps"])


def pieces(ids: Tensor, micro_batch: int) -> Iterator[tuple[Tensor, float, bool]]:
    """Micro-batches of this rank's rows: the part, its share of the rows, and whether it is the last.

    Each counts by its rows, so that the result does not depend on how rows are cut, but for rounding.
    """
    rows = ids.shape[0]
    for start in range(0, rows, micro_batch):
        part = ids[start : start + micro_batch]
        yield part, part.shape[0] / rows, start + micro_batch >= rows


class GradientStep:
    """Gradients of the mean loss over all ranks' sequences of a step, accumulated over micro-batches."""

    def __init__(self, objective: nn.Module, world: World, micro_batch: int, compiled: bool):
        self.world, self.micro_batch = world, micro_batch
        module: nn.Module = torch.compile(objective) if compiled else objective
        if world.size > 1:
            module = DistributedDataParallel(module, gradient_as_bucket_view=True)
        self.module = module

    def __call__(self, ids: Tensor, scale: float = 1.0) -> Tensor:
        """Add ``scale`` times the gradient of ``ids`` (this rank's rows, context); returns this rank's mean loss, a scalar."""
        total = torch.zeros((), device=ids.device)
        for part, share, last in pieces(ids, self.micro_batch):
            with contextlib.nullcontext() if last or self.world.size == 1 else self.module.no_sync():
                loss = self.module(part) * share
                (loss * scale).backward()
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
