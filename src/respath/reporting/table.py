"""``python -m respath.reporting.table``: one table as CSV (tidy, full precision), LaTeX and Markdown."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import sys
from typing import Any

import jinja2

from respath.comparison.cells import Cell, Grid, build_grid
from respath.comparison.options import add_artifact_options, open_artifact
from respath.comparison.provenance import Provenance, provenance_of_artifact
from respath.errors import OK, UserError, guard
from respath.files import write_text
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.reporting.footer import footer_lines, specs_line
from respath.reporting.latex import environment, tabular, templates_of
from respath.reporting.layout import Layout, Shown, lay_out, short_status
from respath.results.reader import Results

_CSV_FIELDS = (
    "table",
    "row",
    "row_label",
    "column",
    "column_label",
    "metric",
    "kind",
    "unit",
    "show",
    "ours",
    "low",
    "high",
    "stderr",
    "item_stderr",
    "per_seed",
    "printed",
    "printed_decimals",
    "delta",
    "tolerance",
    "rule",
    "status",
    "reason",
    "gain",
    "gain_stderr",
    "printed_gain",
    "scale",
    "scale_value",
    "runs",
)


def csv_text(grid: Grid) -> str:
    """One line per cell, numbers in full precision (shortest text that reads back the same), empty where there is none."""
    rows = {row.id: row.label for row in grid.table.rows}
    columns = {column.id: column.label for column in grid.table.columns}
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for cell in grid.compared():
        record = {key: _plain(value) for key, value in cell.as_dict().items() if key in _CSV_FIELDS}
        record |= {
            "table": grid.artifact.target,
            "row_label": rows[cell.row],
            "column_label": columns[cell.column],
        }
        record |= {
            "per_seed": ";".join(f"{s}={v!r}" for s, v in cell.per_seed.items()),
            "runs": ";".join(cell.runs),
        }
        writer.writerow(record | {"scale": grid.scale})
    return stream.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else value


# --- LaTeX ---------------------------------------------------------------------------------------------------------


def tex_text(project: Resolver, grid: Grid, layout: Layout, provenance: Provenance, csv_sha256: str) -> str:
    """The table as a LaTeX float; reports/templates/paper.tex.j2 has the preamble that it needs."""
    parts = tabular(layout, mixed=grid.table.kind == "configuration")
    return (
        environment(project)
        .get_template("table.tex.j2")
        .render(
            target=grid.artifact.target,
            csv_name=f"{grid.artifact.id}.csv",
            csv_sha256=csv_sha256,
            comments=[line for line in (*footer_lines(provenance), specs_line(provenance)) if line],
            comparable=grid.comparable,
            scale=grid.scale,
            title=grid.table.title,
            caption=_caption(grid),
            # The paper's own number, whatever order tables are included in.
            number=grid.artifact.id.removeprefix("table"),
            label=grid.artifact.target.replace("_", "-"),
            notes=layout.notes,
            footer=footer_lines(provenance),
            specs=provenance.specs,
            **parts,
        )
    )


def _caption(grid: Grid) -> str:
    source = f"Section {grid.table.section} of the paper."
    return " ".join(text for text in (grid.table.caption.strip(), source, grid.table.note.strip()) if text)


# --- Markdown ------------------------------------------------------------------------------------------------------


def _md(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def plain_cell(cell: Shown) -> str:
    """A cell as text for readers: minus signs, grouped digits, ± between value and standard error."""
    if not cell.is_number:
        return short_status(cell.text) if cell.kind in ("status", "number") else cell.text.replace("--", "–")
    sign = {"-": "−", "+": "+"}.get(cell.text[0], "")
    digits, _, decimals = cell.text.lstrip("+-").partition(".")
    grouped = f"{int(digits):,}" if len(digits) > 4 else digits
    value = f"{sign}{grouped}.{decimals}" if decimals else f"{sign}{grouped}"
    return f"{value} ± {cell.error}" if cell.error else value


def _md_cell(cell: Shown) -> str:
    text = _md(plain_cell(cell))
    return f"**{text}**" if cell.bold and text else text


def md_text(project: Resolver, grid: Grid, layout: Layout, provenance: Provenance, csv_sha256: str) -> str:
    """The table as Markdown (GitHub's tables, mathematics between dollars)."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_of(project)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        undefined=jinja2.StrictUndefined,
    )
    heads = [head.full or head.text for head in layout.heads]
    lines = []
    for block in layout.blocks:
        if block.title:
            lines.append("| " + " | ".join([f"*{_md(block.title)}*", *[""] * (len(heads) - 1)]) + " |")
        lines += ["| " + " | ".join(_md_cell(cell) for cell in row) + " |" for row in block.rows]
    return env.get_template("table.md.j2").render(
        target=grid.artifact.target,
        csv_name=f"{grid.artifact.id}.csv",
        csv_sha256=csv_sha256,
        heading=_md(f"{grid.artifact.id}: {grid.table.title}"),
        comparable=grid.comparable,
        scale=grid.scale,
        caption=_md(_caption(grid)),
        header="| " + " | ".join(_md(text) for text in heads) + " |",
        rule="|" + "|".join("--:" if head.kind == "number" else ":--" for head in layout.heads) + "|",
        lines=lines,
        notes=[_md(note) for note in layout.notes],
        footer=_md(" ".join([*footer_lines(provenance), specs_line(provenance)]).strip()),
    )


# --- command -------------------------------------------------------------------------------------------------------


def render(project: Resolver, results: Results, artifact: Artifact) -> tuple[Grid, dict[str, str]]:
    """The grid of a table and its texts by ending (csv, tex, md)."""
    if not artifact.is_table:
        raise UserError(f"{artifact.target} is a figure; use python -m respath.reporting.figure")
    grid = build_grid(project, results, artifact)
    layout = lay_out(project, grid)
    provenance = provenance_of_artifact(project, results, artifact)
    table = csv_text(grid)
    digest = hashlib.sha256(table.encode()).hexdigest()
    texts = {
        "csv": table,
        "tex": tex_text(project, grid, layout, provenance, digest),
        "md": md_text(project, grid, layout, provenance, digest),
    }
    return grid, texts


def describe(cells: list[Cell]) -> str:
    """``10 cells: 8 match, 2 not run``."""
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell.status] = counts.get(cell.status, 0) + 1
    return f"{len(cells)} cells: " + ", ".join(
        f"{number} {status}" for status, number in sorted(counts.items())
    )


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write DIR/<table>.{csv,tex,md} and print their place and the count of cells per status."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.table", description=__doc__)
    add_artifact_options(parser, "table to render")
    project, results, artifact, folder = open_artifact(parser.parse_args(arguments))
    grid, texts = render(project, results, artifact)
    for ending, text in texts.items():
        write_text(folder / f"{artifact.id}.{ending}", text)
    print(f"{folder / artifact.id}.{{csv,tex,md}}: {describe(grid.compared())}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
