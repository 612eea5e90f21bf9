"""Small training runs for tests: a spec on the tiny token store, run here or in a process that can be killed."""

from __future__ import annotations

import errno
import functools
import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from respath.spec.data import Data
from respath.spec.run import RunSpec, spec_text

#: Learnable ResFormer, so that every role of parameter takes part.
LEARNABLE = {
    "kind": "mix",
    "source": 1,
    "layers": "all",
    "coefficients": {"source": 0.5, "own": 0.5, "learnable": True},
}

#: A recipe of Bank of Values' kind, for ``tiny_spec(data, **MUON)``: groups far enough apart to tell them from each other.
MUON = {
    "schedule": {"kind": "constant_linear", "warmdown_share": 0.65},
    "peak_lr": 0.02,
    "final_lr": 0.001,
    "start_lr": 0.0,
    "grad_clip": None,
    "optimizer": {
        "kind": "muon_adamw",
        "weight_decay": 0.2,
        "eps": 1e-10,
        "muon": {"momentum_warmup_steps": 5},
        "groups": {
            "head": {"lr": 0.008, "beta1": 0.8, "beta2": 0.96, "weight_decay": 0.01},
            "embedding": {"lr": 0.3, "beta1": 0.8, "beta2": 0.995, "weight_decay": 0.001},
            "tables": {"lr": 0.15, "beta1": 0.8, "beta2": 0.995, "weight_decay": 0.01},
            "coefficients": {"lr": 0.5, "beta1": 0.96, "beta2": 0.95},
            "own_coefficients": {"lr": 0.005, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.05},
            "smear": {"lr": 0.2, "beta1": 0.8, "beta2": 0.95},
        },
    },
}


def tiny_spec(data: Data, *, seed: int = 1, model: dict | None = None, **recipe) -> RunSpec:
    """Two layers of width 32, 24 steps of 8 rows of 32 tokens, in fp32 unless told otherwise."""
    shape = {
        "vocab_size": 512,
        "layers": 2,
        "width": 32,
        "heads": 2,
        "kv_heads": 2,
        "ffn_width": 112,
        "values": LEARNABLE,
    }
    steps = {
        "steps": 24,
        "warmup_steps": 3,
        "peak_lr": 3e-3,
        "final_lr": 3e-4,
        "batch_sequences": 8,
        "context": 32,
    }
    content = {
        "model": {**shape, **(model or {})},
        "recipe": {**steps, "precision": "fp32", **recipe},
        "data": data.model_dump(mode="json"),
        "seed": seed,
    }
    return RunSpec.model_validate_json(json.dumps(content))


@dataclass
class Run:
    """One run's files below a folder, and its command line."""

    folder: Path
    spec: RunSpec
    manifest: Path
    name: str = "tiny"
    validation: dict = field(default_factory=dict)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints" / self.name

    @property
    def out(self) -> Path:
        return self.folder / "runs" / self.name / "train.json"

    @property
    def weights(self) -> bytes:
        return (self.checkpoints / "final" / "model.safetensors").read_bytes()

    @property
    def history(self) -> str:
        return (self.checkpoints / "history.jsonl").read_text()

    @property
    def result(self) -> dict:
        return json.loads(self.out.read_text())

    def arguments(self, **runtime) -> list[str]:
        runtime = {"threads": 1, "device": "cpu", "log_every": 1000, **runtime}
        places = [
            "--tokens",
            str(self.manifest),
            "--checkpoints",
            str(self.checkpoints),
            "--out",
            str(self.out),
        ]
        options = ["--runtime", json.dumps(runtime), "--validation", json.dumps(self.validation)]
        return ["--spec", spec_text(self.spec), *places, *options]

    def here(self, **runtime) -> int:
        """Train in this process; returns the exit code."""
        from respath.training.command import main

        handlers = {
            number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        }
        try:
            return main(self.arguments(**runtime))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def start(
        self,
        *,
        step_seconds: float = 0.0,
        die_at: int | None = None,
        full_at: int | None = None,
        environment: dict | None = None,
        **runtime,
    ) -> Child:
        """Train in a process of its own.

        ``step_seconds`` slows each step; ``die_at`` and ``full_at``: see ``_at_durable_call``.
        """
        jobs = [(self.arguments(**runtime), environment or {})]
        return Child(self.folder, jobs, step_seconds, die_at, full_at)


def start_ranks(jobs: list[tuple[Run, dict]], size: int = 2, **options) -> list[Child]:
    """Train runs, each with its runtime, one after the other in ``size`` processes that work together; options as in ``start``.

    One set of processes for many runs: starting it costs more than a tiny run.
    """
    ports = [str(free_port()) for _ in jobs]
    children = []
    for rank in range(size):
        of_rank = []
        for (run, runtime), port in zip(jobs, ports, strict=True):
            world = {"WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
            of_rank.append((run.arguments(**runtime), world | address))
        children.append(Child(jobs[0][0].folder, of_rank, **options))
    return children


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Child:
    """A process that trains one run after the other, with its standard error in a file.

    ``jobs``: of each run its arguments and its environment. The process ends at the first exit code that is not 0.
    """

    def __init__(
        self,
        folder: Path,
        jobs: list[tuple[list[str], dict]],
        step_seconds: float = 0.0,
        die_at: int | None = None,
        full_at: int | None = None,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="stderr-", dir=folder)
        os.close(handle)
        self.errors = Path(name)
        self.process = _server().Process(target=_main, args=(name, jobs, step_seconds, die_at, full_at))
        self.process.start()

    def wait(self) -> int:
        """Exit code; minus the signal's number when one ended it."""
        self.process.join(120)
        assert self.process.exitcode is not None, "the training did not end"
        return self.process.exitcode

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def until(self, condition) -> None:
        """Wait for a condition; fails when the process ends before, or never meets it."""
        deadline = time.monotonic() + 120
        while not condition():
            assert self.process.is_alive(), f"ended early: {self.said}"
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.001)

    @property
    def said(self) -> str:
        return self.errors.read_text()


def _main(
    errors: str,
    jobs: list[tuple[list[str], dict]],
    step_seconds: float,
    die_at: int | None,
    full_at: int | None,
) -> None:
    os.environ.update(jobs[0][1])
    handle = os.open(errors, os.O_WRONLY)
    os.dup2(handle, 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - replaces a stream for good
    from respath.training import command, loop

    if step_seconds:
        advance = loop.Training.advance

        def slow(self):
            time.sleep(step_seconds)
            return advance(self)

        loop.Training.advance = slow
    if die_at is not None:
        _at_durable_call(die_at, lambda path: os.kill(os.getpid(), signal.SIGKILL))
    if full_at is not None:
        _at_durable_call(full_at, _disk_is_full)
    for arguments, environment in jobs:
        os.environ.update(environment)
        if code := command.main(arguments):
            os._exit(code)
    os._exit(0)


def _disk_is_full(path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _at_durable_call(number: int, happens) -> None:
    """Let something happen just before the ``number``-th call that makes something durable or visible, counted from 0."""
    calls = iter(range(1_000_000))

    def called_in_place_of(function):
        def called(*arguments, **keywords):
            if next(calls) == number:
                happens(arguments[0])
            return function(*arguments, **keywords)

        return called

    os.fsync, os.replace, os.unlink, os.rmdir = map(
        called_in_place_of, (os.fsync, os.replace, os.unlink, os.rmdir)
    )


@functools.cache
def _server():
    """A server that has imported torch, once, and forks: a training then starts in tenths of a second, not seconds.

    It finds modules through PYTHONPATH only (Python 3.11 does not give it our sys.path).
    """
    root, before = Path(__file__).resolve().parents[2], os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(root)])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["respath.training.loop", "tests.unit.training_runs"])
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context
