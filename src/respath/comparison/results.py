"""Result files as they stand under ``results/``: read on demand, checked, never made."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.config.project import Project, Run
from respath.errors import UserError
from respath.files import read_json
from respath.spec.data import tokens_id

if TYPE_CHECKING:
    import numpy as np

#: Schema version of every result file that this module understands.
SCHEMA = 1
#: What each kind of result cannot do without.
_NEEDED = {
    "train": ("status", "loss", "curve"),
    "loss": ("status", "domains", "mean_loss", "mean_bits_per_byte"),
    "lm_eval": ("status", "tasks"),
    "analysis": ("status", "modules"),
    "accounts": ("entries",),
    "kv": ("entries",),
    "tokens": ("splits",),
}


def imported(record: dict[str, Any]) -> dict[str, Any] | None:
    """Where the weights of a run come from that was not trained here (``respath import``); None for a trained one."""
    return (record.get("provenance") or {}).get("imported")


class Results:
    """The result files below one folder. Every method returns None where a file does not exist (yet).

    A file that exists and is not what its name says (kind, schema, run) raises UserError: a comparison over files
    that were mixed up would be worse than none.
    """

    def __init__(self, project: Project, folder: str | Path | None = None):
        self.project = project
        self.folder = Path(folder) if folder is not None else project.root / "results"
        self._read: dict[Path, dict[str, Any] | None] = {}

    @property
    def source(self) -> str:
        """Where the files lie, for readers."""
        return "results/"

    def path(self, *parts: str) -> str:
        """A result's path, relative to the project where it lies inside: for messages."""
        path = self.folder.joinpath(*parts)
        return (
            str(path.relative_to(self.project.root)) if path.is_relative_to(self.project.root) else str(path)
        )

    def _file(self, kind: str, *parts: str, run: str | None = None) -> dict[str, Any] | None:
        path = self.folder.joinpath(*parts)
        if path not in self._read:
            self._read[path] = self._checked(path, kind, run) if path.exists() else None
        return self._read[path]

    def _checked(self, path: Path, kind: str, run: str | None) -> dict[str, Any]:
        data = read_json(path)
        if not isinstance(data, dict) or data.get("kind") != kind:
            found = data.get("kind") if isinstance(data, dict) else type(data).__name__
            raise UserError(
                f"{path}: kind: is {found!r}, not {kind!r}; delete it and run the same command again"
            )
        if data.get("schema") != SCHEMA:
            raise UserError(
                f"{path}: schema: version {data.get('schema')!r} is not readable here (needs {SCHEMA}); delete it and run the "
                "same command again"
            )
        if absent := [key for key in _NEEDED[kind] if key not in data]:
            raise UserError(f"{path}: has no {', '.join(absent)}; delete it and run the same command again")
        if run is not None and data.get("run") != run:
            raise UserError(
                f"{path}: run: belongs to {data.get('run')!r}, not to {run!r}; delete it and run the same command again"
            )
        return data

    def train(self, run: str) -> dict[str, Any] | None:
        """train.json of a run."""
        return self._file("train", "runs", run, "train.json", run=run)

    def loss(self, run: str) -> dict[str, Any] | None:
        """Validation losses of a run."""
        return self._file("loss", "evals", run, "loss.json", run=run)

    def lm(self, run: str) -> dict[str, Any] | None:
        """Downstream evaluation of a run."""
        return self._file("lm_eval", "evals", run, "lm.json", run=run)

    def analysis(self, run: str) -> dict[str, Any] | None:
        """Analyses of a trained run."""
        return self._file("analysis", "analyses", run, "analysis.json", run=run)

    def untrained(self, run: str) -> dict[str, Any] | None:
        """Analyses of a run as it is before training."""
        return self._file("analysis", "analyses", run, "untrained.json", run=run)

    def checkpoint(self, label: str) -> dict[str, Any] | None:
        """Analyses of a checkpoint from elsewhere, by the label that the user gives it, on this scale's sequences."""
        return self._file(
            "analysis", "analyses", f"checkpoint-{label}-{self.project.scale.id}", "analysis.json"
        )

    def array(self, run: str, path: str) -> np.ndarray | None:
        """An array ``<module>.<name>`` of a run's analyses. UserError when the archive is not the one the JSON speaks of."""
        module, _, name = path.partition(".")
        shape = ((self.analysis(run) or {}).get("modules", {}).get(module, {}).get("arrays") or {}).get(name)
        if shape is None:
            return None
        import numpy as np

        file = self.folder.joinpath("analyses", run, "arrays.npz")
        remedy = f"delete {file.parent} and run the same command again"
        try:
            with np.load(file, allow_pickle=False) as archive:
                array = archive[path]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"{file}: cannot be read ({error}); {remedy}") from None
        if list(array.shape) != shape:
            raise UserError(f"{file}: {path} has shape {list(array.shape)}, not {shape}; {remedy}")
        return array

    def account(self, paper: str, size: str, variant: str, scale: str = "paper") -> dict[str, Any] | None:
        """Parameters, FLOPs and KV bytes of (size, variant): ``paper`` for the paper's own shape, ``scale`` for this scale's."""
        data = self._file("accounts", "accounts", f"{paper}-{self.project.scale.id}.json")
        return (data or {}).get("entries", {}).get(f"{size}/{variant}", {}).get(scale)

    def accounts_path(self, paper: str) -> str:
        """Where the accounts of a paper at this scale are, or will be."""
        return self.path("accounts", f"{paper}-{self.project.scale.id}.json")

    def kv(self, paper: str, size: str, variant: str) -> dict[str, Any] | None:
        """The KV cache of (size, variant) as measured on the real cache object."""
        data = self._file("kv", "kv", f"{paper}.json")
        return next(
            (entry for entry in (data or {}).get("entries", ()) if entry["id"] == f"{size}/{variant}"), None
        )

    def kv_entries(self, paper: str) -> list[dict[str, Any]]:
        """All measured KV caches of a paper."""
        return list((self._file("kv", "kv", f"{paper}.json") or {}).get("entries", ()))

    def manifest(self, paper: str) -> dict[str, Any] | None:
        """Manifest of the token store that the paper's runs of this scale read."""
        return self._file("tokens", "tokens", tokens_id(self.project.data_of(paper)), "manifest.json")

    def manifest_path(self, paper: str) -> str:
        """Where that manifest is, or will be."""
        return self.path("tokens", tokens_id(self.project.data_of(paper)), "manifest.json")

    def finished(self, run: Run) -> bool:
        """Has this run ended (finished or diverged)?"""
        return self.train(run.id) is not None
