"""``python -m respath.comparison``: compare what exists with what is printed, and say so in JSON, Markdown and on screen."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from respath.comparison.diff import compare, exit_code, markdown
from respath.comparison.options import add_options, open_project
from respath.comparison.summary import summary
from respath.errors import OK, guard
from respath.files import write_json, write_text


@guard
def main(arguments: list[str] | None = None) -> int:
    """Exit 0; with --check 1 when something deviates (see ``respath.comparison.diff.failures``); 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m respath.comparison", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--target",
        action="append",
        help="only this table or figure (repeatable; no claims)",
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
    return exit_code(document) if options.check else OK


if __name__ == "__main__":
    sys.exit(main())
