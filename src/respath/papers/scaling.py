"""Rules by which a recipe that is printed for one size of a paper holds for every other."""

from __future__ import annotations

import math
from typing import Any

from respath.papers.paper import PaperRecipe
from respath.spec.cost import weights_of_matrices
from respath.spec.model import ModelSpec
from respath.spec.recipe import MuonAdamWSpec

#: Groups of AdamW whose rates follow the width too; the smear's rate follows nothing.
_OF_WIDTH, _FIXED = ("head", "embedding", "tables"), ("smear",)


def nanochat(terms: PaperRecipe, base: ModelSpec, model: ModelSpec, per_gpu: int) -> dict[str, Any]:
    """Batch, rates and decay of ``model`` from a recipe that was tuned on ``base`` (karpathy/nanochat at 5019acc, base_train.py).

    ``per_gpu``: tokens of a micro-batch of ``model``.

    N: weights of the layers' matrices and of the head. Tokens per step: those of the base times (N / N_base)^0.383, to the nearest
    power of two. Every rate but the smear's times the root of the batches' ratio; those of head, embedding and tables also times
    (width / width_base)^-1/2. Decay of the matrices times the root of the batches' ratio, times N_base / N.
    """
    size, base_size = weights_of_matrices(model), weights_of_matrices(base)
    base_batch = terms.micro_batch_tokens * terms.micro_batches
    batch = 2 ** round(math.log2(base_batch * (size / base_size) ** 0.383))
    of_batch, of_width = math.sqrt(batch / base_batch), math.sqrt(base.width / model.width)
    # Twelve digits: products carry rounding dust into ids and tables.
    found: dict[str, Any] = {
        "micro_batches": max(1, batch // per_gpu),
        "peak_lr": float(f"{terms.peak_lr * of_batch:.12g}"),
    }
    if isinstance(terms.optimizer, MuonAdamWSpec):
        groups = {}
        for name, group in terms.optimizer.groups.items():
            factor = 1.0 if name in _FIXED else of_batch * (of_width if name in _OF_WIDTH else 1.0)
            groups[name] = group.model_dump(mode="json") | {"lr": float(f"{group.lr * factor:.12g}")}
        decay = terms.optimizer.weight_decay * of_batch * base_size / size
        found["optimizer"] = {"groups": groups, "weight_decay": float(f"{decay:.12g}")}
    return found


#: Rule -> the recipe's fields that it changes at a size.
RULES = {"nanochat": nanochat}
