"""Causal attention over projected queries, keys and values: several kernels behind one function."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from respath.model.layers import emulates

KERNELS = ("auto", "flash_attn", "sdpa", "eager")


class Visibility(NamedTuple):
    """Which keys a query sees: key s is visible to query t when s <= position of t.

    ``square``: queries and keys are the same tokens. ``mask``: (time, keys) or (batch, 1, time, keys), True
    where visible; None when ``square`` or when every key is visible. ``aligned``: all rows end at the last
    key, so that the mask is the lower-right causal one.
    """

    square: bool
    aligned: bool
    mask: Tensor | None


@functools.cache
def flash_attn_installed() -> bool:
    """Whether the optional flash-attn package is there (extra ``flash``)."""
    return importlib.util.find_spec("flash_attn") is not None


def _flash_fits(q: Tensor, seen: Visibility) -> bool:
    return (
        q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and seen.aligned and flash_attn_installed()
    )


def _flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from flash_attn import flash_attn_func

    return flash_attn_func(q, k, v, causal=True)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, seen: Visibility) -> Tensor:
    dtype = q.dtype
    if emulates(q):
        q, k, v = q.float(), k.float(), v.float()
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=seen.mask,
        is_causal=seen.square,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2).to(dtype)


def _eager(q: Tensor, k: Tensor, v: Tensor, seen: Visibility) -> Tensor:
    repeats = q.shape[2] // k.shape[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = k.repeat_interleave(repeats, dim=2), v.repeat_interleave(repeats, dim=2)
    scores = torch.einsum("bthd,bshd->bhts", q.to(wide), k.to(wide)) / math.sqrt(q.shape[-1])
    mask = seen.mask
    if seen.square:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v.to(wide)).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Visibility, kernel: str = "auto") -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v over the visible keys.

    q (batch, time, heads, head_dim); k, v (batch, keys, kv_heads, head_dim), where kv_heads divides heads ->
    (batch, time, heads, head_dim). ``auto`` is flash_attn where it is installed and fits, else PyTorch's
    scaled_dot_product_attention; ``eager`` is the definition, in fp32 or wider. Raises ValueError for an
    unknown kernel and for flash_attn where it cannot compute the call.
    """
    if kernel not in KERNELS:
        raise ValueError(f"attention kernel {kernel!r} is not one of {', '.join(KERNELS)}")
    if kernel == "eager":
        return _eager(q, k, v, seen)
    if kernel == "flash_attn" and not _flash_fits(q, seen):
        raise ValueError(
            "the flash_attn kernel needs the flash-attn package (pip install 'respath[flash]'), a GPU, bf16 or fp16, and rows of "
            "equal length; use the kernel 'auto'"
        )
    if kernel != "sdpa" and _flash_fits(q, seen):
        return _flash(q, k, v)
    return _sdpa(q, k, v, seen)
