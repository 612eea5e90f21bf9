"""Weights that were imported count as trained: the workflow evaluates them, and trains that run neither now nor later."""

from __future__ import annotations

from pathlib import Path

import pytest

from respath.config.request import RunRequest
from respath.importing import import_run
from respath.model import build_model
from respath.model.export import export
from respath.papers.check import open_papers
from respath.papers.resolve import Run
from tests.project_copy import ProjectCopy


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> ProjectCopy:
    return ProjectCopy(tmp_path_factory.mktemp("imported"))


def brought_in(copy: ProjectCopy, folder: Path, seed: int = 5, **options) -> Run:
    project = open_papers(copy.path, {"scale": "smoke"})
    run = project.paper("resformer").run(RunRequest(size="82M", variant="identity"), 1)
    export(build_model(run.spec.model, seed=seed), folder)
    import_run(project, run, folder, **options)
    return run


def test_an_imported_run_is_evaluated_and_not_trained(copy, tmp_path):
    run = brought_in(copy, tmp_path / "exported")
    planned = copy.planned(f"results/evals/{run.id}/loss.json", f"results/evals/{run.id}/lm.json")
    assert planned["evaluate_loss"] == planned["evaluate_lm"] == 1
    assert "train" not in planned and "manifest" in planned, planned


@pytest.mark.slow
def test_nothing_is_trained_when_all_else_is_there_and_other_weights_are_evaluated_anew(tmp_path):
    (tmp_path / "project").mkdir()
    copy = ProjectCopy(tmp_path / "project")
    run = brought_in(copy, tmp_path / "exported")
    target = f"results/evals/{run.id}/loss.json"
    copy.pretend_done(target)
    assert copy.planned(target) == {}
    brought_in(copy, tmp_path / "others", seed=6, replace=True)
    planned = copy.planned(target)
    assert planned.pop("total", None) is None and planned == {"evaluate_loss": 1}
