"""What of a result file goes into the repository's bundles, and what readers get back: small, and as good for tables and figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

#: Points of a kept curve at most, and significant digits of its numbers and of analyses.
POINTS, DIGITS = 256, 6
#: Digits of arrays over token positions: colours of a heat map show no more.
ARRAY_DIGITS = 4
#: Bins of token positions in a heat map: every position by itself at first, then equally wide on a logarithmic axis.
BINS = 96
#: What is kept of a training's provenance: machine, commit and versions, nothing of anybody's folders or network.
_PROVENANCE = (
    *(
        "commit",
        "dirty",
        "sources_sha256",
        "code",
        "accepted",
        "versions",
        "platform",
        "processor",
        "device",
        "device_name",
        "engine",
    ),
    *("world_size", "processes", "threads", "micro_batch", "precision", "compile", "imported"),
)
_TRAIN = (
    "schema",
    "kind",
    "run",
    "status",
    "reason",
    "steps",
    "tokens",
    "loss",
    "cost",
    "manifest_sha256",
    "spec",
)
_COUNTS = ("tokens", "documents", "bytes", "quota_tokens")


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Floats of nested lists and mappings to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list) else value


def thinned(curve: Mapping[str, list]) -> dict[str, list]:
    """Steps and losses of a curve, at most POINTS of them: means over neighbours, at the last one's step.

    Tokens follow from steps, and learning rates from the spec.
    """
    steps, losses = curve["step"], curve["loss"]
    width = max(1, math.ceil(len(steps) / POINTS))
    groups = [range(start, min(start + width, len(steps))) for start in range(0, len(steps), width)]
    means = [math.fsum(losses[index] for index in group) / len(group) for group in groups]
    return {"step": [steps[group[-1]] for group in groups], "loss": rounded(means)}


def _provenance(document: Mapping[str, Any]) -> dict[str, Any]:
    recorded = document.get("provenance") or {}
    return {key: recorded[key] for key in _PROVENANCE if key in recorded}


def thinned_train(train: Mapping[str, Any]) -> dict[str, Any]:
    """train.json with a thinned curve and without paths."""
    return {key: train.get(key) for key in _TRAIN} | {
        "curve": thinned(train["curve"]),
        "validation": rounded(train.get("validation")),
        "weights": {"sha256": (train.get("weights") or {}).get("sha256")},
        "provenance": _provenance(train),
    }


def restored_train(train: Mapping[str, Any]) -> dict[str, Any]:
    """train.json as its readers know it, from the kept one: tokens of the curve come back."""
    per_step = train["tokens"] // train["steps"] if train.get("steps") else 0
    curve = train["curve"]
    return {**train, "curve": {**curve, "tokens": [step * per_step for step in curve["step"]]}}


def without_arrays(analysis: Mapping[str, Any]) -> dict[str, Any]:
    """Scalars and series; arrays over token positions are a part of their own, and only where a figure draws them."""
    modules = {
        name: {key: value for key, value in module.items() if key != "arrays"}
        for name, module in analysis["modules"].items()
    }
    return {**analysis, "modules": rounded(modules), "provenance": _provenance(analysis)}


def thinned_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and origin of a token store, without its shards."""
    train = {
        domain: {key: entry[key] for key in _COUNTS if key in entry}
        for domain, entry in manifest["splits"]["train"].items()
    }
    return {
        **{key: manifest.get(key) for key in ("schema", "kind", "stand_in", "note", "dtype")},
        "splits": {"train": train, "validation": {}},
    }


def position_bins(positions: int) -> list[int]:
    """Borders of bins over positions 0..positions: the first ones hold one position, later ones grow with the position."""
    borders = {round(math.exp(math.log(positions + 1) * k / BINS)) - 1 for k in range(BINS + 1)}
    return sorted(borders | {0, positions})


def binned(array: np.ndarray) -> dict[str, Any]:
    """An array (layers, positions) as figures draw it: means over bins of positions, and the borders of the bins.

    To ARRAY_DIGITS significant digits; a bin with a value that is not finite is null. ``unbinned`` is what readers get back.
    """
    borders = position_bins(array.shape[1])
    means = [[float(row[a:b].astype("<f8").mean()) for a, b in itertools.pairwise(borders)] for row in array]
    values = [[mean if math.isfinite(mean) else None for mean in row] for row in means]
    return {"borders": borders, "values": rounded(values, ARRAY_DIGITS)}


def unbinned(kept: Mapping[str, Any]) -> np.ndarray:
    """The array (layers, positions) of ``binned``: each position has its bin's mean, so that bins have it again."""
    import numpy as np

    values = np.array([[math.nan if v is None else v for v in row] for row in kept["values"]], dtype="<f8")
    return np.repeat(values, np.diff(kept["borders"]), axis=1)
