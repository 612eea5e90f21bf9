"""Attention whose softmax also covers keys that belong to the query's own token (depth keys, MoDA)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from respath.model.kernels import Visibility, attend


def _definition(
    q: Tensor, k: Tensor, v: Tensor, depth: Sequence[tuple[Tensor, Tensor]], seen: Visibility
) -> Tensor:
    """All scores at once, in fp32 or wider."""
    wide, groups = torch.promote_types(q.dtype, torch.float32), k.shape[2]
    queries = q.to(wide).unflatten(2, (groups, -1)) / math.sqrt(q.shape[-1])
    scores = torch.einsum("btghd,bsgd->btghs", queries, k.to(wide))
    mask = seen.mask
    if seen.square:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        mask = mask if mask.dim() == 2 else mask[:, 0]
        scores = scores.masked_fill(~mask[..., :, None, None, :], -math.inf)
    of_depth = [torch.einsum("btghd,btgd->btgh", queries, key.to(wide)) for key, _ in depth]
    weights = torch.cat((scores, torch.stack(of_depth, -1)), -1).softmax(-1)
    out = torch.einsum("btghs,bsgd->btghd", weights[..., : k.shape[1]], v.to(wide))
    for weight, (_, value) in zip(weights[..., k.shape[1] :].unbind(-1), depth, strict=True):
        out = torch.addcmul(out, weight[..., None], value.to(wide)[..., None, :])
    return out.flatten(2, 3).to(q.dtype)


def attend_over_depth(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    depth: Sequence[tuple[Tensor, Tensor]],
    seen: Visibility,
    kernel: str = "auto",
) -> Tensor:
    """One softmax over the visible sequence keys and the depth keys of the query's token.

    q (batch, time, heads, head_dim); k, v (batch, keys, kv_heads, head_dim); depth: pairs of a key and a value, (batch, time,
    kv_heads, head_dim) each -> (batch, time, heads, head_dim). Source: MoDA; DepthBench (arXiv 2609.32534), Appendix A.
    """
    if not depth:
        return attend(q, k, v, seen, kernel)
    return _definition(q, k, v, depth, seen)
