"""Arguments of the trainer: spec and resources, as JSON or in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from respath.config.documents import check as check_document
from respath.config.run import RunSpec
from respath.config.runtime import Runtime
from respath.errors import UserError
from respath.files import read_json


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
