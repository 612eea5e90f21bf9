"""What a trainer measures on its way: the loss on frozen validation rows. No weight and no random state changes by it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from respath.config.runtime import Validation
from respath.data.loader import validation_rows
from respath.files import canonical_json
from respath.spec.recipe import Recipe
from respath.training.world import World

#: FLOPs of a training step over those of a forward pass: the backward pass costs twice the forward.
_STEP_OVER_FORWARD = 3


def scheduled(plan: Validation, recipe: Recipe, domains: int) -> tuple[tuple[int, ...], int]:
    """Steps at which rows are scored, and rows per domain: at most ``plan.share`` of the training's FLOPs.

    Rows have the training's length, so a scored row costs a third of a trained one. Where the share does not pay for one row
    of each domain at each point, there are fewer points, or none.
    """
    steps = recipe.steps
    wanted = math.ceil(steps / plan.every) if plan.every else min(plan.points, steps)
    rows = math.floor(plan.share * _STEP_OVER_FORWARD * steps * recipe.batch_sequences)
    points = min(wanted, rows // domains) if domains else 0
    if not points:
        return (), 0
    if plan.every and points == wanted:
        at = tuple(min(steps, plan.every * k) for k in range(1, points + 1))
    else:
        at = tuple(round(steps * k / points) for k in range(1, points + 1))
    return at, min(plan.sequences, rows // (points * domains))


class Validator:
    """Scores frozen rows at the steps of a plan, and remembers the losses.

    The rows are the first of the keyed order that the final evaluation takes all of. ``sha256`` names them. Each rank scores its
    part of them, in the run's own precision (the final evaluation works in fp32).
    """

    def __init__(self, plan: Validation, manifest: Path, recipe: Recipe, world: World):
        rows = validation_rows(manifest, recipe.context, 1)
        self.at, count = scheduled(plan, recipe, len(rows))
        self.rows = validation_rows(manifest, recipe.context, count) if count else {}
        self.world, self.context, self.tokens_per_step = world, recipe.context, recipe.tokens_per_step
        hashes = {
            domain: hashlib.sha256(np.ascontiguousarray(part, dtype="<i8")).hexdigest()
            for domain, part in self.rows.items()
        }
        self.sha256 = hashlib.sha256(canonical_json(hashes).encode()).hexdigest()
        #: step, then the mean loss of each domain in nats per token.
        self.points: list[tuple[float, ...]] = []

    def due(self, step: int) -> bool:
        """Is it to score after ``step`` steps?"""
        return step in self.at

    def score(self, step: int, objective: nn.Module, model: nn.Module, micro_batch: int) -> float:
        """Score all rows with the weights after ``step`` steps; returns the unweighted mean over domains."""
        training = model.training
        model.eval()
        try:
            # Not inference_mode: what a model caches on the way (positions) must stay usable in training.
            with torch.no_grad():
                sums = [self._sum(part, objective, micro_batch) for part in self.rows.values()]
        finally:
            model.train(training)
        targets = [len(part) * (self.context - 1) for part in self.rows.values()]
        losses = [total / count for total, count in zip(self.world.sum(sums), targets, strict=True)]
        self.points.append((float(step), *losses))
        return math.fsum(losses) / len(losses)

    def _sum(self, rows: np.ndarray, objective: nn.Module, micro_batch: int) -> float:
        ids = torch.from_numpy(rows[self.world.rank :: self.world.size]).to(self.world.device)
        total = torch.zeros((), dtype=torch.float64, device=self.world.device)
        for part in ids.split(micro_batch):
            total += objective(part, "none").double().sum()
        return total.item()

    def not_finite(self, step: int) -> str | None:
        """That the losses after ``step`` steps are not finite; None where they are, or were not scored."""
        if self.points and self.points[-1][0] == step and not all(map(math.isfinite, self.points[-1])):
            return "the validation loss is not finite"
        return None

    # --- checkpoints and results ---

    def tensor(self) -> torch.Tensor:
        """The points for a checkpoint: (points, 1 + domains) float64."""
        return torch.tensor(self.points, dtype=torch.float64).reshape(-1, 1 + len(self.rows))

    def restore(self, points: torch.Tensor | None, sha256: str | None, say: Callable[[str], None]) -> None:
        """Take up a checkpoint's points; those of other rows are dropped, with a warning."""
        self.points = []
        if points is None or not len(points):
            return
        if sha256 != self.sha256:
            say(
                "warning: the validation rows differ from the checkpoint's; the validation history begins anew"
            )
            return
        self.points = [tuple(point) for point in points.tolist()]

    def result(self) -> dict[str, Any] | None:
        """What ``train.json`` holds: columns over the points. A loss that is not finite reads null; None without any point."""
        if not self.points:
            return None
        columns = [
            [value if math.isfinite(value) else None for value in column]
            for column in zip(*self.points, strict=True)
        ]
        steps = [int(step) for step in columns[0]]
        means = [math.fsum(point[1:]) / len(self.rows) for point in self.points]
        return {
            "rows_sha256": self.sha256,
            "rows": {domain: len(part) for domain, part in self.rows.items()},
            "step": steps,
            "tokens": [step * self.tokens_per_step for step in steps],
            "loss": [mean if math.isfinite(mean) else None for mean in means],
            "domains": dict(zip(self.rows, columns[1:], strict=True)),
        }
