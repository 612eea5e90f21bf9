"""Why a run is trained, or is not: what asks for it, what is there of it, and the nearest run that has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from respath.comparison.between import nearest, spec_differences
from respath.comparison.code import older
from respath.errors import UserError, did_you_mean
from respath.files import read_json
from respath.papers import needs
from respath.papers.resolve import Resolver, Run
from respath.results.reader import Results
from respath.spec.run import RunSpec
from respath.training.folders import checkpoint_folders
from respath.training.results import KEPT


def named_run(project: Resolver, name: str) -> Run:
    """A run by its id, or by a beginning of it that no other run has. Raises UserError."""
    runs = needs.all_runs(project)
    found = [id for id in runs if id.startswith(name)]
    if name in runs or len(found) == 1:
        return runs[name if name in runs else found[0]]
    if found:
        raise UserError(
            f"{name!r} is the beginning of {len(found)} runs: {', '.join(found[:5])}{', ...' if found[5:] else ''}"
        )
    raise UserError(f"{name!r} is no run at scale {project.settings.scale}{did_you_mean(name, runs)}")


def ended_specs(project: Resolver) -> dict[str, RunSpec]:
    """Specs of all runs of this checkout that have ended, whatever asks for them now. Not those of earlier specs, which cannot be read."""
    found = {}
    for path in sorted((project.root / "results/runs").glob("*/train.json")):
        try:
            found[path.parent.name] = RunSpec.model_validate_json(json.dumps(read_json(path)["spec"]))
        except (UserError, ValidationError, KeyError, TypeError):
            continue
    return found


def why(project: Resolver, results: Results, run: Run) -> Iterator[str]:
    """The lines of ``respath why``."""
    folder = Path(project.settings.checkpoints) / run.id
    result = results.store.path("train", {"run": run.id})
    record = results.train(run.id)
    asking = [a.target for a in project.artifacts() if run.id in needs.of_artifact(project, a).trained]
    yield f"{run.id}: {run.paper}/{run.size}/{run.variant}, seed {run.seed}, scale {run.scale}"
    yield f"asked for by {', '.join(asking)}" if asking else "no table or figure at this scale asks for it"
    if record is not None:
        yield f"not trained again: {result} is there ({record['status']})"
        if difference := older(record, run):
            yield f"but of {difference}: respath stale --scale {run.scale} prints how to train it anew"
        return
    if (project.root / folder / KEPT).is_file():
        yield f"its result comes back from {folder}/{KEPT}, where its weights are; nothing is trained"
        return
    step = next(iter(checkpoint_folders(project.root / folder)), None)
    yield f"trained because {result} is not there" + (
        f"; goes on from step {step:,} of {run.spec.recipe.steps:,} ({folder})" if step else ""
    )
    ended = ended_specs(project)
    name = nearest(run.spec, ended)
    if name is None:
        yield "no run of this checkout has ended yet"
        return
    yield f"the nearest of {len(ended)} runs that have ended is {name}, from which it differs in"
    yield from (f"  {line}" for line in spec_differences(ended[name], run.spec))
