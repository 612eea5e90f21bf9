"""``python -m respath.reporting.table``: one table as CSV (tidy, full precision), LaTeX and Markdown."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from respath.comparison.cells import Cell, Grid
from respath.comparison.options import add_artifact_options, open_artifact
from respath.comparison.report import Report, take_away
from respath.errors import OK, UserError, guard
from respath.files import write_text
from respath.papers.library import Artifact
from respath.reporting.footer import footer_lines, specs_line
from respath.reporting.latex import environment, tabular
from respath.reporting.layout import Block, Layout, lay_out, plain_cell

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
    "gain_low",
    "gain_high",
    "gain_per_seed",
    "printed_gain",
    "verdict",
    "claim",
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
            "per_seed": _by_seed(cell.per_seed),
            "gain_per_seed": _by_seed(cell.gain_per_seed),
            "runs": ";".join(cell.runs),
        }
        writer.writerow(record | {"scale": grid.scale})
    return stream.getvalue()


def _by_seed(values: dict[int, float]) -> str:
    return ";".join(f"{seed}={value!r}" for seed, value in values.items())


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else value


# --- LaTeX ---------------------------------------------------------------------------------------------------------


def tex_text(report: Report, grid: Grid, layout: Layout, csv_sha256: str) -> str:
    """The table as a LaTeX float; reports/templates/paper.tex.j2 has the preamble that it needs."""
    provenance = report.provenance_of(grid.artifact)
    return (
        environment(report.project)
        .get_template("table.tex.j2")
        .render(
            target=grid.artifact.target,
            csv_name=f"{grid.artifact.id}.csv",
            csv_sha256=csv_sha256,
            comments=[line for line in (*footer_lines(provenance), specs_line(provenance)) if line],
            title=grid.table.title,
            caption=_caption(report, grid, layout),
            # The paper's own number, whatever order tables are included in.
            number=grid.artifact.id.removeprefix("table"),
            label=grid.artifact.target.replace("_", "-"),
            notes=list(filter(None, (layout.method, *layout.notes))),
            footer=footer_lines(provenance),
            **tabular(layout, layout.blocks, grid.table.kind == "configuration"),
        )
    )


def _caption(report: Report, grid: Grid, layout: Layout) -> str:
    """The finding, then what is shown and where the paper has it."""
    parts = (
        f"{layout.summary}." if layout.summary else take_away(report, grid),
        grid.table.caption.strip(),
        f"Section {grid.table.section} of the paper, scale {grid.scale}.",
        grid.table.note.strip(),
    )
    return " ".join(filter(None, parts))


# --- Markdown ------------------------------------------------------------------------------------------------------


def md(text: str) -> str:
    """Text that stays one cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def md_row(cells: Iterable[Any]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(md(cell) for cell in cells) + " |"


def md_table(layout: Layout, blocks: Sequence[Block]) -> list[str]:
    """A layout as the lines of a Markdown table; Δ and its interval share a column."""
    joined = [head.kind == "interval" and head.key == "interval" for head in layout.heads]
    heads = [head for head, with_last in zip(layout.heads, joined, strict=True) if not with_last]
    lines = [
        md_row(f"{head.text} [95 %]" if head.key == "delta" else head.full or head.text for head in heads),
        "|" + "|".join("--:" if head.kind == "number" else ":--" for head in heads) + "|",
    ]
    for block in blocks:
        if block.title:
            lines.append(md_row([f"*{block.title}*", *[""] * (len(heads) - 1)]))
        for row in block.rows:
            cells: list[str] = []
            for cell, with_last in zip(row, joined, strict=True):
                text = plain_cell(cell)
                if with_last:
                    cells[-1] = f"{cells[-1]} {text}".strip()
                else:
                    cells.append(f"**{text}**" if cell.bold and text else text)
            lines.append(md_row(cells))
    return lines


def md_text(report: Report, grid: Grid, layout: Layout, csv_sha256: str) -> str:
    """The table as Markdown (GitHub's tables, mathematics between dollars); hashes of specs stand in the CSV."""
    provenance = report.provenance_of(grid.artifact)
    source = f"Source: {grid.artifact.id}.csv, sha256 {csv_sha256}"
    lines = [
        f"<!-- Generated by `snakemake {grid.artifact.target}`, do not edit. {source} -->",
        f"### {md(grid.artifact.id)}: {md(grid.table.title)}",
        "",
        md(_caption(report, grid, layout)),
        "",
        *md_table(layout, layout.blocks),
        "",
        *[f"* {md(note)}" for note in (layout.method, *layout.notes) if note],
        "",
        f"<sub>{md(' '.join(footer_lines(provenance)))}</sub>",
    ]
    return "\n".join(lines) + "\n"


# --- command -------------------------------------------------------------------------------------------------------


def render(report: Report, artifact: Artifact) -> tuple[Grid, dict[str, str]]:
    """The grid of a table and its texts by ending (csv, tex, md)."""
    if not artifact.is_table:
        raise UserError(f"{artifact.target} is a figure; use python -m respath.reporting.figure")
    grid = report.grids[artifact.id]
    layout = lay_out(grid)
    table = csv_text(grid)
    digest = hashlib.sha256(table.encode()).hexdigest()
    return grid, {
        "csv": table,
        "tex": tex_text(report, grid, layout, digest),
        "md": md_text(report, grid, layout, digest),
    }


def describe(cells: list[Cell]) -> str:
    """``10 values: 8 match, 2 not run``."""
    counts: dict[str, int] = {}
    for cell in cells:
        counts[cell.status] = counts.get(cell.status, 0) + 1
    return f"{len(cells)} values: " + ", ".join(
        f"{number} {status}" for status, number in sorted(counts.items())
    )


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write DIR/<table>.{csv,tex,md} and print their place and the count of values per status."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.table", description=__doc__)
    add_artifact_options(parser, "table to render")
    project, results, artifact, folder = open_artifact(parser.parse_args(arguments))
    grid, texts = render(Report(project, results, artifact.paper, [artifact.id]), artifact)
    for ending, text in texts.items():
        write_text(folder / f"{artifact.id}.{ending}", text)
    print(f"{folder / artifact.id}.{{csv,tex,md}}: {describe(grid.compared())}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
