"""The comparison over all artifacts: one plain document for diff.json, and its Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from respath.comparison.cells import DIVERGED, NOT_RUN, OFF, STATUSES, Grid, is_number, rank_agreement
from respath.comparison.code import stale_runs
from respath.comparison.costs import duration, estimates
from respath.comparison.notes import scale_notes
from respath.comparison.report import Report, difference, reports
from respath.errors import CHECK_FAILED, OK, WRONG_USE
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities.rounding import rounded
from respath.quantities.verdicts import CONTRADICTED, UNDECIDED, VERDICTS
from respath.quantities.verdicts import NOT_RUN as CLAIM_NOT_RUN
from respath.results.reader import Results

#: Values off shown one by one in Markdown; diff.json has them all.
_SHOWN = 100


def compare(project: Resolver, results: Results, targets: Iterable[str] | None = None) -> dict[str, Any]:
    """Compare every table (or those in ``targets``) and, without targets, every claim. Reads results, makes none."""
    papers = {id: _paper(report) for id, report in reports(project, results, targets).items()}
    document = {
        "schema": 2,
        "kind": "diff",
        "scale": project.scale.id,
        "comparable": project.scale.comparable,
        "note": scale_note(project),
        "seeds": list(project.seeds),
        "papers": papers,
        "counts": _total(
            STATUSES, (table["counts"] for entry in papers.values() for table in entry["tables"].values())
        ),
        "verdicts": _total(VERDICTS, (entry["verdicts"] for entry in papers.values())),
    }
    document["check"] = {"failures": failures(document)}
    document["check"]["passed"] = None if nothing_ran(document) else not document["check"]["failures"]
    return document


def _paper(report: Report) -> dict[str, Any]:
    """One report as plain data. ``verdicts``: of the paper's measured claims alone."""
    project, results = report.project, report.results
    runs = report.runs.values()
    return {
        "title": report.paper.title,
        "arxiv": report.paper.arxiv,
        "found": report.found,
        "sure": report.sure,
        "verdicts": report.tally,
        "printed_numbers": report.counts.as_dict() | {"text": report.counts.texts()},
        "claims": [
            claim.as_dict()
            | {
                "measured": claim.measured,
                "compared": claim.shown.text,
                "difference": str(difference(claim.shown)),
                "printed": difference(claim.shown).printed,
                "where": report.source_of(claim),
            }
            for claim in report.claims
        ],
        "tables": {name: _table(report, grid) for name, grid in report.grids.items()},
        "figures": {a.id: _artifact(report, a) for a in report.artifacts if not a.is_table},
        "runs": {"wanted": len(report.runs), "ended": report.ended},
        "not_run": [dataclasses.asdict(one) for one in estimates(project, results, runs)],
        "missing": [
            {"size": size, "runs": number, "seconds": seconds}
            for size, number, seconds in report.missing_by_size()
        ],
        "missing_text": report.missing(),
        "notes": scale_notes(project, report.id),
        "kv_deviations": kv_deviations(results, report.id),
        "stale_runs": list(stale_runs(results, runs)),
    }


def _artifact(report: Report, artifact: Artifact) -> dict[str, Any]:
    return {
        "target": artifact.target,
        "title": artifact.definition.title,
        "provenance": report.provenance_of(artifact).as_dict(),
    }


def _table(report: Report, grid: Grid) -> dict[str, Any]:
    return _artifact(report, grid.artifact) | {
        "cells": [cell.as_dict() for cell in grid.compared()],
        "counts": grid.counts(),
        "rank": rank_agreement(report.project, grid),
    }


def kv_deviations(results: Results, paper: str) -> list[str]:
    """Models whose measured KV cache is not what the closed form says: never right, whatever the paper prints."""
    return [
        f"{entry['id']}: measured {entry['measured_bytes']:,} bytes, formula {entry['formula_bytes']:,}"
        for entry in (results.of_paper("cache", paper) or {"entries": ()})["entries"]
        if entry["measured_bytes"] != entry["formula_bytes"]
    ]


def _total(names: Iterable[str], many: Iterable[dict[str, int]]) -> dict[str, int]:
    counts = dict.fromkeys(names, 0)
    for one in many:
        for name, number in one.items():
            counts[name] += number
    return counts


def failures(document: dict[str, Any]) -> list[str]:
    """What makes ``check`` fail, one line each.

    At a comparable scale every printed cell must have been run and match; at a small scale every printed scale-free
    cell must, and measured cells are not asked for. Everywhere: no contradicted claim among those that the scale
    judges, and no measured KV cache that differs from its closed form.
    """
    lines = []
    for paper in document["papers"].values():
        for table in paper["tables"].values():
            for cell in table["cells"]:
                asked = cell["printed"] is not None and (cell["kind"] == "exact" or document["comparable"])
                if asked and cell["status"] in (OFF, UNDECIDED, DIVERGED, NOT_RUN):
                    detail = cell["reason"] or f"paper {_as_printed(cell)}, ours {_short(cell['ours'])}"
                    lines.append(
                        f"{table['target']}: {cell['row']}, {cell['column']}: {cell['status']} ({detail})"
                    )
        lines += [f"KV cache of {line}" for line in paper["kv_deviations"]]
        for claim in paper["claims"]:
            scale_free = claim["needs_seeds"] == 0 and claim["verdict"] == CLAIM_NOT_RUN
            if claim["verdict"] == CONTRADICTED or scale_free:
                lines.append(f"claim {claim['id']}: {claim['verdict']} ({claim['reason']})")
    return lines


def exit_code(document: dict[str, Any]) -> int:
    """Of a command that checks: 0 passed, 1 failed, 2 where there is nothing to check yet."""
    return {True: OK, False: CHECK_FAILED, None: WRONG_USE}[document["check"]["passed"]]


def nothing_ran(document: dict[str, Any]) -> bool:
    """Whether runs are wanted, none has ended, and nothing else deviates: then a check has neither passed nor failed."""
    papers = document["papers"].values()
    cells = [cell for paper in papers for table in paper["tables"].values() for cell in table["cells"]]
    wanted, ended = (sum(paper["runs"][name] for paper in papers) for name in ("wanted", "ended"))
    deviates = any(cell["status"] in (OFF, UNDECIDED, DIVERGED) for cell in cells) or any(
        paper["kv_deviations"] or any(claim["verdict"] == CONTRADICTED for claim in paper["claims"])
        for paper in papers
    )
    return wanted > 0 and ended == 0 and not deviates


# --- Markdown ------------------------------------------------------------------------------------------------------


def _short(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:.6g}" if is_number(value) else str(value)


def _as_printed(cell: dict[str, Any]) -> str:
    if not is_number(cell["printed"]):
        return _short(cell["printed"])
    return f"{rounded(cell['printed'], cell['printed_decimals']):,f}"


def _escape(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _row(*cells: Any) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def scale_note(project: Resolver) -> str:
    """What of this scale may be compared with the paper."""
    if project.scale.comparable:
        return f"Scale {project.scale.id}: measured values are set against the printed numbers."
    return (
        f"Scale {project.scale.id}: not a replication of printed values. Of small models only signs of paired differences can be "
        "compared with the paper, where claims say so."
    )


def check_text(document: dict[str, Any]) -> str:
    """How the check came out, in a few words."""
    passed = document["check"]["passed"]
    if passed is None:
        return "nothing to check yet: no run has ended"
    return "passed" if passed else f"{len(document['check']['failures'])} failures"


def counts_text(counts: dict[str, int]) -> str:
    """``3 match, 1 off``: only what occurs."""
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "none"


def markdown(document: dict[str, Any]) -> str:
    """diff.md: per paper the headline, what is contradicted, off or undecided, then counts, what is missing and warnings."""
    lines = [f"# What scale {document['scale']} found", "", document["note"], ""]
    for paper_id, paper in document["papers"].items():
        lines += [f"## {paper['title']} ({paper_id}, arXiv {paper['arxiv']})", "", paper["found"], ""]
        lines += [paper["sure"], ""] if paper["sure"] else []
        for verdict in (CONTRADICTED, UNDECIDED):
            lines += _claims_markdown(verdict, paper["claims"])
            if verdict == CONTRADICTED:
                lines += _off_markdown(paper)
        lines += [
            "### Counts",
            "",
            f"* Claims: {', '.join(f'{n} {v}' for v, n in paper['verdicts'].items())}.",
        ]
        lines += [f"* {text}" for text in paper["printed_numbers"]["text"]]
        lines += [f"* Runs: {paper['runs']['ended']} of {paper['runs']['wanted']} have ended.", ""]
        lines += _missing_markdown(paper["missing"])
        if warnings := _paper_warnings(paper):
            lines += ["### Warnings", "", *[f"* {line}" for line in warnings], ""]
    failed = document["check"]["failures"] if document["check"]["passed"] is False else []
    lines += ["## Check", "", f"{check_text(document).capitalize()}."]
    lines += [""] * bool(failed) + [f"* {line}" for line in failed] + [""]
    return "\n".join(lines)


def _claims_markdown(verdict: str, claims: list[dict[str, Any]]) -> list[str]:
    found = [claim for claim in claims if claim["verdict"] == verdict and claim["measured"]]
    if not found:
        return []
    head = ["claim", "where", "difference [95 % interval]", "printed", "compared"]
    lines = [f"### {verdict.capitalize()}", "", _row(*head), "|---|---|---|--:|---|"]
    for claim in found:
        title = (
            claim["title"] + (" (main)" if claim["primary"] else "") + (" (ours)" if claim["ours"] else "")
        )
        lines.append(
            _row(title, claim["where"], claim["difference"], claim["printed"] or "–", claim["compared"])
        )
    return [*lines, ""]


def _off_markdown(paper: dict[str, Any]) -> list[str]:
    rows = [
        _row(table["target"], cell["row"], cell["column"], _as_printed(cell), _short(cell["ours"]))
        for table in paper["tables"].values()
        for cell in table["cells"]
        if cell["status"] in (OFF, DIVERGED)
    ]
    if not rows:
        return []
    more = [f"{len(rows) - _SHOWN} more are in diff.json.", ""] if len(rows) > _SHOWN else []
    head = [_row("table", "row", "column", "printed", "ours"), "|---|---|---|--:|--:|"]
    return ["### Values off", "", *head, *rows[:_SHOWN], "", *more]


def _missing_markdown(missing: list[dict[str, Any]]) -> list[str]:
    if not missing:
        return []
    lines = ["### Missing runs", "", _row("size", "runs", "estimate"), "|---|--:|--:|"]
    lines += [
        _row(one["size"], one["runs"], duration(one["seconds"]) if one["seconds"] else "–") for one in missing
    ]
    return [*lines, ""]


def _paper_warnings(paper: dict[str, Any]) -> list[str]:
    warnings = [f"KV cache of {line}" for line in paper["kv_deviations"]]
    stale = paper["stale_runs"]
    if stale:
        shown = ", ".join(stale[:5]) + (", ..." if len(stale) > 5 else "")
        warnings.append(
            f"{len(stale)} runs were trained by other or earlier code than today's (`respath stale`): {shown}"
        )
    for kind in ("tables", "figures"):
        for artifact in paper[kind].values():
            warnings += [f"{artifact['target']}: {line}" for line in artifact["provenance"]["warnings"]]
    return warnings
