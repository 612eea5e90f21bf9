"""Deletes the intermediate checkpoints of finished runs; final weights, histories and unfinished runs stay."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from respath.errors import guard
from respath.files import read_json
from respath.training.folders import checkpoint_folders, remove_checkpoint
from respath.training.lease import Lease, LeaseHeld
from respath.training.results import KEPT, write_result


def clean_run(folder: Path, result: Path) -> int:
    """Delete the checkpoints of one finished run; returns the bytes freed. Leaves a run alone that is being trained."""
    record = read_json(result)
    final = folder / "final" / "model.safetensors"
    if record.get("status") == "finished" and not final.is_file():
        print(
            f"{folder}: kept: finished, but {final.name} is gone and only a checkpoint can bring it back",
            file=sys.stderr,
        )
        return 0
    freed = 0
    with Lease(folder, wait_minutes=0):
        if not (folder / KEPT).exists():
            # Of a run from before there were copies: without one and without checkpoints a lost result could not be made again.
            write_result(record, folder, result)
        for checkpoint in checkpoint_folders(folder).values():
            freed += sum(file.stat().st_size for file in checkpoint.iterdir())
            remove_checkpoint(checkpoint)
    return freed


@guard
def main(arguments: list[str] | None = None) -> int:
    """Clean every run below ``--checkpoints`` that has a ``train.json`` below ``--runs``."""
    parser = argparse.ArgumentParser(prog="python -m respath.training.clean", description=__doc__)
    parser.add_argument(
        "--checkpoints", required=True, type=Path, metavar="DIR", help="folder with one folder per run"
    )
    parser.add_argument("--runs", required=True, type=Path, metavar="DIR", help="folder with RUN/train.json")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    if not given.checkpoints.is_dir():
        print(f"{given.checkpoints}: no such folder; nothing to clean", file=sys.stderr)
        return 0
    for folder in sorted(path for path in given.checkpoints.iterdir() if path.is_dir()):
        result = given.runs / folder.name / "train.json"
        if not result.is_file():
            continue
        try:
            freed = clean_run(folder, result)
        except LeaseHeld as held:
            print(held.lines[0], file=sys.stderr)
            continue
        if freed:
            print(f"{folder}: freed {freed / 1e6:,.1f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
