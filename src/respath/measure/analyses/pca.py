"""How many principal components hold 99 % of the variance of each layer's hidden states.

    C_n = mean over tokens of (h - mean h)(h - mean h)^T,  eigenvalues e_1 >= e_2 >= ...
    components[n] = smallest k with e_1 + ... + e_k >= 0.99 (e_1 + ... + e_width)

Tokens of all sequences are pooled; everything is float64. ``components`` has L + 1 entries, the first for the state before
layer 1. ``components_mean_from_layer2``: mean over layers 2 to L; ``components_layer1``, ``components_last``: after layer 1 and
after layer L; ``components_last_normed``: after the final norm, which is what the authors' code calls the last hidden state
(decision last-hidden-state).
Source: ResFormer (arXiv 2410.17897), Figure 9 (right) and Section 4.5, where only the 99 % is stated; centring, pooling and
precision are ours (decision pca-protocol).
"""

from __future__ import annotations

import torch
from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.trace import Trace

SHARE = 0.99


def components(covariance: Tensor, share: float = SHARE) -> int:
    """Smallest number of eigenvalues, largest first, whose sum reaches ``share`` of the trace (0 for no variance at all)."""
    values = torch.linalg.eigvalsh(covariance).flip(0).clamp_min(0)
    total = values.sum()
    if total <= 0:
        return 0
    return int((values.cumsum(0) < share * total).sum()) + 1


class Moments:
    """Mean and covariance of vectors that arrive in batches, in float64, about the first batch's mean against cancellation."""

    def __init__(self):
        self.count, self.shift, self.sums, self.products = 0, None, 0.0, 0.0

    def add(self, x: Tensor) -> None:
        """x (n, width)."""
        x = x.double()
        if self.shift is None:
            self.shift = x.mean(0)
        x = x - self.shift
        self.count += len(x)
        self.sums = self.sums + x.sum(0)
        self.products = self.products + x.mT @ x

    def covariance(self) -> Tensor:
        """(width, width)."""
        mean = self.sums / self.count
        return self.products / self.count - mean[:, None] * mean


class PCA:
    """Moments of every layer's state."""

    def __init__(self, layers: int):
        self.moments = [Moments() for _ in range(layers + 2)]

    def add(self, seen: Trace) -> None:
        """One batch."""
        for moments, state in zip(self.moments, [*seen.hidden, seen.normed], strict=True):
            moments.add(state.flatten(0, 1))

    def result(self) -> Findings:
        """Numbers of components."""
        *counts, normed = (components(moments.covariance()) for moments in self.moments)
        scalars = {
            "components_mean_from_layer2": mean(counts[2:]),
            "components_layer1": counts[1],
            "components_last": counts[-1],
            "components_last_normed": normed,
        }
        return Findings(scalars, {"components": counts})
