"""The processes that train together, and the device of this one: torchrun's environment, or a single process."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from respath.errors import UserError
from respath.training.runtime import Runtime
from respath.training.stopping import Stopped


@dataclass(frozen=True)
class World:
    """Rank of this process among ``size``, and its device."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Element-wise sum of a short list over all ranks, the same on each of them."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def close(self) -> None:
        """Leave the process group (or its threads outlive the training)."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def lost(self, error: RuntimeError) -> bool:
        """Whether an error says that another process of this training is gone."""
        return self.size > 1 and (isinstance(error, dist.DistError) or bool(_PEER_GONE.search(str(error))))


#: What gloo and NCCL say, in plain RuntimeErrors, when the other end of a connection has died.
_PEER_GONE = re.compile(
    r"gloo/transport|Connection (closed|reset|refused)|Broken pipe|Socket closed|NCCL|Timed out",
    re.IGNORECASE,
)


def _device(name: str, local_rank: int) -> torch.device:
    available = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if available else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if not available:
        raise UserError("--runtime: device: cuda, but PyTorch sees no GPU here; use device: auto or cpu")
    if local_rank >= torch.cuda.device_count():
        raise UserError(
            f"--runtime: rank {local_rank} of this machine needs its own GPU, but PyTorch sees {torch.cuda.device_count()}; "
            "start as many processes (torchrun --nproc-per-node) as there are GPUs"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


#: Seconds of waiting for other processes after which it is said.
_PATIENCE = 10.0


def _meet(backend: str, rank: int, size: int, asked_to_stop: Callable[[], str | None]) -> None:
    """Join the process group. Says what it waits for; raises Stopped on a stop request, UserError where nobody is met.

    PyTorch waits in C++, where no signal is heard: in a thread of its own, which ends with the process.
    """
    failures: list[Exception] = []

    def join() -> None:
        try:
            dist.init_process_group(backend)
        except Exception as error:  # raised again below, in the thread that was asked
            failures.append(error)

    waiting = threading.Thread(target=join, daemon=True)
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    line = (
        f"process {rank} of {size} (RANK and WORLD_SIZE of the environment) waits for the others at {place} (MASTER_ADDR, "
        "MASTER_PORT); if there are none, unset these"
    )
    # Started by torchrun they meet at once; what somebody else left in the environment may be of nobody.
    silent_until = time.monotonic() + (_PATIENCE if "TORCHELASTIC_RUN_ID" in os.environ else 0.5)
    waiting.start()
    while waiting.is_alive():
        waiting.join(0.1)
        if reason := asked_to_stop():
            raise Stopped(
                f"{reason}: stopped while waiting for the other processes at {place}; nothing was begun"
            )
        if waiting.is_alive() and time.monotonic() > silent_until:
            print(line, file=sys.stderr, flush=True)
            silent_until = math.inf
    if failures:
        reason = " ".join(str(failures[0]).split())[:200]
        raise UserError(f"{line}: {reason}") from None


def open_world(runtime: Runtime, asked_to_stop: Callable[[], str | None] = lambda: None) -> World:
    """Set the device, the threads and, under torchrun, the process group (gloo on CPU, nccl on GPU).

    ``asked_to_stop``: why to stop waiting for other processes. Raises UserError when the machine has no such device.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = _device(runtime.device, int(os.environ.get("LOCAL_RANK", "0")) if size > 1 else 0)
    threads = runtime.threads or int(os.environ.get("OMP_NUM_THREADS", "0") or 0)
    if threads:
        torch.set_num_threads(threads)
    if device.type == "cuda":
        # Attention's backward on GPU adds in arrival order unless told otherwise, and then no resume is exact.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
    backend = "nccl" if device.type == "cuda" else "gloo"
    if size > 1:
        _meet(backend, rank, size, asked_to_stop)
    elif runtime.engine == "deepspeed":
        # It wants a process group even for one process.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return World(rank, size, device)
