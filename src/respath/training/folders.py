"""Which folders are checkpoints, and how one is removed (no torch)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

#: What to do when the checkpoint folder cannot be written.
ELSEWHERE = "set `checkpoints:` in config.yaml to another folder, on another file system"

_NAME = re.compile(r"step-(\d{8})")


def checkpoint_path(folder: Path, step: int) -> Path:
    """Folder of the checkpoint after ``step`` steps."""
    return folder / f"step-{step:08d}"


def kept_weights(folder: Path, step: int) -> Path:
    """Weights after ``step`` steps that stay beside the final ones until they are measured."""
    return folder / "weights" / f"step-{step:08d}.safetensors"


def checkpoint_folders(folder: Path) -> dict[int, Path]:
    """Checkpoints by step, newest first, whole or not."""
    if not folder.is_dir():
        return {}
    found = {
        int(match[1]): entry
        for entry in folder.iterdir()
        if (match := _NAME.fullmatch(entry.name)) and entry.is_dir()
    }
    return dict(sorted(found.items(), reverse=True))


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint so that a kill half-way leaves nothing that looks whole: DONE goes first."""
    if folder.is_dir():
        (folder / "DONE").unlink(missing_ok=True)
        shutil.rmtree(folder)
