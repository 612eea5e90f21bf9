"""Where each layer's keys and values come from: which projections exist, what a cache holds, how far a layer sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


@dataclass(frozen=True)
class Layout:
    """For each layer (0-based), the layer whose keys and whose values its attention reads.

    A layer projects keys exactly when it reads its own. It has a W^V when it reads its own values and they
    are not only rows of a table. The cache holds one tensor per layer that is read, except values that are
    found again by token id.
    """

    key_source: tuple[int, ...]
    value_source: tuple[int, ...]
    tabled: frozenset[int] = frozenset()
    """Layers whose values are rows of a token table and nothing else: no W^V."""
    looked_up: frozenset[int] = frozenset()
    """Of these, the layers whose values depend on the token id alone: the cache holds ids instead."""
    embedded: frozenset[int] = frozenset()
    """Layers whose W^V is applied to the embedding and not to the layer's input."""
    embedded_too: frozenset[int] = frozenset()
    """Layers whose W^V is applied to both."""
    joint: frozenset[int] = frozenset()
    """Layers whose softmax also covers the first layer's keys and values (cross-layer attention)."""
    rematched: frozenset[int] = frozenset()
    """Layers in which the first layer's attention matrix meets their own values, in a product of its own."""

    def projects_keys(self, n: int) -> bool:
        """Whether layer ``n`` has a W^K."""
        return self.key_source[n] == n

    def projects_values(self, n: int) -> bool:
        """Whether layer ``n`` has a W^V."""
        return self.value_source[n] == n and n not in self.tabled

    def projects_input(self, n: int) -> bool:
        """Whether layer ``n`` applies its W^V to its own input."""
        return self.projects_values(n) and n not in self.embedded

    @property
    def key_layers(self) -> tuple[int, ...]:
        """Layers that project keys; theirs are stored while decoding."""
        return tuple(sorted(set(self.key_source)))

    @property
    def value_layers(self) -> tuple[int, ...]:
        """Layers whose values are stored while decoding."""
        return tuple(sorted(set(self.value_source) - self.looked_up))

    @property
    def value_projections(self) -> tuple[int, ...]:
        """Layers that have a W^V."""
        return tuple(n for n in range(len(self.value_source)) if self.projects_values(n))

    @property
    def keeps_ids(self) -> bool:
        """Whether the cache holds the history of token ids, once for all layers."""
        return bool(self.looked_up)


def layout(spec: ModelSpec) -> Layout:
    """Layout of a spec: own keys and values, less what its parts take from elsewhere."""
    own = tuple(range(spec.layers))
    places = Layout(own, own)
    if spec.sharing is not None:
        places = spec.sharing.layout(places)
    places = spec.values.layout(places)
    if spec.attention_residual is not None:
        places = spec.attention_residual.layout(places)
    return places


def windows(spec: ModelSpec) -> tuple[int | None, ...]:
    """For each layer, how many tokens before a query it sees besides the query's own; None: all of them.

    The pattern is tiled over the layers; the last layer is always long.
    """
    if spec.windows is None:
        return (None,) * spec.layers
    pattern = spec.windows.pattern
    short = [pattern[n % len(pattern)] == "S" for n in range(spec.layers - 1)]
    return (*(spec.windows.short if is_short else None for is_short in short), None)
