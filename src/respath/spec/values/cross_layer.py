"""Cross-layer attention: one softmax over the layer's own keys and the first layer's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from respath.spec.layout import Layout
from respath.spec.parts import TargetedValues

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class CrossLayerSpec(TargetedValues):
    """One softmax over [K_n, K_1] mixing [V_n, V_1] (ResFormer, Table 7)."""

    kind: Literal["cross_layer"]

    def check(self, model: ModelSpec) -> None:
        """Each layer's own keys, and one definition of the attention matrix."""
        super().check(model)
        if model.sharing is not None and model.sharing.keys:
            raise ValueError("cross_layer reads each layer's own keys; it excludes sharing keys")
        residual = model.attention_residual
        if residual is not None and residual.of == "attention":
            raise ValueError(
                "attention_residual of attention and cross_layer both redefine the attention matrix; choose one"
            )

    def layout(self, places: Layout) -> Layout:
        """Targets read layer 1's keys and values too."""
        return dataclasses.replace(places, joint=self.indices)

    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """None."""
        return {}

    def starts(self) -> Mapping[str, float]:
        """No coefficients."""
        return {}
