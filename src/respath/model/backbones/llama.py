"""The llama backbone: RMSNorm, rotary embedding, SwiGLU, no biases; the base of the other backbones.

    x_0 = E[ids] ; q and k turn by position ; mlp(x) = W_down (silu(W_gate x) * W_up x) ; logits = W_head
    norm(x)

Initialisation: every matrix, embedding and head N(0, init_std), cut at ``init_cut`` deviations if the spec
says so (DepthBench: 3); gains 1.
Source: Touvron et al., 2023 (arXiv 2302.13971); ResFormer (arXiv 2410.17897), Section 4.1; DepthBench (arXiv
2609.32534), whose OLMo-core configuration cuts the draws.
"""

from __future__ import annotations

from torch import nn

from respath.model.initial import Uniform
from respath.model.layers import Embedding, Linear, RMSNorm, SwiGLU
from respath.spec.model import ModelSpec


class Llama:
    """Makes the modules of the llama backbone; the base of the others."""

    #: Whether queries and keys carry a rotary embedding.
    rotary = True
    #: Factor on each head's RMS-normalised queries and keys; None leaves them as projected.
    query_key_gain: float | None = None
    #: Logits become softcap * tanh(logits / softcap); None leaves them as they are.
    softcap: float | None = None
    #: Whether the state before the first layer is the normed embedding already.
    enters_normed = False

    def __init__(self, spec: ModelSpec):
        self.spec = spec
        #: How the embedding and the query, key and value projections start (see ``respath.model.initial``).
        self.embedding_start: float = spec.init_std
        self.projection_start: float | Uniform = spec.init_std

    def embedding(self) -> Embedding:
        """Token vectors."""
        return Embedding(self.spec.vocab_size, self.spec.width, self.embedding_start)

    def entry(self) -> nn.Module | None:
        """What turns token vectors into the first state, called as (embedded, place); None: nothing."""
        return None

    def norm(self) -> nn.Module:
        """A sub-layer's own norm, or the final one."""
        return RMSNorm(self.spec.width, self.spec.norm_eps)

    def projection(self, outputs: int) -> Linear:
        """Queries, keys or values of a layer's input."""
        return Linear(self.spec.width, outputs, self.projection_start)

    def output(self) -> Linear:
        """The map of the concatenated heads."""
        return Linear(self.spec.width, self.spec.width, self.spec.init_std)

    def mlp(self) -> nn.Module:
        """The feed-forward sub-layer."""
        return SwiGLU(self.spec.width, self.spec.ffn_width, self.spec.init_std)

    def head(self) -> Linear:
        """The output head, if it is not tied to the embedding."""
        return Linear(self.spec.width, self.spec.vocab_size, self.spec.init_std, role="head")
