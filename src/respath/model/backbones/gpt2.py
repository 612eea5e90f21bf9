"""The gpt2 backbone: LayerNorm, learned positions, biases everywhere but in the head, GELU, dropout.

    x_0    = dropout(E[ids] + P[position])
    mlp(x) = dropout(W_down gelu(W_up x + b_up) + b_down)      attention's weights and output dropped likewise
    logits = W_head norm(x), W_head = E when tied (GPT-2's own choice)

gelu is the tanh form. Dropout works in training mode only and draws from PyTorch's generator, so that its
state is all that a resumed run must restore; masks are drawn again, equal, when activations are recomputed.
Positions beyond ``max_positions`` are refused.

Parameters beside the llama backbone's names: ``entry.positions.weight`` (max_positions, width); ``bias``
beside each ``weight`` of norms, projections and MLP. The MLP has no gate.
Initialisation: matrices, embedding and positions N(0, init_std), the two output matrices of a layer smaller
by sqrt(2 L); biases 0, gains 1.
Source: Radford et al., 2019; ResFormer (arXiv 2410.17897), Table 9. Its GPT-2 script leaves GPT2Config's
dropout of 0.1 on, while the Llama rows have none: both arms exist.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from respath.model.backbones.llama import Llama
from respath.model.initial import Draw
from respath.model.layers import Embedding, Linear
from respath.spec.model import ModelSpec


class BiasedLayerNorm(nn.Module):
    """(x - mean(x)) / sqrt(var(x) + eps) times a gain plus a bias."""

    role = {"weight": "norm", "bias": "bias"}

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., width)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """Gain 1, bias 0."""
        return {"weight": torch.ones(self.weight.shape), "bias": torch.zeros(self.bias.shape)}


class PositionalEntry(nn.Module):
    """Adds the vector of each token's position."""

    def __init__(self, spec: ModelSpec):
        super().__init__()
        self.positions = Embedding(spec.max_positions, spec.width, spec.init_std)
        self.rows, self.dropout = spec.max_positions, spec.dropout

    def forward(self, embedded: Tensor, place) -> Tensor:
        """(batch, time, width) -> the same. Raises ValueError past the last position."""
        last = place.end
        if last > self.rows:
            raise ValueError(f"the model has {self.rows} learned positions; this call would need {last}")
        # A padded token may stand beyond the table; what it computes means nothing.
        positions = place.positions.clamp(max=self.rows - 1)
        return F.dropout(embedded + self.positions(positions), self.dropout, self.training)


class GeluMLP(nn.Module):
    """W_down gelu(W_up x + b_up) + b_down."""

    def __init__(self, width: int, hidden: int, std: float, std_down: float, dropout: float):
        super().__init__()
        self.up_proj = Linear(width, hidden, std, bias=True)
        self.down_proj = Linear(hidden, width, std_down, bias=True)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, time, width)."""
        y = self.down_proj(F.gelu(self.up_proj(x), approximate="tanh"))
        return F.dropout(y, self.dropout, self.training)


class GPT2(Llama):
    """Makes the modules of the gpt2 backbone."""

    rotary = False

    @property
    def output_std(self) -> float:
        """Deviation of the matrices that add to the residual: 2 L of them add up to what one would."""
        return self.spec.init_std / math.sqrt(2 * self.spec.layers)

    def entry(self) -> PositionalEntry:
        """Learned positions."""
        return PositionalEntry(self.spec)

    def norm(self) -> BiasedLayerNorm:
        """LayerNorm with gain and bias."""
        return BiasedLayerNorm(self.spec.width, self.spec.norm_eps)

    def projection(self, outputs: int) -> Linear:
        """With a bias."""
        return Linear(self.spec.width, outputs, self.projection_start, bias=True)

    def output(self) -> Linear:
        """With a bias."""
        return Linear(self.spec.width, self.spec.width, self.output_std, bias=True)

    def mlp(self) -> GeluMLP:
        """One matrix up, one down."""
        spec = self.spec
        return GeluMLP(spec.width, spec.ffn_width, spec.init_std, self.output_std, spec.dropout)
