"""Muon as Bank of Values trains matrices with it, and AdamW beside it for everything else.

One step on a matrix W (rows, columns) with gradient G:

    M <- M + (1 - mu) (G - M);  N = G + mu (M - G)                          Nesterov momentum
    U = polar(N)                                                            singular values to about 1
    v_i = mean over the longer side of U^2, one number per line;  s <- s + (1 - beta2) (v - s)
    U <- U / sqrt(s), times the factor that gives it back its Frobenius norm    NorMuon
    W <- W - eta sqrt(max(1, rows / columns)) (U + lambda W where U W >= 0)     cautious decay

mu rises, holds and falls with the run, lambda falls along a half cosine, eta follows the recipe's schedule. PyTorch's own Muon is
another algorithm: other iterations, no second moment, decay everywhere.
Source: karpathy/nanochat at 5019acc (17 March 2026), the optimizer of Bank of Values (arXiv 2606.02780, Table 8); Polar Express,
arXiv 2505.16932; NorMuon, arXiv 2510.05491; cautious decay, arXiv 2510.12402.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from respath.errors import UserError
from respath.model.layers import emulates
from respath.spec.recipe import Recipe
from respath.training.adamw import AdamW, Uncompiled, defaults

#: Quintic a x + b x^3 + c x^5 of each iteration: Polar Express for five iterations with a safety factor of 2 %. More iterations
#: repeat the last.
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
#: The first iteration wants singular values below 1; rounding may lift them a little.
NORM_MARGIN = 1.01
#: Below it a line's second moment counts as zero.
SMALLEST_VARIANCE = 1e-10


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b in their dtype; in fp32, rounded once, where bf16 products are emulated (see ``emulates``)."""
    return (a.float() @ b.float()).to(a.dtype) if emulates(a) else a @ b


def polar(x: Tensor, iterations: int) -> Tensor:
    """Nearly the orthogonal factor of each matrix of x (..., rows, columns), in x's dtype."""
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * NORM_MARGIN + 1e-6)
    tall = x.shape[-2] > x.shape[-1]
    if tall:  # the smaller of the two squares
        x = x.mT
    for k in range(iterations):
        a, b, c = POLAR_EXPRESS[min(k, len(POLAR_EXPRESS) - 1)]
        square = _product(x, x.mT)
        x = a * x + _product(b * square + c * _product(square, square), x)
    return x.mT if tall else x


def longer_side(shape: torch.Size) -> int:
    """The dimension that the second moment averages over: columns of tall and square matrices, rows of wide ones."""
    return -1 if shape[-2] >= shape[-1] else -2


def equalise(update: Tensor, variance: Tensor, beta2: float) -> Tensor:
    """NorMuon: ``update`` (n, rows, columns) with lines of equal size over time, and the norm that it had.

    ``variance`` (n, rows, 1) or (n, 1, columns) is moved towards this step's.
    """
    across = longer_side(update.shape)
    now = update.square().mean(dim=across, keepdim=True)
    variance.lerp_(now, 1 - beta2)
    scale = variance.clamp_min(SMALLEST_VARIANCE).rsqrt()
    before, after = (part.sum(dim=(-2, -1), keepdim=True).sqrt() for part in (now, now * scale.square()))
    return update * (scale * (before / after.clamp_min(SMALLEST_VARIANCE)))


class MuonAdamW(Uncompiled, torch.optim.Optimizer):
    """Muon on the groups ``matrices``, PyTorch's fused AdamW on the groups ``others``.

    A group of matrices holds parameters of one shape, ``lr``, ``momentum``, ``weight_decay``, ``beta2`` and ``iterations``. The
    iterations run in ``dtype`` (the recipe's bf16; None: the gradient's own), all else in the parameters'. Each process works out
    every matrix: for DistributedDataParallel, whose gradients are the same everywhere.
    """

    def __init__(
        self,
        matrices: Iterable[dict[str, Any]],
        others: Iterable[dict[str, Any]],
        *,
        dtype: torch.dtype | None = None,
        **adamw: Any,
    ):
        matrices, others = list(matrices), list(others)
        super().__init__([*matrices, *others], {"lr": adamw.get("lr", 0.0)})
        self.dtype = dtype
        self.matrices = self.param_groups[: len(matrices)]
        # The same group dictionaries and the same state: whoever sets a learning rate or reads a moment sees one optimizer.
        self.adamw = AdamW(self.param_groups[len(matrices) :], fused=True, **adamw)
        self.adamw.state = self.state

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """One step. ``closure`` is not supported."""
        for group in self.matrices:
            self._step_matrices(group)
        self.adamw.step()

    def _step_matrices(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not parameters:
            return
        gradients = []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                across = longer_side(parameter.shape)
                state["momentum"] = torch.zeros_like(parameter)
                state["variance"] = torch.zeros_like(parameter.narrow(across, 0, 1))
            state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
            gradients.append(parameter.grad.lerp(state["momentum"], group["momentum"]))
        stacked = torch.stack(gradients)
        update = polar(stacked.to(self.dtype or stacked.dtype), group["iterations"]).to(stacked.dtype)
        variance = torch.stack([self.state[parameter]["variance"] for parameter in parameters])
        update = equalise(update, variance, group["beta2"])
        lr = group["lr"] * max(1.0, update.shape[-2] / update.shape[-1]) ** 0.5
        for parameter, change, moved in zip(parameters, update, variance, strict=True):
            self.state[parameter]["variance"].copy_(moved)
            agrees = change * parameter >= 0
            parameter.sub_(lr * (change + group["weight_decay"] * parameter * agrees))


def routes(name: str, role: str) -> bool:
    """Whether a parameter decides which states a layer reads and writes: a query, a gate, or a residual stream's projection."""
    return role == "routing" or (role == "matrix" and name.startswith("stream."))


def adamw_group(name: str, role: str, groups: Collection[str]) -> str | None:
    """Which of the optimizer's ``groups`` a parameter belongs to; None for a matrix of a layer (Muon's) or an unknown role.

    A coefficient called ``own`` weighs what the layer has anyway (its value, or its residual): it moves a hundred times slower in
    nanochat, where it is a group of its own. Nobody trains what routes with Muon: it goes with nanochat's smear gate, a projection
    to a gate as well, unless the recipe has a group ``routing``.
    """
    if role == "coefficient":
        return "own_coefficients" if name.endswith(".own") else "coefficients"
    if routes(name, role):
        return "routing" if "routing" in groups else "smear"
    return {"head": "head", "embedding": "embedding", "table": "tables", "smear": "smear"}.get(role)


def settings(name: str, parameter: torch.nn.Parameter, role: str, recipe: Recipe) -> dict[str, Any]:
    """Group settings of a parameter; see ``respath.training.optimizer``. Matrices of one shape are a group of Muon's."""
    optimizer = recipe.optimizer
    if role == "matrix" and parameter.dim() == 2 and not routes(name, role):
        return {
            "role": role,
            "shape": tuple(parameter.shape),
            "beta2": optimizer.muon.beta2,
            "iterations": optimizer.muon.orthogonalisation_steps,
        }
    group = adamw_group(name, role, optimizer.groups)
    if group is None:
        raise UserError(
            f"recipe.optimizer: muon_adamw has no settings for {name} (role {role}, {parameter.dim()} dimensions); "
            "train this model with optimizer adamw"
        )
    if group not in optimizer.groups:
        raise UserError(
            f"recipe.optimizer.groups: {group} is missing, but the model has {name}; give its lr, beta1 and beta2"
        )
    chosen = optimizer.groups[group]
    betas = (chosen.beta1, optimizer.beta1), (chosen.beta2, optimizer.beta2)
    return {
        "role": role,
        "group": group,
        "relative_lr": chosen.lr / recipe.peak_lr,
        "betas": tuple(usual if own is None else own for own, usual in betas),
        "weight_decay": chosen.weight_decay,
    }


def build(groups: list[dict[str, Any]], recipe: Recipe) -> MuonAdamW:
    """The optimizer of the groups. The iterations run in bf16 unless the recipe computes in fp32."""
    return MuonAdamW(
        [group for group in groups if "shape" in group],
        [group for group in groups if "shape" not in group],
        dtype=None if recipe.precision == "fp32" else torch.bfloat16,
        **defaults(recipe),
    )


def scheduled(group: dict[str, Any], recipe: Recipe, step: int) -> dict[str, Any]:
    """Momentum and decay of matrices, which change with the step."""
    if "shape" not in group:
        return {}
    optimizer = recipe.optimizer
    return {"momentum": optimizer.momentum(recipe, step), "weight_decay": optimizer.decay(recipe, step)}
