"""Results read from the bundles that the repository keeps, as if they lay under ``results/``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.accounting import account
from respath.comparison.results import SCHEMA, Results
from respath.config.project import Project
from respath.errors import UserError
from respath.files import read_json
from respath.reference.bundle import restored, unbinned

if TYPE_CHECKING:
    import numpy as np

#: Kind of a result file -> its name in a bundle.
_PART = {"train": "train", "loss": "loss", "lm_eval": "lm", "analysis": "analysis"}


def reference_folder(project: Project) -> Path:
    """Where the bundles of the chosen scale lie."""
    return project.root / "reports" / "reference" / project.scale.id


class ReferenceResults(Results):
    """Bundles of one folder. Accounts are computed anew: they are closed forms of the papers' own files.

    Arrays over token positions are kept where figures draw them, as the means of the bins that are drawn; checkpoints from
    elsewhere are not.
    """

    def __init__(self, project: Project, folder: str | Path | None = None):
        super().__init__(project, folder or reference_folder(project))
        self._bundles: dict[str, dict[str, Any] | None] = {}

    @property
    def source(self) -> str:
        """Where the files lie, for readers."""
        return f"reports/reference/{self.project.scale.id}/"

    def runs(self) -> list[str]:
        """Ids of all bundled runs."""
        return sorted(path.stem for path in self.folder.glob("*.json") if path.stem != "summary")

    def _bundle(self, run: str) -> dict[str, Any] | None:
        if run not in self._bundles:
            path = self.folder / f"{run}.json"
            self._bundles[run] = None
            if path.exists():
                content = self._opened(path, "reference", run)
                self._bundles[run] = {**content, "train": restored(content["train"])}
        return self._bundles[run]

    def _opened(self, path: Path, kind: str, run: str | None = None) -> dict[str, Any]:
        data = read_json(path)
        found = (data.get("kind"), data.get("schema"), data.get("run")) if isinstance(data, dict) else ()
        if found != (kind, SCHEMA, run):
            raise UserError(
                f"{path}: is no {kind} file of schema {SCHEMA}{f' of {run}' if run else ''}; bring it back from git, or collect it anew"
            )
        return data

    @functools.cached_property
    def _summary(self) -> dict[str, Any]:
        path = self.folder / "summary.json"
        return self._opened(path, "reference_summary") if path.exists() else {"manifests": {}, "kv": {}}

    def _file(self, kind: str, *parts: str, run: str | None = None) -> dict[str, Any] | None:
        if parts[-1] == "untrained.json":
            return self._summary.get("untrained", {}).get(run)
        if kind in _PART:
            content = (
                self._bundle(run) if run else None
            )  # without a run: a checkpoint from elsewhere, not kept
            return (content or {}).get(_PART[kind])
        if kind == "kv":
            return self._summary["kv"].get(Path(parts[-1]).stem)
        raise AssertionError(f"no bundle holds files of kind {kind!r}")

    def manifest(self, paper: str) -> dict[str, Any] | None:
        """Counts and origin of the token store that the paper's runs read."""
        return self._summary["manifests"].get(paper)

    def manifest_path(self, paper: str) -> str:
        """Where they are."""
        return self.path("summary.json")

    def array(self, run: str, path: str) -> np.ndarray | None:
        """An array of a run's analyses, each position with the mean of its bin; None where it is not kept."""
        kept = ((self._bundle(run) or {}).get("arrays") or {}).get(path)
        return unbinned(kept) if kept else None

    def account(self, paper: str, size: str, variant: str, scale: str = "paper") -> dict[str, Any] | None:
        """Parameters, FLOPs and KV bytes of (size, variant), from the papers' files."""
        return _account(
            self.project, paper, size, variant, "paper" if scale == "paper" else self.project.scale.id
        )

    def accounts_path(self, paper: str) -> str:
        """What accounts are computed from."""
        return f"papers/{paper}"


@functools.cache
def _account(project: Project, paper: str, size: str, variant: str, scale: str) -> dict[str, Any] | None:
    defaults = project.accounting_defaults(paper)
    try:
        model, baseline = (
            project.model_of(paper, size, name, scale) for name in (variant, defaults.baseline)
        )
    except UserError:
        return None  # the variant does not fit this size
    return account(
        model,
        context=defaults.context,
        logits=defaults.logits,
        attention=defaults.attention,
        baseline=baseline,
        training_context=defaults.training_context or defaults.context,
    ).to_json()
