"""Hyper-connections (HC): m copies of the residual; each sub-layer reads a mix, writes to all, and the copies mix.

H is the state of one token, (m, width), one stream per row. Per sub-layer k, with u_s = H_s / rms(H_s) (no gain, eps 1e-8):

    [alpha | A] = [alpha_static | A_static] + g_1 tanh(u W_a)     (m, 1 + m), row s from stream s
    beta        = beta_static + g_2 tanh(u w_b)                   (m,)
    x   = sum_s alpha_s H_s                                       the branch reads norm_k(x)
    H_t = sum_s A[s, t] H_s + beta_t f_k(norm_k(x))

The embedding is copied to all streams; what the final norm sees is the sum of the streams. ``transport: false`` leaves the
streams unmixed (A = I whatever its parameters say): a bug of several public codes, which equal parameter counts and finite
gradients hide, since alpha and A often share one tensor.

State: (H, None) between sub-layers; (transported streams, beta) between a sub-layer's read and its write.
H (batch, time, m, width).
Parameters per sub-layer, 6 width + 26 for m = 4: ``sublayers.{k}.projection`` (m + 2, width), rows alpha, A, beta;
``read`` (m,), ``transport`` (m, m), ``write`` (m,), the static parts; ``gates`` (2,), g_1 and g_2.
Initialisation: projection 0, gates 0.01, A_static = I, beta_static = 1, alpha_static one-hot at stream k mod m, so that the
model starts as Pre-LN. Attention output and MLP down matrices start smaller by sqrt(m).
Roles: static parts are coefficients (no decay); the projection decays as a matrix, the gates too (role routing, in fp32).
Special layers: none.
Source: Zhu et al., 2024 (arXiv 2409.19606); DepthBench (arXiv 2609.32534), Sec. 4.2 and Appendix A.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from respath.model.routing import mix, normed_linear, write
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.hc import HyperConnectionsSpec

STREAM_EPS = 1e-8


class HyperConnection(nn.Module):
    """One sub-layer's read, transport and write coefficients."""

    role = {
        "projection": "matrix",
        "read": "coefficient",
        "transport": "coefficient",
        "write": "coefficient",
        "gates": "routing",
    }

    def __init__(self, k: int, spec: ModelSpec):
        super().__init__()
        self.k, self.streams = k, spec.stream.streams
        m = self.streams
        self.projection = nn.Parameter(torch.empty(m + 2, spec.width))
        self.read = nn.Parameter(torch.empty(m))
        self.transport = nn.Parameter(torch.empty(m, m))
        self.write = nn.Parameter(torch.empty(m))
        self.gates = nn.Parameter(torch.empty(2))

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h (batch, time, m, width) -> [alpha | A]^T (batch, time, 1 + m, m) and beta (batch, time, m), fp32 or wider."""
        moved = torch.tanh(normed_linear(h, self.projection, STREAM_EPS))
        reads, writes = moved.split((1 + self.streams, 1), dim=-1)
        static = torch.cat((self.read[:, None], self.transport), dim=1)
        mixes = torch.addcmul(static, self.gates[0], reads).mT
        return mixes, torch.addcmul(self.write, self.gates[1], writes.squeeze(-1))

    def initial(self, draw) -> dict[str, Tensor]:
        """One stream is read, none is mixed, all are written to."""
        m = self.streams
        return {
            "projection": torch.zeros(self.projection.shape),
            "read": torch.eye(m)[self.k % m],
            "transport": torch.eye(m),
            "write": torch.ones(m),
            "gates": torch.full((2,), 0.01),
        }


class HyperConnections(PreLN):
    """Several residual streams with learned, input-dependent reads, writes and transport."""

    document = HyperConnectionsSpec

    #: One sub-layer's coefficients: streams (batch, time, m, width) -> mixes (batch, time, 1 + m, m), the branch's input
    #: first, and write weights (batch, time, m).
    connection: type[nn.Module] = HyperConnection

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.streams = spec.stream.streams
        self.transports = getattr(spec.stream, "transport", True)
        self.sublayers = nn.ModuleList(self.connection(k, spec) for k in range(2 * spec.layers))
        self.initial_scale = dict.fromkeys(("attention.o_proj", "mlp.down_proj"), self.streams**-0.5)

    def open(self, embedded: Tensor) -> tuple[Tensor, None]:
        """The embedding in every stream."""
        # Copied for good: batched products of expanded streams run token by token.
        return embedded[..., None, :].expand(-1, -1, self.streams, -1).contiguous(), None

    def read(
        self, state: tuple[Tensor, None], k: int, norm: nn.Module
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The norm of the read mix; the transported streams and the write weights wait for the output."""
        streams, _ = state
        mixes, writes = self.sublayers[k](streams)
        if not self.transports:
            return norm(mix(mixes[..., :1, :], streams).squeeze(-2)), (streams, writes)
        # One product makes the branch's input and the transported streams, so that the streams are read once.
        x, moved = mix(mixes, streams).split((1, self.streams), dim=-2)
        return norm(x.squeeze(-2)), (moved, writes)

    def write(self, state: tuple[Tensor, Tensor], k: int, y: Tensor, norm: nn.Module) -> tuple[Tensor, None]:
        """The output is added to every stream, weighted."""
        streams, writes = state
        return write(streams, writes, y), None

    def close(self, state: tuple[Tensor, None]) -> Tensor:
        """The sum of the streams."""
        # Not .sum(-2), whose gradient is one tensor seen m times: the batched products before it would run token by token.
        return sum(state[0].unbind(dim=-2))
