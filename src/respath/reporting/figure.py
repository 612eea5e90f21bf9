"""``python -m respath.reporting.figure``: one figure as SVG, PDF and tidy CSV, with its words as JSON: the same bytes for the same results."""

from __future__ import annotations

import argparse
import html
import io
import json
import os
import re
import sys
from pathlib import Path

from respath.comparison.options import add_artifact_options, open_artifact
from respath.errors import OK, UserError, guard
from respath.files import atomic_open
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities.metrics import is_exact
from respath.reporting.panels.build import shown
from respath.reporting.panels.captions import words
from respath.reporting.panels.data import Shown
from respath.results.reader import Results

#: What an SVG's text is set in: the reader's own sans, as pages have it. It was measured in the widest of them.
FONTS = (
    '"Source Sans 3","Helvetica Neue","Segoe UI","Noto Sans","Liberation Sans",Arial,"DejaVu Sans",sans-serif'
)


def scale_line(project: Resolver, artifact: Artifact | None = None) -> str:
    """Scale, seeds (of an artifact's runs, where they differ), and what the scale is not."""
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


def said(project: Resolver, artifact: Artifact, content: Shown) -> dict[str, object]:
    """Title, caption (finding, marks, missing), method, scale and alternative text."""
    definition = artifact.definition
    return words(content, definition.title, definition.caption, scale_line(project, artifact))


def render(project: Resolver, results: Results, artifact: Artifact) -> dict[str, bytes]:
    """The files of a figure by ending (csv, json, svg, pdf)."""
    return render_contents(project, artifact, shown(project, results, artifact))


def render_contents(project: Resolver, artifact: Artifact, content: Shown) -> dict[str, bytes]:
    """The same from data that was read already."""
    # Read by matplotlib when it is imported: Jupyter names a backend that is not installed here, a user's matplotlibrc may be
    # of another version, and files are stamped with the time unless told another.
    own = str(Path(__file__).with_name("respath.mplstyle"))
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": own, "SOURCE_DATE_EPOCH": "0"}
    from respath.reporting.looks import style
    from respath.reporting.panels.drawing import draw

    text = said(project, artifact, content)
    files = {
        "csv": content.csv_text().encode(),
        "json": (json.dumps(text, ensure_ascii=False, indent=1) + "\n").encode(),
    }
    with style():
        figure = draw(content, artifact.definition, project.scale.comparable)
        for ending, none in (
            ("svg", ("Date", "Creator", "Format", "Type")),
            ("pdf", ("CreationDate", "Producer", "Creator")),
        ):
            stream = io.BytesIO()
            figure.savefig(stream, format=ending, metadata=dict.fromkeys(none))
            files[ending] = stream.getvalue()
    files["svg"] = slim(files["svg"].decode(), artifact.definition.title, text["alt"]).encode()
    return files


_NUMBER = re.compile(r"(?<![#\w.])-?\d+\.\d{3,}(?![\w.])")


def _short(number: re.Match) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def slim(svg: str, title: str, alt: str) -> str:
    """Matplotlib's SVG as an element of a page: no prologue and ids, two decimals, colours as variables, a title and a text."""
    from respath.reporting.looks import VARIABLES

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<(g|path|rect) id="[a-zA-Z0-9]+\.?[a-zA-Z]*_\d+"', r"<\1", svg)
    svg = re.sub(r"<[^>]+>", lambda tag: _NUMBER.sub(_short, tag[0]), svg)
    svg = re.sub(r" font-family: 'DejaVu Sans';| transform=\"rotate\(-0 [^\"]*\"", "", svg)
    for colour, (name, _) in VARIABLES.items():
        svg = re.sub(colour, f"var(--{name}, {colour})", svg, flags=re.IGNORECASE)
    head, _, body = svg.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)[0]
    width = re.search(r'width="([\d.]+)pt"', head)[1]
    dark = "".join(f"--{name}:{dark};" for name, dark in VARIABLES.values())
    rule = f"svg.figure text{{font-family:{FONTS}}}@media(prefers-color-scheme:dark){{svg.figure{{{dark}}}}}"
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return (
        f'<svg class="figure" {names} {box} width="{float(width):g}pt" role="img">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(alt)}</desc><style>{html.escape(rule, quote=False)}</style>"
        f"{re.sub(chr(10) + ' *', chr(10), body)}"
    )


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write DIR/<figure>.{csv,json,svg,pdf} and print their place and what is missing."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.figure", description=__doc__)
    add_artifact_options(parser, "figure to draw")
    project, results, artifact, folder = open_artifact(parser.parse_args(arguments))
    if artifact.is_table:
        raise UserError(f"{artifact.target} is a table; use python -m respath.reporting.table")
    found = shown(project, results, artifact)
    for ending, content in render_contents(project, artifact, found).items():
        with atomic_open(folder / f"{artifact.id}.{ending}") as stream:
            stream.write(content)
    notes = " ".join(found.notes)
    print(f"{folder / artifact.id}.{{csv,json,svg,pdf}}" + (f": {notes}" if notes else ""))
    return OK


if __name__ == "__main__":
    sys.exit(main())
