"""Path weights: how much of an earlier branch, and of the embedding, stands in what a later sub-layer reads.

    x_k = w_{k,0} v_0 + sum over j < k of w_{k,j+1} f_j          before the reader's norm, per token

v_0 is the embedding, f_j what sub-layer j's branch adds (0 .. 2L - 1; Sandwich-LN: after its second norm), k = 2L the head. With

    Pre-LN, Sandwich-LN, LNS, MoDA   w = 1
    HC, mHC                          w = write_j^T T_{j+1} ... T_{k-1} read_k; of the embedding 1^T T_0 ... T_{k-1} read_k; the
                                     head reads with ones (HC) or 1/m (mHC); T acts on streams from the left
    CompleteP                        w = its factor, of branches
    Full AttnRes                     w = softmax weight of the source
    Block AttnRes                    w = softmax weight of the source that contains f_j

``weights[k][i]``: mean over tokens of per-token products, never a product of means; i = 0 is the embedding, i = j + 1 branch j;
rows of k + 1 numbers, k = 0 .. 2L. HC's may be negative or above 1. They describe the linear path in one forward pass, not
the network's Jacobian. ``newest_mean``, ``embedding_mean``: mean over readers k >= 1 of the newest branch's and the embedding's.
Post-norm streams (DeepNorm, KEEL, post-norm MoDA) have no such numbers: their norms scale each channel by itself. float64.
Sample: at most 16 packed rows of at most 256 tokens (ours).
Source: DepthBench (arXiv 2609.32534), Section 4.2 and Figure 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.probes import probe_of
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 16, 256


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """Weights over batches of ids (rows, tokens)."""
    probe, tokens = probe_of(model), sum(ids.numel() for ids in batches)
    if probe.no_paths:
        return Findings(reason=probe.no_paths)
    rows = [[0.0] * (k + 1) for k in range(2 * model.spec.layers + 1)]
    for ids in batches:
        for row, weights in zip(rows, probe.path_weights(ids), strict=True):
            for i, total in enumerate((weights.flatten(0, 1).sum(0) / tokens).tolist()):
                row[i] += total
    scalars = {
        "newest_mean": mean(row[-1] for row in rows[1:]),
        "embedding_mean": mean(row[0] for row in rows[1:]),
    }
    return Findings(scalars, {"weights": rows})
