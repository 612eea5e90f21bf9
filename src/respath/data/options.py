"""Command-line options that the data stages share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from respath.errors import UserError

_INPUTS: dict[str, dict[str, Any]] = {
    "--sample": {"type": Path, "help": "sample.json"},
    "--tokenizer": {"type": Path, "help": "tokenizer.json"},
    "--sources": {"type": Path, "nargs": "+", "help": "source.json files of the corpus"},
}


def sequences(text: str) -> int | None:
    """``--sequences``: rows per domain at most; ``all`` (None) takes the whole split. Raises UserError for anything else."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--sequences: {text!r} is no number of rows; give 1 or more, or `all`")
    return int(text)


def stage_parser(stage: str, description: str, spec: str, out: str, *inputs: str) -> argparse.ArgumentParser:
    """A parser with --spec, the named ``inputs``, --out and --debug, all but the last required.

    ``spec``: what the spec describes; ``out``: help of --out.
    """
    parser = argparse.ArgumentParser(prog=f"python -m respath.data.{stage}", description=description)
    parser.add_argument("--spec", required=True, help=f"the {spec} spec as JSON or @FILE")
    for name in inputs:
        parser.add_argument(name, required=True, **_INPUTS[name])
    parser.add_argument("--out", required=True, type=Path, help=out)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser
