"""``python -m respath.reporting.overview``: one page over all papers, and one per architecture: equation, counts, costs, results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from respath.comparison.options import add_options, open_project
from respath.comparison.report import Report, reports
from respath.config.request import RunRequest
from respath.errors import OK, UserError, guard
from respath.files import write_text
from respath.papers.resolve import Resolver
from respath.quantities.quantity import Quantity, is_number
from respath.quantities.rounding import fixed
from respath.quantities.verdicts import VERDICTS
from respath.reporting.architectures import parts
from respath.reporting.latex import templates_of
from respath.reporting.layout import paired, plain_cell, value_of
from respath.reporting.page import GROUPS, authors_line, environment, main_groups, name_of

#: Facts of a model: name, metric, unit, decimals; of its own shape, so that each scale shows what it builds.
_COUNTS = (
    ("Parameters", "account.parameters.total", 1e6, "M", 2),
    ("Forward FLOPs of a sequence", "account.flops.forward", 1e9, "G", 2),
    ("Training FLOPs per token", "account.flops.training_per_token", 1e6, "M", 2),
    ("KV cache, share of the baseline’s", "account.kv_cache.ratio_to_baseline", 0.01, "%", 2),
)
_COSTS = (
    ("Time of a training step, over the baseline’s", "bench.step.ratio"),
    ("Time of decoding, over the baseline’s", "bench.decode.ratio"),
    ("Peak memory, over the baseline’s", "bench.step.peak_ratio"),
)


def overview(project: Resolver, found: dict[str, Report]) -> str:
    """The page over all papers: what each was asked, what held, what did not, how sure."""
    papers = [
        {
            "report": report,
            "authors": authors_line(report.paper.authors),
            "main": main_groups(report),
            "claims": [(verdict, report.of(verdict)) for verdict in GROUPS],
            "models": models_of(report),
        }
        for report in found.values()
    ]
    return (
        environment(project)
        .get_template("overview.html.j2")
        .render(papers=papers, scale=project.scale, verdicts=VERDICTS)
    )


def models_of(report: Report) -> list[dict[str, str]]:
    """Every architecture of a paper: its name, and its file below ``models/``."""
    return [
        {"id": name, "label": variant.label, "file": f"{report.id}/{name}.html"}
        for name, variant in report.folder.variants.items()
    ]


def model_page(report: Report, variant: str) -> str:
    """The page of one architecture."""
    definition = report.folder.variants[variant]
    size = _size(report, variant)
    equations = parts(report.project.paper(report.id).model(size, variant)) if size else []
    return (
        environment(report.project)
        .get_template("model.html.j2")
        .render(
            report=report,
            title=definition.title,
            label=definition.label,
            size=size,
            equations=[(text, path.as_posix()) for text, path in equations],
            counts=_counts(report, size, variant) if size else [],
            costs=_costs(report, variant),
            results=_results(report, variant),
        )
    )


def _size(report: Report, variant: str) -> str:
    """The size that is shown, or the first that the variant fits."""
    for size in dict.fromkeys([report.folder.shown_size, *report.paper.sizes]):
        try:
            report.project.paper(report.id).model(size, variant)
        except UserError:
            continue
        return size
    return ""


def _counts(report: Report, size: str, variant: str) -> list[dict[str, str]]:
    """Counts of the paper's shape and of what this scale builds."""
    rows = []
    for name, metric, unit, suffix, decimals in _COUNTS:
        model = RunRequest(size=size, variant=variant)
        values = (
            report.results.sample(report.id, Quantity(metric, model, own_scale=own)).value
            for own in (False, True)
        )
        shown = [f"{fixed(value / unit, decimals)} {suffix}" if is_number(value) else "–" for value in values]
        rows.append({"name": name, "paper": shown[0], "own": shown[1]})
    return rows


def _costs(report: Report, variant: str) -> list[tuple[str, str]]:
    """What the machine at hand measured, where it did."""
    found = []
    for name, metric in _COSTS:
        request = RunRequest(size=report.folder.shown_size, variant=variant)
        try:
            value = report.results.sample(report.id, Quantity(metric, request)).value
        except UserError:
            continue
        if is_number(value):
            found.append((name, fixed(value, 2)))
    return found


def _results(report: Report, variant: str) -> list[dict[str, Any]]:
    """Every measured value of a variant in the paper's tables, with its difference and verdict."""
    found = []
    for grid in report.grids.values():
        rows = {row.id: row for row in grid.table.rows}
        columns = {column.id: column for column in grid.table.columns}
        for cell in grid.compared():
            row, column = rows[cell.row], columns[cell.column]
            mine = grid.table.kind == "runs" and grid.table.request(row, column).variant == variant
            if not mine or cell.kind != "measured" or cell.ours is None:
                continue
            found.append(
                {
                    "table": grid.artifact.id,
                    "name": name_of(grid.artifact),
                    "row": row.label,
                    "column": column.label,
                    "printed": plain_cell(value_of(cell, printed=True)),
                    "ours": plain_cell(value_of(cell)),
                    "paired": paired(cell),
                    "verdict": cell.verdict,
                }
            )
    return found


def write(project: Resolver, found: dict[str, Report], folder: Path) -> list[Path]:
    """index.html of a scale's folder, and models/ beside it; the files that were written."""
    files = {folder / "index.html": overview(project, found)}
    files[folder / "models/style.css"] = (templates_of(project) / "style.css").read_text(encoding="utf-8")
    for report in found.values():
        for model in models_of(report):
            files[folder / "models" / model["file"]] = model_page(report, model["id"])
    for path, text in files.items():
        write_text(path, text)
    return list(files)


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write the pages and print the place of the first."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.overview", description=__doc__)
    add_options(parser)
    parser.add_argument("--out-dir", type=Path, help="folder (default: reports/out/<scale>)")
    options = parser.parse_args(arguments)
    project, results = open_project(options)
    folder = options.out_dir or project.root / "reports" / "out" / project.scale.id
    print(write(project, reports(project, results), folder)[0])
    return OK


if __name__ == "__main__":
    sys.exit(main())
