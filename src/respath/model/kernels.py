"""Causal attention over projected queries, keys and values: several kernels behind one function."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from respath.model.layers import emulates

KERNELS = ("auto", "flash_attn", "sdpa", "flex", "eager")

#: PyTorch's CPU kernel works in vectors of this many numbers; narrower heads take its slow path.
CPU_VECTOR = 16

#: Queries that a windowed layer handles together, at least: smaller blocks keep no machine busy.
BLOCK = 128


class Visibility(NamedTuple):
    """Which keys a query sees: key s is visible to query t when s <= position of t, and inside the window.

    ``square``: queries and keys are the same tokens. ``mask``: (time, keys) or (batch, 1, time, keys), True
    where visible; None when ``square`` or when every key is visible. ``aligned``: all rows end at the last
    key, so that the mask is the lower-right causal one. ``window``: keys before the query's own that it sees;
    None: all. ``first``: the keys that attention is handed begin at this column, as no query sees an earlier
    one.
    """

    square: bool
    aligned: bool
    mask: Tensor | None
    window: int | None = None
    first: int = 0

    def within(self, held: Tensor) -> Tensor:
        """The columns that some query sees. (batch, keys, ...) -> (batch, keys - first, ...)."""
        return held[:, self.first :] if self.first else held

    def dense(self, time: int, device: torch.device) -> Tensor | None:
        """The mask as a tensor also when ``square``; None when every key is visible."""
        return band(time, time, self.window, device) if self.square else self.mask


def band(time: int, keys: int, window: int | None, device: torch.device) -> Tensor:
    """(time, keys), True where query t sees key s: s <= t + keys - time, and s inside the window."""
    seen = torch.ones(time, keys, dtype=torch.bool, device=device).tril(keys - time)
    return seen if window is None else seen.triu(keys - time - window)


@functools.cache
def flash_attn_function() -> Callable[..., Tensor] | None:
    """The function of the optional flash-attn package (2.x; extra ``flash``), or None.

    The function is asked for and not the package: flash-attn-4 brings a package of the same name without it.
    """
    try:
        from flash_attn import flash_attn_func
    except ImportError:
        return None
    return flash_attn_func


@functools.cache
def newer_flash() -> str:
    """Have PyTorch's scaled_dot_product_attention run on FlashAttention 4 or 3 where one is installed for this GPU.

    It stays PyTorch's own function: it compiles without a break, and is deterministic where that is asked for. Returns what
    runs: "FA4", "FA3", or "" for the kernel that PyTorch brings along (FlashAttention 2).
    """
    from torch.nn import attention

    for name in ("FA4", "FA3") if hasattr(attention, "activate_flash_attention_impl") else ():
        try:
            attention.activate_flash_attention_impl(name)
        except (ImportError, RuntimeError, ValueError):
            continue  # not installed, not for this GPU, or unknown to this PyTorch
        return name
    return ""


def _flash_fits(q: Tensor, seen: Visibility) -> bool:
    low = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and low and seen.aligned and flash_attn_function() is not None


def _flash(q: Tensor, k: Tensor, v: Tensor, window: int | None, dropout: float) -> Tensor:
    # The package does not hear PyTorch's switch: its backward pass adds up in any order unless it is told not to.
    return flash_attn_function()(
        q,
        k,
        v,
        dropout_p=dropout,
        causal=True,
        window_size=(-1 if window is None else window, 0),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )


def _scaled_dot_product(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    width = q.shape[-1]
    if q.device.type == "cpu" and width < CPU_VECTOR and q.shape[1] == k.shape[1]:
        # Zeros add nothing to a score or a sum: forward and backward of 8 heads of 8 take 0.75 of the time, of 10 0.6
        # (docs/log.md). Not in decoding, where the whole cache would be copied for one query.
        q, k, v = (F.pad(x, (0, CPU_VECTOR - width)) for x in (q, k, v))
    if q.is_cuda and q.dtype.itemsize > 2 and q.shape[2] != k.shape[2]:
        # In fp32 only the kernel that holds all scores takes grouped queries; the efficient one wants equal heads.
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
        scale=width**-0.5,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out[..., :width].transpose(1, 2)


def _windowed(q: Tensor, k: Tensor, v: Tensor, window: int, dropout: float) -> Tensor:
    """Square attention in a window by blocks of queries, in time proportional to time * (block + window).

    The first ``window`` queries see all that is before them. Each later block sees its own keys and the
    ``window`` before them, so that one mask serves all blocks, which are rows of one batched call.
    """
    time, block = q.shape[1], max(window // 2, BLOCK)
    if time <= window + block:
        return _scaled_dot_product(q, k, v, band(time, time, window, q.device), False, dropout)
    count = -(-(time - window) // block)
    padding = (0, 0, 0, 0, 0, window + block * count - time)
    first = _scaled_dot_product(q[:, :window], k[:, :window], v[:, :window], None, True, dropout)
    queries = F.pad(q[:, window:], padding).unflatten(1, (count, block)).flatten(0, 1)
    # unfold gives (batch, count, kv_heads, head_dim, block + window)
    keys, values = (
        F.pad(x, padding).unfold(1, block + window, block).permute(0, 1, 4, 2, 3).flatten(0, 1)
        for x in (k, v)
    )
    mask = band(block, block + window, window, q.device)
    rest = _scaled_dot_product(queries, keys, values, mask, False, dropout)
    rest = rest.unflatten(0, (-1, count)).flatten(1, 2)
    return torch.cat((first, rest[:, : time - window]), dim=1)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, seen: Visibility, dropout: float) -> Tensor:
    dtype = q.dtype
    if emulates(q):
        q, k, v = q.float(), k.float(), v.float()
    if seen.square and seen.window is not None:
        return _windowed(q, k, v, seen.window, dropout).to(dtype)
    return _scaled_dot_product(q, k, v, seen.mask, seen.square, dropout).to(dtype)


@functools.lru_cache(maxsize=32)
def _block_mask(time: int, keys: int, window: int | None, device: str):
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(batch, head, query, key):
        position = query + keys - time
        seen = key <= position
        return seen if window is None else seen & (key >= position - window)

    return create_block_mask(visible, None, None, time, keys, device=device)


@functools.cache
def _compiled_flex():
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _flex(q: Tensor, k: Tensor, v: Tensor, seen: Visibility) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    # Uncompiled it works out all scores: good enough for checks on a CPU.
    function = _compiled_flex() if q.is_cuda else flex_attention
    out = function(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        block_mask=_block_mask(q.shape[1], k.shape[1], seen.window, str(q.device)),
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return out.transpose(1, 2)


def _eager(q: Tensor, k: Tensor, v: Tensor, seen: Visibility, dropout: float) -> Tensor:
    repeats = q.shape[2] // k.shape[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = k.repeat_interleave(repeats, dim=2), v.repeat_interleave(repeats, dim=2)
    scores = torch.einsum("bthd,bshd->bhts", q.to(wide), k.to(wide)) / math.sqrt(q.shape[-1])
    mask = seen.dense(q.shape[1], q.device)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = F.dropout(scores.softmax(-1), dropout)
    return torch.einsum("bhts,bshd->bthd", weights, v.to(wide)).to(q.dtype)


def attend(
    q: Tensor, k: Tensor, v: Tensor, seen: Visibility, kernel: str = "auto", dropout: float = 0.0
) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v over the visible keys.

    q (batch, time, heads, head_dim); k, v (batch, keys, kv_heads, head_dim), where kv_heads divides heads ->
    (batch, time, heads, head_dim). ``dropout``: share of the softmax's weights set to 0, the others scaled
    up. ``auto`` is PyTorch's scaled_dot_product_attention, on CUDA on the newest FlashAttention that is installed; windows
    run on the flash-attn package's function where it is installed and fits, else by blocks; ``flex`` is FlexAttention; ``eager`` is the definition, in fp32 or wider. Raises
    ValueError for an unknown kernel and for one that cannot compute the call.
    """
    if kernel not in KERNELS:
        raise ValueError(f"attention kernel {kernel!r} is not one of {', '.join(KERNELS)}")
    if kernel == "eager":
        return _eager(q, k, v, seen, dropout)
    if kernel == "flash_attn" and not _flash_fits(q, seen):
        raise ValueError(
            "the flash_attn kernel needs the flash-attn package (pip install 'respath[flash]'), a GPU, bf16 or fp16, "
            "and rows of equal length; use the kernel 'auto'"
        )
    if kernel == "flex":
        gradient = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        if dropout or not (seen.square or seen.aligned) or (gradient and not q.is_cuda):
            raise ValueError(
                "the flex kernel has no dropout, needs rows of equal length, and on a CPU has no backward pass; "
                "use the kernel 'auto'"
            )
        return _flex(q, k, v, seen)
    if kernel == "flash_attn" or (kernel == "auto" and seen.window is not None and _flash_fits(q, seen)):
        return _flash(q, k, v, seen.window, dropout)
    if q.is_cuda and kernel == "auto" and not torch.compiler.is_compiling():
        newer_flash()
    return _sdpa(q, k, v, seen, dropout)
