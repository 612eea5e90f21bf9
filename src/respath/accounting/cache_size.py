"""How much the key-value cache holds, in closed form."""

from __future__ import annotations

from respath.config.model import ModelSpec
from respath.model.layout import layout

#: The accounting's convention: a cached number is bf16.
BYTES_PER_ELEMENT = 2


def elements_per_token(spec: ModelSpec) -> int:
    """Numbers kept per token over all layers: one key and one value vector for each layer that is read again."""
    home = layout(spec)
    return (len(home.key_layers) + len(home.value_layers)) * spec.kv_width


def cache_bytes(
    spec: ModelSpec, context: int, batch: int = 1, bytes_per_element: int = BYTES_PER_ELEMENT
) -> int:
    """Bytes of a full cache."""
    return elements_per_token(spec) * context * batch * bytes_per_element
