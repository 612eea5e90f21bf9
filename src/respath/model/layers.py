"""The layers every variant shares: linear maps in the compute dtype, RMSNorm, SwiGLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from respath.model.initial import Draw, Uniform

#: Whether this CPU multiplies bf16 matrices in hardware (AVX-512 BF16 or AMX).
CPU_HAS_BF16 = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def emulates(x: Tensor) -> bool:
    """Whether products of ``x`` run as fp32 products of bf16 numbers, rounded to bf16.

    On a CPU without bf16 instructions PyTorch's bf16 products are 8 to 18 times slower than fp32 ones. A
    product of two bf16 numbers is exact in fp32, and bf16 hardware adds up in fp32 too, so the results differ
    by summation order only.
    """
    return x.dtype == torch.bfloat16 and x.device.type == "cpu" and not CPU_HAS_BF16


class _EmulatedLinear(torch.autograd.Function):
    """x W^T with fp32 products of bf16 operands; saves the bf16 operands, not their fp32 copies."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x.float(), weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, weight = ctx.saved_tensors
        grad = grad.float()
        to_x = (grad @ weight.float()).to(x.dtype) if ctx.needs_input_grad[0] else None
        to_weight = (grad.flatten(0, -2).mT @ x.flatten(0, -2).float()).to(weight.dtype)
        return to_x, to_weight


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b. x (..., in), weight (out, in), bias (out,) -> (..., out)."""
    if emulates(x) and weight.dtype == x.dtype and not torch.is_autocast_enabled("cpu"):
        product = _EmulatedLinear.apply(x, weight)
        return product if bias is None else product + bias
    return F.linear(x, weight, bias)


def linears(x: Tensor, maps: list[Linear]) -> tuple[Tensor, ...]:
    """Several maps of one input as one matrix product. x (..., in) -> one (..., out_i) per map.

    Joining the weights copies them, which pays when there are more tokens than weight rows: one product keeps
    the machine busier, and its gradient adds up the inputs' gradients on the way. A decoding step keeps them
    apart.
    """
    sizes = [one.weight.shape[0] for one in maps]
    if len(maps) == 1 or x.shape[:-1].numel() < sum(sizes):
        return tuple(one(x) for one in maps)
    biases = [one.bias for one in maps if one.bias is not None]
    joined = linear(x, torch.cat([one.weight for one in maps]), torch.cat(biases) if biases else None)
    return joined.split(sizes, dim=-1)


def capped(logits: Tensor, cap: float) -> Tensor:
    """cap * tanh(logits / cap) in at least fp32: bounded and nearly the same where logits are small."""
    return cap * torch.tanh(logits.to(torch.promote_types(logits.dtype, torch.float32)) / cap)


class Linear(nn.Module):
    """A weight matrix (out, in), N(0, start) or uniform, and where asked for a bias that starts at 0."""

    def __init__(
        self, inputs: int, outputs: int, start: float | Uniform, role: str = "matrix", bias: bool = False
    ):
        super().__init__()
        self.role, self.start = {"weight": role, "bias": "bias"}, start
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(x, self.weight, self.bias)

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """Initial value of each own parameter."""
        weight = {"weight": draw("weight", self.weight.shape, self.start)}
        return weight if self.bias is None else {**weight, "bias": torch.zeros(self.bias.shape)}


class Embedding(nn.Module):
    """Token vectors (vocab, width), N(0, std)."""

    role = "embedding"

    def __init__(self, vocab_size: int, width: int, std: float):
        super().__init__()
        self.std = std
        self.weight = nn.Parameter(torch.empty(vocab_size, width))

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, time) int64 -> (batch, time, width)."""
        return F.embedding(ids, self.weight)

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """Initial value of each own parameter."""
        return {"weight": draw("weight", self.weight.shape, self.std)}


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a learned gain that starts at 1 (Zhang and Sennrich, 2019)."""

    role = "norm"

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """Initial value of each own parameter."""
        return {"weight": torch.ones(self.weight.shape)}


class LayerNorm(RMSNorm):
    """(x - mean(x)) / sqrt(var(x) + eps) times a learned gain that starts at 1, without bias (Ba et al., 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return F.layer_norm(x, self.weight.shape, self.weight, None, self.eps)


class SwiGLU(nn.Module):
    """W_down (silu(W_gate x) * W_up x) (Shazeer, 2020)."""

    def __init__(self, width: int, hidden: int, std: float):
        super().__init__()
        self.gate_proj = Linear(width, hidden, std)
        self.up_proj = Linear(width, hidden, std)
        self.down_proj = Linear(hidden, width, std)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, time, width)."""
        gate, up = linears(x, [self.gate_proj, self.up_proj])
        return self.down_proj(F.silu(gate) * up)
