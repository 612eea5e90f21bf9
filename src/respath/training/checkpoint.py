"""Checkpoints that are whole or absent: safetensors and JSON, hashed, written under a temporary name and renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from respath.errors import UserError, explain_os_error
from respath.files import canonical_json, read_json, sha256_file, write_json
from respath.training.folders import ELSEWHERE, checkpoint_folders, checkpoint_path, remove_checkpoint

#: Raised when the meaning of a checkpoint's files changes.
FORMAT = 1

_TENSOR_FILES = ("model", "optimizer", "history")


@dataclass
class Snapshot:
    """The state of a training between two steps.

    ``model`` and ``optimizer``: tensors by name; ``history``: float64 tensors, ``rows`` (steps, 3) and ``validation`` (points, 1 + domains); ``state``: JSON
    values. Whatever training draws (dropout masks, batches) is a function of seed and step, so there is no
    RNG state.
    """

    step: int
    model: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    history: dict[str, torch.Tensor]
    state: dict[str, Any] = field(default_factory=dict)


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> str:
    """Write one safetensors file through to the disk; returns its SHA-256. Equal tensors make equal bytes.

    ``metadata``: one entry at most, as the library keeps it in a hash map, whose order differs between
    processes. Raises OSError as other writers do (the library has an error of its own).
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        safetensors.torch.save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        if number := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
        raise OSError(errno.EIO, str(error), str(path)) from None
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, 0o666 & ~umask)
    return sha256_file(path)


def save_tensors_atomically(
    path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None
) -> str:
    """``save_tensors`` for a single file that must be whole or absent; returns its SHA-256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        digest = save_tensors(part, tensors, metadata)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return digest


def not_finite(tensors: Mapping[str, torch.Tensor]) -> str | None:
    """The first tensor with a value that is NaN or infinite, as ``name has 3 values that are not finite``; None if none has."""
    for name, tensor in tensors.items():
        if count := int(tensor.numel() - torch.isfinite(tensor).sum()):
            return f"{name} has {count:,} value{'s' * (count > 1)} that {'are' if count > 1 else 'is'} not finite"
    return None


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file in memory of their own (the library's are views of a mapped file)."""
    return {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items()}


def _sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _seal(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


class CheckpointStore:
    """The folder ``DIR/step-00000123`` and its siblings, of one run on one token manifest.

    ``DONE`` in each holds the step, the run's and the manifest's hash, and the size and SHA-256 of every
    file; it is written last. ``say`` gets one line per warning.
    """

    def __init__(
        self,
        folder: Path,
        spec_hash: str,
        manifest_sha256: str,
        keep: int = 2,
        say: Callable[[str], None] = lambda line: None,
    ):
        self.folder, self.keep, self.say = Path(folder), keep, say
        self.spec_hash, self.manifest_sha256 = spec_hash, manifest_sha256
        self._damaged: set[int] = set()

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are there, damaged or not, newest first."""
        return list(checkpoint_folders(self.folder))

    def path(self, step: int) -> Path:
        """Folder of the checkpoint after ``step`` steps."""
        return checkpoint_path(self.folder, step)

    # --- writing ---

    def save(self, snapshot: Snapshot) -> bool:
        """Write a checkpoint and remove the oldest. False, with a warning, when the disk or its rights refuse it.

        The checkpoints before it stay untouched until the new one is whole under its final name.
        """
        final = self.path(snapshot.step)
        part = self.folder / f".{final.name}.part"
        try:
            remove_checkpoint(part)
            part.mkdir(parents=True)
            self._write(part, snapshot)
            remove_checkpoint(final)
            os.replace(part, final)
            _sync_folder(self.folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                remove_checkpoint(part)
            self.say(f"warning: no checkpoint at step {snapshot.step}: {explain_os_error(error, ELSEWHERE)}")
            return False
        self._damaged.discard(snapshot.step)
        self._prune()
        return True

    def _write(self, part: Path, snapshot: Snapshot) -> None:
        files = {}
        for name in _TENSOR_FILES:
            path = part / f"{name}.safetensors"
            digest = save_tensors(path, getattr(snapshot, name))
            files[path.name] = {"sha256": digest, "bytes": path.stat().st_size}
        write_json(part / "state.json", snapshot.state)
        files["state.json"] = {
            "sha256": sha256_file(part / "state.json"),
            "bytes": (part / "state.json").stat().st_size,
        }
        content = {
            "format": FORMAT,
            "step": snapshot.step,
            "spec": self.spec_hash,
            "manifest": self.manifest_sha256,
            "files": files,
        }
        write_json(part / "DONE", {**content, "seal": _seal(content)})
        _sync_folder(part)

    def _prune(self) -> None:
        steps = self.steps()
        sound = [step for step in steps if step not in self._damaged]
        for step in steps:
            if step in self._damaged or step not in sound[: self.keep]:
                with contextlib.suppress(OSError):
                    remove_checkpoint(self.path(step))
                    self._damaged.discard(step)

    def clean(self) -> None:
        """Remove what a killed writer left behind. Call only while holding the run's lease."""
        for entry in self.folder.glob(".*.part"):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    # --- reading ---

    def load_newest(self) -> Snapshot | None:
        """The newest whole checkpoint, or None. A damaged one is named in a warning and the one before is tried.

        Raises UserError when a checkpoint belongs to another run or was trained on another manifest.
        """
        steps = self.steps()
        for step in steps:
            snapshot = self._load(step)
            if snapshot is not None:
                return snapshot
        if steps:
            self.say(f"warning: {self.folder}: no whole checkpoint is left; starting from step 0")
        return None

    def _load(self, step: int) -> Snapshot | None:
        folder = self.path(step)
        problem = self._problem(folder, step)
        if problem is None:
            try:
                parts = {name: load_tensors(folder / f"{name}.safetensors") for name in _TENSOR_FILES}
                return Snapshot(step=step, state=read_json(folder / "state.json"), **parts)
            except (OSError, SafetensorError, UserError) as error:
                problem = str(error)
        self._damaged.add(step)
        self.say(f"warning: {folder} is damaged ({problem}); trying the checkpoint before it")
        return None

    def _problem(self, folder: Path, step: int) -> str | None:
        """What is wrong with a checkpoint's files, or None. Raises UserError when it is another run's."""
        try:
            content = read_json(folder / "DONE")
            seal = content.pop("seal")
            if seal != _seal(content) or content["step"] != step:
                return "DONE does not fit its own hash"
        except (UserError, OSError, AttributeError, KeyError, TypeError):
            return "DONE is missing or unreadable"
        if content["spec"] != self.spec_hash or content["manifest"] != self.manifest_sha256:
            raise UserError(
                f"{folder}: written by run {content['spec']} on the token manifest {content['manifest'][:12]}, but this is "
                f"run {self.spec_hash} on the manifest {self.manifest_sha256[:12]}; put that manifest's tokens back, or delete "
                f"{self.folder} and run the same command to train anew"
            )
        if content["format"] != FORMAT:
            return f"format {content['format']}, this code reads {FORMAT}"
        for name, expected in content["files"].items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {expected['bytes']}"
            if sha256_file(path) != expected["sha256"]:
                return f"the hash of {name} is wrong"
        return None
