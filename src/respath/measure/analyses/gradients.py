"""Gradient norms of attention's matrices, layer by layer.

    norm_q[n] = | d loss / d W^Q_n |_F, and so for W^K (k), W^V (v), W^O (o)

loss: mean cross entropy in nats of all next-token predictions of the frozen packed sequences, one gradient over the whole
set, in float32, so that the norm does not depend on how the set is cut into batches. null where a layer has no such matrix
(shared keys, SVFormer's values). ``*_layer1``: the first layer's norms, which the paper compares between two models.
Source: ResFormer (arXiv 2410.17897), Figure 4 (left), whose caption says gradients "of model outputs with respect to
parameter matrices" without naming a scalar output: the mean loss is ours (decision gradient-norm).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from respath.measure.analyses.findings import Findings
from respath.model.loss import next_token_loss
from respath.model.transformer import Transformer

PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
NAMES = {"q": "query", "k": "key", "v": "value", "o": "output"}


def gradients(
    model: Transformer, batches: Iterable[Tensor], targets: int
) -> tuple[float, dict[str, list[Tensor | None]]]:
    """Mean loss over ``targets`` predictions, and its gradient at W^Q, W^K, W^V, W^O of each layer (None: no such matrix)."""
    matrices = {
        name: [getattr(getattr(layer.attention, attribute), "weight", None) for layer in model.layers]
        for name, attribute in PROJECTIONS.items()
    }
    wanted = [weight for column in matrices.values() for weight in column if weight is not None]
    total, sums = 0.0, [torch.zeros_like(weight) for weight in wanted]
    with torch.enable_grad():
        for ids in batches:
            loss = next_token_loss(model, ids, "sum") / targets
            for kept, gradient in zip(sums, torch.autograd.grad(loss, wanted), strict=True):
                kept += gradient
            total += float(loss.detach())
    found = iter(sums)
    return total, {
        name: [None if weight is None else next(found) for weight in column]
        for name, column in matrices.items()
    }


def measure(model: Transformer, batches: Iterable[Tensor], targets: int) -> Findings:
    """Norms over batches of ids (rows, context) with ``targets`` predictions in all."""
    loss, of_matrix = gradients(model, batches, targets)
    series = {
        f"norm_{name}": [None if g is None else float(g.double().norm()) for g in column]
        for name, column in of_matrix.items()
    }
    scalars = {"loss": loss, **{f"{NAMES[n]}_layer1": series[f"norm_{n}"][0] for n in PROJECTIONS}}
    lacking = [f"W_{n.upper()}" for n in PROJECTIONS if None in series[f"norm_{n}"]]
    return Findings(scalars, series, reason=f"some layers have no {', '.join(lacking)}" if lacking else None)
