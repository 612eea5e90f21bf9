"""Resources of a training: what may differ between two machines that train the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from respath.config.documents import Document
from respath.config.documents import check as check_document
from respath.config.run import RunSpec
from respath.errors import UserError
from respath.files import read_json


class Runtime(Document):
    """How a machine is used. Nothing here enters a run's identity, and nothing changes results beyond rounding."""

    engine: Literal["torch", "deepspeed"] = "torch"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    #: CPU threads of PyTorch; unset: OMP_NUM_THREADS, else PyTorch's own choice.
    threads: int | None = Field(None, ge=1)
    #: Sequences per forward pass; gradients are accumulated up to the recipe's batch.
    micro_batch: Literal["auto"] | int = "auto"
    #: torch.compile: always, never, or (auto) only where it is measured to pay within this run.
    compile: Literal["auto", "on", "off"] = "auto"
    #: A checkpoint every so many minutes, and, if set, every so many steps.
    checkpoint_minutes: float = Field(10.0, gt=0)
    checkpoint_steps: int | None = Field(None, ge=1)
    #: Newest checkpoints kept.
    keep: int = Field(2, ge=1)
    #: Stop with a checkpoint and exit code 75 before so many minutes are over (a queue's wall-clock limit).
    time_limit_minutes: float | None = Field(None, gt=0)
    #: Wait so long for another trainer of the same run; unset: leave at once on this host, wait for other hosts.
    lease_wait_minutes: float | None = Field(None, ge=0)
    #: Steps between lines of the log; unset: about fifty lines per run.
    log_every: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _positive(self):
        if self.micro_batch != "auto" and self.micro_batch < 1:
            raise ValueError(f"micro_batch {self.micro_batch} must be auto or at least 1")
        return self


def read_argument(text: str, name: str) -> Any:
    """The JSON of an argument ``{...}`` or ``@FILE``. Raises UserError naming the argument or the file."""
    if text.startswith("@"):
        return read_json(Path(text[1:]))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{name}: not valid JSON ({error}); give {{...}} or @FILE") from None


def read_runtime(text: str | None) -> Runtime:
    """Parse ``--runtime``. Raises UserError for unknown keys and for engines that are not there."""
    source = text[1:] if text and text.startswith("@") else "--runtime"
    runtime = check_document(Runtime, read_argument(text, "--runtime") if text else {}, source)
    if runtime.engine == "deepspeed":
        raise UserError(
            f"{source}: engine: deepspeed is not there yet; use engine: torch (one process, or torchrun for DDP)"
        )
    return runtime


def read_spec(text: str) -> RunSpec:
    """Parse ``--spec``. Raises UserError with one line per problem."""
    return check_document(
        RunSpec, read_argument(text, "--spec"), text[1:] if text.startswith("@") else "--spec"
    )
