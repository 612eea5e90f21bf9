"""Which evaluation items an accuracy stands on, and whether they are those that are here now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from respath.errors import UserError
from respath.files import read_json

#: Kinds of result that are read off evaluation items -> the file that lists these.
LISTS = {"lm": "results/eval_items/{paper}/items.json", "nll": "results/likelihood_items/items.json"}


def other_items(result: Mapping[str, Any], items: Mapping[str, Any]) -> list[str]:
    """Tasks of ``items.json`` that a run was evaluated on with other items than it lists: changed, come, or gone since."""
    if result.get("status") == "diverged":
        return []
    entries = result["tasks"] if "tasks" in result else result["sets"]
    return [
        name
        for name, entry in items["tasks"].items()
        if entry.get("sha256") != entries.get(name, {}).get("items_sha256")
    ]


def evaluated_before(result: Path, items: Path) -> bool:
    """Whether a result is older than the items and stands on others. Looks into them only where their times ask for it."""
    if not (result.exists() and items.exists()) or items.stat().st_mtime <= result.stat().st_mtime:
        return False
    try:
        return bool(other_items(read_json(result), read_json(items)))
    except (UserError, KeyError, TypeError, AttributeError):
        return True  # a file that cannot be read is the evaluation's to name
