"""Pre-LN: x_{k+1} = x_k + f_k(norm_k(x_k)).

State: x, (batch, time, width). No parameters, no special layers.
Source: Xiong et al., 2020; the plain Transformer of ResFormer (arXiv 2410.17897, Section 3.1) and of DepthBench
(arXiv 2609.32534, Eq. 1).
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.attention import Carried
from respath.spec.model import ModelSpec
from respath.spec.parts import StreamSpec
from respath.spec.streams.pre_ln import PreLNSpec


class PreLN(nn.Module):
    """x + f(norm(x)); also the base of the other streams, which say only what they do differently."""

    #: What it computes; each stream names its own.
    document: type[StreamSpec] = PreLNSpec

    #: The class of each sub-layer's own norm where it is not the backbone's; its place in the computation the stream decides.
    sublayer_norm: type[nn.Module] | None = None

    def __init__(self, spec: ModelSpec):
        super().__init__()
        #: Factors on the initial values of matrices of every layer, by their name inside the layer.
        self.initial_scale: dict[str, float] = {}

    def open(self, embedded: Tensor):
        """The embedding is the state."""
        return embedded

    def read(self, state, k: int, norm: nn.Module) -> tuple[Tensor, object]:
        """The normed state."""
        return norm(state), state

    def write(self, state, k: int, y: Tensor, norm: nn.Module):
        """The output is added."""
        return state + y

    def carry(self, carried: Carried, k: int, x: Tensor) -> Carried:
        """Nothing is handed from this sub-layer's input to later attention."""
        return carried

    def close(self, state) -> Tensor:
        """The state itself."""
        return state
