"""CORE as a stage: without task files it says how to get them, and a folder that is named later is evaluated then."""

from __future__ import annotations

import json

import pytest
import yaml

from respath.measure.core import catalogue
from respath.quantities.core import SUITES
from tests.cluster.toy_copy import ToyCopy

pytestmark = pytest.mark.slow


def test_a_folder_of_task_files_that_is_named_later_is_evaluated_then(tmp_path):
    copy = ToyCopy(tmp_path / "project")
    run = copy.runs["base"]
    target = f"results/evals/{run.id}/core.json"
    copy.make(target)
    content = json.loads((copy.path / target).read_text())
    assert content["status"] == "done" and set(content["suites"]) == set(SUITES)
    reasons = {entry["reason"] for suite in content["suites"].values() for entry in suite["tasks"].values()}
    assert len(reasons) == 1 and "core_bundle" in reasons.pop()
    assert copy.planned(target) == {}

    # A published file whose hash is not pinned: its number of rows is, and the scale takes four of them.
    task = catalogue().tasks["coqa"]
    path = tmp_path / "bundle" / task.file
    path.parent.mkdir(parents=True)
    path.write_text(
        "".join(
            json.dumps({"context": f"{k} cats see", "continuation": "a dog"}) + "\n"
            for k in range(task.items)
        )
    )
    settings = yaml.safe_load((copy.path / "config.yaml").read_text())
    (copy.path / "config.yaml").write_text(
        yaml.safe_dump(settings | {"core_bundle": str(tmp_path / "bundle")})
    )
    assert copy.planned(target) == {"core_bundle": 1, "evaluate_core": 1}
    copy.make(target)
    content = json.loads((copy.path / target).read_text())
    for suite, found in content["suites"].items():
        assert found["core"] is None and set(found["absent"]) == set(SUITES[suite]) - {"coqa"}
        assert (found["tasks"]["coqa"]["items"], found["tasks"]["coqa"]["of_items"]) == (4, task.items)
    assert copy.planned(target) == {}

    # A truncated file is one line of the stage, and costs neither the training nor what was evaluated.
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    (copy.path / "results/core_bundle/bundle.json").unlink()
    failed = copy.snakemake("results/core_bundle/bundle.json")
    assert failed.returncode != 0
    assert f"{task.items - 1} items, not the {task.items} of coqa" in failed.stdout + failed.stderr
    assert (copy.path / target).exists()
