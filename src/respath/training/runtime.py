"""Arguments of the trainer: spec and resources, as JSON or in a file."""

from __future__ import annotations

import importlib.util

from respath.config.arguments import argument
from respath.config.runtime import Runtime, Validation
from respath.errors import UserError
from respath.spec.recipe import Recipe
from respath.spec.run import RunSpec


def read_runtime(text: str | None) -> Runtime:
    """Parse ``--runtime``. Raises UserError for unknown keys and for an engine that is not installed."""
    source = text[1:] if text and text.startswith("@") else "--runtime"
    runtime = argument(Runtime, text or "{}", "--runtime")
    if runtime.engine == "deepspeed" and importlib.util.find_spec("deepspeed") is None:
        raise UserError(
            f"{source}: engine: deepspeed needs the extra deepspeed (pip install 'respath[deepspeed]'); engine: torch "
            "trains the same on any number of processes"
        )
    return runtime


def refuse_engine(runtime: Runtime, recipe: Recipe) -> None:
    """Raise UserError, a line each, for what a recipe asks and ZeRO-2 cannot do."""
    if runtime.engine != "deepspeed":
        return
    lines = []
    if recipe.optimizer.kind != "adamw":
        lines.append(
            f"--runtime: engine: deepspeed flattens matrices, and the recipe's {recipe.optimizer.kind} needs whole ones; "
            "use engine: torch"
        )
    if recipe.precision == "bf16_params":
        lines.append(
            "--runtime: engine: deepspeed always keeps fp32 master weights, and the recipe's bf16_params has none; "
            "use engine: torch"
        )
    if lines:
        raise UserError(lines)


def read_validation(text: str | None) -> Validation:
    """Parse ``--validation``. Raises UserError with one line per problem."""
    return argument(Validation, text or "{}", "--validation")


def read_spec(text: str) -> RunSpec:
    """Parse ``--spec``. Raises UserError with one line per problem."""
    return argument(RunSpec, text, "--spec")
