"""Analysis files in the contract's form, made up but plausible: nothing is trained and nothing is analysed."""

import math

import numpy as np

from respath.papers import needs
from tests.golden.synthetic_results import noise, sha, write_json

#: How far each variant's attention concentrates on the first token, and how many principal components it keeps.
SINK = {"transformer": 0.35, "neutreno": 0.28, "identity": 0.08, "learnable": 0.1, "svformer": 0.05}
WIDER = {"identity": 0.12, "learnable": 0.15, "dense": 0.1}


def _importance(run, layers, positions, trained):
    sink = SINK.get(run.variant, 0.2) if trained else 0.0
    uniform = np.cumsum((1 / np.arange(1, positions + 1))[::-1])[::-1] / positions
    rows = []
    for n in range(layers):
        depth = math.sin(math.pi * (n + 0.5) / layers) * sink * (1 + 0.1 * noise(run.id, n, "sink"))
        row = uniform * (1 + 0.2 * np.sin(np.arange(positions) * (n + 1)))
        row = row / row.sum() * (1 - depth)
        row[0] += depth
        rows.append(row)
    return np.array(rows)


def _entropy(row):
    return float(-(row * np.log(row)).sum())


def modules(run, trained=True, positions=None):
    """All modules of a run as (JSON, arrays)."""
    layers = run.spec.model.layers
    positions = positions or run.spec.recipe.context
    wobble = 0.03 * noise(run.seed, "seed")
    importance = _importance(run, layers, positions, trained)
    uniform = np.cumsum((1 / np.arange(1, positions + 1))[::-1])[::-1] / positions
    top = np.sort(importance, axis=1)[:, ::-1][:, :10]
    depth = [n / max(1, layers - 1) for n in range(layers)]
    sink = SINK.get(run.variant, 0.2)
    value = np.array([[1 - 0.9 * sink * 2 * (t == 0) for t in range(positions)] for _ in range(layers)]) * 4
    hidden = np.array(
        [[(2 + 6 * d) * (1 + 60 * sink * d * (t == 0)) for t in range(positions)] for d in depth]
    )
    mixed = run.variant in WIDER
    before = [1.0] + [max(0.05, 0.5 - 0.4 * d) + wobble for d in depth[1:]]
    after = [1.0] + [
        0.85 - 0.1 * d + wobble if mixed else b for d, b in zip(depth[1:], before[1:], strict=True)
    ]
    count = layers + 1
    similar = [
        [math.exp(-abs(i - j) / 3) * (0.3 if 0 in (i, j) and i != j else 1) for j in range(count)]
        for i in range(count)
    ]
    components = [
        20 + (60 + 40 * d) * (1 + WIDER.get(run.variant, 0.0)) + 2 * noise(run.id, d) for d in (0, *depth)
    ]
    weights = [
        [1 + (2 * depth[n] if i == 0 else 0.1 * noise(run.id, n, i)) for i in range(n + 1)]
        + [None] * (layers - n - 1)
        for n in range(layers)
    ]
    ratio = [None] + [0.4 + 2.2 * d**2 + wobble for d in depth[1:]]
    boost = {"identity": (1, 1, 2.0, 0.5)}.get(run.variant, (1, 1, 1, 1))
    gradients = {
        f"norm_{m}": [
            (0.05 + 0.1 * (1 - d)) * scale * (b if n == 0 else 1) * (1 + wobble) for n, d in enumerate(depth)
        ]
        for m, scale, b in zip("qkvo", (0.4, 0.5, 2.0, 2.5), boost, strict=True)
    }
    strong = 1.6 if mixed else 1.0
    series = {
        "similarity": {
            "hidden_layers": similar,
            "value_to_first_before": before,
            "value_to_first_after": after,
            "token_hidden": [0.1 + (0.5 * d if trained else 0.85 * d) + wobble for d in depth],
            "token_value_before": [0.1 + (0.5 if mixed else 0.1) * d + wobble for d in depth],
            "token_value_after": [0.15 + 0.05 * d + wobble for d in depth],
        },
        "coefficients": {
            "source": [None] + [r * 0.6 for r in ratio[1:]],
            "own": [None] + [0.6] * (layers - 1),
            "ratio": ratio,
            "matrix": weights,
        },
        "gradients": gradients,
        "removal": {
            "attention": [5.0 + 0.1 * strong * m**1.3 + wobble for m in range(layers)],
            "mlp": [5.0 + 0.25 * m**1.3 + wobble for m in range(layers)],
        },
        "pca": {"components": components},
        "importance": {
            "entropy": [_entropy(row) for row in importance],
            "first_token": importance[:, 0].tolist(),
            "top": top.tolist(),
        },
        "norms": {
            "value_first": value[:, 0].tolist(),
            "hidden_first": hidden[:, 0].tolist(),
        },
    }
    scalars = {"importance": {"uniform_entropy": _entropy(uniform), "uniform_first_token": float(uniform[0])}}
    arrays = {
        "importance.token_importance": importance.astype("<f4"),
        "norms.value": value.astype("<f4"),
        "norms.hidden": hidden.astype("<f4"),
    }
    return {
        name: {"scalars": scalars.get(name, {}), "series": found} for name, found in series.items()
    }, arrays


def analysis_record(run, status="done", trained=True):
    """analysis.json with every module, and the arrays beside it."""
    found, arrays = modules(run, trained) if status == "done" else ({}, {})
    for name, array in arrays.items():
        module, _, key = name.partition(".")
        found[module].setdefault("arrays", {})[key] = list(array.shape)
    document = {
        "schema": 1,
        "kind": "analysis",
        "run": run.id,
        "status": status,
        "reason": None if status == "done" else "loss is not finite at step 27",
        "input": {"context": run.spec.recipe.context},
        "modules": found,
        "weights_sha256": sha(run.id, "weights"),
        "provenance": {},
    }
    return document, arrays


def write_analysis(folder, run, status="done"):
    """Analyses of one run below ``folder``, as the workflow lays them out."""
    document, arrays = analysis_record(run, status)
    write_json(folder / "analyses" / run.id / "analysis.json", document)
    np.savez(folder / "analyses" / run.id / "arrays.npz", **arrays)
    return document


def write_analyses(project, folder, *, skip=(), diverged=()):
    """Analyses of every run that figures and tables want, trained or as initialised, below ``folder``."""
    runs = needs.all_runs(project)
    for artifact in project.artifacts():
        for run in needs.of_artifact(project, artifact).analyses:
            if run not in skip and not (folder / "analyses" / run / "analysis.json").exists():
                write_analysis(folder, runs[run], "diverged" if run in diverged else "done")
        for run, _ in needs.of_artifact(project, artifact).untrained.values():
            if run.id not in skip:
                document, _ = analysis_record(run, trained=False)
                write_json(folder / "analyses" / run.id / "untrained.json", document)
