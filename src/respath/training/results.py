"""``train.json``: what a finished run leaves for the stages after it, and whether it is already there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from respath.errors import UserError
from respath.files import read_json, sha256_file
from respath.spec.document import identity
from respath.spec.run import RunSpec

FINISHED, DIVERGED = "finished", "diverged"


def relative_path(target: Path, result: Path) -> str:
    """``target`` as seen from the folder of ``result``: results and checkpoints can move together."""
    return Path(os.path.relpath(target.resolve(), result.resolve().parent)).as_posix()


def weights_path(result: Path) -> Path:
    """Where the final weights of ``train.json`` lie. Raises UserError for a diverged run, which has none."""
    weights = read_json(result)["weights"]
    if weights is None:
        raise UserError(f"{result}: the run diverged and has no final weights")
    return Path(os.path.normpath(result.resolve().parent / weights["path"]))


def earlier_result(
    out: Path, spec: RunSpec, manifest_sha256: str
) -> tuple[dict[str, Any] | None, str | None]:
    """The result already in ``out``, if it stands, and otherwise why it does not (None: there was none).

    Raises UserError when ``out`` holds another run's result.
    """
    if not out.exists():
        return None, None
    result = read_json(out)
    if not isinstance(result, dict) or result.get("kind") != "train":
        raise UserError(f"{out}: not a training's result; give another --out")
    if result.get("spec") != identity(spec):
        raise UserError(
            f"{out}: the result of another run ({result.get('run')}); give another --out or delete it"
        )
    if result.get("manifest_sha256") != manifest_sha256:
        raise UserError(
            f"{out}: trained on the token manifest {str(result.get('manifest_sha256'))[:12]}, now given "
            f"{manifest_sha256[:12]}; give another --out or delete it"
        )
    if absent := [key for key in ("status", "weights") if key not in result]:
        raise UserError(f"{out}: has no {', '.join(absent)}; delete it and run the same command again")
    if result["status"] == DIVERGED:
        return result, None
    weights = weights_path(out)
    if not weights.is_file():
        return None, f"{out} is there, but its weights {weights} are gone"
    if sha256_file(weights) != result["weights"]["sha256"]:
        return None, f"{out} is there, but its weights {weights} are damaged"
    return result, None
