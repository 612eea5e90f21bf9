"""Start the processes of one training job: torchrun's agent here, or through ``srun`` on each node of a Slurm job."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from respath.config.runtime import Runtime
from respath.errors import RETRY, WRONG_USE, UserError
from respath.training.lease import LEASE_HELD
from respath.training.queue import Granted, granted_by_slurm

#: Marks the copies of the trainer that ``srun`` starts, one a node.
_NODE = "RESPATH_NODE_TASK"
#: Seconds that torchrun's agent leaves its processes for a last checkpoint after it was asked to stop. Slurm's own
#: patience (KillWait) is 30 s unless the site changed it.
_GRACE_SECONDS = "600"


def needs_launch(runtime: Runtime) -> bool:
    """Whether this process has to start others instead of training: several are wanted and none launched it."""
    return runtime.processes * runtime.nodes > 1 and "RANK" not in os.environ


def launch(runtime: Runtime, arguments: list[str]) -> int:
    """Run ``python -m respath.training ARGUMENTS`` in ``processes`` processes on each of ``nodes`` machines.

    Returns the trainer's own exit code. The numbers are the runtime configuration's; what the queue granted is only
    checked against them. Raises UserError where they cannot fit.
    """
    if runtime.nodes > 1 and os.environ.get(_NODE) != "1":
        return _on_each_node(runtime, arguments)
    return _here(runtime, arguments)


def srun_command(runtime: Runtime, granted: Granted, arguments: list[str]) -> list[str]:
    """One task a node with all of the node's CPUs; if one ends badly, the others cannot go on."""
    shape = [f"--nodes={runtime.nodes}", f"--ntasks={runtime.nodes}", "--ntasks-per-node=1"]
    # Since Slurm 22.05, srun no longer takes this from sbatch, and one CPU for eight processes is not enough.
    cpus = f"--cpus-per-task={granted.cpus // granted.nodes}"
    trainer = [sys.executable, "-m", "respath.training", *arguments]
    return ["srun", *shape, cpus, "--kill-on-bad-exit=1", *trainer]


def _on_each_node(runtime: Runtime, arguments: list[str]) -> int:
    granted = granted_by_slurm()
    if granted is None:
        raise UserError(
            f"--runtime: nodes: {runtime.nodes}: several machines need a Slurm job; use nodes: 1, or start torchrun on each "
            "of them yourself"
        )
    if granted.nodes < runtime.nodes:
        raise UserError(
            f"--runtime: nodes: {runtime.nodes}, but the Slurm job has {granted.nodes}; set nodes and tasks of rule train in "
            "the profile (docs/cluster.md)"
        )
    os.environ[_NODE] = "1"
    command = srun_command(runtime, granted, arguments)
    # In our place: signals for this process go to srun, which passes them on, and its exit code is the trainer's.
    os.execvp(command[0], command)


def _rendezvous(runtime: Runtime) -> dict:
    """How the agents find each other. On several nodes node 0 hosts, so that ranks are the same at every start."""
    if runtime.nodes == 1:
        return {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": f"respath-{os.getpid()}"}
    job = os.environ["SLURM_JOB_ID"]
    host = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    return {
        "rdzv_backend": "static",
        "rdzv_endpoint": f"{host}:{20000 + int(job) % 20000}",
        "rdzv_configs": {"rank": int(os.environ["SLURM_NODEID"])},
        "run_id": job,
    }


def _here(runtime: Runtime, arguments: list[str]) -> int:
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", _GRACE_SECONDS)
    # Otherwise the agent sets 1 and says so.
    os.environ.setdefault("OMP_NUM_THREADS", str(runtime.threads or 1))
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=runtime.nodes,
        max_nodes=runtime.nodes,
        nproc_per_node=runtime.processes,
        max_restarts=0,
        # Passed on to the processes, which write a checkpoint and leave with the code for "start again".
        signals_to_handle="SIGTERM,SIGINT,SIGUSR1",
        **_rendezvous(runtime),
    )
    try:
        elastic_launch(config, sys.executable)("-m", "respath.training", *arguments)
    except SignalException:
        return RETRY
    except ChildFailedError as failed:
        codes = {failure.exitcode for failure in failed.failures.values()}
        return joint_exit_code(codes, failed.get_first_failure()[1].exitcode)
    return 0


def joint_exit_code(codes: Collection[int], first: int) -> int:
    """Exit code of several processes; ``first``: of the one that ended first.

    Whoever loses another process asks to be started again. That must not hide what only one process knows and a person has
    to mend: it would be started again for ever.
    """
    return next((code for code in (WRONG_USE, LEASE_HELD, RETRY) if code in codes), first)
