"""Token importance: the share of a sequence's attention that each token receives, and how concentrated it is.

    importance_n[s] = (1 / T) sum_t A_n[t, s]        A_n: layer n's attention matrix, averaged over heads
    entropy[n]      = mean over sequences of - sum_s importance_n[s] ln importance_n[s]        (nats)
    first_token[n]  = mean over sequences of importance_n[0]
    top[n][i]       = mean over sequences of the (i + 1)-th largest importance, i < 10
    top_percent[n]  = mean over sequences of the ceil(T / 100)-th largest

The sum runs over queries (columns), since a row sums to 1 by itself: higher entropy means more uniform. What counts as a
token's share where attention covers more than the layer's own keys is said in ``respath.measure.analyses.received``.
``token_importance`` (layers, positions): mean over sequences. ``uniform_entropy`` and ``uniform_first_token``: the same
quantities of a matrix whose every row is uniform over what it sees without a window, 7.20 nats and 0.40 % at 2,048 tokens:
ln T cannot be reached by causal attention.
Headline numbers are of sequences that begin with a document; ``packed`` ones begin wherever the packing cut.
Source: ResFormer (arXiv 2410.17897), Figures 12 to 15 and Appendix A.1; columns, normalisation and the natural logarithm as
in the authors' script (decisions token-importance-axis, analysis-sequences).
"""

from __future__ import annotations

import math

import torch

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.trace import Trace

TOP = 10


def uniform_importance(time: int) -> torch.Tensor:
    """Importance of each token when every query attends equally to all that it sees, (time,) float64."""
    row = 1 / torch.arange(1, time + 1, dtype=torch.float64)
    return row.flip(0).cumsum(0).flip(0) / time


def entropy(importance: torch.Tensor) -> torch.Tensor:
    """In nats. (..., time) -> (...)."""
    return torch.special.entr(importance).sum(-1)


class Importance:
    """Sums over the sequences of one kind."""

    def __init__(self, layers: int):
        self.sequences, self.layers, self.sums = 0, layers, None

    def add(self, seen: Trace) -> None:
        """One batch."""
        shares = torch.stack([total / total.sum(-1, keepdim=True) for total in seen.attention])
        self.sequences += shares.shape[1]
        ordered = shares.sort(-1, descending=True).values
        percent = ordered[..., math.ceil(shares.shape[-1] / 100) - 1]
        parts = [part.sum(1).cpu() for part in (entropy(shares), shares, ordered[..., :TOP], percent)]
        self.sums = parts if self.sums is None else [a + b for a, b in zip(self.sums, parts, strict=True)]

    def result(self) -> Findings:
        """Means over sequences; ``packed`` is added by ``both``."""
        of_layer, shares, top, percent = (total / self.sequences for total in self.sums)
        uniform = uniform_importance(shares.shape[-1])
        series = {"entropy": of_layer.tolist(), "first_token": shares[:, 0].tolist(), "top": top.tolist()}
        series["top_percent"] = percent.tolist()
        scalars = {
            "entropy_mean": mean(series["entropy"]),
            "first_token_mean": mean(series["first_token"]),
            "uniform_entropy": float(entropy(uniform)),
            "uniform_first_token": float(uniform[0]),
        }
        if not all(map(math.isfinite, series["entropy"])):
            return Findings(scalars, series, reason="attention is not finite")
        return Findings(scalars, series, {"token_importance": shares.float().numpy()})


def both(starts: Findings, packed: Findings) -> Findings:
    """Findings on document starts with those on packed rows beside them."""
    scalars = starts.scalars | {
        f"{name}_packed_mean": packed.scalars[f"{name}_mean"] for name in ("entropy", "first_token")
    }
    return Findings(
        scalars,
        starts.series | {f"{name}_packed": found for name, found in packed.series.items()},
        starts.arrays | {f"{name}_packed": found for name, found in packed.arrays.items()},
        starts.reason or packed.reason,
    )
