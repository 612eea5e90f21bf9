"""Coefficients of the value path after training: how much of V_1, and of the layer's own value, each layer mixes.

    source[n], own[n]   lambda_{n,1} and lambda_{n,2} of V'_n = lambda_{n,1} V_source + lambda_{n,2} V_n
    ratio[n]            lambda_{n,1} / lambda_{n,2}
    matrix[n][i]        dense values only: weight of V_i in V'_n, null above the diagonal

null on layers that mix nothing, and where one of the two terms does not exist. Of a scaled value the scale is ``own``; of a
reused value, a row of a token table or the projected embedding it is ``source``. A dense path has source = matrix[n][1] and
own = matrix[n][n]; the rows of layers that it leaves alone are their own value. Plus-normalised coefficients are what the
softmax gives, times the scale.
``late_over_early``: geometric mean of |ratio| in the second half of the layers over that in the first half (a mean of ratios
themselves would be ruled by one lambda_2 near zero). ``moved_mean``, ``moved_max``: absolute change since the start, of learned
coefficients.
Source: ResFormer (arXiv 2410.17897), Figure 6 and Section 4.4; the halves are our reading of "later layers", and the mean is
ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from respath.analysis.findings import Findings, mean, ratio
from respath.config.model import ModelSpec
from respath.model.transformer import Transformer

Columns = dict[str, list[float | None]]


def _placed(path: Any, layers: int, **columns: Iterable) -> Columns:
    """Coefficients of target layers as columns over all layers."""
    placed: Columns = {"source": [None] * layers, "own": [None] * layers}
    for name, numbers in columns.items():
        for n, number in zip(path.targets, numbers, strict=True):
            placed[name][n] = float(number)
    return placed


def dense_matrix(path: Any, layers: int) -> list[list[float | None]]:
    """Weights of a dense value path, (layers, layers), lower triangle."""
    rows = []
    for n in range(layers):
        row = [0.0] * n + [1.0]
        if n in path.targets:
            learned = len(path.weights) > 0
            weights = path.weights[path.targets.index(n)] if learned else (path.start,) * (n + 1)
            row = [float(weight) for weight in weights]
        rows.append(row + [None] * (layers - n - 1))
    return rows


def coefficients(path: Any, spec: ModelSpec) -> Columns | None:
    """Columns ``source`` and ``own`` of a value path; None when it has no coefficients."""
    many = len(getattr(path, "targets", ()))
    match spec.values.kind:
        case "mix" | "embedding":
            return _placed(path, spec.layers, **dict(zip(("source", "own"), path.weights(), strict=False)))
        case "table":
            return _placed(path, spec.layers, **path.weights())
        case "scaled":
            return _placed(path, spec.layers, own=path.scale)
        case "reuse":
            scales = (path.start,) * many if path.scale is None else path.scale
            return _placed(path, spec.layers, source=scales)
        case "identity_map":
            return _placed(path, spec.layers, source=(path.source,) * many, own=(path.own,) * many)
        case "dense":
            rows = dense_matrix(path, spec.layers)
            return _placed(
                path,
                spec.layers,
                source=[rows[n][0] for n in path.targets],
                own=[rows[n][n] for n in path.targets],
            )
    return None


def starts(spec: ModelSpec) -> dict[str, float] | None:
    """Where learned coefficients start, the same on every layer; None when none is learned."""
    values = spec.values
    match values.kind:
        case "mix" if values.coefficients.learnable:
            return {"source": values.coefficients.source, "own": values.coefficients.own}
        case "embedding" | "table" if values.learnable:
            return {"source": values.source, "own": values.own}
        case "dense" if values.learnable:
            return {"source": values.initial, "own": values.initial}
        case "reuse" if values.learnable:
            return {"source": values.scale}
        case "scaled":
            return {"own": 1.0}
    return None


def late_over_early(early: list[float | None], late: list[float | None]) -> float | None:
    """Geometric mean of magnitudes of ``late`` over that of ``early``; None where either half has no number but zeros."""
    logs = [[math.log(abs(value)) for value in half if value] for half in (early, late)]
    return math.exp(mean(logs[1]) - mean(logs[0])) if all(logs) else None


def measure(model: Transformer) -> Findings:
    """Coefficients of a model's value path."""
    path, spec = model.values, model.spec
    with torch.no_grad():
        columns = coefficients(path, spec)
        if columns is None:
            return Findings(reason=f"the value path {spec.values.kind} has no coefficients")
        series: dict[str, list] = dict(columns)
        series["ratio"] = [ratio(a, b) for a, b in zip(columns["source"], columns["own"], strict=True)]
        if spec.values.kind == "dense":
            series["matrix"] = dense_matrix(path, spec.layers)
    half = spec.layers // 2
    scalars = {"late_over_early": late_over_early(series["ratio"][:half], series["ratio"][half:])}
    start, reason = starts(spec), None
    if start is None:
        reason = "no coefficient is learned"
    else:
        learned = [(start[name], columns[name]) for name in start]
        if "matrix" in series:
            learned = [(start["own"], series["matrix"][n]) for n in path.targets]
        moved = [abs(c - begin) for begin, values in learned for c in values if c is not None]
        scalars |= {"moved_mean": mean(moved), "moved_max": max(moved)}
    return Findings(scalars, series, reason=reason)
