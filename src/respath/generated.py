"""Generated files that are kept in git: written, or only checked to be in step with what they are generated from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from respath.errors import CheckFailed
from respath.files import write_text


def add_check_option(parser: argparse.ArgumentParser) -> None:
    """Add --check and --debug."""
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a file is out of step"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def write_or_check(root: Path, files: Mapping[Path, str], command: str, check: bool) -> None:
    """Write each file (path -> text) that differs and print its name, or raise CheckFailed naming each that differs.

    ``command`` is what writes them: the remedy that a failed check names.
    """
    stale = []
    for path, text in files.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(f"{path.relative_to(root)}: out of step with the code; run {command}")
        else:
            write_text(path, text)
            print(path.relative_to(root))
    if stale:
        raise CheckFailed(stale)
