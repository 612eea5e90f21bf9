"""Suites and their tasks as typed data: which lm-eval definition, which splits, and where the items may come from."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import model_validator

from respath.documents import check, load_yaml
from respath.errors import UserError, did_you_mean
from respath.spec.document import Document

TASKS_FILE = Path(__file__).with_name("tasks.yaml")


class WheelFile(Document):
    """Where a split lies in the wheel: a saved Arrow data set, request documents that are converted back, or requests whose
    documents are the published rows."""

    arrow: str | None = None
    documents: str | None = None
    requests: str | None = None
    #: The same kind of documents for the validation split, whose original rows are known: they test the conversion.
    like: str | None = None

    @model_validator(mode="after")
    def _one_kind(self):
        if sum(one is not None for one in (self.arrow, self.documents, self.requests)) != 1:
            raise ValueError("give one of `arrow:`, `documents:` and `requests:`")
        if self.documents is not None and self.like is None:
            raise ValueError("`documents:` needs `like:`, the documents that the conversion is tested on")
        return self


class Split(Document):
    """Sources of one split of a task."""

    local: tuple[str, ...]
    wheel: WheelFile | None = None


class Hub(Document):
    """A data set on the hub."""

    repository: str
    config: str | None = None
    revision: str | None


class Task(Document):
    """One lm-eval task, or one set of reference answers, and the sources of its items."""

    #: Of lm-eval; a set that is only scored for its likelihood has none.
    definition: str | None = None
    #: Name of the conversion in ``respath.measure.rows``.
    rows: str
    licence: str
    splits: dict[str, Split]
    hub: Hub


class Wheel(Document):
    """The PyPI wheel that holds most items."""

    name: str
    version: str
    sha256: str
    root: str


class Catalogue(Document):
    """The whole of tasks.yaml."""

    wheel: Wheel
    tasks: dict[str, Task]
    likelihood: dict[str, Task]

    def select(self, names: Sequence[str]) -> dict[str, Task]:
        """Tasks and sets by name. UserError with did-you-mean for unknown ones."""
        known = self.tasks | self.likelihood
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UserError(
                [f"evaluation task {name!r} is not known{did_you_mean(name, known)}" for name in unknown]
            )
        return {name: known[name] for name in names}


@functools.cache
def catalogue() -> Catalogue:
    """The tasks that this package knows."""
    return check(Catalogue, load_yaml(TASKS_FILE), TASKS_FILE)


def lm_eval_version() -> str:
    """Version of the installed lm-eval. UserError when it is missing."""
    try:
        return importlib.metadata.version("lm_eval")
    except importlib.metadata.PackageNotFoundError:
        raise UserError("package lm-eval is not installed; install it with `pip install lm-eval`") from None


def definitions_folder() -> Path:
    """Folder of lm-eval's own task definitions, found without importing the package (which takes seconds)."""
    lm_eval_version()
    return Path(importlib.util.find_spec("lm_eval").submodule_search_locations[0]) / "tasks"


class _DefinitionLoader(yaml.SafeLoader):
    """Safe YAML that reads lm-eval's ``!function module.name`` as text instead of importing it."""


_DefinitionLoader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


def definition(task: Task) -> dict[str, Any]:
    """lm-eval's definition of a task with its includes resolved, functions as names; empty for what lm-eval does not evaluate."""
    if task.definition is None:
        return {}

    def read(path: Path) -> dict[str, Any]:
        if not path.is_file():
            raise UserError(
                f"{path}: lm-eval {lm_eval_version()} has no such task definition; install the version of the lock file"
            )
        own = yaml.load(path.read_text(encoding="utf-8"), Loader=_DefinitionLoader)  # noqa: S506 - a SafeLoader subclass
        includes = own.pop("include", [])
        merged: dict[str, Any] = {}
        for name in includes if isinstance(includes, list) else [includes]:
            merged |= read(path.parent / name)
        return merged | own

    return read(definitions_folder() / task.definition)
