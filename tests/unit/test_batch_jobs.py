"""A training inside a batch job: its time limit, the machines that it was given, and the processes that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from respath.config.runtime import Runtime
from respath.errors import RETRY, UserError
from respath.training import launch, queue
from respath.training.launch import srun_command
from respath.training.lease import Lease
from respath.training.queue import Granted, granted_by_slurm, minutes, minutes_left
from tests.project_copy import ROOT
from tests.unit.training_runs import Run, tiny_spec


@pytest.fixture
def in_slurm(monkeypatch, tmp_path):
    """A Slurm job whose squeue answers what a test tells it."""

    def answer(text: str, exit_code: int = 0) -> None:
        program = tmp_path / "squeue"
        program.write_text(f"#!/bin/sh\necho '{text}'\nexit {exit_code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
        monkeypatch.setenv("SLURM_JOB_ID", "12")

    return answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:30", 0.5),
        ("5:00", 5),
        ("1:02:00", 62),
        ("2-03:00:00", 3060),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
    ],
)
def test_slurms_times_are_read(text, expected):
    assert minutes(text) == expected


def test_a_training_stops_a_minute_before_its_jobs_limit(in_slurm):
    in_slurm("1 8 3:20:00 4:00:00")
    assert granted_by_slurm() == Granted(nodes=1, cpus=8, left=200, limit=240)
    assert minutes_left() == 199


def test_a_short_job_keeps_a_tenth_of_itself(in_slurm):
    in_slurm("1 8 0:50 1:00")
    assert minutes_left() == pytest.approx(44 / 60)


@pytest.mark.parametrize("text", ["1 8 UNLIMITED UNLIMITED", "", "slurm_load_jobs error"])
def test_without_a_limit_or_an_answer_a_training_goes_on(in_slurm, text):
    in_slurm(text)
    assert minutes_left() is None


def test_outside_a_job_slurm_is_not_asked(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(queue.subprocess, "run", None)
    assert minutes_left() is None


def test_srun_starts_one_launcher_on_each_node_with_all_its_cpus():
    granted = Granted(nodes=2, cpus=32, left=None, limit=None)
    command = srun_command(Runtime(nodes=2, processes=8), granted, ["--spec", "@x"])
    assert command[:5] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=16"]
    assert command[-4:] == ["-m", "respath.training", "--spec", "@x"]


def test_several_nodes_without_slurm_or_with_fewer_granted_are_refused(in_slurm, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UserError, match="several machines need a Slurm job"):
        launch.launch(Runtime(nodes=2), [])
    in_slurm("1 8 UNLIMITED UNLIMITED")
    with pytest.raises(UserError, match="nodes: 2, but the Slurm job has 1"):
        launch.launch(Runtime(nodes=2), [])


def test_ranks_are_the_same_at_every_start_on_several_nodes(monkeypatch):
    for key, value in {
        "SLURM_JOB_ID": "41234",
        "SLURM_NODEID": "1",
        "SLURM_LAUNCH_NODE_IPADDR": "10.1.2.3",
    }.items():
        monkeypatch.setenv(key, value)
    found = launch._rendezvous(Runtime(nodes=2, processes=8))
    assert found["rdzv_backend"] == "static" and found["rdzv_configs"] == {"rank": 1}
    assert found["rdzv_endpoint"] == "10.1.2.3:21234"


def test_in_a_slurm_job_a_trainer_waits_for_another_of_its_machine(tmp_path, in_slurm):
    in_slurm("1 1 UNLIMITED UNLIMITED")
    folder = tmp_path / "run"
    program = "import sys, time; from pathlib import Path; from respath.training.lease import Lease\n"
    program += "with Lease(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    said = []

    def say(line):
        said.append(line)
        other.stdin.close()

    with Lease(folder, say=say):
        assert other.wait(30) == 0
    assert "waiting for another trainer" in said[0]


@pytest.mark.slow
def test_two_processes_stop_together_with_the_code_for_start_again_and_end_as_if_never_stopped(
    tokens, tmp_path
):
    manifest, data = tokens
    spec = tiny_spec(data, steps=150)
    undisturbed, stopped = (Run(tmp_path / name, spec, manifest) for name in ("undisturbed", "stopped"))

    def start(run: Run) -> subprocess.Popen:
        runtime = {"processes": 2, "checkpoint_minutes": 60, "compile": "off"}
        return subprocess.Popen(
            [sys.executable, "-m", "respath.training", *run.arguments(**runtime)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )

    once = start(undisturbed)
    assert once.wait(300) == 0, once.stderr.read()
    assert undisturbed.result["provenance"]["processes"] == 2

    first = start(stopped)
    deadline = time.monotonic() + 300
    while not (stopped.checkpoints / "history.jsonl").exists():
        assert first.poll() is None and time.monotonic() < deadline, first.stderr.read()
        time.sleep(0.01)
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == RETRY, first.stderr.read()
    assert not stopped.out.exists()
    (checkpoint,) = stopped.checkpoints.glob("step-*")
    assert json.loads((checkpoint / "DONE").read_text())["step"] < 150

    again = start(stopped)
    assert again.wait(300) == 0, again.stderr.read()
    assert stopped.weights == undisturbed.weights
