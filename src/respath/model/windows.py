"""How far back each layer's attention sees (no torch)."""

from __future__ import annotations

from respath.config.model import ModelSpec


def windows(spec: ModelSpec) -> tuple[int | None, ...]:
    """For each layer, how many tokens before a query it sees besides the query's own; None: all of them.

    The pattern is tiled over the layers; the last layer is always long.
    """
    if spec.windows is None:
        return (None,) * spec.layers
    pattern = spec.windows.pattern
    short = [pattern[n % len(pattern)] == "S" for n in range(spec.layers - 1)]
    return (*(spec.windows.short if is_short else None for is_short in short), None)
