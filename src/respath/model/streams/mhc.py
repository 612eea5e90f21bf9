"""Manifold-constrained hyper-connections (mHC): HC whose reads and writes are positive and whose transport mixes convexly.

H is the state of one token, (m, width), one stream per row; h its m width numbers in a row. Per sub-layer k:

    c = Phi h / rms(h)                         (m + m + m m,), no gain, eps 1e-6
    pre   = sigmoid(g_1 c_pre + b_pre)         (m,)
    post  = 2 sigmoid(g_2 c_post + b_post)     (m,)
    R     = Sinkhorn(g_3 c_res + b_res)        (m, m), rows are outputs
    x   = sum_s pre_s H_s                      the branch reads norm_k(x)
    H_o = sum_i R[o, i] H_i + post_o f_k(norm_k(x))

A gate multiplies the projection, never the bias. Sinkhorn: softmax over rows, + 1e-6, columns divided by their sum; then
rounds - 1 times rows and columns divided by their sums (each sum + 1e-6). The embedding is copied to all streams; what the
final norm sees is the mean of the streams. R[o, i] corresponds to A[i, o] of HC.

State: (H, None) between sub-layers; (transported streams, post) between a sub-layer's read and its write.
H (batch, time, m, width).
Parameters per sub-layer, 96 width + 27 for m = 4: ``sublayers.{k}.projection`` Phi (m (m + 2), m width), ``bias``
(m (m + 2),), ``gates`` (3,).
Initialisation ``gap8``: Phi = 0; b_pre 8 at stream k mod m and -8 elsewhere; b_post 0; b_res 0 on the diagonal and -8 off it
(R then has 0.99899 and 0.000336); gates 0.01. ``near_uniform`` (the earlier start): Phi N(0, 0.02), biases 0.
Attention output and MLP down matrices start smaller by sqrt(m).
Roles: bias and gates are coefficients (fp32, no decay), Phi decays as a matrix. Coefficients, Sinkhorn and mixing are fp32.
Special layers: none.
Source: mHC (arXiv 2512.24880); DepthBench (arXiv 2609.32534), Appendix A; the order of operations is that of the public
Liger kernel's reference (20 rounds, flattened projection, no learned read-out).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from respath.model.routing import normed_linear
from respath.model.streams.hc import HyperConnections
from respath.spec.model import ModelSpec
from respath.spec.streams.mhc import ManifoldHyperConnectionsSpec

STREAM_EPS = 1e-6
SINKHORN_EPS = 1e-6
GAP = 8.0


class _Sinkhorn(torch.autograd.Function):
    """Keeps the logits alone and repeats the rounds in the backward pass: 40 matrices per token need not be stored."""

    @staticmethod
    def steps(logits: Tensor, rounds: int, eps: float) -> list[tuple[int, Tensor, Tensor]]:
        """(dimension summed over, sums, result) of each division; the softmax comes first, its sums None."""
        matrix = torch.softmax(logits, dim=1)
        done = [(1, None, matrix)]
        matrix = matrix + eps
        for dim in (0, *(1, 0) * (rounds - 1)):
            sums = matrix.sum(dim, keepdim=True).add_(eps)
            matrix = matrix / sums
            done.append((dim, sums, matrix))
        return done

    @staticmethod
    def forward(ctx, logits: Tensor, rounds: int, eps: float) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.rounds, ctx.eps = rounds, eps
        matrix = torch.softmax(logits, dim=1).add_(eps)
        for dim in (0, *(1, 0) * (rounds - 1)):
            matrix.div_(matrix.sum(dim, keepdim=True).add_(eps))
        return matrix

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        (logits,) = ctx.saved_tensors
        first, *divisions = _Sinkhorn.steps(logits, ctx.rounds, ctx.eps)
        grad = grad.clone(memory_format=torch.contiguous_format)
        for dim, sums, result in reversed(divisions):
            grad.sub_((grad * result).sum(dim, keepdim=True)).div_(sums)
        dim, _, result = first
        return grad.sub_((grad * result).sum(dim, keepdim=True)).mul_(result), None, None


def sinkhorn(logits: Tensor, rounds: int, eps: float = SINKHORN_EPS) -> Tensor:
    """Almost doubly stochastic matrices. logits (m, m, ...), rows first -> same shape; columns are normalised last.

    The matrix dimensions lead because the many tokens then lie next to each other: sums over four numbers vectorise.
    """
    return _Sinkhorn.apply(logits, rounds, eps)


class ManifoldHyperConnection(nn.Module):
    """One sub-layer's read, transport and write coefficients."""

    role = {"projection": "matrix", "bias": "coefficient", "gates": "coefficient"}

    def __init__(self, k: int, spec: ModelSpec):
        super().__init__()
        self.k, self.streams = k, spec.stream.streams
        self.start, self.rounds, self.std = spec.stream.start, spec.stream.sinkhorn_rounds, spec.init_std
        outputs = self.streams * (self.streams + 2)
        self.projection = nn.Parameter(torch.empty(outputs, self.streams * spec.width))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.gates = nn.Parameter(torch.empty(3))

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h (batch, time, m, width) -> [pre ; R] (batch, time, 1 + m, m) and post (batch, time, m), fp32 or wider."""
        m = self.streams
        projected = normed_linear(h.flatten(-2), self.projection, STREAM_EPS).movedim(-1, 0)
        parts = zip(projected.split((m, m, m * m)), self.gates, self.bias.split((m, m, m * m)), strict=True)
        pre, post, res = (torch.addcmul(b[:, None, None], gate, c) for c, gate, b in parts)
        transport = sinkhorn(res.unflatten(0, (m, m)), self.rounds)
        mixes = torch.cat((torch.sigmoid(pre)[None], transport)).movedim((0, 1), (-2, -1))
        # Contiguous: batched products fall back to one call per token on other layouts.
        return mixes.contiguous(), 2 * torch.sigmoid(post).movedim(0, -1).contiguous()

    def initial(self, draw) -> dict[str, Tensor]:
        """Near-identity transport (gap8), or near-uniform routing."""
        m = self.streams
        gates = torch.full((3,), 0.01)
        if self.start == "near_uniform":
            drawn = draw("projection", self.projection.shape, self.std)
            return {"projection": drawn, "bias": torch.zeros(m * (m + 2)), "gates": gates}
        eye = torch.eye(m)
        pre, post, res = GAP * (2 * eye[self.k % m] - 1), torch.zeros(m), GAP * (eye - 1)
        return {
            "projection": torch.zeros(self.projection.shape),
            "bias": torch.cat((pre, post, res.flatten())),
            "gates": gates,
        }


class ManifoldHyperConnections(HyperConnections):
    """Several residual streams with positive reads and writes and near doubly stochastic transport."""

    document = ManifoldHyperConnectionsSpec

    connection = ManifoldHyperConnection

    def close(self, state: tuple[Tensor, None]) -> Tensor:
        """The mean of the streams."""
        return super().close(state) / self.streams
