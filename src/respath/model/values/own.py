"""Own values: V_n = norm(H_{n-1}) W^V_n, the plain Transformer.

V_n (batch, time, kv_width). No parameters, no special layers; the base of the other paths.
Source: ResFormer (arXiv 2410.17897), Eq. 1.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.config.model import ModelSpec
from respath.model.origin import Origin


class OwnValues(nn.Module):
    """Each layer attends over what it projects."""

    role = "coefficient"

    def __init__(self, spec: ModelSpec):
        super().__init__()

    def open(self, origin: Origin) -> tuple:
        """Nothing to carry."""
        return ()

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The layer's own value."""
        return own, carried

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple) -> Tensor:
        """Attention's output as it is."""
        return attended
