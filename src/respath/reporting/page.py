"""``python -m respath.reporting.page``: one self-contained HTML page per paper, readable without scripts or network."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from respath.comparison.claims import JudgedClaim, evidence
from respath.comparison.code import stale_runs
from respath.comparison.costs import duration
from respath.comparison.diff import kv_deviations
from respath.comparison.notes import scale_notes
from respath.comparison.options import add_options, open_project
from respath.comparison.provenance import run_commit
from respath.comparison.report import Report, difference, take_away
from respath.errors import OK, guard
from respath.files import write_text
from respath.letters import plain
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities import metrics
from respath.quantities.kinds import imported
from respath.quantities.quantity import is_number
from respath.quantities.verdicts import (
    CONTRADICTED,
    NO_EFFECT,
    NOT_JUDGED,
    NOT_RUN,
    SUPPORTED,
    TOO_FEW,
    UNDECIDED,
    VERDICTS,
)
from respath.reporting import figure as figures
from respath.reporting.contamination import overlap_context
from respath.reporting.footer import footer_lines
from respath.reporting.latex import templates_of
from respath.reporting.layout import Block, Layout, lay_out, plain_cell
from respath.reporting.mathematics import text_html
from respath.reporting.strip import Axis, axis_of, strip
from respath.results.reader import Results

#: The class of each verdict's mark and colour.
MARKS = {
    SUPPORTED: "supported",
    CONTRADICTED: "contradicted",
    NO_EFFECT: "none",
    UNDECIDED: "undecided",
    TOO_FEW: "few",
    NOT_RUN: "notrun",
    NOT_JUDGED: "notjudged",
}
#: What each verdict means, in the order in which claims are listed; the last three are folded.
GROUPS = {
    CONTRADICTED: "The whole 95 % interval lies on the other side.",
    SUPPORTED: "The whole 95 % interval lies on the claimed side.",
    NO_EFFECT: "The whole interval lies inside the margin below which a difference does not matter.",
    UNDECIDED: "Enough seeds, but the interval is too wide to tell.",
    TOO_FEW: "Fewer seeds than a verdict needs.",
    NOT_RUN: "At least one run that it needs has not been trained.",
    NOT_JUDGED: "The paper’s sizes, lengths or schedules are part of the claim.",
}
#: Units of a strip's row of the tally, at most; longer rows would not fit.
_MOST_UNITS = 40


def environment(project: Resolver) -> jinja2.Environment:
    """Jinja2 for HTML: everything is escaped, undefined names are errors."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_of(project)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters |= {"formulas": text_html, "plain": plain, "mark": MARKS.__getitem__}
    return env


# --- the first screen ----------------------------------------------------------------------------------------------


def authors_line(names: Sequence[str]) -> str:
    """Family names, up to five."""
    family = [name.split()[-1] for name in names]
    if len(family) > 5:
        return f"{', '.join(family[:4])} and {len(family) - 4} others"
    return " and ".join(filter(None, (", ".join(family[:-1]), family[-1])))


def main_groups(report: Report) -> list[dict[str, Any]]:
    """The main claims by what they measure, each group with an axis of its own."""
    groups: dict[tuple[str, str], list[JudgedClaim]] = {}
    for claim in report.main:
        metric = claim.claim.tests[0].metric
        title = "loss" if metrics.unit_of(metric) == "nats/token" else report.judge.metric_name(metric)
        groups.setdefault((metrics.unit_of(metric), title), []).append(claim)
    return [
        {"unit": "" if unit == "1" else unit.replace("/", " per "), "what": title, **_rows(report, claims)}
        for (unit, title), claims in groups.items()
    ]


def _rows(report: Report, claims: list[JudgedClaim]) -> dict[str, Any]:
    axis = axis_of([claim.shown for claim in claims if _is_difference(claim)])
    return {
        "axis": axis,
        "rows": [claim_context(report, claim, axis) for claim in claims],
        "seeds": sorted({len(claim.shown.seeds) for claim in claims if claim.shown.seeds}),
    }


def _is_difference(claim: JudgedClaim) -> bool:
    index = next(i for i, outcome in enumerate(claim.tests) if outcome is claim.shown)
    return not claim.claim.tests[index].expect.of_left_alone


def claim_context(report: Report, claim: JudgedClaim, axis: Axis | None) -> dict[str, Any]:
    """What the page shows of a claim."""
    shown, signed = claim.shown, _is_difference(claim)
    same = report.same_as(claim)
    mark = MARKS[claim.verdict]
    return {
        "id": claim.claim.id,
        "title": claim.claim.title,
        "source": report.source_of(claim),
        "verdict": claim.verdict,
        "text": f"{len(shown.seeds)} of {claim.claim.needs_seeds} seeds"
        if claim.verdict == TOO_FEW
        else claim.verdict,
        "found": difference(shown, signed),
        "compared": shown.text,
        "strip": strip(shown, axis, mark) if axis and signed and shown.values else "",
        "same": same.claim if same else None,
        "reason": claim.reason,
        "note": claim.claim.note,
        "standing": claim.standing,
        "decisions": claim.claim.decisions,
        "evidence": evidence(shown),
        "tests": [
            {
                "text": test.text,
                "verdict": test.verdict,
                "found": difference(test, signed),
                "reason": test.reason,
            }
            for test in claim.tests
        ]
        if len(claim.tests) > 1
        else [],
    }


def claim_groups(report: Report) -> list[dict[str, Any]]:
    """The measured claims by verdict, empty groups included."""
    axes: dict[str, Axis | None] = {}
    for unit in {metrics.unit_of(claim.claim.tests[0].metric) for claim in report.measured}:
        alike = [
            claim.shown
            for claim in report.measured
            if metrics.unit_of(claim.claim.tests[0].metric) == unit and _is_difference(claim)
        ]
        axes[unit] = axis_of([outcome for outcome in alike if outcome.interval])
    main = metrics.unit_of(report.main[0].claim.tests[0].metric) if report.main else ""

    def context(claim: JudgedClaim) -> dict[str, Any]:
        unit = metrics.unit_of(claim.claim.tests[0].metric)
        # One axis for all strips of the list: other units have their numbers alone.
        return claim_context(report, claim, axes.get(unit) if unit == main else None)

    return [
        {
            "verdict": verdict,
            "why": why,
            "claims": [context(claim) for claim in report.of(verdict)],
            "open": verdict not in (TOO_FEW, NOT_RUN, NOT_JUDGED),
        }
        for verdict, why in GROUPS.items()
    ]


# --- tables and figures --------------------------------------------------------------------------------------------


def table_context(report: Report, artifact: Artifact) -> dict[str, Any]:
    """What the page shows of a table."""
    grid = report.grids[artifact.id]
    layout = lay_out(grid)
    return {
        **artifact_context(report, artifact),
        "summary": layout.summary,
        "take": take_away(report, grid),
        "heads": _heads(layout),
        "blocks": _blocks(layout, layout.blocks),
        "differing": _blocks(layout, layout.differing),
        "notes": layout.notes,
        "method": layout.method,
        "keyed": sum(bool(head.key) for head in layout.heads) >= 3,
        "runs": _runs_behind(report, artifact),
    }


def _heads(layout: Layout) -> dict[str, Any]:
    """Upper row of heads (spans of equal groups), and the lower one where there are groups."""
    upper: list[dict[str, Any]] = []
    for head in layout.heads:
        if head.group and upper and upper[-1]["group"] == head.group:
            upper[-1]["span"] += 1
        else:
            upper.append({"group": head.group, "text": head.group or head.text, "span": 1, "head": head})
    return {"upper": upper, "lower": [h for h in layout.heads if h.group], "width": len(layout.heads)}


def _blocks(layout: Layout, blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Rows of cells with their classes; the first cell is the row's head."""
    starts = [
        index > 0 and bool(head.group) and head.group != layout.heads[index - 1].group
        for index, head in enumerate(layout.heads)
    ]
    return [
        {
            "title": block.title,
            "rows": [
                {
                    "quiet": any(
                        cell.quiet and cell.kind == "number" and head.key == "delta"
                        for cell, head in zip(row, layout.heads, strict=True)
                    ),
                    "cells": [
                        {
                            "kind": cell.kind,
                            "html": text_html(cell.text)
                            if cell.kind in ("label", "text")
                            else plain_cell(cell),
                            "verdict": cell.text if cell.kind == "status" and cell.text in MARKS else "",
                            "bold": cell.bold,
                            "link": cell.link,
                            "classes": " ".join(filter(None, (head.kind, "starts" * start, head.key))),
                        }
                        for cell, head, start in zip(row, layout.heads, starts, strict=True)
                    ],
                }
                for row in block.rows
            ],
        }
        for block in blocks
    ]


def _runs_behind(report: Report, artifact: Artifact) -> list[dict[str, Any]]:
    """Per row its runs, with the value of its first measured column at each seed."""
    grid = report.grids[artifact.id]
    found = []
    for row in grid.table.rows:
        cells = [grid.cells[row.id, column.id] for column in grid.table.columns]
        runs = dict.fromkeys(run for cell in cells for run in cell.runs)
        if not runs:
            continue
        first = next((cell for cell in cells if cell.per_seed), None)
        values = first.per_seed if first else {}
        decimals = max(first.decimals, first.printed_decimals or 0) if first else 3
        found.append(
            {
                "id": row.id,
                "label": row.label,
                "runs": [
                    {
                        "id": run,
                        "seed": report.runs[run].seed,
                        "value": f"{value:,.{decimals}f}".replace("-", "−")
                        if is_number(value := values.get(report.runs[run].seed)) and run in first.runs
                        else "",
                        "ended": report.results.train(run) is not None,
                    }
                    for run in runs
                    if run in report.runs
                ],
            }
        )
    return found


def figure_context(report: Report, artifact: Artifact, folder: Path) -> dict[str, Any]:
    """What the page shows of a figure: the rendered SVG with its caption, or one drawn now where there is none."""
    svg, words = folder / f"{artifact.id}.svg", folder / f"{artifact.id}.json"
    if svg.exists() and words.exists():
        files = {"svg": svg.read_bytes(), "json": words.read_bytes()}
    else:
        files = figures.render(report.project, report.results, artifact)
    said = json.loads(files["json"])
    return {
        **artifact_context(report, artifact),
        "svg": inline_svg(files["svg"].decode(), artifact.id),
        "words": " ".join(filter(None, said["caption"].values())),
    }


def inline_svg(text: str, name: str) -> Markup:
    """A figure's file as an element of the page: no prologue, and identifiers that are its own."""
    text = re.sub(r"^.*?(?=<svg\b)", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", text)
    return Markup(text.strip())


def artifact_context(report: Report, artifact: Artifact) -> dict[str, Any]:
    """What tables and figures have in common."""
    definition, provenance = artifact.definition, report.provenance_of(artifact)
    return {
        "id": artifact.id,
        "name": name_of(artifact),
        "title": definition.title,
        "section": definition.section,
        "caption": definition.caption.strip(),
        "command": report.command(artifact.target),
        "footer": footer_lines(provenance)[1:],
        "specs": provenance.specs,
        "warnings": provenance.warnings,
        "files": ["csv", "tex", "md"] if artifact.is_table else ["csv", "svg", "pdf"],
        "empty": report.absence(artifact) if report.is_empty(artifact) else "",
    }


def name_of(artifact: Artifact) -> str:
    """``Table 3``, ``Figure 5a``; of what the paper does not number, that it is ours."""
    found = re.fullmatch(r"(table|fig)(\d\w*)", artifact.id)
    return f"{'Table' if found[1] == 'table' else 'Figure'} {found[2]}" if found else "Ours"


# --- the page ------------------------------------------------------------------------------------------------------


def decision_context(project: Resolver, paper: str) -> list[dict[str, Any]]:
    """The paper's open questions with defaults and alternatives, as its decisions.yaml tells them."""
    return [
        decision.model_dump(exclude={"arms"})
        | {"alternatives": [arm if isinstance(arm, str) else arm.text() for arm in decision.arms]}
        for decision in project.folder(paper).decisions
    ]


def run_rows(report: Report) -> list[dict[str, Any]]:
    """Every run: its state, or what it would cost, and the commit that trained it."""
    rows = []
    for id, run in report.runs.items():
        record = report.results.train(id)
        cost = f", about {duration(report.costs[id])}" if id in report.costs else ""
        state = "imported" if record and imported(record) else record and record["status"]
        rows.append(
            {
                "id": id,
                "state": state or f"not run{cost}",
                "seed": run.seed,
                "commit": (run_commit(record) if record else None) or "",
            }
        )
    return rows


def page(
    project: Resolver, results: Results, paper_id: str, folder: Path, chosen: Collection[str] | None = None
) -> str:
    """The whole page, or one of the ``chosen`` tables and figures, without claims. Figures are taken from ``folder``."""
    return render(Report(project, results, paper_id, chosen), folder)


def render(report: Report, folder: Path) -> str:
    """The page of a report."""
    project, results, paper = report.project, report.results, report.paper
    tables = [table_context(report, a) for a in report.artifacts if a.is_table]
    drawn = [
        artifact_context(report, a) if report.is_empty(a) else figure_context(report, a, folder)
        for a in report.artifacts
        if not a.is_table
    ]
    stale = stale_runs(results, report.runs.values())
    warnings = [f"KV cache of {line}" for line in kv_deviations(results, report.id)]
    warnings += report.provenance.warnings
    if stale:
        warnings.append(
            f"{len(stale)} of {report.ended} runs are of other or earlier code than today's: respath stale --scale {report.scale.id}"
        )
    return (
        environment(project)
        .get_template("page.html.j2")
        .render(
            report=report,
            paper=paper,
            authors=authors_line(paper.authors),
            verdicts=VERDICTS,
            most_units=_MOST_UNITS,
            main=main_groups(report),
            groups=claim_groups(report),
            exact=[claim_context(report, claim, None) for claim in report.exact],
            questions=[claim_context(report, claim, None) for claim in report.questions],
            shown_tables=[t for t in tables if not t["empty"] and not t["summary"]],
            folded_tables=[t for t in tables if not t["empty"] and t["summary"]],
            figures=[f for f in drawn if not f["empty"]],
            empty_tables=[t for t in tables if t["empty"]],
            empty_figures=[f for f in drawn if f["empty"]],
            decisions=decision_context(project, report.id),
            notes=scale_notes(project, report.id),
            runs=run_rows(report),
            missing=report.missing(),
            warnings=warnings,
            footer=footer_lines(report.provenance)[1:],
            overlap=overlap_context(project, results, report.id),
            source=results.source,
        )
    )


@guard
def main(arguments: list[str] | None = None) -> int:
    """Write the page and print its place."""
    parser = argparse.ArgumentParser(prog="python -m respath.reporting.page", description=__doc__)
    add_options(parser)
    parser.add_argument("--paper", required=True, help="paper id, a folder of papers/")
    parser.add_argument("--out", type=Path, help="the page (default: reports/out/<scale>/<paper>/index.html)")
    parser.add_argument(
        "--only", nargs="+", metavar="ID", help="only these tables and figures, and no claims"
    )
    options = parser.parse_args(arguments)
    project, results = open_project(options)
    project.folder(options.paper)
    out = options.out or project.root / "reports" / "out" / project.scale.id / options.paper / "index.html"
    write_text(out, page(project, results, options.paper, out.parent, options.only))
    print(out)
    return OK


if __name__ == "__main__":
    sys.exit(main())
