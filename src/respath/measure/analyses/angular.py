"""Angular distance between the states that stand between blocks.

    d(l, l + n) = mean over tokens of arccos(cos(z_l, z_{l+n})) / pi      z_0: the embedding, z_L: after the last block

``by_distance[n - 1][l]`` = d(l, l + n), rows of falling length L + 1 - n, as the paper draws it; ``step[l]`` = d(l, l + 1), what
block l turns. ``late_step_mean``: mean of step over the late blocks, l >= ceil(L / 4); ``late_mean``: mean over all pairs of
states from there on. Angles are averaged, not cosines; unit vectors and their products are float64, since near 1 a cosine has
half the digits of its angle. Which state a stream has is its probe's: concatenated streams for HC and mHC, the next reader's
raw mix for AttnRes, with the running sum inside a block of Block AttnRes. ``*_mixes``: with mixes everywhere, where that
differs.
Sample: at most 128 packed rows of at most 512 tokens, as in the authors' script.
Source: DepthBench (arXiv 2609.32534), Eq. 2, Figures 5, 13 and 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.late import first_late
from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.walk import walk
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 128, 512
#: Tokens whose unit vectors are held at once.
CHUNK = 512


def summed_angles(states: Sequence[Tensor]) -> Tensor:
    """Sums over tokens of angles / pi between states (tokens, channels): (states, states) float64."""
    total = torch.zeros(len(states), len(states), dtype=torch.float64)
    for part in zip(*(state.split(CHUNK) for state in states), strict=True):
        unit = F.normalize(torch.stack(part, 1).double(), dim=-1)
        cosines = (unit @ unit.mT).clamp(-1, 1)
        total += (cosines.arccos() / math.pi).sum(0).cpu()
    return total


def named(angles: Tensor, suffix: str = "") -> Findings:
    """Findings of mean angles (L + 1, L + 1)."""
    layers = len(angles) - 1
    rows = [angles.diagonal(n).tolist() for n in range(1, layers + 1)]
    late = first_late(layers)
    return Findings(
        {
            f"late_step_mean{suffix}": mean(rows[0][late:]),
            f"late_mean{suffix}": mean(value for row in rows for value in row[late:]),
        },
        {f"step{suffix}": rows[0], f"by_distance{suffix}": rows},
    )


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """Distances over batches of ids (rows, tokens)."""
    probe = probe_of(model)
    ways = {"": False, "_mixes": True} if probe.mixes_differ else {"": False}
    totals, tokens = dict.fromkeys(ways, 0.0), sum(ids.numel() for ids in batches)
    for ids in batches:
        seen = walk(model, ids)
        for suffix, mixes in ways.items():
            states = [probe.geometry(state, n, mixes).flatten(0, 1) for n, state in enumerate(seen.states)]
            totals[suffix] = totals[suffix] + summed_angles(states)
    found = [named(total / tokens, suffix) for suffix, total in totals.items()]
    reason = None if probe.mixes_differ else "this stream has one kind of state between blocks"
    return Findings(
        {name: value for one in found for name, value in one.scalars.items()},
        {name: value for one in found for name, value in one.series.items()},
        reason=reason,
    )
