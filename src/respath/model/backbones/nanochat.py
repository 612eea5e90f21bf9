"""The nanochat backbone as of 17 March 2026, cut down to Bank of Values' baseline.

Left out of nanochat at that date: value embeddings, backout, and the residual and x_0 scalars (which
``x0_scalars`` adds).

    norm(x) = x / rms(x), without gain: after the embedding, before each sub-layer, before the head
    x_0[t]  = e[t] + lambda sigmoid(w . e[t][0:24]) e[t-1],  e = norm(E[ids])        (smear)
    q, k    = 1.2 norm(rotate(.)) per head; softmax scale 1 / sqrt(head_dim)
    mlp(x)  = W_down relu(W_up x)^2
    logits  = 15 tanh(W_head norm(x) / 15), in fp32

The rotation's base is 100,000 (``rope_theta``). Windows are a field of the spec (SSSL: a short layer sees
itself and 512 earlier tokens at length 2,048; the last layer is long). The recipe's norm epsilon is its
kernel's default, 2^-23 in fp32 (``norm_eps``). Its rotation turns the other way, which equals exchanging the
halves of each head's query and key rows.

Parameters beside the llama backbone's names: ``entry.gate`` (24,) and ``entry.scale`` (1,), with ``smear``. No
norm has any; the MLP has no gate. In all 135,266,329 at d12 and 780,140,569 at d24.
Initialisation (``init_std`` is not used): embedding N(0, 0.8), head N(0, 0.001); query, key, value uniform
within sqrt(3 / width), MLP up within 0.4 of that; both output projections 0, so that every layer starts as
the identity. Smear starts at 0: the authors' commit leaves it in uninitialised memory (fixed upstream in
April 2026), which by the report of that bug is 0 as a rule.
With smear on, x_0 is not free of context: it depends on the token before. ``smear: false`` is the control.
Source: karpathy/nanochat at 5019acc; RiddleHe/nanochat at bee6dac, ``gpt_base``; Bank of Values (arXiv
2606.02780).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from respath.model.backbones.llama import Llama
from respath.model.initial import Draw, Uniform
from respath.model.layers import Linear
from respath.spec.backbones import SMEAR_CHANNELS
from respath.spec.model import ModelSpec


class PlainRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps), no parameters."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return F.rms_norm(x, x.shape[-1:], None, self.eps)


class NormedEntry(PlainRMSNorm):
    """The norm of the embedding."""

    def forward(self, embedded: Tensor, place) -> Tensor:
        """(batch, time, width) -> the same."""
        return super().forward(embedded)


class SmearedEntry(nn.Module):
    """The norm of the embedding, plus a gated copy of the previous token's."""

    #: Both in fp32: a small change of the gate must not be rounded away.
    role = "smear"

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps
        self.gate = nn.Parameter(torch.empty(SMEAR_CHANNELS))
        self.scale = nn.Parameter(torch.empty(1))  # DeepSpeed's ZeRO refuses a parameter without a dimension

    def forward(self, embedded: Tensor, place) -> Tensor:
        """(batch, time, width) -> the same. The cache hands the previous chunk's last token on."""
        e = F.rms_norm(embedded, embedded.shape[-1:], None, self.eps)
        if place.cache is None:
            before = F.pad(e[:, :-1], (0, 0, 1, 0))
        else:
            before = torch.cat((place.cache.previous.to(e.dtype)[:, None], e[:, :-1]), dim=1)
            place.cache.keep_previous(e, place.slots)
        gate = self.scale * torch.sigmoid(e[..., :SMEAR_CHANNELS].to(self.gate.dtype) @ self.gate)
        return torch.addcmul(e, gate.to(e.dtype)[..., None], before)

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """No smear."""
        return {"gate": torch.zeros(self.gate.shape), "scale": torch.zeros(1)}


class SquaredReluMLP(nn.Module):
    """W_down relu(W_up x)^2 (So et al., 2021)."""

    def __init__(self, width: int, hidden: int, bound: float):
        super().__init__()
        self.up_proj = Linear(width, hidden, Uniform(bound))
        self.down_proj = Linear(hidden, width, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, time, width)."""
        return self.down_proj(F.relu(self.up_proj(x)).square())


class Nanochat(Llama):
    """Makes the modules of the nanochat backbone."""

    query_key_gain = 1.2
    softcap = 15.0
    enters_normed = True

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.bound = math.sqrt(3 / spec.width)
        self.embedding_start, self.projection_start = 0.8, Uniform(self.bound)

    def entry(self) -> nn.Module:
        """Norm and smear."""
        return SmearedEntry(self.spec.norm_eps) if self.spec.smear else NormedEntry(self.spec.norm_eps)

    def norm(self) -> PlainRMSNorm:
        """Without a gain."""
        return PlainRMSNorm(self.spec.norm_eps)

    def output(self) -> Linear:
        """Zero at the start."""
        return Linear(self.spec.width, self.spec.width, 0.0)

    def mlp(self) -> SquaredReluMLP:
        """One matrix up, one down."""
        return SquaredReluMLP(self.spec.width, self.spec.ffn_width, 0.4 * self.bound)

    def head(self) -> Linear:
        """Nearly zero at the start."""
        return Linear(self.spec.width, self.spec.vocab_size, 0.001, role="head")
