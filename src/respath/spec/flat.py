"""The recipe's optimizer and schedule as flat keys, as ids and stored specs of SPEC_VERSION 1 have them.

It ends with that version: this file goes, and with it ``Recipe._read_flat``, ``Recipe.identity`` and ``RunSpec.identity``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Flat key -> key of the optimizer's document.
_OPTIMIZER = {
    "beta1": "beta1",
    "beta2": "beta2",
    "adam_eps": "eps",
    "weight_decay": "weight_decay",
    "groups": "groups",
    "muon": "muon",
}
_SCHEDULE = {"warmdown_share": "warmdown_share"}
_PARTS = (("optimizer", "adamw", _OPTIMIZER), ("schedule", "cosine", _SCHEDULE))


def lowered(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's identity with flat keys."""
    low = dict(fields)
    for part, usual, names in _PARTS:
        document = low.pop(part, {"kind": usual})
        low |= {key: document[name] for key, name in names.items() if name in document}
        if document["kind"] != usual:
            low[part] = document["kind"]
    return low


def lifted(fields: Any) -> Any:
    """A recipe's fields with documents in the place of flat keys; anything else as it is."""
    if not isinstance(fields, Mapping):
        return fields
    high = dict(fields)
    for part, usual, names in _PARTS:
        found = {name: high.pop(key) for key, name in names.items() if key in high}
        kind = high.get(part, usual)
        if isinstance(kind, str) and (found or part in high):
            high[part] = {"kind": kind, **{name: value for name, value in found.items() if value is not None}}
        elif found and isinstance(kind, Mapping):
            high[part] = {**kind, **found}
    return high
