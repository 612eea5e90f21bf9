"""``python -m respath.comparison``: compare what exists with what is printed, and say so in JSON, Markdown and on screen."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from respath.comparison.diff import compare, counts_text, markdown
from respath.comparison.options import add_options, open_project
from respath.errors import CHECK_FAILED, OK, guard
from respath.files import write_json, write_text

#: Failures printed on screen; all of them are in the files.
_SHOWN = 20


def summary(document: dict[str, Any]) -> None:
    """Print counts per table, verdicts per paper and failures to standard output."""
    from rich.console import Console
    from rich.table import Table

    # Names such as "[a]" in data must not be read as rich markup.
    console = Console(markup=False, highlight=False, soft_wrap=True)
    console.print(document["note"])
    for paper_id, paper in document["papers"].items():
        grid = Table(
            title=f"{paper_id}: {paper['runs']['ended']} of {paper['runs']['wanted']} runs ended",
            title_justify="left",
        )
        grid.add_column("table", no_wrap=True)
        statuses = [name for name, number in document["counts"].items() if number]
        for name in statuses:
            grid.add_column(name, justify="right")
        for table in paper["tables"].values():
            grid.add_row(table["target"], *[str(table["counts"][name] or "") for name in statuses])
        console.print(grid)
        if paper["claims"]:
            verdicts: dict[str, int] = {}
            for claim in paper["claims"]:
                verdicts[claim["verdict"]] = verdicts.get(claim["verdict"], 0) + 1
            console.print(f"claims of {paper_id}: {counts_text(verdicts)}")
    failed = document["check"]["failures"]
    for line in failed[:_SHOWN]:
        console.print(f"  {line}")
    if len(failed) > _SHOWN:
        console.print(f"  ... and {len(failed) - _SHOWN} more")
    console.print(f"check: {len(failed)} failures" if failed else "check: passed")


@guard
def main(arguments: list[str] | None = None) -> int:
    """Exit 0; with --check 1 when something deviates (see ``respath.comparison.diff.failures``); 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m respath.comparison", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--target",
        action="append",
        help="only this table or figure, e.g. resformer_table3 (repeatable; no claims)",
    )
    parser.add_argument("--out-json", type=Path, help="write the whole comparison here")
    parser.add_argument("--out-md", type=Path, help="write the readable comparison here")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 when a cell or claim that this scale judges deviates"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    options = parser.parse_args(arguments)
    project, results = open_project(options)
    document = compare(project, results, options.target)
    if options.out_json:
        write_json(options.out_json, document)
    if options.out_md:
        write_text(options.out_md, markdown(document))
    if not options.quiet:
        summary(document)
    return CHECK_FAILED if options.check and not document["check"]["passed"] else OK


if __name__ == "__main__":
    sys.exit(main())
