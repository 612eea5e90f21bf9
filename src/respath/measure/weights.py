"""The trained model of a run: final weights read from safetensors, and refused when they are not the recorded ones."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.documents import check
from respath.errors import UserError
from respath.files import read_json, sha256_file
from respath.fingerprint import EARLIER, IMPORTED, model_code, trained_as
from respath.gpu_lease import lease_gpus
from respath.spec.run import RunSpec

if TYPE_CHECKING:
    from respath.model.transformer import Transformer


class NotFinite(ArithmeticError):
    """What a trained model computes is not finite: its run has diverged, whatever its weights look like."""


#: Below the checkpoint folder of a run.
FINAL_WEIGHTS = Path("final/model.safetensors")


def chosen_device(name: str) -> str:
    """``auto`` is the first GPU where there is one. UserError for a device that this machine or torch lacks."""
    import torch

    if name in ("auto", "cuda"):
        lease_gpus(1)
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name}: {str(error).splitlines()[0]}; use --device auto or cpu") from None
    return name


def read_train(path: str | Path) -> dict[str, Any]:
    """A train.json. UserError when the file is something else."""
    record = read_json(path)
    if not isinstance(record, dict) or record.get("kind") != "train":
        raise UserError(
            f"{path}: not the result of a training (kind {record.get('kind') if isinstance(record, dict) else None!r})"
        )
    return record


def verified_weights(train_json: str | Path, checkpoints: str | Path) -> Path:
    """Path of the final weights. UserError when they are missing or differ from what ``train_json`` records."""
    record = read_train(train_json)
    path = Path(checkpoints) / FINAL_WEIGHTS
    remedy = (
        f"restore the checkpoint folder, or delete {train_json} and run the same command: the run goes on from its newest "
        "checkpoint, or from step 0"
    )
    if not path.is_file():
        raise UserError(f"{path}: the final weights of run {record.get('run')} are missing; {remedy}")
    recorded, found = (record.get("weights") or {}).get("sha256"), sha256_file(path)
    if recorded != found:
        raise UserError(
            f"{path}: SHA-256 {found[:12]}... differs from {str(recorded)[:12]}... in {train_json}; {remedy}"
        )
    return path


def refuse_other_code(record: dict[str, Any], spec: RunSpec, train_json: str | Path, accept: bool) -> None:
    """Raises UserError when today's code computes another model than the one that was trained; says so where that is accepted.

    Of weights from before fingerprints, or from elsewhere, nothing is known: they are measured, and the result says it.
    """
    trained, today = trained_as(record), model_code(spec.model)
    if trained in (EARLIER, IMPORTED, today):
        return
    line = f"{train_json}: its weights were trained as model code {trained[:8]}, today's is {today[:8]}"
    if not accept:
        raise UserError(
            f"{line}; put that code back, or set `runtime: {{accept_code: true}}` (command line: --accept-code) to measure them "
            "with today's, which stays on record, or see `respath stale`"
        )
    print(f"warning: {line}; measured all the same, as accepted", file=sys.stderr)


def add_accept_code(parser: argparse.ArgumentParser) -> None:
    """The option ``--accept-code``."""
    parser.add_argument(
        "--accept-code",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="measure weights that were trained as a model of other code than today's; the result says so",
    )


def load_trained(
    train_json: str | Path, checkpoints: str | Path, device="cpu", *, accept_code: bool = False
) -> tuple[Transformer, RunSpec]:
    """Model with its final weights (float32, evaluation mode) on ``device``, and the run's spec.

    Safetensors only: nothing in a weight file is ever executed. Raises UserError when the run diverged, when weights are
    missing, or when they are not the recorded ones or do not fit the spec; and, unless ``accept_code``, when they were trained as a
    model of other code than today's.
    """
    import safetensors.torch
    import torch

    from respath.model import build_model

    record = read_train(train_json)
    if record.get("status") == "diverged":
        raise UserError(f"{train_json}: run {record.get('run')} diverged, so it has no final weights")
    path = verified_weights(train_json, checkpoints)
    spec = check(RunSpec, record["spec"], train_json, prefix=("spec",))
    refuse_other_code(record, spec, train_json, accept_code)
    model = build_model(spec.model, seed=spec.seed, device=device, dtype=torch.float32)
    try:
        safetensors.torch.load_model(model, path, strict=True, device=str(device))
    except (RuntimeError, safetensors.SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: does not fit the spec in {train_json}: {reason[:300]}") from None
    return model.eval(), spec


def refuse_other_manifest(
    record: dict, train_json: Path, checkpoints: Path, manifest: Path, manifest_sha256: str, doing: str
) -> None:
    """Raises UserError when a run was trained on another token store; ``doing``: what was to be done with this one."""
    trained_on = record.get("manifest_sha256")
    if trained_on and trained_on != manifest_sha256:
        raise UserError(
            f"{manifest}: SHA-256 {manifest_sha256[:12]}... is not the manifest {trained_on[:12]}... that {train_json} was "
            f"trained on; {doing} with that one, or delete {train_json.parent} and {checkpoints} and run the same command to train "
            "on this one"
        )
