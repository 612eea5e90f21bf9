"""How much attention each token receives: column sums of a layer's attention matrix, without keeping the matrix.

Fused kernels do not return probabilities, so they are worked out again from the layer's own operands (queries and keys as
the variant makes them: rotated, normed, mixed, shared, windowed), in blocks of queries and with an fp32 softmax.

What belongs to a token beside its own key is counted with it: the keys that layer 1 has of the same token (cross-layer
attention), and depth keys, which belong to the query's own token (MoDA). So a row always sums to 1, and to the sum of the
two coefficients for the residual of attention matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from respath.model.attention import Attention, Operands

#: Weights held at once, by device.
WEIGHTS = {"cpu": 1 << 22, "other": 1 << 27}


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """Scaled products (batch, heads, queries, keys) in fp32 or wider; grouped keys serve several heads."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(wide).transpose(1, 2), k.to(wide).permute(0, 2, 3, 1)
    grouped = q.unflatten(1, (k.shape[1], -1)) @ k[:, :, None]
    return grouped.flatten(1, 2) / math.sqrt(q.shape[-1])


def token_weights(attention: Attention, given: Operands, start: int, stop: int) -> Tensor:
    """Rows ``start`` to ``stop`` of the attention matrix, (batch, heads, stop - start, stop), fp32 or wider.

    Entry (t, s): the share of token s in what query t attends to. Later tokens are invisible and left out. Whole sequences
    only, as analyses run them (no cache).
    """
    queries = torch.arange(start, stop, device=given.q.device)[:, None]
    tokens = torch.arange(stop, device=given.q.device)
    visible = tokens <= queries
    if given.seen.window is not None:
        visible &= tokens >= queries - given.seen.window

    def masked(q: Tensor, k: Tensor) -> Tensor:
        return _scores(q[:, start:stop], k[:, :stop]).masked_fill(~visible, -math.inf)

    scores = masked(given.q, given.k)
    if given.depth:
        q = given.q[:, start:stop]
        own = [_own_scores(q, key[:, start:stop]) for key, _ in given.depth]
        weights = torch.cat((scores, torch.stack(own, -1)), -1).softmax(-1)
        sequence, depth = weights[..., :stop], weights[..., stop:].sum(-1)
        return sequence + depth[..., None] * (tokens == queries)
    if given.first is None:
        return scores.softmax(-1)
    first = masked(*given.first[:2])
    if attention.joint:
        halves = torch.cat((scores, first), -1).softmax(-1)
        return halves[..., :stop] + halves[..., stop:]
    residual = attention.residual
    return residual.source * first.softmax(-1) + residual.own * scores.softmax(-1)


def _own_scores(q: Tensor, key: Tensor) -> Tensor:
    """Scaled product of each query (batch, time, heads, d) with a key (batch, time, kv, d) of its own token.

    -> (batch, heads, time)
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    grouped = q.to(wide).unflatten(2, (key.shape[2], -1))
    products = (grouped * key.to(wide)[..., None, :]).sum(-1) / math.sqrt(q.shape[-1])
    return products.flatten(2).transpose(1, 2)


def received(attention: Attention, given: Operands) -> Tensor:
    """Attention received by each token: sum over queries, mean over heads. -> (batch, time) float64."""
    batch, time, heads, _ = given.q.shape
    total = torch.zeros(batch, time, dtype=torch.float64, device=given.q.device)
    limit = WEIGHTS.get(given.q.device.type, WEIGHTS["other"])
    block = max(1, limit // (batch * heads * time))
    for start in range(0, time, block):
        stop = min(start + block, time)
        weights = token_weights(attention, given, start, stop)
        total[:, :stop] += weights.sum((1, 2), dtype=torch.float64)
    return total / heads
