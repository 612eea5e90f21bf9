"""Causal score: how much later blocks' updates change when one block is skipped.

    C(s, l) = mean over tokens of |u_l - u_l without block s| / max(|u_l|, 1e-8),   u_l = z_{l+1} - z_l,  l > s

``score[s][l]``, null where l <= s; blocks from 0. It is the mean of a ratio, not the ratio of means that an older revision of the
authors' script has. ``late_share``: share of late pairs above 0.45, ``late_above`` of ``late_pairs`` of them, ``late_mean``
their mean, ``late_shares`` at each of ``thresholds`` (``respath.measure.analyses.late``). States are float32 or better:
bf16 would round late updates away. ``*_corrected``: without the artefact of the published skip (AttnRes: the embedding
twice among the sources; MoDA: empty depth slots), ``*_mixes``: with mixes as states everywhere (Block AttnRes).
Sample: at most 16 packed rows of at most 256 tokens, as in the authors' script.
Source: DepthBench (arXiv 2609.32534), Eqs. 3 and 5, Figures 6 and 14.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from respath.measure.analyses.findings import Findings
from respath.measure.analyses.interventions import skipped
from respath.measure.analyses.late import NO_PAIRS, late_scores, late_summary, share_above
from respath.measure.analyses.probes import Probe, probe_of
from respath.measure.analyses.walk import resumed, walk
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 16, 256
THRESHOLD = 0.45
SMALLEST = 1e-8


def _updates(probe: Probe, states: Sequence, first: int, mixes: bool) -> list[Tensor]:
    """Updates of the blocks from ``first`` on, (batch, time, channels) each."""
    seen = [probe.geometry(states[n], n, mixes) for n in range(first, len(states))]
    return [after - before for before, after in itertools.pairwise(seen)]


def _changes(whole: Sequence[Tensor], without: Sequence[Tensor]) -> Tensor:
    """Sums over tokens of the ratios, (blocks,) float64."""
    ratios = [
        ((there - here).norm(dim=-1) / here.norm(dim=-1).clamp_min(SMALLEST)).double().sum().cpu()
        for here, there in zip(whole, without, strict=True)
    ]
    return torch.stack(ratios)


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """Scores over batches of ids (rows, tokens)."""
    probe, layers = probe_of(model), model.spec.layers
    sums = {
        name: torch.zeros(layers, layers, dtype=torch.float64)
        for name, there in (
            ("score", True),
            ("score_mixes", probe.mixes_differ),
            ("score_corrected", probe.artefact),
        )
        if there
    }
    tokens = sum(ids.numel() for ids in batches)
    for ids in batches:
        seen = walk(model, ids)
        whole = {mixes: _updates(probe, seen.states, 0, mixes) for mixes in {False, probe.mixes_differ}}

        def changes(s: int, mixes: bool = False, corrected: bool = False, seen=seen, whole=whole) -> Tensor:
            """Of the blocks after s, while it is skipped."""
            with skipped(model, s, corrected):
                without = _updates(probe, resumed(model, seen, s), s + 1, mixes)
            return _changes(whole[mixes][s + 1 :], without)

        for s in range(layers - 1):
            later, published = slice(s + 1, layers), changes(s)
            sums["score"][s, later] += published
            if "score_mixes" in sums:
                sums["score_mixes"][s, later] += changes(s, mixes=True)
            if "score_corrected" in sums:
                sums["score_corrected"][s, later] += (
                    changes(s, corrected=True) if probe.corrects(s) else published
                )
    series = {
        name: [[None] * (s + 1) + (total[s, s + 1 :] / tokens).tolist() for s in range(layers)]
        for name, total in sums.items()
    }
    scalars, sweep = late_summary(series["score"], THRESHOLD)
    for name in ("corrected", "mixes"):
        if f"score_{name}" in series:
            scalars[f"late_share_{name}"] = share_above(late_scores(series[f"score_{name}"]), THRESHOLD)
    lacking = [] if scalars["late_pairs"] else [NO_PAIRS]
    if not probe.artefact:
        lacking.append("skipping a block leaves no artefact to correct in this stream")
    if not probe.mixes_differ:
        lacking.append("this stream has one kind of state between blocks")
    return Findings(scalars, series | sweep, reason="; ".join(lacking) or None)
