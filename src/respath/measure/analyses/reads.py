"""What attention residuals read of the sum that is being made, and how long the first layers leave it unread.

    newest[k - 1]    = mean over tokens of the softmax weight that reader k gives its newest source, k = 1 .. 2L
    embedding[k - 1] = the same of the embedding

The newest source is the open block's running sum, or the sum just finished where a block begins (the last output for Full
AttnRes); reader 2L is the head. ``unread_layers``: how many layers from the first on have a mean weight below 0.05 over their
readers (layer 1 has one: its attention reads the embedding alone); ``unread_share``: over the number of layers;
``unread_by_limit`` at each of ``unread_limits``. float64.
Sample: at most 32 packed rows of at most 512 tokens (ours).
Source: DepthBench (arXiv 2609.32534), Section 4.3 and Figure 9, where weights near zero and prefixes of about 2, 5 and 8 layers
are told without a limit: 0.05 and the sweep are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.probes.attention_residuals import AttentionResiduals
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 32, 512
LIMIT = 0.05
LIMITS = (0.01, 0.02, 0.05, 0.1, 0.2)


def unread_layers(newest: Sequence[float], limit: float) -> int:
    """Layers from the first on whose readers give less than ``limit`` to the newest source, in the mean. ``newest``: of readers 1 .. 2L."""
    layers = [newest[:1], *(newest[2 * n - 1 : 2 * n + 1] for n in range(1, len(newest) // 2))]
    return sum(1 for _ in itertools.takewhile(lambda weights: mean(weights) < limit, layers))


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """Weights over batches of ids (rows, tokens)."""
    probe, readers = probe_of(model), 2 * model.spec.layers
    if not isinstance(probe, AttentionResiduals):
        return Findings(reason="only attention residuals read sources by weight")
    tokens = sum(ids.numel() for ids in batches)
    newest, embedding = [0.0] * readers, [0.0] * readers
    for ids in batches:
        for k, weights in probe.weights(ids).items():
            newest[k - 1] += float(weights[..., -1].sum()) / tokens
            embedding[k - 1] += float(weights[..., 0].sum()) / tokens
    unread = unread_layers(newest, LIMIT)
    return Findings(
        {"unread_layers": unread, "unread_share": unread / model.spec.layers},
        {
            "newest": newest,
            "embedding": embedding,
            "unread_limits": list(LIMITS),
            "unread_by_limit": [unread_layers(newest, limit) for limit in LIMITS],
        },
    )
