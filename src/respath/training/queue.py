"""What a batch system says about the job that this process runs in: its time, machines and CPUs. Slurm is asked."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

#: Kept free at the end of a job for what runs around the trainer; a tenth of a short job.
_RESERVE_MINUTES = 1.0


def in_slurm_job() -> bool:
    """Whether this process belongs to a Slurm job."""
    return "SLURM_JOB_ID" in os.environ


def minutes(text: str) -> float | None:
    """Slurm's ``[days-][hours:]minutes:seconds`` in minutes; None for UNLIMITED, NOT_SET and INVALID."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, whole, seconds = (int(part or 0) for part in match.groups())
    return 1440 * days + 60 * hours + whole + seconds / 60


@dataclass(frozen=True)
class Granted:
    """What Slurm gave a job. ``left`` and ``limit`` in minutes, None where it has no limit; CPUs over all nodes."""

    nodes: int
    cpus: int
    left: float | None
    limit: float | None


def granted_by_slurm() -> Granted | None:
    """What this process's Slurm job has; None outside one, or when squeue cannot tell.

    squeue is asked because the environment is silent: old versions set no end time, and the workflow's plugin clears
    most of Slurm's variables before it starts a job's own step.
    """
    if not in_slurm_job():
        return None
    ask = ["squeue", "--noheader", "--jobs", os.environ["SLURM_JOB_ID"], "--format", "%D %C %L %l"]
    try:
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=60).stdout.split()
        nodes, cpus, left, limit = answer
        return Granted(int(nodes), int(cpus), minutes(left), minutes(limit))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None


def minutes_left() -> float | None:
    """Minutes until a trainer should stop by itself to forestall the queue's limit; None where there is none.

    At its limit Slurm sends SIGTERM and, 30 seconds later (KillWait), SIGKILL: too soon for the checkpoint of a large
    model.
    """
    granted = granted_by_slurm()
    if granted is None or granted.left is None or granted.limit is None:
        return None
    return max(0.0, granted.left - min(_RESERVE_MINUTES, 0.1 * granted.limit))
