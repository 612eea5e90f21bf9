"""Which layers a part of a model is in: what people write, as numbers."""

from __future__ import annotations

import re
from typing import Any

Layers = tuple[int, ...]


def select_layers(selector: Any, layers: int, first: int = 2) -> Layers:
    """Turn a layer selector into 1-based layer numbers.

    ``all`` (from ``first`` to the last), ``"6..8"``, ``"6.."``, ``last-third`` (0-based index >= floor(2L/3), as in
    Bank of Values), ``every-2`` (the parity of the last layer, from ``first``), one number, or a list of numbers.
    Raises ValueError when a number is outside 1..layers.
    """
    if isinstance(selector, int) and not isinstance(selector, bool):
        chosen = [selector]
    elif isinstance(selector, list | tuple):
        chosen = list(selector)
    elif selector == "all":
        chosen = list(range(first, layers + 1))
    elif selector == "last-third":
        chosen = [n for n in range(1, layers + 1) if n - 1 >= 2 * layers // 3]
    elif selector == "every-2":
        chosen = [n for n in range(first, layers + 1) if n % 2 == layers % 2]
    elif isinstance(selector, str) and (match := re.fullmatch(r"(\d+)\.\.(\d*)", selector)):
        chosen = list(range(int(match[1]), int(match[2] or layers) + 1))
    else:
        raise ValueError(
            f"{selector!r} selects no layers; write a list, '6..8', '6..', all, last-third or every-2"
        )
    wrong = [n for n in chosen if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= layers]
    if wrong or not chosen:
        raise ValueError(f"{selector!r} names layers {wrong or 'none'}, but the model has layers 1..{layers}")
    return tuple(sorted(set(chosen)))
