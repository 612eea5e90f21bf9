"""``python -m respath.accounting.stage``: accounts of every model of a paper, at its own shapes and at a scale's."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from respath.accounting import account
from respath.config.project import Project
from respath.errors import UserError, guard
from respath.files import write_json


def accounts_of_paper(project: Project, paper: str, scale: str) -> dict[str, dict[str, Any]]:
    """``size/variant`` -> {"paper": account, "scale": account}; a variant that does not fit a size is left out."""
    folder = project.folder(paper)
    entries = {}
    for size in folder.paper.sizes:
        for variant in folder.variants:
            ref = f"{paper}/{size}/{variant}"
            try:
                entries[f"{size}/{variant}"] = {
                    "paper": account(ref, scale="paper").to_json(),
                    "scale": account(ref, scale=scale).to_json(),
                }
            except UserError:
                # Such as layers 6-8 of a 4-layer model. A variant that fits no size was refused when the project was read.
                continue
    return entries


@guard
def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m respath.accounting.stage", description=__doc__)
    parser.add_argument("--paper", required=True)
    parser.add_argument("--scale", required=True)
    parser.add_argument("--out", required=True, help="accounts.json")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    options = parser.parse_args(arguments)
    entries = accounts_of_paper(Project.find(), options.paper, options.scale)
    write_json(options.out, {"schema": 1, "kind": "accounts", "entries": entries})
    return 0


if __name__ == "__main__":
    sys.exit(main())
