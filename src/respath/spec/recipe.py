"""How a model is trained: optimizer, schedule, batch and precision, and what follows from them step by step."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from respath.spec.document import Document

#: Parameters that AdamW updates beside Muon.
GROUPS = ("head", "embedding", "tables", "coefficients", "own_coefficients", "smear")
#: bf16, fp16: computed in it on fp32 master weights; coefficients, routing and smear, logits and loss in fp32.
#: bf16_all: bf16 with these in bf16 as well, as DeepSpeed's bf16 mode computes. bf16_params: no master weights; parameters and
#: moments are bf16 themselves, but for coefficients, routing and smear.
Precision = Literal["bf16", "fp32", "fp16", "bf16_all", "bf16_params"]


class ParameterGroup(Document):
    """AdamW settings of one kind of parameters, where they are not all alike."""

    lr: float = Field(gt=0)
    """Peak learning rate; it follows the recipe's schedule."""
    beta1: float = Field(ge=0, lt=1)
    beta2: float = Field(ge=0, lt=1)
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


class Recipe(Document):
    """How a model is trained (ResFormer Section 4.1, Tables 13 and 14; Bank of Values Table 8; DepthBench Section 2.3)."""

    optimizer: Literal["adamw", "muon_adamw"] = "adamw"
    """muon_adamw: Muon for the matrices of the layers, AdamW with ``groups`` for all else."""
    schedule: Literal["cosine", "constant_linear"] = "cosine"
    """After the warm-up: cosine to ``final_lr``, or constant and then linear to it over the last ``warmdown_share`` of
    the steps."""
    warmdown_share: float | None = Field(None, gt=0, le=1)
    groups: dict[str, ParameterGroup] = {}
    """muon_adamw: head, embedding, tables, coefficients, own_coefficients (of a layer's own value in a sum), smear."""
    muon: Muon | None = None
    steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)
    start_lr: float = Field(1e-7, ge=0)
    """Learning rates: linear from ``start_lr`` to ``peak_lr`` over the warm-up, cosine to ``final_lr`` at the
    last step."""
    peak_lr: float = Field(gt=0)
    final_lr: float = Field(ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    adam_eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)
    grad_clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradient; null does not clip."""
    coefficient_lr_multiplier: float = Field(1.0, gt=0)
    """Coefficients (lambdas) get the schedule times this factor, and this decay."""
    coefficient_weight_decay: float = Field(0.0, ge=0)
    norm_weight_decay: float = Field(0.0, ge=0)
    """Decay of the gains of norms (biases have none)."""
    lr_multipliers: dict[str, float] = {}
    """Further learning-rate factors by parameter name (a shell pattern such as ``layers.0.*``)."""
    batch_sequences: int = Field(ge=1)
    """Sequences per optimizer step, over all ranks and micro-batches; tokens per sequence."""
    context: int = Field(ge=2)
    precision: Precision = "bf16"
    """bf16 and fp16 keep fp32 master weights and compute coefficients in fp32; bf16_all computes these in bf16 too, as
    DeepSpeed's bf16 mode does; bf16_params has no master weights."""

    @model_validator(mode="after")
    def _makes_sense(self):
        if self.warmup_steps >= self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} must be smaller than steps {self.steps}")
        if self.final_lr > self.peak_lr:
            raise ValueError(f"final_lr {self.final_lr} is above peak_lr {self.peak_lr}")
        if (self.schedule == "constant_linear") != (self.warmdown_share is not None):
            raise ValueError("warmdown_share belongs to schedule constant_linear, which needs it")
        if (self.optimizer == "muon_adamw") != (self.muon is not None):
            raise ValueError("muon: belongs to optimizer muon_adamw, which needs it")
        if bool(self.groups) != (self.optimizer == "muon_adamw"):
            raise ValueError("groups: belongs to optimizer muon_adamw, which needs it")
        if unknown := sorted(set(self.groups) - set(GROUPS)):
            raise ValueError(f"groups {unknown} are not among {', '.join(GROUPS)}")
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
    """Learning rate of optimizer step ``step`` (0-based).

    cosine: linear warm-up, then cosine to ``final_lr`` at the last step. constant_linear: as nanochat does it, the first step
    has one share of the warm-up already, and the last step is one short of ``final_lr``.
    """
    if recipe.schedule == "constant_linear":
        if step < recipe.warmup_steps:
            return recipe.start_lr + (recipe.peak_lr - recipe.start_lr) * (step + 1) / recipe.warmup_steps
        left = min(1.0, (recipe.steps - step) / max(1, round(recipe.warmdown_share * recipe.steps)))
        return recipe.final_lr + (recipe.peak_lr - recipe.final_lr) * left
    if step < recipe.warmup_steps:
        return recipe.start_lr + (recipe.peak_lr - recipe.start_lr) * step / recipe.warmup_steps
    span = max(1, recipe.steps - 1 - recipe.warmup_steps)
    progress = min(1.0, (step - recipe.warmup_steps) / span)
    return recipe.final_lr + 0.5 * (recipe.peak_lr - recipe.final_lr) * (1 + math.cos(math.pi * progress))


def summed_learning_rate(recipe: Recipe) -> float:
    """Sum of the schedule: how far a coefficient can move under Adam (facts: 3.30 for the paper's 10,000 steps).

    Of a cosine in closed form: it is symmetric about its mean, so it sums to that mean per step.
    """
    if recipe.schedule != "cosine":
        return math.fsum(learning_rate(recipe, step) for step in range(recipe.steps))
    warmup = recipe.warmup_steps
    linear = (
        warmup * recipe.start_lr + (recipe.peak_lr - recipe.start_lr) * (warmup - 1) / 2 if warmup else 0.0
    )
    cosine = recipe.steps - warmup
    if cosine == 1:
        return linear + recipe.peak_lr
    return linear + cosine * (recipe.peak_lr + recipe.final_lr) / 2
