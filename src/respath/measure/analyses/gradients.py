"""Gradient norms of attention's matrices, layer by layer, in four readings of "the gradient".

    norm_q[n] = | d loss / d W^Q_n |_F, and so for W^K (k), W^V (v), W^O (o)

loss: mean cross entropy in nats of all next-token predictions of the frozen packed sequences, one gradient over the whole
set, in float32, so that the norm does not depend on how the set is cut into batches. The other readings are means over
sequences s of T tokens with logits z (T, vocabulary), each of a gradient of its own:

    *_of_sequences : | d loss_s / dW |_F                         a gradient does not cancel another sequence's
    *_of_outputs   : | d (1/T) sum_tv z_tv / dW |_F              the sum that autograd takes of outputs when not asked further
    *_of_jacobian  : (mean_u | d (1/sqrt T) sum_tv u_tv z_tv / dW |_F^2)^(1/2), u = +-1 drawn for each sequence from its number:
                     an unbiased estimate of the squared Frobenius norm of the whole Jacobian dz/dW, over T

null where a layer has no such matrix (shared keys, SVFormer's values). ``*_layer1``: the first layer's, which the paper compares
between two models.
Source: ResFormer (arXiv 2410.17897), Figure 4 (left), whose caption says "average norm of gradients of model outputs with respect
to parameter matrices" without naming a scalar output: which reading is meant is open (decision gradient-norm).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from respath.measure.analyses.findings import Findings
from respath.model.loss import next_token_loss
from respath.model.transformer import Transformer

PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
NAMES = {"q": "query", "k": "key", "v": "value", "o": "output"}


#: The readings that are means over sequences.
PER_SEQUENCE = ("sequences", "outputs", "jacobian")


def _matrices(model: Transformer) -> dict[str, list[Tensor | None]]:
    """W^Q, W^K, W^V, W^O of each layer; None where it has none."""
    return {
        name: [getattr(getattr(layer.attention, attribute), "weight", None) for layer in model.layers]
        for name, attribute in PROJECTIONS.items()
    }


def gradients(
    model: Transformer, batches: Iterable[Tensor], targets: int
) -> tuple[float, dict[str, list[Tensor | None]]]:
    """Mean loss over ``targets`` predictions, and its gradient at W^Q, W^K, W^V, W^O of each layer (None: no such matrix)."""
    matrices = _matrices(model)
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


def per_sequence(model: Transformer, batches: Iterable[Tensor]) -> dict[str, dict[str, float | None]]:
    """{reading: {q, k, v, o: the first layer's norm, None where it has no such matrix}}, means over sequences."""
    first = {name: column[0] for name, column in _matrices(model).items()}
    wanted = {name: weight for name, weight in first.items() if weight is not None}
    sums = {reading: dict.fromkeys(wanted, 0.0) for reading in PER_SEQUENCE}
    count = 0
    with torch.enable_grad():
        for row in (ids[None] for batch in batches for ids in batch):
            logits, time = model(row)[0], row.shape[1]
            draw = torch.Generator().manual_seed(count)
            signs = (
                torch.randint(0, 2, logits.shape, generator=draw, dtype=torch.int8).to(logits.device) * 2 - 1
            )
            scalars = {
                "sequences": torch.nn.functional.cross_entropy(logits[:-1].float(), row[0, 1:]),
                "outputs": logits.sum() / time,
                "jacobian": (signs * logits).sum() / math.sqrt(time),
            }
            for reading, scalar in scalars.items():
                found = torch.autograd.grad(scalar, list(wanted.values()), retain_graph=True)
                for name, gradient in zip(wanted, found, strict=True):
                    norm = float(gradient.double().norm())
                    sums[reading][name] += norm**2 if reading == "jacobian" else norm
            count += 1
    means = {r: {name: total / count for name, total in of.items()} for r, of in sums.items()}
    means["jacobian"] = {name: math.sqrt(square) for name, square in means["jacobian"].items()}
    return {r: {name: of.get(name) for name in PROJECTIONS} for r, of in means.items()}


def measure(model: Transformer, batches: Iterable[Tensor], targets: int) -> Findings:
    """Norms over batches of ids (rows, context) with ``targets`` predictions in all."""
    batches = list(batches)
    loss, of_matrix = gradients(model, batches, targets)
    series = {
        f"norm_{name}": [None if g is None else float(g.double().norm()) for g in column]
        for name, column in of_matrix.items()
    }
    scalars = {"loss": loss, **{f"{NAMES[n]}_layer1": series[f"norm_{n}"][0] for n in PROJECTIONS}}
    for reading, norms in per_sequence(model, batches).items():
        scalars |= {f"{NAMES[name]}_layer1_of_{reading}": norm for name, norm in norms.items()}
    lacking = [f"W_{n.upper()}" for n in PROJECTIONS if None in series[f"norm_{n}"]]
    return Findings(scalars, series, reason=f"some layers have no {', '.join(lacking)}" if lacking else None)
