"""What the environment says of other processes: believed, refused in a line, or waited for with an ear for signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from respath import jobs
from respath.config.runtime import Runtime
from respath.errors import RETRY, WRONG_USE, UserError
from respath.training.launch import GROUP, _ending, needs_launch
from tests.project_copy import clean_environment
from tests.unit.training_runs import Run, free_port, tiny_spec

ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}


@pytest.fixture
def environment(monkeypatch):
    for name in (*GROUP, "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)

    def set_to(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_to


@pytest.mark.parametrize(
    ("variables", "processes", "said"),
    [
        ({"WORLD_SIZE": "2"}, 1, "WORLD_SIZE=2 without RANK, MASTER_ADDR, MASTER_PORT"),
        ({"RANK": "0"}, 1, "RANK=0 without WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, 2, "RANK=0, WORLD_SIZE=2 without MASTER_ADDR, MASTER_PORT"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 2, "processes x nodes: is 2, but the environment has RANK=0, WORLD_SIZE=1"),
        ({"RANK": "1", "WORLD_SIZE": "4", **ADDRESS}, 2, "processes x nodes: is 2, but the environment has RANK=1, WORLD_SIZE=4"),
        ({"RANK": "2", "WORLD_SIZE": "2", **ADDRESS}, 1, "no rank of a group"),
        ({"RANK": "one", "WORLD_SIZE": "2", **ADDRESS}, 1, "no rank of a group"),
    ],
)  # fmt: skip
def test_what_a_platform_left_is_refused_in_one_line_that_says_what_to_unset(
    environment, variables, processes, said
):
    environment(**variables)
    with pytest.raises(UserError) as error:
        needs_launch(Runtime(processes=processes))
    (line,) = error.value.lines
    assert said in line and f"unset {' '.join(name for name in GROUP if name in variables)}" in line


@pytest.mark.parametrize(
    ("variables", "processes", "launches"),
    [
        ({}, 1, False),
        ({}, 2, True),
        ({"WORLD_SIZE": "1"}, 1, False),
        ({"WORLD_SIZE": "1"}, 2, True),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 1, False),
        (ADDRESS, 2, True),
        ({"RANK": "1", "WORLD_SIZE": "2", **ADDRESS}, 2, False),
        ({"RANK": "1", "WORLD_SIZE": "2", **ADDRESS}, 1, False),
    ],
)
def test_a_whole_group_is_believed_and_none_is_launched_where_several_are_wanted(
    environment, variables, processes, launches
):
    environment(**variables)
    assert needs_launch(Runtime(processes=processes)) is launches


def test_jobs_of_a_workflow_do_not_inherit_a_process_group(environment, monkeypatch):
    environment(RANK="0", WORLD_SIZE="2", LOCAL_RANK="1", **ADDRESS)
    for name in ("PYTHONPATH", "PATH", "RESPATH_ROOT"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    jobs.export_environment(Path("/somewhere"))
    assert not set(os.environ) & {*GROUP, "LOCAL_RANK"}


def test_waiting_for_processes_that_never_come_is_said_and_hears_a_signal(tokens, tmp_path):
    manifest, data = tokens
    group = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    child = Run(tmp_path, tiny_spec(data), manifest).start(environment=group)
    child.until(lambda: "waits for the others" in child.said)
    child.signal(signal.SIGTERM)
    assert child.wait() == RETRY
    said = child.said
    assert (
        f"process 0 of 2 (RANK and WORLD_SIZE of the environment) waits for the others at 127.0.0.1:{group['MASTER_PORT']}"
        in said
    )
    assert "SIGTERM: stopped while waiting" in said and "Traceback" not in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU that is not there")
def test_a_refusal_of_several_processes_is_printed_once_and_without_a_launchers_lines(tokens, tmp_path):
    manifest, data = tokens
    arguments = Run(tmp_path, tiny_spec(data), manifest).arguments(processes=2, device="cuda")
    done = subprocess.run(
        [sys.executable, "-m", "respath.training", *arguments],
        env={**clean_environment(), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == WRONG_USE
    assert done.stderr.splitlines() == [
        "error: --runtime: device: cuda, but PyTorch sees no GPU here; use device: auto or cpu"
    ]


def test_a_process_that_a_signal_ended_is_named_by_it():
    assert _ending(-9).startswith("SIGKILL; ") and _ending(1).startswith("exit code 1; ")
