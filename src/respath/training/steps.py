"""What the steps of a run compute: its model and optimizer as they start, each step's rows, rates and masks, and what diverges.

Everything that a trained weight depends on is here or imported here; when to save and what to record is the loop's.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from respath.data.loader import Loader
from respath.model.build import build_model, parameter_roles
from respath.spec.run import RunSpec
from respath.training.objective import check_precision, make_objective, parameter_dtype, rows_per_rank
from respath.training.optimizer import make_optimizer, set_schedule
from respath.training.world import World

#: A window's mean loss above this many times ln(vocabulary) is an explosion. Guessing uniformly costs once that, and
#: a run on its way to recovery from a spike does not stay three times as bad as not having trained for a window.
EXPLOSION = 3.0


class Engine(Protocol):
    """What takes an optimizer step; see ``respath.training.engine``."""

    def step(self, ids: Tensor) -> tuple[float, float]:
        """This rank's loss, and the norm of the whole gradient."""
        ...


class Steps:
    """Model, optimizer and data of a run on this rank."""

    def __init__(self, spec: RunSpec, manifest: Path, world: World):
        self.spec, self.world = spec, world
        recipe = spec.recipe
        check_precision(recipe.precision, world.device)
        self.rows = rows_per_rank(recipe, world)
        self.loader = Loader(
            manifest,
            context=recipe.context,
            batch_sequences=recipe.batch_sequences,
            seed=spec.seed,
            weights=spec.data.weights,
        )
        self.model = build_model(spec.model, seed=spec.seed, dtype=parameter_dtype(recipe.precision))
        self.model.to(world.device)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = make_optimizer(self.parameters, parameter_roles(self.model), recipe)
        self.objective = make_objective(self.model, recipe.precision)

    def batch(self, step: int) -> Tensor:
        """This rank's rows of a step: (rows, context) int64 on the device."""
        ids = self.loader.batch(step, self.world.rank, self.world.size)
        return torch.as_tensor(ids, dtype=torch.int64).to(self.world.device, non_blocking=True)

    def take(self, step: int, engine: Engine) -> tuple[float, float, float]:
        """Take 0-based ``step``. Returns mean loss over all ranks, learning rate, and the gradient's norm."""
        lr = set_schedule(self.optimizer, self.spec.recipe, step)
        if self.spec.model.dropout:
            # Masks follow from seed, step and rank alone: a resumed run draws what an uninterrupted one draws.
            torch.manual_seed(dropout_seed(self.spec.seed, step, self.world.rank))
        local_loss, grad_norm = engine.step(self.batch(step))
        return self.world.sum([local_loss])[0] / self.world.size, lr, grad_norm


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """Seed of PyTorch's generator for one step on one rank."""
    digest = hashlib.sha256(f"{seed}|dropout|{step}|{rank}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def divergence(
    loss: float, grad_norm: float, window_mean: float, full_window: bool, vocab_size: int
) -> str | None:
    """Why a run counts as diverged after a step, or None."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    if not math.isfinite(grad_norm):
        return f"the gradient norm is {grad_norm}"
    limit = EXPLOSION * math.log(vocab_size)
    if full_window and window_mean > limit:
        return f"the mean loss of the last window, {window_mean:.2f}, is above {limit:.2f} ({EXPLOSION:g} ln vocabulary)"
    return None
