"""Where each layer's keys and values come from: which projections exist and what a cache must hold (no torch)."""

from __future__ import annotations

from dataclasses import dataclass

from respath.config.model import ModelSpec, ReuseValues


@dataclass(frozen=True)
class Layout:
    """For each layer (0-based), the layer whose keys and whose values its attention reads.

    A layer projects keys exactly when it reads its own, and likewise values; the cache holds one tensor per
    layer that is read.
    """

    key_home: tuple[int, ...]
    value_home: tuple[int, ...]

    def projects_keys(self, n: int) -> bool:
        """Whether layer ``n`` has a W^K."""
        return self.key_home[n] == n

    def projects_values(self, n: int) -> bool:
        """Whether layer ``n`` has a W^V."""
        return self.value_home[n] == n

    @property
    def key_layers(self) -> tuple[int, ...]:
        """Layers whose keys are stored while decoding."""
        return tuple(sorted(set(self.key_home)))

    @property
    def value_layers(self) -> tuple[int, ...]:
        """Layers whose values are stored while decoding."""
        return tuple(sorted(set(self.value_home)))


def layout(spec: ModelSpec) -> Layout:
    """Layout of a spec: own keys and values, less what sharing (CLA) and reuse (SVFormer) take from another layer."""
    keys, values = list(range(spec.layers)), list(range(spec.layers))
    if spec.sharing is not None:
        first_of_group = [n - n % spec.sharing.every for n in range(spec.layers)]
        keys = first_of_group if spec.sharing.keys else keys
        values = first_of_group if spec.sharing.values else values
    if isinstance(spec.values, ReuseValues):
        for layer in spec.values.layers:
            values[layer - 1] = spec.values.source - 1
    return Layout(tuple(keys), tuple(values))
