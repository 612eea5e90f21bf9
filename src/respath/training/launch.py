"""Start the processes of one training job: torchrun's agent here, or through ``srun`` on each node of a Slurm job."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence

from respath.config.runtime import Runtime
from respath.errors import RETRY, WRONG_USE, UserError
from respath.files import write_json
from respath.training.lease import LEASE_HELD
from respath.training.queue import Granted, granted_by_slurm

#: Marks the copies of the trainer that ``srun`` starts, one a node.
_NODE = "RESPATH_NODE_TASK"
#: What a launcher says to each process of a group.
GROUP = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
#: Marks processes whose refusals this launcher prints, each once.
_LAUNCHED = "RESPATH_LAUNCHED"
#: Seconds that torchrun's agent leaves its processes for a last checkpoint after it was asked to stop. Slurm's own
#: patience (KillWait) is 30 s unless the site changed it.
_GRACE_SECONDS = "600"


def needs_launch(runtime: Runtime) -> bool:
    """Whether this process has to start others instead of training: several are wanted and none launched it.

    Raises UserError for a process group in the environment that is not whole, or not of the size that is asked for: mostly
    what another tool, or the platform, left there.
    """
    wanted = runtime.processes * runtime.nodes
    given = {name: os.environ[name] for name in GROUP if os.environ.get(name)}
    if not given.keys() & {"RANK", "WORLD_SIZE"} or (given.get("WORLD_SIZE") == "1" and "RANK" not in given):
        return wanted > 1
    said = ", ".join(f"{name}={value}" for name, value in given.items())
    unset = f"unset {' '.join(given)} to train without them"
    absent = [name for name in GROUP if name not in given]
    numbers = [given.get(name, "").isdecimal() for name in ("RANK", "WORLD_SIZE")]
    if absent and given.get("WORLD_SIZE") != "1":
        raise UserError(
            f"the environment has {said} without {', '.join(absent)}, as no launcher leaves it; {unset} "
            "(several processes: --runtime '{\"processes\": N}')"
        )
    if not all(numbers) or int(given["RANK"]) >= int(given["WORLD_SIZE"]):
        raise UserError(f"the environment has {said}: no rank of a group; {unset}")
    if wanted > 1 and int(given["WORLD_SIZE"]) != wanted:
        raise UserError(
            f"--runtime: processes x nodes: is {wanted}, but the environment has {said}; {unset}, or set processes to that"
        )
    return False


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
    os.environ[_LAUNCHED] = "1"
    # What they say of failed processes is said below, in our words and once.
    for name in [
        name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")
    ]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        elastic_launch(config, sys.executable)("-m", "respath.training", *arguments)
    except SignalException:
        return RETRY
    except ChildFailedError as failed:
        rank, first = failed.get_first_failure()
        code = joint_exit_code({failure.exitcode for failure in failed.failures.values()}, first.exitcode)
        said = [
            failure.message
            for failure in failed.failures.values()
            if failure.exitcode == code and failure.error_file_data.get("respath")
        ]
        for line in dict.fromkeys(said):
            print(line, file=sys.stderr)
        if not said and code not in (RETRY, WRONG_USE, LEASE_HELD):
            print(f"error: process {rank} ended with {_ending(first.exitcode)}", file=sys.stderr)
        return code
    return 0


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}; what it said stands above"
    return f"{signal.Signals(-code).name}; where nobody sent it, memory was used up or the machine ended it"


def leave_to_launcher(lines: Sequence[str]) -> bool:
    """Whether a launcher of ours will say why this process ends: the same refusal of several processes is one."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.environ.get(_LAUNCHED) != "1":
        return False
    write_json(path, {"message": "\n".join(lines), "timestamp": int(time.time()), "respath": True})
    return True


def joint_exit_code(codes: Collection[int], first: int) -> int:
    """Exit code of several processes; ``first``: of the one that ended first.

    Whoever loses another process asks to be started again. That must not hide what only one process knows and a person has
    to mend: it would be started again for ever.
    """
    return next((code for code in (WRONG_USE, LEASE_HELD, RETRY) if code in codes), first)
