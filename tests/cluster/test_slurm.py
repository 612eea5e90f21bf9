"""The workflow on a real Slurm of one machine: jobs are killed, requeued, cancelled and timed out, and nothing is lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, missing_programs
from tests.cluster.toy_copy import ToyCopy
from tests.project_copy import clean_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing_programs()),
        reason=f"no {', '.join(missing_programs())} here (Debian packages slurm-wlm and munge)",
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake_executor_plugin_slurm") is None,
        reason="the extra slurm is not installed",
    ),
]


@pytest.fixture(scope="module")
def slurm():
    cluster = Slurm()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Workflow:
    """Snakemake with the profile as it is shipped, but for numbers that this machine does not have."""

    def __init__(self, copy: ToyCopy, cluster: Slurm, *targets: str):
        self.copy = copy
        self.log = copy.path / f"snakemake-{len(list(copy.path.glob('snakemake-*.log')))}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/slurm", *targets],
                cwd=copy.path,
                env={**clean_environment(), **cluster.environment},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def __enter__(self) -> Workflow:
        return self

    def __exit__(self, *failure) -> None:
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        """SIGKILL to this Snakemake and what it started here; jobs in the queue are none of these."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        logs = [
            self.log,
            *self.copy.path.glob("logs/train/*.log"),
            *self.copy.path.glob("logs/slurm/**/*.log"),
        ]
        return "\n".join(f"== {path}\n{path.read_text()[-4000:]}" for path in logs)


def small(copy: ToyCopy) -> ToyCopy:
    """The shipped profile with one GPU and one process for each training, looked at sooner."""
    profile, runtime = "profiles/slurm/profile.yaml", "profiles/slurm/runtime.yaml"
    copy.edit(profile, "before-status-checks: 40", "before-status-checks: 2")
    copy.edit(runtime, "  processes: 8 ", "  processes: 1 ")
    copy.edit(runtime, "  threads: 8 ", "  threads: 1 ")
    return copy


@pytest.fixture
def toy(tmp_path) -> ToyCopy:
    return small(ToyCopy(tmp_path / "project"))


def job_of(cluster: Slurm, run, state: str = "RUNNING") -> str:
    """The job in the queue that trains a run."""
    jobs = cluster.jobs(run.id)
    assert list(jobs.values()) == [state], jobs
    return next(iter(jobs))


def test_killed_requeued_cancelled_and_timed_out_jobs_end_with_the_weights_of_undisturbed_ones(slurm, toy):
    def kill(job, run):
        # The step alone: SIGKILL to a whole job is a cancellation, with a SIGTERM before it.
        slurm.ask("scancel", "--signal=KILL", f"{job}.0")

    def requeue(job, run):
        slurm.ask("scontrol", "requeue", job)

    def cancel(job, run):
        slurm.ask("scancel", job)

    def let_it_time_out(job, run):
        slurm.ask("scontrol", "update", f"JobId={job}", "TimeLimit=1")

    to_do = {"base": kill, "mix": requeue, "odd": cancel, "larger": let_it_time_out}
    first_jobs, nodes = {}, {}
    with Workflow(toy, slurm, "toy_trained") as workflow:

        def all_disturbed():
            assert workflow.process.poll() is None, workflow.said
            for name in list(to_do):
                run = toy.runs[name]
                if toy.has_checkpoint(run) and (trainer := toy.trainer(run)):
                    # It stands still until its end; whoever asks it to end, Slurm wakes it first.
                    os.kill(trainer, signal.SIGSTOP)
                    first_jobs[name] = job_of(slurm, run)
                    nodes[name] = slurm.describe(first_jobs[name])["NodeList"]
                    to_do.pop(name)(first_jobs[name], run)
            return not to_do

        slurm.until(all_disturbed, "a checkpoint of each run")
        # Slurm lets a requeued job wait for two minutes, as its node refuses it for so long; another one takes it at once.
        requeued = first_jobs["mix"]
        slurm.until(lambda: slurm.describe(requeued)["JobState"] == "PENDING", "the requeued job")
        slurm.ask("scontrol", "update", f"JobId={requeued}", f"ExcNodeList={nodes['mix']}", "StartTime=now")
        slurm.until(lambda: workflow.process.poll() is not None, "the end of the workflow")
    assert workflow.process.returncode == 0, workflow.said
    slurm.until_nothing_is_left()

    states = slurm.states()
    ends = {name: states[job] for name, job in first_jobs.items()}
    assert ends == {"base": "FAILED", "mix": "COMPLETED", "odd": "CANCELLED", "larger": "TIMEOUT"}
    assert slurm.describe(first_jobs["mix"])["Restarts"] == "1"
    assert "SIGTERM" not in (toy.path / f"checkpoints/{toy.runs['base'].id}/train.log").read_text()
    for run in toy.runs.values():
        result = toy.result(run)
        assert result["cost"]["sessions"] == 2, "it went on from its checkpoint, once"
        assert result["weights"]["sha256"] == toy.undisturbed(run)
    assert "Base" in (toy.path / "reports/out/smoke/toy/trained.md").read_text()


def test_a_workflow_that_was_killed_and_started_again_does_not_train_twice(slurm, toy):
    run = toy.runs["base"]
    target, log = f"results/runs/{run.id}/train.json", toy.path / f"logs/train/{run.id}.log"
    with Workflow(toy, slurm, target):
        slurm.until(lambda: toy.has_checkpoint(run) and toy.trainer(run), "a checkpoint")
        trainer = toy.trainer(run)
        os.kill(trainer, signal.SIGSTOP)
    assert toy.snakemake("--unlock").returncode == 0
    with Workflow(toy, slurm, target) as second:
        slurm.until(lambda: len(slurm.jobs(run.id)) == 2, "a second job")
        slurm.until(
            lambda: log.exists() and "waiting for another trainer" in log.read_text(), "the second trainer"
        )
        os.kill(trainer, signal.SIGCONT)
        slurm.until(lambda: second.process.poll() is not None, "the end of the workflow")
    assert second.process.returncode == 0, second.said
    slurm.until_nothing_is_left()
    assert "already finished" in log.read_text()
    result = toy.result(run)
    assert result["cost"]["sessions"] == 1, "one process trained, from the first step to the last"
    assert result["weights"]["sha256"] == toy.undisturbed(run)


def test_one_training_runs_on_two_nodes_with_their_gpus(slurm, tmp_path):
    toy = small(ToyCopy(tmp_path / "project"))
    run = toy.runs["base"]
    toy.edit(
        "profiles/slurm/profile.yaml",
        "    # gpu_model: h100 ",
        '    gres: "gpu:2"\n    nodes: 2\n    tasks: 2\n    tasks_per_gpu: 0\n    mpi: srun\n    # ',
    )
    toy.edit("profiles/slurm/runtime.yaml", "  nodes: 1 ", "  nodes: 2 ")
    with Workflow(toy, slurm, f"results/runs/{run.id}/train.json") as workflow:
        slurm.until(lambda: toy.steps(run) or workflow.process.poll() is not None, "the first step")
        assert workflow.process.poll() is None, workflow.said
        granted = slurm.describe(job_of(slurm, run))
        variables = Path(f"/proc/{toy.trainer(run)}/environ").read_text().split("\0")
        slurm.until(lambda: workflow.process.poll() is not None, "the end of the workflow")
    assert workflow.process.returncode == 0, workflow.said
    slurm.until_nothing_is_left()
    assert granted["NumNodes"] == "2"
    assert granted["TresPerNode"] in ("gres:gpu:2", "gres/gpu:2")
    assert {"CUDA_VISIBLE_DEVICES=0,1", "RANK=0", "WORLD_SIZE=2"} <= set(variables)
    result = toy.result(run)
    assert result["status"] == "finished"
    assert result["provenance"]["processes"] == 2
