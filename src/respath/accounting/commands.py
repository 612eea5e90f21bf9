"""What the accounting's command lines share: entries from JSON text or files."""

from __future__ import annotations

from typing import Any

from respath.config.arguments import json_argument
from respath.errors import UserError


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
