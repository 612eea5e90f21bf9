"""Values projected from the embedding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from respath.spec.layout import Layout
from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class BesideOwn(TargetedValues):
    """Values that need no earlier layer, alone or beside the layer's own."""

    source: float = 1.0
    own: float = 0.0
    learnable: bool = False
    combine: Literal["replace", "add"] = "replace"

    first_target: ClassVar[int] = 1

    def check(self, model: ModelSpec) -> None:
        """Coefficients that mean something: of the own value where there is one, and not all 0."""
        self.refuse_zero(self.combine == "replace" and not self.learnable and self.source == 0.0)
        if self.combine == "replace" and self.own:
            raise ValueError(
                "values.own weighs the layer's own value, which combine: replace leaves out; use combine: add"
            )
        if self.combine == "add" and not self.own and not self.learnable:
            raise ValueError(
                "combine: add with own 0 that is not learned adds to nothing; give own, or use combine: replace"
            )

    def starts(self) -> Mapping[str, float]:
        """The spec's numbers."""
        if not self.learnable:
            return {}
        return {"source": self.source} | ({"own": self.own} if self.combine == "add" else {})


class EmbeddingSpec(BesideOwn):
    """V'_n = source x_0 W_n^V + own V_n, x_0 the normed embedding after smear (Bank of Values, Table 1).

    With own = 0 and not learnable-own the layer's values are a projection of the embedding alone.
    """

    kind: Literal["embedding"]

    def layout(self, places: Layout) -> Layout:
        """W^V is applied to the embedding, and where it is added to the layer's input as well."""
        if self.combine == "replace":
            return dataclasses.replace(places, embedded=self.indices)
        return dataclasses.replace(places, embedded_too=self.indices)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """One coefficient per target, two where the own value is added."""
        return {"coefficients": len(self.layers) * len(self.starts())}
