"""Small training runs for tests: a spec on the tiny token store, run here or in a process that can be killed."""

from __future__ import annotations

import functools
import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from respath.config.run import Data, RunSpec, spec_text

#: Learnable ResFormer, so that every role of parameter takes part.
LEARNABLE = {
    "kind": "mix",
    "source": 1,
    "layers": "all",
    "coefficients": {"source": 0.5, "own": 0.5, "learnable": True},
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
        return ["--spec", spec_text(self.spec), *places, "--runtime", json.dumps(runtime)]

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
        environment: dict | None = None,
        **runtime,
    ) -> Child:
        """Train in a process of its own. ``step_seconds`` slows each step; ``die_at``: see ``_die_at``."""
        return Child(self.folder, self.arguments(**runtime), step_seconds, die_at, environment or {})


class Child:
    """A training process with its standard error in a file."""

    def __init__(
        self, folder: Path, arguments: list[str], step_seconds: float, die_at: int | None, environment: dict
    ):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="stderr-", dir=folder)
        os.close(handle)
        self.errors = Path(name)
        self.process = _server().Process(
            target=_main, args=(name, arguments, step_seconds, die_at, environment)
        )
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
    errors: str, arguments: list[str], step_seconds: float, die_at: int | None, environment: dict
) -> None:
    os.environ.update(environment)
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
        _die_at(die_at)
    os._exit(command.main(arguments))


def _die_at(number: int) -> None:
    """Die (SIGKILL) just before the ``number``-th call that makes something durable or visible, counted from 0."""
    calls = iter(range(1_000_000))

    def dying(function):
        def called(*arguments, **keywords):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)

        return called

    os.fsync, os.replace, os.unlink, os.rmdir = map(dying, (os.fsync, os.replace, os.unlink, os.rmdir))


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
