"""``train.json``: what a finished run leaves for the stages after it, and whether it is already there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.spec.document import identity
from respath.spec.run import RunSpec

FINISHED, DIVERGED = "finished", "diverged"
#: In a run's checkpoint folder: its final weights, and a copy of its train.json.
WEIGHTS, KEPT = "final/model.safetensors", "final/train.json"


def relative_path(target: Path, result: Path) -> str:
    """``target`` as seen from the folder of ``result``: results and checkpoints can move together."""
    return Path(os.path.relpath(target.resolve(), result.resolve().parent)).as_posix()


def weights_path(result: Path) -> Path:
    """Where the final weights of ``train.json`` lie. Raises UserError for a diverged run, which has none."""
    weights = read_json(result)["weights"]
    if weights is None:
        raise UserError(f"{result}: the run diverged and has no final weights")
    return Path(os.path.normpath(result.resolve().parent / weights["path"]))


def write_result(record: dict[str, Any], folder: Path, out: Path) -> None:
    """Write ``train.json``, and before it the copy in the run's checkpoint folder from which a lost one is written anew."""
    write_json(folder / KEPT, _seen_from(folder / KEPT, record, out))
    write_json(out, record)


def _seen_from(target: Path, record: dict[str, Any], source: Path) -> dict[str, Any]:
    """A record that was written for ``source``, with its paths as seen from ``target``."""

    def moved(weights: dict[str, Any]) -> dict[str, Any]:
        return {**weights, "path": relative_path(source.resolve().parent / weights["path"], target)}

    final, kept = record["weights"], record.get("kept_weights")
    return {
        **record,
        "weights": moved(final) if final else None,
        **({} if kept is None else {"kept_weights": [moved(weights) for weights in kept]}),
    }


def earlier_result(
    out: Path, folder: Path, spec: RunSpec, manifest_sha256: str | None
) -> tuple[dict[str, Any] | None, str | None]:
    """The result already in ``out``, if it stands, and otherwise why it does not (None: there was none).

    Where ``out`` is missing it is written anew from the copy in the checkpoint folder, if the final weights are that copy's.
    ``manifest_sha256``: None where there is no manifest now to compare with. Raises UserError when the result is another run's,
    or was trained on other tokens.
    """
    source = out if out.exists() else folder / KEPT
    if not source.exists():
        return None, None
    result = read_json(source)
    if not isinstance(result, dict) or result.get("kind") != "train":
        raise UserError(f"{source}: not a training's result; give another --out")
    if result.get("spec") != identity(spec):
        raise UserError(
            f"{source}: the result of another run ({result.get('run')}); give another --out or delete it"
        )
    if absent := [key for key in ("status", "weights") if key not in result]:
        raise UserError(f"{source}: has no {', '.join(absent)}; delete it and run the same command again")
    # None: weights that were imported without saying what they were trained on.
    trained_on = result.get("manifest_sha256")
    if None not in (trained_on, manifest_sha256) and trained_on != manifest_sha256:
        raise UserError(other_tokens(source, trained_on, manifest_sha256, out, folder))
    if result["status"] != DIVERGED:
        weights = weights_path(source)
        if not weights.is_file():
            return None, f"{source} is there, but its weights {weights} are gone"
        if sha256_file(weights) != result["weights"]["sha256"]:
            return None, f"{source} is there, but its weights {weights} are damaged"
    if not out.exists():
        result = _seen_from(out, result, source)
        write_json(out, result)
    return result, None


def other_tokens(source: Path, trained_on: str, now: str, out: Path, folder: Path) -> str:
    """One line for a run that was trained on other tokens than there are now, with both ways out."""
    return (
        f"{source}: trained on the token manifest {trained_on[:12]}, now there is {now[:12]}; put those tokens back, or delete "
        f"{folder} and {out.parent} and run the same command to train on these"
    )
