"""Pairs of blocks in the later three quarters of a model, and how many of their scores exceed a threshold.

    late pairs = {(s, l): s >= ceil(L / 4), l > s}, blocks counted from 0: 66, 153, 276 of them for L = 16, 24, 32
    share(t)   = |{late pairs: score > t}| / |late pairs|

Source: DepthBench (arXiv 2609.32534), Eqs. 5 to 8. That blocks count from 0 is our reading (from 1 there would be 78, 171, 300
pairs). At 32 layers one per cent is three pairs, so counts and a sweep of thresholds stand beside each share.
"""

from __future__ import annotations

from collections.abc import Sequence

from respath.errors import UserError

#: The sweep.
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))


def first_late(layers: int) -> int:
    """The first late block, from 0: ceil(L / 4)."""
    return -(-layers // 4)


def late_scores(matrix: Sequence[Sequence[float | None]]) -> list[float]:
    """Scores of late pairs in a matrix (L, L), row by row."""
    layers = len(matrix)
    return [
        score for s in range(first_late(layers), layers) for score in matrix[s][s + 1 :] if score is not None
    ]


def share_above(scores: Sequence[float], threshold: float) -> float | None:
    """Share of scores above a threshold; None of no scores. Raises UserError for a threshold outside 0 to 1."""
    if not 0 <= threshold <= 1:
        raise UserError(f"threshold {threshold}: is not between 0 and 1; name a share, such as 0.45")
    return sum(score > threshold for score in scores) / len(scores) if scores else None


def late_summary(matrix: Sequence[Sequence[float | None]], threshold: float) -> tuple[dict, dict]:
    """Scalars and series of a matrix of scores, as the catalogue names them."""
    scores = late_scores(matrix)
    scalars = {
        "late_share": share_above(scores, threshold),
        "late_above": sum(score > threshold for score in scores),
        "late_pairs": len(scores),
        "late_mean": sum(scores) / len(scores) if scores else None,
    }
    return scalars, {
        "thresholds": list(THRESHOLDS),
        "late_shares": [share_above(scores, one) for one in THRESHOLDS],
    }


#: Why a model of one or two layers has no shares.
NO_PAIRS = "so few layers have no late pair of blocks"
