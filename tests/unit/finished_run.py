"""A finished run without training: random weights in the places and with the records that training leaves."""

from __future__ import annotations

import json
from pathlib import Path

from respath.files import read_json, sha256_file, write_json
from respath.model import build_model
from respath.spec.data import Data
from respath.spec.document import identity
from respath.spec.recipe import Recipe
from respath.spec.run import RunSpec
from respath.training.folders import kept_weights


def finished_run(
    folder: Path,
    manifest: Path,
    data: Data,
    context: int = 32,
    stream: dict | None = None,
    kept: tuple[int, ...] = (),
):
    """(train.json, manifest, checkpoint folder, model) of a small identity ResFormer on a token store.

    ``stream``: its residual stream; ``kept``: steps whose weights stayed beside the final ones.
    """
    from safetensors.torch import save_file

    vocabulary = data.tokenizer.vocab_size
    model_spec = {
        "vocab_size": vocabulary, "layers": 3, "width": 32, "heads": 2, "kv_heads": 2, "ffn_width": 64,
        "values": {"kind": "mix", "layers": "all", "coefficients": {"source": 0.5, "own": 0.5, "learnable": True}},
    }  # fmt: skip
    if stream is not None:
        model_spec["stream"] = stream
    recipe = Recipe(steps=4, warmup_steps=1, peak_lr=1e-3, final_lr=1e-4, batch_sequences=2, context=context)
    spec = RunSpec.model_validate_json(
        json.dumps({"model": model_spec, "recipe": identity(recipe), "data": identity(data), "seed": 3})
    )
    # Another seed than the run's, so that weights that were drawn instead of read would show.
    model = build_model(spec.model, seed=7)
    weights = folder / "checkpoints" / "final" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    save_file(model.state_dict(), weights)
    marks = []
    for step in kept:
        path = kept_weights(folder / "checkpoints", step)
        path.parent.mkdir(exist_ok=True)
        save_file(build_model(spec.model, seed=10 + step).state_dict(), path)
        marks.append({"step": step, "path": f"weights/{path.name}", "sha256": sha256_file(path)})
    record = {
        "steps": 4, "kept_weights": marks,
        "schema": 1, "kind": "train", "run": "a-run", "spec": identity(spec), "status": "finished", "reason": None,
        "weights": {"path": "checkpoints/final/model.safetensors", "sha256": sha256_file(weights)},
        "manifest_sha256": sha256_file(manifest),
    }  # fmt: skip
    write_json(folder / "train.json", record)
    return folder / "train.json", manifest, folder / "checkpoints", model


def scale_weights(train_json: Path, checkpoints: Path, factor: float) -> None:
    """Multiply the final weights and record them anew: finite, and all that is computed with them is not."""
    from safetensors.torch import load_file, save_file

    weights = checkpoints / "final" / "model.safetensors"
    save_file({name: tensor.clone() * factor for name, tensor in load_file(weights).items()}, weights)
    record = read_json(train_json)
    record["weights"]["sha256"] = sha256_file(weights)
    write_json(train_json, record)
