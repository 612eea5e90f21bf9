"""Mixture-of-depths attention (MoDA): Pre-LN, and attention that also reads earlier layers' keys and values at its own token.

Attention of block i (0-based) is one softmax over its causal sequence keys K_i and 2 i depth keys D_i of the query's own token:

    U_i = softmax(Q_i [K_i ; D_i]^T / sqrt(head_dim)) [V_i ; E_i]

E_i are the depth values. Depth slot 2 j holds the key and value of block j's own attention, the key before rotary embedding
(queries carry it); slot 2 j + 1 holds the key and value of an extra projection of block j's MLP input. Special layers: block 0
is plain causal attention; the last block has no extra projection, since nothing would read it.

``norm: pre``: x + f(norm(x)), the MLP input of the extra projection is normed. ``norm: post``: norm(x + f(x)), with the branch
and the extra projection reading the state as it is (DepthBench, Table 5's other column: 2.912 against 2.764).

State: x, (batch, time, width). The depth slots travel beside it, (batch, time, kv_heads, head_dim) each; they belong to the
token itself, so a cache stores nothing more than for the plain Transformer.
Parameters: ``depth_projections.{j}.weight`` (2 kv_width, width), keys first: (L - 1) 2 width kv_width in all.
Initialisation: N(0, init_std).
Source: MoDA (hustvl, 2026); DepthBench (arXiv 2609.32534), Appendix A and Table 5.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.attention import Carried
from respath.model.layers import Linear
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.moda import MoDASpec


class MoDA(PreLN):
    """An additive residual whose MLP inputs are also keys and values for later attention."""

    document = MoDASpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.post, self.head_dim = spec.stream.norm == "post", spec.head_dim
        self.depth_projections = nn.ModuleList(
            Linear(spec.width, 2 * spec.kv_width, spec.init_std) for _ in range(spec.layers - 1)
        )

    def read(self, state: Tensor, k: int, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """The normed state, or the state (post)."""
        return (state if self.post else norm(state)), state

    def write(self, state: Tensor, k: int, y: Tensor, norm: nn.Module) -> Tensor:
        """The output is added; the post form norms the sum."""
        return norm(state + y) if self.post else state + y

    def carry(self, carried: Carried, k: int, x: Tensor) -> Carried:
        """An MLP's input becomes a depth key and value."""
        if k % 2 == 0 or k // 2 == len(self.depth_projections):
            return carried
        key, value = self.depth_projections[k // 2](x).unflatten(-1, (2, -1, self.head_dim)).unbind(-3)
        return carried._replace(depth=(*carried.depth, (key, value)))
