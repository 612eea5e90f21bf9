"""How a model is trained: optimizer, schedule, batch and precision, and what follows from them step by step."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from respath.spec.document import Document

#: bf16, fp16: computed in it on fp32 master weights; coefficients, routing and smear, logits and loss in fp32.
#: bf16_all: bf16 with these in bf16 as well, as DeepSpeed's bf16 mode computes. bf16_params: no master weights; parameters and
#: moments are bf16 themselves, but for coefficients, routing and smear.
Precision = Literal["bf16", "fp32", "fp16", "bf16_all", "bf16_params"]

# --- schedules: the learning rate of each step ---------------------------------------------------------------------


class CosineSpec(Document):
    """After the warm-up a half cosine that reaches ``final_lr`` at the last step."""

    kind: Literal["cosine"]

    def rate(self, recipe: Recipe, step: int) -> float:
        """Learning rate of 0-based ``step``."""
        if step < recipe.warmup_steps:
            return recipe.start_lr + (recipe.peak_lr - recipe.start_lr) * step / recipe.warmup_steps
        span = max(1, recipe.steps - 1 - recipe.warmup_steps)
        progress = min(1.0, (step - recipe.warmup_steps) / span)
        return recipe.final_lr + 0.5 * (recipe.peak_lr - recipe.final_lr) * (1 + math.cos(math.pi * progress))

    def sum(self, recipe: Recipe) -> float:
        """Sum over all steps, in closed form: a cosine is symmetric about its mean, so it sums to that mean per step."""
        warmup, cosine = recipe.warmup_steps, recipe.steps - recipe.warmup_steps
        linear = 0.0
        if warmup:
            linear = warmup * recipe.start_lr + (recipe.peak_lr - recipe.start_lr) * (warmup - 1) / 2
        if cosine == 1:
            return linear + recipe.peak_lr
        return linear + cosine * (recipe.peak_lr + recipe.final_lr) / 2


class ConstantLinearSpec(Document):
    """After the warm-up constant, then linear to ``final_lr`` over the last ``warmdown_share`` of the steps.

    As nanochat does it, the first step has one share of the warm-up already, and the last step is one short of ``final_lr``.
    """

    kind: Literal["constant_linear"]
    warmdown_share: float = Field(gt=0, le=1)

    def warmdown_steps(self, recipe: Recipe) -> int:
        """Steps of the warm-down."""
        return max(1, round(self.warmdown_share * recipe.steps))

    def rate(self, recipe: Recipe, step: int) -> float:
        """Learning rate of 0-based ``step``."""
        if step < recipe.warmup_steps:
            return recipe.start_lr + (recipe.peak_lr - recipe.start_lr) * (step + 1) / recipe.warmup_steps
        left = min(1.0, (recipe.steps - step) / self.warmdown_steps(recipe))
        return recipe.final_lr + (recipe.peak_lr - recipe.final_lr) * left

    def sum(self, recipe: Recipe) -> float:
        """Sum over all steps."""
        return math.fsum(self.rate(recipe, step) for step in range(recipe.steps))


Schedule = Annotated[CosineSpec | ConstantLinearSpec, Field(discriminator="kind")]

# --- optimizers ----------------------------------------------------------------------------------------------------

#: Parameters that AdamW updates beside Muon.
GROUPS = ("head", "embedding", "tables", "coefficients", "own_coefficients", "smear", "routing")


class AdamWSpec(Document):
    """AdamW for all parameters."""

    kind: Literal["adamw"]

    module: ClassVar[str] = "respath.training.adamw"
    """What computes it."""

    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)

    def scaled(self, lr_factor: float, steps: int, of: int) -> AdamWSpec:
        """The settings for a run of ``steps`` in the place of ``of``, whose rates are multiplied: none depends on them."""
        return self


class ParameterGroup(Document):
    """AdamW settings of one kind of parameters, where they are not all alike."""

    lr: float = Field(gt=0)
    """Peak learning rate; it follows the recipe's schedule."""
    beta1: float | None = Field(None, ge=0, lt=1)
    """null: the optimizer's; ``beta2`` likewise."""
    beta2: float | None = Field(None, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)


class Muon(Document):
    """Settings of Muon for the matrices of the layers (Bank of Values, Table 8); ``peak_lr`` is their learning rate."""

    momentum_start: float = Field(0.85, ge=0, lt=1)
    momentum: float = Field(0.97, ge=0, lt=1)
    momentum_end: float = Field(0.90, ge=0, lt=1)
    """Nesterov momentum: linear from the first to the second over ``momentum_warmup_steps``, then held, and to the third
    across the warm-down."""
    momentum_warmup_steps: int = Field(400, ge=0)
    beta2: float = Field(0.9, ge=0, lt=1)
    """Of the second moment per row or column (NorMuon)."""
    orthogonalisation_steps: int = Field(5, ge=1)
    """Polar Express iterations."""


class MuonAdamWSpec(Document):
    """Muon for the matrices of the layers, AdamW with ``groups`` for all else."""

    kind: Literal["muon_adamw"]

    module: ClassVar[str] = "respath.training.muon"
    """What computes it."""

    muon: Muon
    groups: dict[str, ParameterGroup] = Field(min_length=1)
    """head, embedding, tables, coefficients, own_coefficients (of a layer's own value in a sum), smear, routing (of a residual
    stream; without it smear's)."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's, where a group gives none; ``beta2`` likewise."""
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)
    """Of the matrices, cautious, along a half cosine to 0."""

    @model_validator(mode="after")
    def _known_groups(self) -> Self:
        if unknown := sorted(set(self.groups) - set(GROUPS)):
            raise ValueError(f"groups {unknown} are not among {', '.join(GROUPS)}")
        return self

    def scaled(self, lr_factor: float, steps: int, of: int) -> MuonAdamWSpec:
        """The settings for a run of ``steps`` in the place of ``of``: rates of groups times ``lr_factor``.

        The momentum's warm-up is as long a part of the run; it would outlast a short one, and the momentum would jump.
        """
        groups = {
            name: group.model_copy(update={"lr": float(f"{group.lr * lr_factor:.12g}")})
            for name, group in self.groups.items()
        }
        warmup = math.ceil(self.muon.momentum_warmup_steps * steps / of)
        muon = self.muon.model_copy(update={"momentum_warmup_steps": warmup})
        return self.model_copy(update={"groups": groups, "muon": muon})

    def momentum(self, recipe: Recipe, step: int) -> float:
        """mu of 0-based ``step``: up over its own warm-up, held, and down across the warm-down of the learning rate."""
        muon = self.muon
        if step < muon.momentum_warmup_steps:
            risen = step / muon.momentum_warmup_steps
            return muon.momentum_start + (muon.momentum - muon.momentum_start) * risen
        schedule = recipe.schedule
        warmdown = schedule.warmdown_steps(recipe) if isinstance(schedule, ConstantLinearSpec) else 1
        fallen = max(0.0, (step - (recipe.steps - warmdown)) / warmdown)
        return muon.momentum + (muon.momentum_end - muon.momentum) * fallen

    def decay(self, recipe: Recipe, step: int) -> float:
        """lambda of 0-based ``step``: a half cosine from the decay to 0."""
        return self.weight_decay * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))


Optimizer = Annotated[AdamWSpec | MuonAdamWSpec, Field(discriminator="kind")]

# --- recipe --------------------------------------------------------------------------------------------------------


class RecipeTerms(Document):
    """What a run's recipe and a paper's page say in the same words."""

    optimizer: Optimizer = AdamWSpec(kind="adamw")
    schedule: Schedule = CosineSpec(kind="cosine")
    steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)
    start_lr: float = Field(1e-7, ge=0)
    """Learning rates: linear from ``start_lr`` to ``peak_lr`` over the warm-up, then as the schedule says to the final one."""
    peak_lr: float = Field(gt=0)
    grad_clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradient; null does not clip."""
    coefficient_lr_multiplier: float = Field(1.0, gt=0)
    """Coefficients (lambdas) get the schedule times this factor, and this decay."""
    coefficient_weight_decay: float = Field(0.0, ge=0)
    norm_weight_decay: float = Field(0.0, ge=0)
    """Decay of the gains of norms (biases have none)."""
    lr_multipliers: dict[str, float] = {}
    """Further learning-rate factors by parameter name (a shell pattern such as ``layers.0.*``)."""
    eps_multipliers: dict[str, float] = {}
    """Factors on AdamW's epsilon by parameter name, patterns as above."""
    context: int = Field(ge=2)
    """Tokens per sequence."""
    precision: Precision = "bf16"
    """bf16 and fp16 keep fp32 master weights and compute coefficients in fp32; bf16_all computes these in bf16 too, as
    DeepSpeed's bf16 mode does; bf16_params has no master weights."""


class Recipe(RecipeTerms):
    """How a model is trained (ResFormer Section 4.1, Tables 13 and 14; Bank of Values Table 8; DepthBench Section 2.3)."""

    final_lr: float = Field(ge=0)
    batch_sequences: int = Field(ge=1)
    """Sequences per optimizer step, over all ranks and micro-batches."""

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be smaller than steps {self.steps}")
        if self.final_lr > self.peak_lr:
            raise ValueError(f"final_lr {self.final_lr} is above peak_lr {self.peak_lr}")
        return self

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step sees."""
        return self.batch_sequences * self.context

    @property
    def tokens(self) -> int:
        """Tokens that the whole run sees."""
        return self.steps * self.tokens_per_step


def learning_rate(recipe: Recipe, step: int) -> float:
    """Learning rate of optimizer step ``step`` (0-based)."""
    return recipe.schedule.rate(recipe, step)


def summed_learning_rate(recipe: Recipe) -> float:
    """Sum of the schedule: how far a coefficient can move under Adam (facts: 3.30 for the paper's 10,000 steps)."""
    return recipe.schedule.sum(recipe)
