"""Analyses of a run: trained, or as it is before training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.data.manifest import load_manifest
from respath.files import sha256_file
from respath.fingerprint import IMPORTED, measured_by, measuring_code, trained_as
from respath.measure.analyses.answers import TASK
from respath.measure.analyses.findings import Findings
from respath.measure.analyses.inputs import Inputs
from respath.measure.analyses.stage import analyse_model, document, scores_finite
from respath.measure.weights import load_trained, read_train, refuse_other_manifest
from respath.spec.run import RunSpec
from respath.training.folders import kept_weights

if TYPE_CHECKING:
    from respath.model.transformer import Transformer

Result = tuple[dict[str, Any], dict[str, Findings]]


def marks_of(
    record: dict[str, Any], spec: RunSpec, checkpoints: Path, device: str
) -> Iterator[tuple[int, Transformer]]:
    """Steps of a run whose weights are there besides the final ones, in order, each with the model: 0 as drawn, then the kept ones.

    Kept weights that are gone, or are not the recorded ones, are left out; an imported run's start is not known.
    """
    import safetensors.torch
    import torch

    from respath.model import build_model

    if trained_as(record) == IMPORTED:
        return
    model = build_model(spec.model, seed=spec.seed, device=device, dtype=torch.float32).eval()
    yield 0, model
    for kept in record.get("kept_weights") or ():
        path = kept_weights(checkpoints, kept["step"])
        # The end is measured from the final weights.
        if kept["step"] < record["steps"] and path.is_file() and sha256_file(path) == kept["sha256"]:
            safetensors.torch.load_model(model, path, strict=True, device=str(device))
            yield kept["step"], model


def accuracy_on(
    model: Transformer, context: int, manifest: Path, items: Path, limit: int | None, device: str
) -> Callable[[], float] | str:
    """What scores a model on a task's items, or why they are not there."""
    from respath.measure.lm import evaluate_tasks, read_items, text_codec

    entry = read_items(items)["tasks"].get(TASK) or {"status": "not run", "reason": f"{items} has no {TASK}"}
    if entry["status"] != "done":
        return f"{TASK}: {entry.get('reason') or entry['status']}"
    from respath.measure.harness import RespathLM

    tokenizer = manifest.parent / load_manifest(manifest)["tokenizer"]["path"]
    lm = RespathLM(model, *text_codec(tokenizer), context, device)
    return lambda: evaluate_tasks(lambda: lm, items, limit, only=TASK)[TASK]["metrics"]["acc_norm"]


def analyse_trained(
    train_json: Path,
    manifest: Path,
    checkpoints: Path,
    sequences: int,
    modules: Collection[str],
    context: int | None = None,
    device: str = "cpu",
    accept_code: bool = False,
    items: Path | None = None,
    limit: int | None = None,
) -> Result:
    """Content of analysis.json and the findings behind it. ``sequences``: at most so many per domain; ``context``: their
    length, as in training unless told. ``items``, ``limit``: items.json of a task and how many of them are asked.

    Raises UserError when the weights are missing or not the recorded ones, or for another token store than the run's.
    """
    record = read_train(train_json)
    manifest_sha256 = sha256_file(manifest)
    if record["status"] == "diverged":
        reason = record.get("reason") or "training diverged"
        more = {"reason": reason, "weights_sha256": None, "manifest_sha256": manifest_sha256}
        return document(record["run"], {}, None, **more), {}
    refuse_other_manifest(record, train_json, checkpoints, manifest, manifest_sha256, "analyse")
    model, spec = load_trained(train_json, checkpoints, device, accept_code=accept_code)
    inputs = Inputs.read(manifest, context or spec.recipe.context, sequences)
    more = {
        "weights_sha256": record["weights"]["sha256"],
        "manifest_sha256": manifest_sha256,
        "code": measured_by(record, spec.model, analyse_model.__module__),
    }
    if not scores_finite(model, inputs, device):
        reason = "the model's scores of the sequences are not finite"
        return document(record["run"], {}, None, **more, reason=reason), {}
    marks = marks_of(record, spec, checkpoints, device)
    asked = {}
    if items is not None and "answers" in modules:
        asked["accuracy"] = accuracy_on(model, spec.recipe.context, manifest, items, limit, device)
    found = analyse_model(model, inputs, modules, device, record.get("steps"), marks, **asked)
    return document(record["run"], found, inputs, **more), found


def analyse_untrained(
    spec: RunSpec,
    run: str,
    manifest: Path,
    sequences: int,
    modules: Collection[str],
    context: int | None = None,
    device: str = "cpu",
) -> Result:
    """The same of the weights that the run starts from (ResFormer Figure 12, left)."""
    import torch

    from respath.model import build_model

    model = build_model(spec.model, seed=spec.seed, device=device, dtype=torch.float32).eval()
    inputs = Inputs.read(manifest, context or spec.recipe.context, sequences)
    found = analyse_model(model, inputs, modules, device)
    more = {
        "untrained": True,
        "weights_sha256": None,
        "manifest_sha256": sha256_file(manifest),
        "code": measuring_code(spec.model, analyse_model.__module__),
    }
    return document(run, found, inputs, **more), found
