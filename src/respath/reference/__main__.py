"""``python -m respath.reference collect|render``: keep results of real runs, and render everything from what is kept.

``collect`` bundles the finished runs under results/ into reports/reference/<scale>/; ``render`` makes all tables, figures,
pages and the comparison of that scale from these files alone. Neither starts a training.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from respath.comparison.diff import compare, markdown
from respath.comparison.options import add_options, open_project
from respath.comparison.report import reports
from respath.comparison.summary import brief
from respath.errors import OK, guard
from respath.files import atomic_open, write_json, write_text
from respath.reference.bundle import collect, kept_or_told
from respath.results.reader import Results, kept_folder


@guard
def main(arguments: list[str] | None = None) -> int:
    """Exit 0; 2 for wrong use, and for results that contradict what is kept."""
    parser = argparse.ArgumentParser(prog="python -m respath.reference", description=__doc__)
    parser.add_argument("action", choices=("collect", "render"))
    add_options(parser)
    parser.add_argument(
        "--folder", type=Path, help="folder of the bundles (default: reports/reference/<scale>)"
    )
    parser.add_argument(
        "--replace", action="store_true", help="collect: let new results of a run replace the kept ones"
    )
    parser.add_argument("--out", type=Path, help="render: folder (default: reports/out/reference-<scale>)")
    options = parser.parse_args(arguments)
    project, results = open_project(options)
    folder = options.folder or kept_folder(project)
    if options.action == "collect":
        done = collect(project, results, folder, options.replace)
        counts = ", ".join(f"{len(runs)} {word}" for word, runs in done.items())
        print(f"{folder}: {counts}")
        return OK
    kept = kept_or_told(project, folder)
    out = options.out or project.root / "reports" / "out" / f"reference-{project.scale.id}"
    render(kept, out)
    return OK


def render(results: Results, out: Path) -> None:
    """All tables, figures and pages into ``out``/<paper>/, diff.json and diff.md into ``out``."""
    from respath.reporting import figure, overview, page, table

    project = results.project
    found = reports(project, results)
    for report in found.values():
        folder = out / report.id
        for artifact in report.artifacts:
            if artifact.is_table:
                for ending, text in table.render(report, artifact)[1].items():
                    write_text(folder / f"{artifact.id}.{ending}", text)
            else:
                for ending, content in figure.render(project, results, artifact).items():
                    with atomic_open(folder / f"{artifact.id}.{ending}") as stream:
                        stream.write(content)
        write_text(folder / "index.html", page.render(report, folder))
    overview.write(project, found, out)
    document = compare(project, results)
    write_json(out / "diff.json", document)
    write_text(out / "diff.md", markdown(document))
    print(brief(document, str(out)))


if __name__ == "__main__":
    sys.exit(main())
