"""GPUs of a machine without batch system: one job each, freed by death. No GPU is needed: CUDA_VISIBLE_DEVICES names some."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from respath import gpu_lease
from respath.errors import UserError
from respath.gpu_lease import SWITCH, GpuLease, lease_gpus, visible_gpus
from tests.project_copy import ROOT

#: A job: takes GPUs, says which, and works until it is told to end.
JOB = """
import sys
from respath.gpu_lease import lease_gpus
print(",".join(lease_gpus(int(sys.argv[1]))), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def environment(tmp_path):
    """Three GPUs, the lease switched on, and lock files of this test's own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "LSB", "PBS"))}
    return {
        **kept,
        "CUDA_VISIBLE_DEVICES": "0,1,2",
        SWITCH: "1",
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
    }


@pytest.fixture
def start(environment):
    started = []

    def job(count: int = 1, **changes):
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(count)],
            env={**environment, **changes},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield job
    for process in started:
        process.kill()
        process.communicate()


def test_each_job_gets_gpus_of_its_own_and_a_killed_one_gives_them_back(start):
    first, second = start(2), start(1)
    held = [job.stdout.readline().strip() for job in (first, second)]
    assert sorted(",".join(held).split(",")) == ["0", "1", "2"]
    third = start(2)
    assert "waiting for 2 of the GPUs 0,1,2" in third.stderr.readline()
    first.send_signal(signal.SIGKILL)
    assert third.stdout.readline().strip() == held[0]


def test_jobs_that_want_several_take_all_or_none(tmp_path):
    gpus = ["0", "1", "2"]
    one = GpuLease(1, gpus, tmp_path)
    two = GpuLease(2, gpus, tmp_path)
    assert (one.gpus, two.gpus) == (["0"], ["1", "2"])
    one.close()
    waiting = threading.Thread(target=lambda: GpuLease(2, gpus, tmp_path, poll_seconds=0.01), daemon=True)
    waiting.start()
    time.sleep(0.05)
    free = GpuLease(1, gpus, tmp_path)
    assert free.gpus == ["0"], "the one that waits for two holds none"
    two.close()
    waiting.join(10)
    assert not waiting.is_alive()


def test_more_gpus_than_there_are_is_a_mistake_in_one_line(tmp_path):
    with pytest.raises(UserError, match="asks for 3 GPUs, but this machine shows 2") as error:
        GpuLease(3, ["0", "1"], tmp_path)
    assert len(error.value.lines) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({SWITCH: "0"}, "switched off"),
        ({"SLURM_JOB_ID": "1"}, "a batch system gave the job its GPUs"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "no GPUs"),
    ],
    ids=["off", "batch", "none"],
)
def test_nothing_is_taken_where_nothing_is_to_be_shared(start, change, reason):
    job = start(1, **change)
    assert job.stdout.readline() == "\n", reason


def test_cuda_sees_what_was_taken_and_children_do_not_take_again(environment, monkeypatch):
    for key in ("CUDA_VISIBLE_DEVICES", SWITCH):
        monkeypatch.setenv(key, environment[key])
    for key in ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(gpu_lease.tempfile, "gettempdir", lambda: environment["TMPDIR"])
    monkeypatch.setattr(gpu_lease, "_held", None)
    assert lease_gpus(2) == ["0", "1"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert os.environ[SWITCH] == "0"
    gpu_lease._held.close()


def test_gpus_are_those_that_cuda_would_show(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-4d6f, 3")
    assert visible_gpus() == ["GPU-4d6f", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus() == []


def test_without_the_variable_the_driver_is_asked(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    program.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible_gpus() == ["0", "1"]
    program.unlink()
    assert visible_gpus() == []
