"""Changes that a reader of the code might make, as patches: what they touch is how far one change reaches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def apply(folder: Path, patch: str) -> list[str]:
    """Apply ``<patch>.patch`` of this folder to a folder; returns the files that it touches, in order."""
    path = Path(__file__).parent / f"{patch}.patch"
    # A repository above the temporary folder would make paths its own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    touched = subprocess.run(
        ["git", "apply", "--numstat", path], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert touched.returncode == 0, touched.stderr
    subprocess.run(["git", "apply", path], cwd=folder, env=environment, check=True)
    return [line.split("\t")[2] for line in touched.stdout.splitlines()]


class TreeCopy:
    """A copy of the sources and papers in ``folder``, to apply a patch of this folder to."""

    def __init__(self, folder: Path, *parts: str):
        self.path = folder
        for part in parts or ("src",):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / part)

    def apply(self, patch: str) -> list[str]:
        """Apply ``<patch>.patch``; returns the files that it touches, in order."""
        return apply(self.path, patch)

    def python(self, script: str, given: str = "") -> str:
        """What a script prints that imports the copy's sources; ``given`` is its standard input."""
        return run_python(self.path, script, given)


def run_python(root: Path, script: str, given: str = "") -> str:
    """What a script prints that imports the sources below ``root``; its errors fail the test."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env=environment, input=given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
