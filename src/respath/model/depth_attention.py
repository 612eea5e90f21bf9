"""Attention whose softmax also covers keys that belong to the query's own token (depth keys, MoDA)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from respath.model.kernels import Visibility, attend
from respath.model.layers import emulates

#: CUDA's flash kernel wants heads that are a multiple of this wide.
CUDA_VECTOR = 8


class _Flash:
    """Causal flash attention that also hands out each query's log-sum of exponentials, on CPU and CUDA.

    Queries, keys and values are (batch, time, heads, head_dim), with as many heads each; the log-sum is (batch, time, heads),
    in fp32 or wider. ``backward`` takes the output and the log-sum of any softmax that includes the sequence's.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, tuple]:
        size, parts = q.shape[-1], [_padded(x) for x in (q, k, v)]
        if q.is_cuda:
            out, sums, *rest, _ = torch.ops.aten._scaled_dot_product_flash_attention(
                *parts, 0.0, True, scale=1 / math.sqrt(size)
            )
        else:
            out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                *parts, is_causal=True, scale=1 / math.sqrt(size)
            )
            rest = []
        return out[..., :size].transpose(1, 2), sums.transpose(1, 2), tuple(rest)

    @staticmethod
    def backward(
        grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, rest: tuple
    ) -> tuple[Tensor, Tensor, Tensor]:
        size, parts = q.shape[-1], [_padded(x) for x in (grad, q, k, v, out)]
        sums = sums.transpose(1, 2).contiguous()
        if q.is_cuda:
            *lengths, seed, offset = rest
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(
                *parts, sums, *lengths, 0.0, True, seed, offset, scale=1 / math.sqrt(size)
            )
        else:
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *parts, sums, 0.0, True, scale=1 / math.sqrt(size)
            )
        return tuple(gradient[..., :size].transpose(1, 2) for gradient in gradients)


def _padded(x: Tensor) -> Tensor:
    """(batch, time, heads, head_dim) -> (batch, heads, time, head_dim), for CUDA with zeros up to the width that it takes."""
    missing = -x.shape[-1] % CUDA_VECTOR if x.is_cuda else 0
    return (F.pad(x, (0, missing)) if missing else x).transpose(1, 2)


def _definition(
    q: Tensor, k: Tensor, v: Tensor, depth: Sequence[tuple[Tensor, Tensor]], seen: Visibility
) -> Tensor:
    """All scores at once, in fp32 or wider."""
    wide, groups = torch.promote_types(q.dtype, torch.float32), k.shape[2]
    queries = q.to(wide).unflatten(2, (groups, -1)) / math.sqrt(q.shape[-1])
    scores = torch.einsum("btghd,bsgd->btghs", queries, k.to(wide))
    mask = seen.dense(q.shape[1], q.device)
    if mask is not None:
        mask = mask if mask.dim() == 2 else mask[:, 0]
        scores = scores.masked_fill(~mask[..., :, None, None, :], -math.inf)
    of_depth = [torch.einsum("btghd,btgd->btgh", queries, key.to(wide)) for key, _ in depth]
    weights = torch.cat((scores, torch.stack(of_depth, -1)), -1).softmax(-1)
    out = torch.einsum("btghs,bsgd->btghd", weights[..., : k.shape[1]], v.to(wide))
    for weight, (_, value) in zip(weights[..., k.shape[1] :].unbind(-1), depth, strict=True):
        out = torch.addcmul(out, weight[..., None], value.to(wide)[..., None, :])
    return out.flatten(2, 3).to(q.dtype)


class _Merged(torch.autograd.Function):
    """A flash kernel over the sequence and a pass over each depth slot, merged by their log-sums of exponentials.

    The kernel's backward pass rebuilds its probabilities from the log-sum that it is given; given that of the whole softmax
    and the merged output, its gradients are those of the joint attention. So no T x T matrix is kept, and no depth
    key is copied. q, k, v (batch, time, heads, head_dim); depth: keys, then values, (batch, time, kv_heads, head_dim) each.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, *depth: Tensor) -> Tensor:
        count, (kv_heads, size) = len(depth) // 2, depth[0].shape[2:]
        keys, values, wide = depth[:count], depth[count:], torch.promote_types(q.dtype, torch.float32)
        out, of_sequence, ctx.rest = _Flash.forward(q, k, v)
        of_sequence = of_sequence.to(wide)
        queries = q.unflatten(2, (kv_heads, -1)).to(wide) / math.sqrt(size)
        scores = queries.new_empty((*queries.shape[:-1], count))
        for i, key in enumerate(keys):
            scores[..., i] = (queries * key[..., None, :]).sum(-1)
        scores = scores.flatten(2, 3)
        total = torch.logaddexp(of_sequence, scores.logsumexp(-1))
        weights = scores.sub_(total[..., None]).exp_()
        out = out * (of_sequence - total).exp_()[..., None]
        grouped, shares = out.unflatten(2, (kv_heads, -1)), weights.unflatten(2, (kv_heads, -1))
        for i, value in enumerate(values):
            grouped.addcmul_(shares[..., i, None], value[..., None, :].to(wide))
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, total, weights.to(q.dtype), *depth)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        q, k, v, out, total, weights, *depth = ctx.saved_tensors
        count, (kv_heads, size) = len(depth) // 2, depth[0].shape[2:]
        keys, values, wide = depth[:count], depth[count:], total.dtype
        to_q, to_k, to_v = _Flash.backward(grad, q, k, v, out, total, ctx.rest)
        to_q = to_q.to(wide, memory_format=torch.contiguous_format, copy=True)
        scale = 1 / math.sqrt(size)
        queries, gradient, shares, moved = (
            tensor.unflatten(2, (kv_heads, -1)) for tensor in (q, grad.to(wide), weights, to_q)
        )
        along = torch.sum(grad.to(wide) * out, -1).unflatten(2, (kv_heads, -1))
        to_keys, to_values = [], []
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            share = shares[..., i]
            to_score = (gradient * value[..., None, :]).sum(-1).sub_(along).mul_(share).mul_(scale)
            moved.addcmul_(to_score[..., None], key[..., None, :].to(wide))
            to_keys.append((to_score[..., None] * queries).sum(3).to(key.dtype))
            to_values.append((share[..., None] * gradient).sum(3).to(value.dtype))
        return to_q.to(q.dtype), to_k, to_v, *to_keys, *to_values


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
    kv_heads, head_dim) each -> (batch, time, heads, head_dim). Whole sequences run on the device's flash kernel (on CUDA in
    bf16 and fp16) unless ``kernel`` is ``eager``; other calls by the definition. Source: MoDA; DepthBench (arXiv 2609.32534),
    Appendix A.
    """
    if not depth:
        return attend(q, k, v, seen, kernel)
    low = emulates(q)
    wide_on_cuda = q.is_cuda and q.dtype.itemsize > 2
    if kernel == "eager" or not seen.square or seen.window is not None or wide_on_cuda:
        return _definition(q, k, v, depth, seen)
    repeats = q.shape[2] // k.shape[2]
    if repeats > 1:
        k, v = k.repeat_interleave(repeats, dim=2), v.repeat_interleave(repeats, dim=2)
    parts = (q, k, v, *(key for key, _ in depth), *(value for _, value in depth))
    if low:
        parts = tuple(part.float() for part in parts)
    return _Merged.apply(*parts).to(q.dtype)
