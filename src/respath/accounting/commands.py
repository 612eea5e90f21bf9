"""What the accounting's command lines share: specs and entries from JSON text or files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from respath.errors import UserError
from respath.files import read_json


def json_argument(text: str, option: str) -> Any:
    """Parse ``JSON`` or ``@FILE``. Raises UserError naming the option or the file."""
    if text.startswith("@"):
        return read_json(Path(text[1:]))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{option}: not valid JSON ({error}); write JSON or @FILE") from None


def entries_argument(text: str, required: tuple[str, ...]) -> list[dict[str, Any]]:
    """A list of entries with the required keys and distinct ids. Raises UserError with one line per problem."""
    entries = json_argument(text, "--entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError("--entries: expects a list of objects")
    problems = [
        f"--entries: entry {position}: {key} is missing"
        for position, entry in enumerate(entries)
        for key in required
        if key not in entry
    ]
    ids = [entry.get("id") for entry in entries]
    problems += [
        f"--entries: the id {name!r} appears twice"
        for name in sorted({i for i in ids if ids.count(i) > 1}, key=str)
    ]
    if problems:
        raise UserError(problems)
    return entries
