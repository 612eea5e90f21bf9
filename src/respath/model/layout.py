"""Where each layer's keys and values come from: which projections exist, what a cache holds (no torch)."""

from __future__ import annotations

from dataclasses import dataclass

from respath.config.model import CrossLayerValues, EmbeddingValues, ModelSpec, ReuseValues, TableValues


@dataclass(frozen=True)
class Layout:
    """For each layer (0-based), the layer whose keys and whose values its attention reads.

    A layer projects keys exactly when it reads its own. It has a W^V when it reads its own values and they
    are not only rows of a table. The cache holds one tensor per layer that is read, except values that are
    found again by token id.
    """

    key_home: tuple[int, ...]
    value_home: tuple[int, ...]
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

    def projects_keys(self, n: int) -> bool:
        """Whether layer ``n`` has a W^K."""
        return self.key_home[n] == n

    def projects_values(self, n: int) -> bool:
        """Whether layer ``n`` has a W^V."""
        return self.value_home[n] == n and n not in self.tabled

    def projects_input(self, n: int) -> bool:
        """Whether layer ``n`` applies its W^V to its own input."""
        return self.projects_values(n) and n not in self.embedded

    @property
    def key_layers(self) -> tuple[int, ...]:
        """Layers that project keys; theirs are stored while decoding."""
        return tuple(sorted(set(self.key_home)))

    @property
    def value_layers(self) -> tuple[int, ...]:
        """Layers whose values are stored while decoding."""
        return tuple(sorted(set(self.value_home) - self.looked_up))

    @property
    def value_projections(self) -> tuple[int, ...]:
        """Layers that have a W^V."""
        return tuple(n for n in range(len(self.value_home)) if self.projects_values(n))

    @property
    def keeps_ids(self) -> bool:
        """Whether the cache holds the history of token ids, once for all layers."""
        return bool(self.looked_up)


def layout(spec: ModelSpec) -> Layout:
    """Layout of a spec: own keys and values, less what sharing, reuse and tables take from elsewhere."""
    keys, values = list(range(spec.layers)), list(range(spec.layers))
    if spec.sharing is not None:
        first_of_group = [n - n % spec.sharing.every for n in range(spec.layers)]
        keys = first_of_group if spec.sharing.keys else keys
        values = first_of_group if spec.sharing.values else values
    targets = frozenset(layer - 1 for layer in getattr(spec.values, "layers", ()))
    special: dict[str, frozenset[int]] = {}
    match spec.values:
        case ReuseValues():
            for n in targets:
                values[n] = spec.values.source - 1
        case TableValues(combine="replace"):
            # A gate depends on the token's context, so that gated rows must be stored like any value.
            special = {"tabled": targets, "looked_up": frozenset() if spec.values.gate else targets}
        case EmbeddingValues(combine="replace"):
            special = {"embedded": targets}
        case EmbeddingValues():
            special = {"embedded_too": targets}
        case CrossLayerValues():
            special = {"joint": targets}
    return Layout(tuple(keys), tuple(values), **special)
