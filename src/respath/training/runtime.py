"""Arguments of the trainer: spec and resources, as JSON or in a file."""

from __future__ import annotations

from respath.config.arguments import argument
from respath.config.run import RunSpec
from respath.config.runtime import Runtime
from respath.errors import UserError


def read_runtime(text: str | None) -> Runtime:
    """Parse ``--runtime``. Raises UserError for unknown keys and for engines that are not there."""
    source = text[1:] if text and text.startswith("@") else "--runtime"
    runtime = argument(Runtime, text or "{}", "--runtime")
    if runtime.engine == "deepspeed":
        raise UserError(
            f"{source}: engine: deepspeed is not there yet; use engine: torch (one process, or torchrun for DDP)"
        )
    return runtime


def read_spec(text: str) -> RunSpec:
    """Parse ``--spec``. Raises UserError with one line per problem."""
    return argument(RunSpec, text, "--spec")
