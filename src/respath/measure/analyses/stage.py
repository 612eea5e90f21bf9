"""All analyses that are wanted of one model, on frozen sequences, and the result file that holds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from respath.errors import UserError
from respath.files import atomic_open, write_json
from respath.measure.analyses import (
    angular,
    answers,
    causal,
    coefficients,
    gains,
    gradients,
    importance,
    lens,
    norms,
    paths,
    permutation,
    pruning,
    reads,
    removal,
    transport,
)
from respath.measure.analyses.findings import Findings
from respath.measure.analyses.importance import Importance
from respath.measure.analyses.inputs import Inputs
from respath.measure.analyses.norms import Norms
from respath.measure.analyses.pca import PCA
from respath.measure.analyses.similarity import Similarity
from respath.measure.analyses.trace import Trace, trace
from respath.model.transformer import Transformer
from respath.quantities.analyses import CATALOGUE, unknown_module
from respath.training.provenance import versions

SCHEMA = 1
#: Tokens of one forward pass, by device: all states of all layers are held at once.
TOKENS = {"cpu": 1 << 12, "other": 1 << 14}
#: Modules that look at states of forward passes; those of ``POSITIONAL`` also on packed rows.
OF_STATES: dict[str, type] = {"similarity": Similarity, "pca": PCA, "importance": Importance, "norms": Norms}
POSITIONAL = {"importance": importance.both, "norms": norms.both}
#: Modules that look at losses, on packed rows as training has them.
OF_LOSSES = {"gradients": gradients.measure, "removal": removal.measure}
#: Modules that look at states between blocks or intervene on blocks, each on a sample of packed rows of its own size.
OF_BLOCKS = {
    "angular": angular,
    "causal": causal,
    "permutation": permutation,
    "lens": lens,
    "pruning": pruning,
    "paths": paths,
    "reads": reads,
}

Tracer = Callable[[Tensor, bool], Trace]


def wanted_modules(names: Iterable[str]) -> list[str]:
    """Known modules in the catalogue's order. Raises UserError, all unknown names at once, for others and for none."""
    names = list(names)
    if problems := [problem for name in names if (problem := unknown_module(name))]:
        raise UserError([f"--modules: {problem}" for problem in problems])
    if not names:
        raise UserError(f"--modules: names no analysis; choose from {', '.join(CATALOGUE)}")
    return [name for name in CATALOGUE if name in names]


def batches(rows: dict[str, np.ndarray], device: str) -> Iterator[Tensor]:
    """Ids (rows, context) in pieces that one forward pass takes; domains in order, each row once."""
    yield from pieces(np.concatenate([rows[domain] for domain in sorted(rows)]), device)


def pieces(joined: np.ndarray, device: str) -> Iterator[Tensor]:
    """The same of rows (rows, context)."""
    step = max(1, TOKENS.get(device.split(":")[0], TOKENS["other"]) // joined.shape[1])
    for start in range(0, len(joined), step):
        yield torch.from_numpy(joined[start : start + step]).to(device)


def analyse_states(
    tracer: Tracer, layers: int, rows: dict[str, np.ndarray], modules: Collection[str], device: str
) -> dict[str, Findings]:
    """Modules that share forward passes. ``tracer(ids, attention)`` runs the model."""
    running = {name: OF_STATES[name](layers) for name in OF_STATES if name in modules}
    for ids in batches(rows, device) if running else ():
        seen = tracer(ids, "importance" in running)
        for module in running.values():
            module.add(seen)
    return {name: module.result() for name, module in running.items()}


def analyse_traced(
    tracer: Tracer, layers: int, inputs: Inputs, modules: Collection[str], device: str = "cpu"
) -> dict[str, Findings]:
    """Modules that need nothing but traces: on document starts, and the positional ones on packed rows too."""
    found = analyse_states(tracer, layers, inputs.starts, modules, device)
    packed = analyse_states(tracer, layers, inputs.packed, set(modules) & set(POSITIONAL), device)
    return found | {name: POSITIONAL[name](found[name], packed[name]) for name in packed}


def analyse_model(
    model: Transformer,
    inputs: Inputs,
    modules: Collection[str],
    device: str = "cpu",
    step: int | None = None,
    marks: Iterable[tuple[int, Transformer]] = (),
    accuracy: Callable[[], float] | str = "analysed without the items of a task",
) -> dict[str, Findings]:
    """Findings of each module on one of our models.

    ``step``: how long it was trained; ``marks``: earlier steps with their models, for what is followed along training;
    ``accuracy``: scores the model on a task's items, or why that cannot be.
    """
    found = analyse_traced(
        lambda ids, attention: trace(model, ids, attention), model.spec.layers, inputs, modules, device
    )
    if "gains" in modules:
        found["gains"] = gains.measure(model)
    if "coefficients" in modules:
        found["coefficients"] = coefficients.measure(model)
    targets = sum(rows[:, 1:].size for rows in inputs.packed.values())
    for name, measure in OF_LOSSES.items():
        if name in modules:
            found[name] = measure(model, batches(inputs.packed, device), targets)
    with torch.inference_mode():
        for name, module in OF_BLOCKS.items():
            if name in modules:
                rows = inputs.window(module.SEQUENCES, module.TOKENS)
                found[name] = module.measure(model, list(pieces(rows, device)))
        if "answers" in modules:
            found["answers"] = answers.measure(model, accuracy)
        if "transport" in modules:
            starts = list(batches(inputs.starts, device))
            found["transport"] = transport.measure(model, starts, inputs.end, step, marks)
    return {name: found[name] for name in CATALOGUE if name in found}


def scores_finite(model: Transformer, inputs: Inputs, device: str) -> bool:
    """Whether the model's scores of the first sequences are numbers: analyses of others say nothing."""
    with torch.inference_mode():
        return bool(model(next(batches(inputs.packed, device))).isfinite().all())


def document(run: str, found: dict[str, Findings], inputs: Inputs | None, **more: Any) -> dict[str, Any]:
    """Content of analysis.json. ``inputs`` None: a run that diverged has nothing to look at."""
    return {
        "schema": SCHEMA,
        "kind": "analysis",
        "run": run,
        "status": "done" if inputs else "diverged",
        "reason": None,
        "input": inputs.describe() if inputs else None,
        "modules": {name: findings.as_dict() for name, findings in found.items()},
        "provenance": {"versions": versions()},
        **more,
    }


def write(out: Path, arrays: Path, content: dict[str, Any], found: dict[str, Findings]) -> None:
    """Arrays first, as ``<module>.<array>`` in a NumPy archive without pickles (empty if there are none), then the JSON."""
    named = {
        f"{name}.{key}": array for name, findings in found.items() for key, array in findings.arrays.items()
    }
    with atomic_open(arrays) as stream:
        np.savez(stream, **{key: np.ascontiguousarray(named[key], dtype="<f4") for key in sorted(named)})
    write_json(out, content)
