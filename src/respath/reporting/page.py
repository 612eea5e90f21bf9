"""``python -m respath.reporting.page``: one self-contained HTML page per paper, readable without scripts or network."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jinja2

from respath.comparison.cells import STATUSES, Grid, build_grid, rank_agreement
from respath.comparison.claims import JudgedClaim, evidence, judge_claims
from respath.comparison.costs import duration, estimates
from respath.comparison.diff import (
    counts_text,
    kv_deviations,
    not_run_text,
    rank_text,
    scale_note,
    spread_text,
)
from respath.comparison.noise import noise
from respath.comparison.notes import scale_notes
from respath.comparison.options import add_options, open_project
from respath.comparison.provenance import Provenance, provenance_of, provenance_of_artifact
from respath.errors import OK, guard
from respath.files import write_text
from respath.letters import plain
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities.kinds import imported
from respath.quantities.rounding import signed
from respath.quantities.verdicts import VERDICTS
from respath.reporting import figure as figures
from respath.reporting.contamination import overlap_context
from respath.reporting.footer import footer_lines
from respath.reporting.latex import templates_of
from respath.reporting.layout import Head, Layout, lay_out, short_status
from respath.reporting.mathematics import text_html
from respath.reporting.pdf import citation
from respath.reporting.table import plain_cell
from respath.results.reader import Results

#: A shape beside each word, so that statuses and verdicts read without colour: (symbol, class).
CHIPS = {
    "match": ("✓", "good"),
    "within": ("≈", "good"),
    "off": ("✗", "bad"),
    "diverged": ("⚠", "bad"),
    "not run": ("○", "quiet"),
    "not reported": ("–", "quiet"),
    "not comparable at this scale": ("≁", "neutral"),
    "supported": ("✓", "good"),
    "contradicted": ("✗", "bad"),
    "no effect seen": ("=", "warn"),
    "undecided": ("?", "warn"),
    "too few runs": ("?", "soft"),
    "not judged at this scale": ("–", "quiet"),
}


def chip(status: str) -> dict[str, str]:
    """Symbol, class and words of a status; a mixed one (``3 match, 1 off``) is a warning."""
    symbol, kind = CHIPS.get(status, ("!", "warn"))
    return {"symbol": symbol, "kind": kind, "text": short_status(status)}


def head_groups(heads: tuple[Head, ...]) -> list[dict[str, Any]]:
    """Upper row of heads: spans of equal groups; heads without a group span both rows."""
    groups: list[dict[str, Any]] = []
    for head in heads:
        if head.group and groups and groups[-1]["text"] == head.group:
            groups[-1]["span"] += 1
            continue
        unit = f" ({head.unit})" if head.unit and "(" not in (head.group or head.text) else ""
        text = head.group or head.text
        groups.append({"text": text, "unit": unit, "span": 1, "alone": not head.group, "kind": head.kind})
    return groups


def table_context(project: Resolver, results: Results, grid: Grid) -> dict[str, Any]:
    """What the page shows of a table."""
    artifact = grid.artifact
    layout: Layout = lay_out(project, grid)
    # How many columns of a group come first: they get a rule at their left.
    starts = [
        index > 0 and bool(head.group) and head.group != layout.heads[index - 1].group
        for index, head in enumerate(layout.heads)
    ]
    blocks = [
        {
            "title": block.title,
            "rows": [
                [
                    {
                        "kind": cell.kind,
                        "html": text_html(cell.text) if cell.kind in ("label", "text") else plain_cell(cell),
                        "word": cell.kind == "number" and not cell.is_number,
                        "bold": cell.bold,
                        "note": cell.note,
                        "chip": chip(cell.text) if cell.kind == "status" and cell.text else None,
                        "starts": start,
                    }
                    for cell, start in zip(row, starts, strict=True)
                ]
                for row in block.rows
            ],
        }
        for block in layout.blocks
    ]
    counts = {name: number for name, number in grid.counts().items() if number}
    return {
        **artifact_context(project, results, artifact),
        "kind": "table",
        "groups": head_groups(layout.heads),
        "lower": [
            {"text": head.text, "kind": head.kind, "starts": s}
            for head, s in zip(layout.heads, starts, strict=True)
            if head.group
        ],
        "width": len(layout.heads),
        "blocks": blocks,
        "notes": layout.notes,
        "counts": counts,
        "chips": [chip(name) | {"number": number} for name, number in counts.items()],
        "ranks": [
            f"{next(c.label for c in grid.table.columns if c.id == name)}: {rank_text(rank)}"
            for name, rank in rank_agreement(project, grid).items()
        ],
        "files": ["csv", "tex", "md"],
    }


def figure_context(project: Resolver, results: Results, artifact: Artifact, folder: Path) -> dict[str, Any]:
    """What the page shows of a figure: the rendered drawing and its words, or those made now where there are none."""
    paths = {ending: folder / f"{artifact.id}.{ending}" for ending in ("svg", "json")}
    if all(path.exists() for path in paths.values()):
        files = {ending: path.read_bytes() for ending, path in paths.items()}
    else:
        files = figures.render(project, results, artifact)
    words = json.loads(files["json"])
    return {
        **artifact_context(project, results, artifact),
        "kind": "figure",
        "svg": files["svg"].decode(),
        "words": words["caption"],
        "files": ["csv", "svg", "pdf"],
    }


def artifact_context(project: Resolver, results: Results, artifact: Artifact) -> dict[str, Any]:
    """What tables and figures have in common."""
    provenance: Provenance = provenance_of_artifact(project, results, artifact)
    return {
        "id": artifact.id,
        "target": artifact.target,
        "title": artifact.definition.title,
        "section": artifact.definition.section,
        "caption": artifact.definition.caption.strip(),
        "footer": footer_lines(provenance),
        "specs": provenance.specs,
        "warnings": provenance.warnings,
    }


def claim_context(verdict: JudgedClaim) -> dict[str, Any]:
    """What the page shows of a claim."""
    source = ", ".join(f"{key.capitalize()} {value}" for key, value in verdict.claim.source.items())
    return {
        "id": verdict.claim.id,
        "title": verdict.claim.title,
        "source": source,
        "chip": chip(verdict.verdict),
        "reason": verdict.reason,
        "note": verdict.claim.note,
        "decisions": verdict.claim.decisions,
        "standing": verdict.standing,
        "tests": [
            {
                "text": test.text,
                "chip": chip(test.verdict),
                "reason": test.reason,
                "evidence": evidence(test),
                "printed": _printed_text(printed),
            }
            for test, printed in zip(verdict.tests, verdict.printed, strict=True)
        ],
    }


def _printed_text(printed: dict[str, Any]) -> str:
    return ", ".join(f"{side} {value}" for side, value in printed.items())


def decision_context(project: Resolver, paper: str) -> list[dict[str, Any]]:
    """The paper's open questions with defaults and arms, as its decisions.yaml tells them."""
    return [
        decision.model_dump(exclude={"arms"})
        | {"arms": [arm if isinstance(arm, str) else arm.text() for arm in decision.arms]}
        for decision in project.folder(paper).decisions
    ]


def page(
    project: Resolver, results: Results, paper_id: str, folder: Path, chosen: Collection[str] | None = None
) -> str:
    """The whole page, or one of the ``chosen`` tables and figures, without claims. Figures are taken from ``folder``."""
    paper = project.folder(paper_id).paper
    shown = [a for a in project.artifacts(paper_id) if chosen is None or a.id in chosen]
    grids = {a.id: build_grid(project, results, a) for a in shown if a.is_table}
    artifacts = [
        table_context(project, results, grids[artifact.id])
        if artifact.is_table
        else figure_context(project, results, artifact, folder)
        for artifact in shown
    ]
    verdicts = judge_claims(project, results, paper_id) if chosen is None else []
    claims = [claim_context(verdict) for verdict in verdicts]
    tally = {name: sum(verdict.verdict == name for verdict in verdicts) for name in VERDICTS}
    cells = dict.fromkeys(STATUSES, 0)
    for artifact in artifacts:
        for name, number in artifact.get("counts", {}).items():
            cells[name] += number
    runs = {
        run.id: run for artifact in shown for run in needs.of_artifact(project, artifact).trained.values()
    }
    whole = provenance_of(project, results, paper_id, runs.values())
    not_run = [dataclasses.asdict(one) for one in estimates(project, results, runs.values())]
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_of(project)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters |= {"formulas": text_html, "plain": plain}
    return env.get_template("page.html.j2").render(
        paper=paper,
        citation=citation(paper),
        scale=project.scale,
        comparable=project.scale.comparable,
        scale_note=scale_note(project),
        cell_chips=[chip(name) | {"number": number} for name, number in cells.items() if number],
        claim_chips=[chip(name) | {"number": number} for name, number in tally.items() if number],
        artifacts=artifacts,
        claims=claims,
        decisions=decision_context(project, paper_id),
        provenance=whole,
        footer=footer_lines(whole),
        notes=scale_notes(project, results, paper_id),
        noise=noise_context(noise(project, grids.values())),
        not_run=not_run_text(not_run),
        runs=_run_rows(results, runs.values(), {one["run"]: duration(one["seconds"]) for one in not_run}),
        kv_deviations=kv_deviations(results, paper_id),
        overlap=overlap_context(project, results, paper_id),
        summary=counts_text(cells),
        source=results.source,
    )


def _run_rows(results: Results, runs: Any, costs: dict[str, str]) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        record = results.train(run.id)
        cost = f", about {costs[run.id]}" if run.id in costs else ""
        ended = "imported" if record and imported(record) else record and record["status"]
        rows.append({"id": run.id, "status": ended or f"not run{cost}"})
    return rows


def noise_context(found: dict[str, Any]) -> dict[str, Any]:
    """Seed noise as texts: spreads per metric, and the t interval of every paired difference."""
    metrics = [
        (
            entry["metric"],
            entry["size"],
            f"{entry['context']:,}",
            *(spread_text(entry[key]) for key in ("baseline", "pooled", "pairs")),
            *(f"{value:.2g}" for value in entry["detectable"].values()),
        )
        for entry in found["metrics"]
    ]
    rows = [
        (
            *(row[key] for key in ("table", "row", "column", "n")),
            signed(row["mean"]),
            f"{signed(row['low'])} to {signed(row['high'])}",
            f"{row['detectable']:.2g}",
        )
        for row in found["rows"]
    ]
    seeds = list(next((e["detectable"] for e in found["metrics"] if e["detectable"]), {}))
    return {"metrics": metrics, "rows": rows, "seeds": seeds}


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
