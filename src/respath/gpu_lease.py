"""GPUs of a machine without a batch system: a job takes free ones through lock files, which its death frees."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from respath.errors import UserError

#: Set for all jobs by the workflow where `runtime.gpu_lease` is true.
SWITCH = "RESPATH_GPU_LEASE"

#: A batch system has given each job its own GPUs already.
_BATCH_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID")

_held: GpuLease | None = None


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES names (indices or UUIDs), else one index per GPU that the driver lists; no torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True
        )
    except OSError:
        return []
    return listed.stdout.split() if listed.returncode == 0 else []


class GpuLease:
    """``count`` of ``gpus``, locked until ``close`` or the end of this process.

    ``folder`` holds one lock file per GPU; the default is this user's own on this machine, shared by all of the user's
    checkouts. Raises UserError when there are fewer GPUs than asked for. Waits while others hold too many of them.
    """

    def __init__(self, count: int, gpus: list[str], folder: Path | None = None, poll_seconds: float = 1.0):
        if count > len(gpus):
            raise UserError(
                f"runtime.processes: a job asks for {count} GPUs, but this machine shows {len(gpus)}"
                f" (CUDA_VISIBLE_DEVICES: {os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); lower it"
            )
        self.folder = folder or Path(tempfile.gettempdir()) / f"respath-gpus-{os.getuid()}"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.gpus: list[str] = []
        self._handles: list[int] = []
        told = False
        while not self._take(count, gpus):
            if not told:
                told = True
                print(f"waiting for {count} of the GPUs {','.join(gpus)} ({self.folder})", file=sys.stderr)
            time.sleep(poll_seconds)

    def _take(self, count: int, gpus: list[str]) -> bool:
        """All or nothing: two jobs that each hold half of what they need would wait for ever."""
        for gpu in gpus:
            # An open file's lock: it ends with the process, and two leases of one process exclude each other, too.
            handle = os.open(
                self.folder / f"{gpu.replace('/', '_')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            self._handles.append(handle)
            self.gpus.append(gpu)
            if len(self.gpus) == count:
                return True
        self.close()
        return False

    def close(self) -> None:
        """Give the GPUs back."""
        for handle in self._handles:
            os.close(handle)
        self._handles, self.gpus = [], []


def lease_gpus(count: int) -> list[str]:
    """Give this process ``count`` GPUs of its own until it ends, as CUDA_VISIBLE_DEVICES; returns them.

    Does nothing (and returns an empty list) unless the workflow switched leasing on, under a batch system, without
    GPUs, and in a process whose parent leased. Call it before CUDA is looked at.
    """
    global _held
    wanted = os.environ.get(SWITCH, "") == "1" and not any(name in os.environ for name in _BATCH_JOBS)
    gpus = visible_gpus() if wanted else []
    if not gpus or _held is not None:
        return []
    _held = GpuLease(count, gpus)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_held.gpus)
    # Processes that this one starts use what it holds.
    os.environ[SWITCH] = "0"
    return list(_held.gpus)
