"""Own values: V_n = norm(H_{n-1}) W^V_n, the plain Transformer.

No parameters, no special layers; the base of the other paths.
Source: ResFormer (arXiv 2410.17897), Eq. 1.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.config.model import ModelSpec


class OwnValues(nn.Module):
    """Each layer attends over what it projects."""

    role = "coefficient"

    def __init__(self, spec: ModelSpec):
        super().__init__()

    def open(self) -> tuple[Tensor, ...]:
        """Nothing to carry."""
        return ()

    def mix(self, n: int, own: Tensor, carried: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The layer's own value."""
        return own, carried

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple[Tensor, ...]) -> Tensor:
        """Attention's output as it is."""
        return attended
