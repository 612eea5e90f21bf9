"""``python -m respath.reporting.figure``: one figure as tidy CSV, SVG, PDF and PNG, with its caption as JSON: the same bytes for the same results."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from pathlib import Path

from respath.comparison.options import add_artifact_options, open_artifact
from respath.errors import OK, UserError, guard
from respath.files import atomic_open, write_text
from respath.papers import needs
from respath.papers.figures import Panels
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities.metrics import is_exact
from respath.reporting.panels.build import shown
from respath.reporting.panels.data import Shown
from respath.reporting.series import Series, series_of
from respath.results.reader import Results


def scale_line(project: Resolver, artifact: Artifact | None = None) -> str:
    """What stands above the panels: scale, seeds (of an artifact's runs, where they differ), and what the scale is not."""
    counts = sorted(_numbers_of_seeds(project, artifact)) if artifact else []
    if artifact and not counts:
        exact = all(is_exact(one.metric) for one in needs.quantities(project, artifact))
        shapes = "shapes are the paper's own" if exact else "measured at this scale's shapes"
        return f"Scale {project.scale.id}: nothing here is trained; {shapes}"
    if len(counts) > 1:
        seeds = f"{' or '.join(map(str, counts))} seeds per run"
    else:
        shown_seeds = project.seeds[: counts[0]] if counts else project.seeds
        seeds = f"seed{'s' * (len(shown_seeds) > 1)} {', '.join(map(str, shown_seeds))}"
    warning = "" if project.scale.comparable else ": small models on stand-in data, not a replication"
    return f"Scale {project.scale.id}{warning}; {seeds}"


def _numbers_of_seeds(project: Resolver, artifact: Artifact) -> set[int]:
    """How many seeds the runs have that a figure reads."""
    read = needs.reads(project, artifact.paper, needs.quantities(project, artifact))
    subjects = [quantity.subject for kind, _, quantity in read if kind.of in ("run", "start")]
    return {len(project.runs(artifact.paper, subject)) for subject in subjects}


def contents(project: Resolver, results: Results, artifact: Artifact) -> Series | Shown:
    """What a figure shows, as data with ``notes`` and ``csv_text()``."""
    read = shown if isinstance(artifact.definition, Panels) else series_of
    return read(project, results, artifact)


def words(artifact: Artifact, content: Series | Shown) -> dict[str, object]:
    """What is said of a figure: its title, its caption in parts (finding, marks, what is missing), its alternative text."""
    caption = {"finding": "", "marks": "", "missing": " ".join(content.notes)}
    return {"title": artifact.definition.title, "caption": caption, "alt": artifact.definition.title}


def render(project: Resolver, results: Results, artifact: Artifact) -> dict[str, bytes]:
    """The files of a figure by ending (csv, json, svg, pdf, png)."""
    return render_contents(project, artifact, contents(project, results, artifact))


def render_contents(project: Resolver, artifact: Artifact, content: Series | Shown) -> dict[str, bytes]:
    """The same from data that was read already."""
    # Read by matplotlib when it is imported: Jupyter names a backend that is not installed here, a user's matplotlibrc may be
    # of another version, and files are stamped with the time unless told another.
    own = str(Path(__file__).with_name("respath.mplstyle"))
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": own, "SOURCE_DATE_EPOCH": "0"}
    from respath.reporting import drawing
    from respath.reporting.looks import style
    from respath.reporting.panels import drawing as panel_drawing

    said = json.dumps(words(artifact, content), ensure_ascii=False, indent=1) + "\n"
    files = {"csv": content.csv_text().encode(), "json": said.encode()}
    with style():
        draw = panel_drawing.draw if isinstance(content, Shown) else drawing.draw
        figure = draw(content, artifact.definition, scale_line(project, artifact))
        for ending, metadata in (
            ("svg", {"Date": None, "Creator": None, "Format": None, "Type": None}),
            ("pdf", {"CreationDate": None, "Producer": None, "Creator": None}),
            ("png", {"Software": None}),
        ):
            stream = io.BytesIO()
            figure.savefig(stream, format=ending, metadata=metadata)
            files[ending] = stream.getvalue()
    return files


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write DIR/<figure>.{csv,json,svg,pdf,png} and print their place and what is not drawn."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.figure", description=__doc__)
    add_artifact_options(parser, "figure to draw")
    project, results, artifact, folder = open_artifact(parser.parse_args(arguments))
    if artifact.is_table:
        raise UserError(f"{artifact.target} is a table; use python -m respath.reporting.table")
    found = contents(project, results, artifact)
    for ending, content in render_contents(project, artifact, found).items():
        if ending in ("csv", "json"):
            write_text(folder / f"{artifact.id}.{ending}", content.decode())
            continue
        with atomic_open(folder / f"{artifact.id}.{ending}") as stream:
            stream.write(content)
    notes = " ".join(found.notes)
    print(f"{folder / artifact.id}.{{csv,json,svg,pdf,png}}" + (f": {notes}" if notes else ""))
    return OK


if __name__ == "__main__":
    sys.exit(main())
