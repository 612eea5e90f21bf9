"""Identity mapping: U'_n = own U_n + source V_1 on the target layers.

V_1 enters as if its attention matrix were the identity. Added on concatenated heads before the output
projection, per token: key-value width must equal the width, and decoding needs the current token's V_1 only.
V_1 is the first layer's raw projection, not detached. Both numbers are constants (0.5 and 0.5: a recorded
decision, the paper prints none). No parameters; layer 1 is left alone.
Source: ResFormer (arXiv 2410.17897), Section 4.4 and Table 7.
"""

from __future__ import annotations

from torch import Tensor, nn

from respath.model.combine import combine
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.model import ModelSpec
from respath.spec.values.identity_map import IdentityMapSpec


class IdentityMapValues(ValuePath):
    """Attention's output and the first layer's value of the same token, weighted."""

    document = IdentityMapSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        self.source, self.own = spec.values.source, spec.values.own

    def mix(self, n: int, own: Tensor, carried: tuple, x: Tensor, project: nn.Module) -> tuple[Tensor, tuple]:
        """The own value; the first layer's is carried on."""
        return own, carried if carried else (own,)

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple) -> Tensor:
        """The weighted sum on target layers."""
        if n not in self.targets:
            return attended
        return combine([carried[0], attended], [self.source, self.own])

    def coefficients(self) -> Coefficients:
        """Both numbers, the same on every target."""
        many = len(self.targets)
        return {"source": (self.source,) * many, "own": (self.own,) * many}
