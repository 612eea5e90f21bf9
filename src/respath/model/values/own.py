"""Own values: V_n = norm(H_{n-1}) W^V_n, the plain Transformer.

V_n (batch, time, kv_width). No parameters, no special layers; the base of the other paths.
Source: ResFormer (arXiv 2410.17897), Eq. 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from respath.model.origin import Origin
from respath.spec.model import ModelSpec
from respath.spec.parts import ValuePathSpec
from respath.spec.values.own import OwnSpec

#: Coefficients by name, one number (dense values: one vector) per target layer.
Coefficients = Mapping[str, Sequence]


class ValuePath(nn.Module):
    """The base of the value paths, which say what they do differently; see ``respath.model.values``."""

    role = "coefficient"
    #: What it computes.
    document: type[ValuePathSpec]

    def __init__(self, spec: ModelSpec):
        super().__init__()
        self.targets = tuple(layer - 1 for layer in spec.values.targets)

    def open(self, origin: Origin) -> tuple:
        """Nothing to carry."""
        return ()

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The layer's own value."""
        return own, carried

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple) -> Tensor:
        """Attention's output as it is."""
        return attended

    def coefficients(self) -> Coefficients:
        """What weighs the path's terms now; to be said by every path."""
        raise NotImplementedError(f"{type(self).__name__} does not say its coefficients")


class OwnValues(ValuePath):
    """Each layer attends over what it projects."""

    document = OwnSpec

    def coefficients(self) -> Coefficients:
        """None."""
        return {}
