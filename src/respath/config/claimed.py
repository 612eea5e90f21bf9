"""Which analyses a paper's claims read, of which runs: the little of claims.yaml that planning needs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from respath.config.project import Project, Run
from respath.config.request import RunRequest
from respath.documents import load_yaml
from respath.errors import UserError

PREFIX = "analysis."


def _sides(claim: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(module, side) of every comparison of a claim that reads an analysis."""
    for test in claim.get("all_of") or [claim]:
        metric = test.get("metric")
        if isinstance(metric, str) and metric.startswith(PREFIX):
            yield from ((metric.split(".")[1], test[side]) for side in ("left", "right") if test.get(side))


@functools.cache
def claimed_analyses(project: Project, paper: str) -> dict[str, tuple[Run, set[str]]]:
    """Run id -> run and modules, for all seeds of the runs that the claims compare.

    A claim about a variant that does not exist (yet) is left out here: judging it says so.
    """
    path = project.folder(paper).path / "claims.yaml"
    wanted: dict[str, tuple[Run, set[str]]] = {}
    for claim in load_yaml(path) if path.exists() else ():
        for module, side in _sides(claim):
            fields = {key: side[key] for key in ("size", "variant", "context", "recipe") if key in side}
            try:
                runs = project.runs_of(paper, RunRequest(**fields))
            except UserError:
                continue
            for run in runs:
                wanted.setdefault(run.id, (run, set()))[1].add(module)
    return wanted
