"""How much the key-value cache holds, in closed form."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from respath.config.model import ModelSpec
from respath.model.layout import layout
from respath.model.windows import windows

#: The accounting's convention: a cached number is bf16, a token id int32.
BYTES_PER_ELEMENT, BYTES_PER_ID = 2, 4

Keeps = Literal["full", "window"]


def _rows(spec: ModelSpec, context: int, cache: Keeps) -> tuple[int, int]:
    """Rows of keys and values over all layers, and ids, that a sequence of ``context`` tokens needs.

    ``full`` keeps every token in every layer, as nanochat's cache does. ``window`` keeps no more than the longest window of the
    layers that read a tensor: V_1 that a long layer reuses is kept whole, whatever layer 1 sees itself.
    """
    home = layout(spec)
    seen = [context if w is None or cache == "full" else min(w, context) for w in windows(spec)]
    key_readers: dict[int, list[int]] = {}
    value_readers: dict[int, list[int]] = {}
    for n in range(spec.layers):
        key_readers.setdefault(home.key_home[n], []).append(n)
        value_readers.setdefault(home.value_home[n], []).append(n)
        if n in home.joint:
            key_readers[home.key_home[0]].append(n)
            value_readers[home.value_home[0]].append(n)
    residual = spec.attention_residual
    if residual is not None and residual.of == "attention":
        key_readers[home.key_home[0]] += [layer - 1 for layer in residual.layers]
    rows = sum(max(seen[n] for n in key_readers[layer]) for layer in home.key_layers)
    rows += sum(max(seen[n] for n in value_readers[layer]) for layer in home.value_layers)
    return rows, max((seen[n] for n in home.looked_up), default=0)


def elements_per_token(spec: ModelSpec, context: int = 1, cache: Keeps = "full") -> int | float:
    """Keys and values kept, in numbers, per token of a sequence of ``context`` tokens.

    One key and one value vector for each layer that is read again; token ids are not counted here. A whole number unless a
    window is shorter than the context.
    """
    elements = Fraction(_rows(spec, context, cache)[0] * spec.kv_width, context)
    return int(elements) if elements.denominator == 1 else float(elements)


def cache_bytes(
    spec: ModelSpec,
    context: int,
    batch: int = 1,
    bytes_per_element: int = BYTES_PER_ELEMENT,
    cache: Keeps = "full",
) -> int:
    """Bytes of a full cache: keys and values, and token ids in int32 where values are found again by id."""
    rows, ids = _rows(spec, context, cache)
    return batch * (rows * spec.kv_width * bytes_per_element + ids * BYTES_PER_ID)
