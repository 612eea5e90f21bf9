"""Permutation score: what the loss does when two blocks exchange their weights.

    signed(i, j) = (loss with i and j swapped - loss) / loss,      P(i, j) = |signed(i, j)|,   i < j

loss: mean cross entropy in nats of the next token over the packed rows. ``score[i][j]`` and ``signed[i][j]``, null where
j <= i; blocks from 0. The paper's score drops the sign: a swap that helps counts like one that harms, so the sign stands beside
it. Weights travel and wiring stays (``respath.measure.analyses.interventions``). ``late_share``: share of late pairs with
P > 0.15, ``late_above`` of ``late_pairs``, ``late_mean`` and ``late_signed_mean`` over them, ``late_shares`` at each of
``thresholds`` (``respath.measure.analyses.late``).
Sample: at most 12 packed rows of at most 256 tokens, as in the authors' script.
Source: DepthBench (arXiv 2609.32534), Eqs. 4 and 7, Figures 6 and 15.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.interventions import swapped
from respath.measure.analyses.late import NO_PAIRS, late_scores, late_summary
from respath.measure.analyses.walk import summed_loss
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 12, 256
THRESHOLD = 0.15


def mean_loss(model: Transformer, batches: Sequence[Tensor]) -> float:
    """Mean loss in nats over batches of ids (rows, tokens)."""
    total = sum(summed_loss(model, model.hidden(ids[:, :-1]), ids[:, 1:]) for ids in batches)
    return total / sum(ids[:, 1:].numel() for ids in batches)


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """Scores over batches of ids (rows, tokens)."""
    layers, whole = model.spec.layers, mean_loss(model, batches)
    signed: list[list[float | None]] = [[None] * layers for _ in range(layers)]
    for i, j in itertools.combinations(range(layers), 2):
        # From the embedding on: scores of finished sources (AttnRes) are made with the queries that travel.
        with swapped(model, i, j):
            signed[i][j] = (mean_loss(model, batches) - whole) / whole
    score = [[None if value is None else abs(value) for value in row] for row in signed]
    scalars, sweep = late_summary(score, THRESHOLD)
    scalars |= {"loss": whole, "late_signed_mean": mean(late_scores(signed))}
    return Findings(
        scalars,
        {"score": score, "signed": signed, **sweep},
        reason=None if scalars["late_pairs"] else NO_PAIRS,
    )
