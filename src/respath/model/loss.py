"""Next-token cross entropy in fp32 without holding all logits: head, loss and their gradients chunk by chunk."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from respath.model.layers import capped, emulates

#: Logits held at once. On a CPU a chunk should stay in the cache between its passes; a GPU wants large products.
CHUNK_LOGITS = {"cpu": 1 << 21, "other": 1 << 26}


def _rows_per_chunk(x: Tensor, vocab: int) -> int:
    return max(64, CHUNK_LOGITS.get(x.device.type, CHUNK_LOGITS["other"]) // vocab)


def _logits(x: Tensor, weight: Tensor, softcap: float | None) -> Tensor:
    """Logits of a chunk in at least fp32."""
    if emulates(x):
        x, weight = x.float(), weight.float()
    logits = F.linear(x, weight).to(torch.promote_types(x.dtype, torch.float32))
    return logits if softcap is None else capped(logits, softcap)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, each sum in the total's precision: rounding every chunk's product to bf16 would lose its tail."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    elif total.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(left.to(total.dtype), right.to(total.dtype))


class _HeadCrossEntropy(torch.autograd.Function):
    """Sum of -log softmax(W x)_target; the gradients are worked out on the way, so that no logits outlive their chunk."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, targets: Tensor, softcap: float | None) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        wanted = any(ctx.needs_input_grad[:2])
        total = torch.zeros((), dtype=wide, device=x.device)
        to_x = torch.empty_like(x) if wanted else None
        to_weight = torch.zeros(weight.shape, dtype=wide, device=x.device) if wanted else None
        rows = _rows_per_chunk(x, weight.shape[0])
        # Where bf16 products are emulated, all of them run on fp32 copies.
        operand = weight.float() if emulates(x) else weight
        for chunk, target, slot in zip(
            x.split(rows), targets.split(rows), to_x.split(rows) if wanted else x.split(rows), strict=True
        ):
            chunk = chunk.to(operand.dtype)
            logits = F.linear(chunk, operand).to(wide)
            if softcap is not None:
                logits = capped(logits, softcap)
            logp = torch.log_softmax(logits, dim=-1)
            picked = target[:, None]
            total -= logp.gather(1, picked).sum()
            if wanted:
                error = logp.exp_()
                error.scatter_add_(1, picked, error.new_full((1, 1), -1.0).expand_as(picked))
                if softcap is not None:
                    # d capped / d logit = 1 - tanh^2, and tanh is the capped logit over the cap.
                    error *= 1 - (logits / softcap).square_()
                error = error.to(operand.dtype)
                slot.copy_(error @ operand)
                _add_product(to_weight, error.T, chunk)
        if wanted:
            ctx.save_for_backward(to_x, to_weight.to(weight.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        to_x, to_weight = ctx.saved_tensors
        return to_x * grad.to(to_x.dtype), to_weight * grad.to(to_weight.dtype), None, None


def head_cross_entropy(
    x: Tensor, weight: Tensor, targets: Tensor, reduction: str = "mean", softcap: float | None = None
) -> Tensor:
    """Cross entropy of logits x W^T (softly capped if told) against targets, in nats and at least fp32.

    x (..., width), weight (vocab, width), targets (...) int64. ``mean`` and ``sum`` -> 0-dimensional;
    ``none`` -> targets' shape.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
    with torch.autocast(device, enabled=False):
        rows, flat = x.flatten(0, -2), targets.flatten()
        if reduction == "none":
            size = _rows_per_chunk(rows, weight.shape[0])
            losses = [
                F.cross_entropy(_logits(part, weight, softcap), target, reduction="none")
                for part, target in zip(rows.split(size), flat.split(size), strict=True)
            ]
            return torch.cat(losses).view_as(targets)
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction {reduction!r} is not mean, sum or none")
        total = _HeadCrossEntropy.apply(rows, weight, flat, softcap)
        return total / flat.numel() if reduction == "mean" else total


def next_token_loss(model, ids: Tensor, reduction: str = "mean") -> Tensor:
    """Loss of predicting ids[:, 1:] from what comes before. ids (batch, L) int64.

    ``mean`` over batch * (L - 1) targets (default), ``sum``, or ``none`` -> (batch, L - 1). In nats.
    """
    hidden = model.hidden(ids[:, :-1])
    return head_cross_entropy(hidden, model.head_weight, ids[:, 1:], reduction, model.softcap)


class TrainingLoss(nn.Module):
    """``next_token_loss`` as a module, for wrappers that act on ``forward`` (DistributedDataParallel, compile, precision)."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, reduction: str = "mean") -> Tensor:
        """ids (batch, L) -> loss."""
        return next_token_loss(self.model, ids, reduction)
