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
from collections.abc import Sequence

import torch

from respath.measure.analyses.findings import Findings, mean, ratio
from respath.model.transformer import Transformer
from respath.model.values.own import ValuePath
from respath.spec.model import ModelSpec

Columns = dict[str, list[float | None]]


def columns_of(path: ValuePath, spec: ModelSpec) -> Columns:
    """Coefficients of target layers as columns ``source`` and ``own`` over all layers; empty when the path has none.

    Raises RuntimeError where what the document says and what the module tells do not fit: a coefficient that is learned and not
    told would read as one that is not there.
    """
    told, learned = path.coefficients(), spec.values.starts()
    counted = spec.values.parameters(spec).get("coefficients", 0)
    if set(learned) - set(told) or bool(counted) != bool(learned):
        raise RuntimeError(
            f"the value path {spec.values.kind} learns {counted} coefficients and says where {sorted(learned)} start, but its "
            f"module tells {sorted(told)}"
        )
    placed: Columns = {"source": [None] * spec.layers, "own": [None] * spec.layers}
    for name in placed.keys() & told.keys():
        for n, number in zip(path.targets, told[name], strict=True):
            placed[name][n] = float(number)
    return placed if told else {}


def matrix_of(rows: Sequence[Sequence], targets: Sequence[int], layers: int) -> list[list[float | None]]:
    """Weights of a dense value path, (layers, layers), lower triangle; a layer that is no target takes its own value."""
    matrix = []
    for n in range(layers):
        row = [float(weight) for weight in rows[targets.index(n)]] if n in targets else [0.0] * n + [1.0]
        matrix.append(row + [None] * (layers - n - 1))
    return matrix


def late_over_early(early: list[float | None], late: list[float | None]) -> float | None:
    """Geometric mean of magnitudes of ``late`` over that of ``early``; None where either half has no number but zeros."""
    logs = [[math.log(abs(value)) for value in half if value] for half in (early, late)]
    return math.exp(mean(logs[1]) - mean(logs[0])) if all(logs) else None


def measure(model: Transformer) -> Findings:
    """Coefficients of a model's value path."""
    path, spec = model.values, model.spec
    with torch.no_grad():
        columns = columns_of(path, spec)
        if not columns:
            return Findings(reason=f"the value path {spec.values.kind} has no coefficients")
        series: dict[str, list] = dict(columns)
        series["ratio"] = [ratio(a, b) for a, b in zip(columns["source"], columns["own"], strict=True)]
        rows = path.coefficients().get("matrix")
        if rows is not None:
            series["matrix"] = matrix_of(rows, path.targets, spec.layers)
    half = spec.layers // 2
    scalars = {"late_over_early": late_over_early(series["ratio"][:half], series["ratio"][half:])}
    moved = []
    for name, start in spec.values.starts().items():
        learned = [series[name][n] for n in path.targets]
        numbers = [c for row in learned for c in row] if name == "matrix" else learned
        moved += [abs(c - start) for c in numbers if c is not None]
    if moved:
        scalars |= {"moved_mean": mean(moved), "moved_max": max(moved)}
    return Findings(scalars, series, reason=None if moved else "no coefficient is learned")
