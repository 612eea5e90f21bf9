"""Results that the repository keeps: one bundle per run and one summary per scale, read as if they lay under ``results/``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.errors import UserError
from respath.files import read_json
from respath.quantities.keeping import unbinned
from respath.quantities.kinds import KINDS
from respath.results.store import SCHEMA, Key, Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np


def summary_id(kind: str, key: Key) -> str:
    """Name of a document in the summary: of a run as it starts the run's id, else the paper."""
    return key["run"] if KINDS[kind].of == "start" else key["paper"]


class KeptStore(Store):
    """Bundles of one folder.

    Arrays over token positions are kept where figures draw them, as the means of the bins that are drawn; checkpoints from
    elsewhere are not.
    """

    def __init__(self, folder: str | Path, root: str | Path | None = None):
        super().__init__(folder, root)
        self._bundles: dict[str, dict[str, Any] | None] = {}

    @property
    def source(self) -> str:
        """Where the files lie, for readers."""
        return f"{self._shown(self.folder)}/"

    def runs(self) -> list[str]:
        """Ids of all bundled runs."""
        return sorted(path.stem for path in self.folder.glob("*.json") if path.stem != "summary")

    def path(self, kind: str, key: Key) -> str:
        """The file that has the document, or would have it."""
        name = key["run"] if KINDS[kind].kept == "run" else "summary"
        return self._shown(self.folder / f"{name}.json")

    def document(self, kind: str, key: Key) -> dict[str, Any] | None:
        """A kept document, as its readers know it."""
        kept = KINDS[kind].kept
        if not kept:
            return None
        if kept == "run":
            return (self._bundle(key["run"]) or {}).get(kind)
        return self._summary.get(kind, {}).get(summary_id(kind, key))

    def array(self, kind: str, name: str, key: Key) -> np.ndarray | None:
        """An array of a run's analyses, each position with the mean of its bin; None where it is not kept."""
        kept = (
            ((self._bundle(key["run"]) or {}).get("arrays") or {}).get(name) if kind == "analysis" else None
        )
        return unbinned(kept) if kept else None

    def claims(self, run: str) -> Mapping[str, str] | None:
        """See ``Store.claims``."""
        return (self._bundle(run) or {}).get("claims")

    def _bundle(self, run: str) -> dict[str, Any] | None:
        if run not in self._bundles:
            path = self.folder / f"{run}.json"
            content = _opened(path, "reference", run) if path.exists() else None
            for name, kind in KINDS.items():
                if content and kind.kept == "run" and content.get(name) is not None:
                    content[name] = kind.restore(content[name])
            self._bundles[run] = content
        return self._bundles[run]

    @functools.cached_property
    def _summary(self) -> dict[str, Any]:
        path = self.folder / "summary.json"
        return _opened(path, "reference_summary") if path.exists() else {}


def _opened(path: Path, kind: str, run: str | None = None) -> dict[str, Any]:
    data = read_json(path)
    found = (data.get("kind"), data.get("schema"), data.get("run")) if isinstance(data, dict) else ()
    if found != (kind, SCHEMA, run):
        raise UserError(
            f"{path}: is no {kind} file of schema {SCHEMA}{f' of {run}' if run else ''}; bring it back from git, or collect it anew"
        )
    return data
