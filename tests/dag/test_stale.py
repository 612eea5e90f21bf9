"""``respath stale`` lists what is older than the code, and its commands plan exactly that, once."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from respath.config.request import RunRequest
from respath.fingerprint import measuring_code, training_code
from respath.papers.check import open_papers
from respath.spec.document import identity
from tests.project_copy import ROOT, ProjectCopy, clean_environment


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A copy in which every job of one run's losses counts as done, and the run."""
    copy = ProjectCopy(tmp_path_factory.mktemp("stale"))
    run = (
        open_papers(copy.path, {"scale": "smoke"})
        .paper("resformer")
        .run(RunRequest(size="82M", variant="identity"), 1)
    )
    copy.pretend_done(f"results/evals/{run.id}/loss.json")
    return copy, run


def record(copy, path: str, document: dict) -> None:
    """Fill a file that a stubbed job left empty, with its time as it was."""
    file = copy.path / path
    times = file.stat()
    file.write_text(json.dumps({"schema": 1, **document}))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def results(copy, run, trained: dict, measured: dict | None) -> None:
    """The run's results, by code of these fingerprints."""
    train = {
        "kind": "train",
        "run": run.id,
        "spec": identity(run.spec),
        "status": "finished",
        "loss": {},
        "curve": {},
    }
    record(copy, f"results/runs/{run.id}/train.json", train | {"provenance": {"code": trained}})
    loss = {"kind": "loss", "run": run.id, "status": "done", "domains": {}, "mean_loss": 1.0}
    more = {} if measured is None else {"code": measured}
    record(copy, f"results/evals/{run.id}/loss.json", loss | {"mean_bits_per_byte": 1.0, **more})


def stale(copy) -> list[dict]:
    """What the command lists."""
    environment = clean_environment() | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "respath.cli", "stale", "--json", "--scale", "smoke"],
        cwd=copy.path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def followed(copy, command: str) -> dict[str, int]:
    """Do the first half of a command as it is printed, and plan the second."""
    removing, making = (shlex.split(half) for half in command.split("&&"))
    assert removing[0] == "rm" and making[0] == "snakemake"
    subprocess.run(removing, cwd=copy.path, check=True)
    return copy.planned(*making[1:])


def test_what_today_computes_is_not_listed_and_the_command_for_the_rest_plans_it_once(finished):
    copy, run = finished
    trained, measured = (
        training_code(run.spec, "torch"),
        measuring_code(run.spec.model, "respath.measure.loss"),
    )
    results(copy, run, trained, measured)
    assert stale(copy) == []

    results(copy, run, trained, measured | {"measure": "a" * 64})
    (found,) = stale(copy)
    assert (found["run"], found["what"]) == (run.id, "loss") and "measure aaaaaaaa" in found["difference"]
    assert followed(copy, found["command"]) == {"evaluate_loss": 1}

    (copy.path / f"results/evals/{run.id}/loss.json").write_text("")
    results(copy, run, trained | {"training": "b" * 64}, measured)
    (copy.path / "checkpoints" / run.id).mkdir(parents=True)
    (found,) = stale(copy)
    assert found["what"] == "train" and "training bbbbbbbb" in found["difference"]
    assert followed(copy, found["command"]) == {"train": 1}
    assert not (copy.path / "checkpoints" / run.id).exists()
