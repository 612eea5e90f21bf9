"""Cosine similarities: between layers, of values with the first layer's, and between the tokens of a sequence.

    hidden_layers[i][j]   mean over tokens of cos(H_i[t], H_j[t]), i and j from 0 (the state before layer 1) to L
    value_to_first_*[n]   mean over tokens of cos(V_1[t], V_n[t])
    token_*[n]            mean over ordered pairs s != t of one sequence of cos(x[s], x[t]), then over sequences

``before``: the layer's own value as projected; null where a layer has none (SVFormer, token tables). ``after``: what its
attention mixes. Heads are concatenated. ``token_hidden`` is of the state after each layer. ``_mean``: over layers; of values
over layers 2 to L, since layer 1 is compared with itself, and ``value_to_first_mean`` is of the values after mixing.
``hidden_embedding_to_later_mean``, ``hidden_layer1_to_later_mean``: H_0 and H_1 with H_2 to H_L. ``token_value_before_rise``: mean
over the second half of the layers, less the mean over layers 2 to L/2.
A pair sum needs no pairs: with unit vectors u_t it is |sum_t u_t|^2 - sum_t |u_t|^2.
Source: ResFormer (arXiv 2410.17897), Figures 7 and 8 and Section 4.5; pairs without the diagonal and concatenated heads as
in the authors' script.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from respath.measure.analyses.findings import Findings, layers_without, mean
from respath.measure.analyses.trace import Trace


def pair_cosine(x: Tensor) -> Tensor:
    """Mean cosine over ordered pairs of different tokens. (batch, time, channels) -> (batch,) float64."""
    unit = F.normalize(x.double(), dim=-1)
    pairs = unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))
    return pairs / (x.shape[1] * (x.shape[1] - 1))


class Similarity:
    """Sums over batches of traces."""

    def __init__(self, layers: int):
        self.tokens = self.sequences = 0
        self.between = 0.0
        self.to_first = {"before": [0.0] * layers, "after": [0.0] * layers}
        self.between_tokens = {
            name: [0.0] * layers for name in ("token_hidden", "token_value_before", "token_value_after")
        }

    def add(self, seen: Trace) -> None:
        """One batch."""
        batch, time, _ = seen.hidden[0].shape
        self.tokens, self.sequences = self.tokens + batch * time, self.sequences + batch
        unit = torch.stack([F.normalize(state, dim=-1).flatten() for state in seen.hidden])
        self.between = self.between + (unit @ unit.mT).double().cpu()
        first = seen.first_value.double()
        for name, values in (("before", seen.own), ("after", seen.values)):
            for n, value in enumerate(values):
                pairs = self.between_tokens[f"token_value_{name}"]
                if value is None:
                    self.to_first[name][n] = pairs[n] = None
                    continue
                self.to_first[name][n] += float(F.cosine_similarity(first, value.double(), dim=-1).sum())
                pairs[n] += float(pair_cosine(value).sum())
        for n, state in enumerate(seen.hidden[1:]):
            self.between_tokens["token_hidden"][n] += float(pair_cosine(state).sum())

    def result(self) -> Findings:
        """Means."""

        def over(sums, count):
            return [None if total is None else total / count for total in sums]

        series = {f"value_to_first_{name}": over(sums, self.tokens) for name, sums in self.to_first.items()}
        series |= {name: over(sums, self.sequences) for name, sums in self.between_tokens.items()}
        scalars = {
            "value_to_first_mean": mean(series["value_to_first_after"][1:]),
            "token_hidden_mean": mean(series["token_hidden"]),
            "token_value_before_mean": mean(series["token_value_before"][1:]),
            "token_value_after_mean": mean(series["token_value_after"][1:]),
        }
        between = series["hidden_layers"] = (self.between / self.tokens).tolist()
        alike = series["token_value_before"]
        half = len(alike) // 2
        early, late = mean(alike[1:half]), mean(alike[half:])
        scalars |= {
            "value_to_first_before_mean": mean(series["value_to_first_before"][1:]),
            "hidden_embedding_to_later_mean": mean(between[0][2:]),
            "hidden_layer1_to_later_mean": mean(between[1][2:]),
            "token_value_before_rise": None if None in (early, late) else late - early,
        }
        reason = layers_without(series["value_to_first_before"], "value of its own before mixing")
        return Findings(scalars, series, reason=reason)
