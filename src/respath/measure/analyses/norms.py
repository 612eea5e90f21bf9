"""Norms of values and hidden states, by layer and position: value-state drains and residual-state peaks.

    value[n, t]  = mean over sequences of |V'_n[t]|_2     what layer n's attention mixes, heads concatenated
    hidden[n, t] = mean over sequences of |H_n[t]|_2      the state after layer n

Arrays (layers, positions). Series: the first position (``value_first``, ``hidden_first``) and the mean of all later ones
(``_rest``); ``value_first_before`` is of the value before mixing, null where a layer has none.
``value_first_over_rest_mean``: mean over layers of first over rest (a drain is far below 1).
``hidden_first_over_rest_max``: the largest such ratio of hidden states (a peak is far above 1).
Headline numbers are of sequences that begin with a document; ``packed`` ones begin wherever the packing cut.
Source: ResFormer (arXiv 2410.17897), Figures 13 and 14 and Appendix A.1; which of the two values, and the ratios, are ours.
"""

from __future__ import annotations

import torch

from respath.measure.analyses.findings import Findings, layers_without, mean, ratio
from respath.measure.analyses.trace import Trace


class Norms:
    """Sums over the sequences of one kind."""

    def __init__(self, layers: int):
        self.sequences, self.value, self.hidden = 0, 0.0, 0.0
        self.before: list[float | None] = [0.0] * layers

    def add(self, seen: Trace) -> None:
        """One batch."""
        self.sequences += len(seen.hidden[0])
        self.value = self.value + self._norms(seen.values)
        self.hidden = self.hidden + self._norms(seen.hidden[1:])
        for n, own in enumerate(seen.own):
            if own is None:
                self.before[n] = None
            else:
                self.before[n] += float(own[:, 0].double().norm(dim=-1).sum())

    @staticmethod
    def _norms(states) -> torch.Tensor:
        """(layers, positions) float64, summed over sequences."""
        return torch.stack([state.double().norm(dim=-1).sum(0) for state in states]).cpu()

    def result(self) -> Findings:
        """Means over sequences; ``packed`` is added by ``both``."""
        value, hidden = self.value / self.sequences, self.hidden / self.sequences
        series = {
            "value_first": value[:, 0].tolist(),
            "value_first_before": [None if b is None else b / self.sequences for b in self.before],
            "value_rest": value[:, 1:].mean(1).tolist(),
            "hidden_first": hidden[:, 0].tolist(),
            "hidden_rest": hidden[:, 1:].mean(1).tolist(),
        }
        drains = map(ratio, series["value_first"], series["value_rest"])
        peaks = [r for r in map(ratio, series["hidden_first"], series["hidden_rest"]) if r is not None]
        scalars = {
            "value_first_over_rest_mean": mean(drains),
            "hidden_first_over_rest_max": max(peaks, default=None),
        }
        reason = layers_without(series["value_first_before"], "value of its own before mixing")
        return Findings(
            scalars, series, {"value": value.float().numpy(), "hidden": hidden.float().numpy()}, reason
        )


def both(starts: Findings, packed: Findings) -> Findings:
    """Findings on document starts with those on packed rows beside them."""
    beside = {f"{name}_packed": packed.series[name] for name in ("value_first", "hidden_first")}
    arrays = {f"{name}_packed": found for name, found in packed.arrays.items()}
    return Findings(starts.scalars, starts.series | beside, starts.arrays | arrays, starts.reason)
