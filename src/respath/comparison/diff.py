"""The comparison over all artifacts: one plain document for diff.json, and its Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from respath.comparison.cells import (
    DIVERGED,
    NOT_RUN,
    OFF,
    STATUSES,
    Grid,
    build_grid,
    is_number,
    rank_agreement,
)
from respath.comparison.claims import judge_claims
from respath.comparison.code import stale_runs
from respath.comparison.costs import duration, estimates
from respath.comparison.noise import noise
from respath.comparison.notes import scale_notes
from respath.comparison.provenance import provenance_of_artifact
from respath.errors import CHECK_FAILED, OK, WRONG_USE
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.quantities.rounding import rounded, signed, significant
from respath.quantities.verdicts import CONTRADICTED, UNDECIDED, VERDICTS
from respath.quantities.verdicts import NOT_RUN as CLAIM_NOT_RUN
from respath.results.reader import Results

#: Cells shown one by one in Markdown; the others are counted (diff.json has them all).
_SHOWN_PER_TABLE = 400


def compare(project: Resolver, results: Results, targets: Iterable[str] | None = None) -> dict[str, Any]:
    """Compare every table (or those in ``targets``) and, without targets, every claim. Reads results, makes none."""
    chosen = [project.artifact(target) for target in targets] if targets is not None else project.artifacts()
    papers: dict[str, Any] = {}
    for paper in project.chosen:
        artifacts = [artifact for artifact in chosen if artifact.paper == paper]
        if targets is not None and not artifacts:
            continue
        folder = project.folder(paper).paper
        claims = [] if targets is not None else judge_claims(project, results, paper)
        runs = {
            run.id: run
            for artifact in artifacts
            for run in needs.of_artifact(project, artifact).trained.values()
        }
        stale = stale_runs(results, runs.values())
        grids = [build_grid(project, results, artifact) for artifact in artifacts if artifact.is_table]
        papers[paper] = {
            "title": folder.title,
            "arxiv": folder.arxiv,
            "notes": scale_notes(project, results, paper),
            "tables": {grid.artifact.id: _table(project, results, grid) for grid in grids},
            "figures": {
                artifact.id: _figure(project, results, artifact)
                for artifact in artifacts
                if not artifact.is_table
            },
            "claims": [claim.as_dict() for claim in claims],
            "noise": noise(project, grids),
            "not_run": [dataclasses.asdict(one) for one in estimates(project, results, runs.values())],
            "kv_deviations": kv_deviations(results, paper),
            "stale_runs": list(stale),
            "runs": {"wanted": len(runs), "ended": sum(results.finished(run) for run in runs.values())},
        }
    document = {
        "schema": 1,
        "kind": "diff",
        "scale": project.scale.id,
        "comparable": project.scale.comparable,
        "note": scale_note(project),
        "seeds": list(project.seeds),
        "papers": papers,
        "counts": _total(
            STATUSES, (table["counts"] for entry in papers.values() for table in entry["tables"].values())
        ),
        "verdicts": _count(
            VERDICTS, (claim["verdict"] for entry in papers.values() for claim in entry["claims"])
        ),
    }
    document["check"] = {"failures": failures(document)}
    document["check"]["passed"] = None if nothing_ran(document) else not document["check"]["failures"]
    return document


def _table(project: Resolver, results: Results, grid: Grid) -> dict[str, Any]:
    artifact = grid.artifact
    return {
        "target": artifact.target,
        "title": artifact.definition.title,
        "cells": [cell.as_dict() for cell in grid.compared()],
        "counts": grid.counts(),
        "rank": rank_agreement(project, grid),
        "provenance": provenance_of_artifact(project, results, artifact).as_dict(),
    }


def _figure(project: Resolver, results: Results, artifact: Artifact) -> dict[str, Any]:
    return {
        "target": artifact.target,
        "title": artifact.definition.title,
        "provenance": provenance_of_artifact(project, results, artifact).as_dict(),
    }


def kv_deviations(results: Results, paper: str) -> list[str]:
    """Models whose measured KV cache is not what the closed form says: never right, whatever the paper prints."""
    return [
        f"{entry['id']}: measured {entry['measured_bytes']:,} bytes, formula {entry['formula_bytes']:,}"
        for entry in (results.of_paper("cache", paper) or {"entries": ()})["entries"]
        if entry["measured_bytes"] != entry["formula_bytes"]
    ]


def _count(names: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    counts = dict.fromkeys(names, 0)
    for name in found:
        counts[name] += 1
    return counts


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
    """One or two sentences on what this scale may judge."""
    if project.scale.comparable:
        return f"Scale {project.scale.id}: measured cells are set against the printed numbers."
    note = (
        f"Scale {project.scale.id}: not a replication. Only scale-free cells (parameters, FLOPs, KV bytes, configuration, "
        "data shares) are judged; losses and accuracies of small models are shown, never compared with the printed numbers."
    )
    if len(project.seeds) > 1:
        note += " Directions are judged by claims, over paired seeds."
    return note


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
    """diff.md: counts, failures, tables, rank agreement, claims, warnings."""
    lines = [
        "# Regenerated against printed numbers",
        "",
        document["note"],
        "",
    ]
    lines += [
        f"* Cells: {counts_text(document['counts'])}.",
        f"* Claims: {counts_text(document['verdicts'])}.",
    ]
    lines += [f"* Seeds: {', '.join(map(str, document['seeds']))}.", ""]
    failed = document["check"]["failures"] if document["check"]["passed"] is False else []
    lines += [
        "## Check",
        "",
        f"{len(failed)} failures." if failed else f"{check_text(document).capitalize()}.",
    ]
    lines += [""] * bool(failed) + [f"* {line}" for line in failed] + [""]
    for paper_id, paper in document["papers"].items():
        lines += [f"## {paper['title']} ({paper_id}, arXiv {paper['arxiv']})", ""]
        lines += [f"{paper['runs']['ended']} of {paper['runs']['wanted']} runs have ended.", ""]
        lines += [line for note in paper["notes"] for line in (note, "")]
        lines += _not_run_markdown(paper["not_run"])
        warnings = _paper_warnings(paper)
        if warnings:
            lines += ["### Warnings", "", *[f"* {line}" for line in warnings], ""]
        for table_id, table in paper["tables"].items():
            lines += _table_markdown(table_id, table)
        if paper["claims"]:
            lines += ["### Claims", "", _row("claim", "verdict", "reason"), "|---|---|---|"]
            lines += [
                _row(
                    f"{claim['title']} (`{claim['id']}`{', primary' if claim['primary'] else ''})",
                    claim["verdict"],
                    claim["reason"],
                )
                for claim in paper["claims"]
            ]
            lines += [""]
        lines += _noise_markdown(paper["noise"])
    return "\n".join(lines)


def not_run_text(not_run: list[dict[str, Any]]) -> str:
    """How many runs have not ended and what they would cost; empty where none is missing or no cost is known."""
    if not not_run:
        return ""
    total = duration(sum(entry["seconds"] for entry in not_run))
    count = f"{len(not_run)} runs have" if len(not_run) > 1 else "1 run has"
    return (
        f"{count} not been trained; on the machine of the finished ones they would take about {total} of training, one after "
        "the other (measured: seconds per token of like runs)."
    )


def _not_run_markdown(not_run: list[dict[str, Any]]) -> list[str]:
    if not not_run:
        return []
    lines = [
        "### Not run",
        "",
        not_run_text(not_run),
        "",
        _row("run", "estimate", "measured from"),
        "|---|--:|---|",
    ]
    lines += [_row(f"`{one['run']}`", duration(one["seconds"]), one["like"]) for one in not_run]
    return [*lines, ""]


def spread_text(entry: dict[str, Any]) -> str:
    """``0.0031 (6)``: a pooled standard deviation and its degrees of freedom."""
    return f"{entry['std']:.3g} ({entry['freedom']})" if entry else "–"


def _noise_markdown(found: dict[str, Any]) -> list[str]:
    if not found["metrics"]:
        return []
    counts = list(next((entry["detectable"] for entry in found["metrics"] if entry["detectable"]), {}))
    lines = [
        "### Seed noise",
        "",
        "Standard deviations over seeds, degrees of freedom in brackets. Detectable: the smallest paired difference that so "
        "many seeds would show with a probability of 80 %.",
        "",
        _row(
            "metric",
            "size",
            "length",
            "baseline",
            "all models",
            "paired differences",
            *[f"detectable, n = {n}" for n in counts],
        ),
        "|---|---|--:|--:|--:|--:|" + "--:|" * len(counts),
    ]
    for entry in found["metrics"]:
        shown = [f"{entry['detectable'][n]:.2g}" if entry["detectable"] else "–" for n in counts]
        spreads = [spread_text(entry[key]) for key in ("baseline", "pooled", "pairs")]
        lines.append(_row(entry["metric"], entry["size"], f"{entry['context']:,}", *spreads, *shown))
    lines += [
        "",
        _row("table", "row", "column", "n", "difference", "95 % interval", "detectable"),
        "|---|---|---|--:|--:|---|--:|",
    ]
    for row in found["rows"]:
        interval = f"{signed(row['low'])} to {signed(row['high'])}"
        lines.append(
            _row(
                row["table"],
                row["row"],
                row["column"],
                row["n"],
                signed(row["mean"]),
                interval,
                f"{row['detectable']:.2g}",
            )
        )
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


def _table_markdown(table_id: str, table: dict[str, Any]) -> list[str]:
    lines = [f"### {table_id}: {table['title']}", "", f"{counts_text(table['counts'])}.", ""]
    printed = [cell for cell in table["cells"] if cell["printed"] is not None]
    if printed:
        lines += [
            _row("row", "column", "paper", "ours", "delta", "tolerance", "rule", "status"),
            "|---|---|--:|--:|--:|--:|---|---|",
        ]
        for cell in printed[:_SHOWN_PER_TABLE]:
            status = cell["status"] + (f" ({cell['reason']})" if cell["reason"] else "")
            lines.append(
                _row(
                    cell["row"],
                    cell["column"],
                    _as_printed(cell),
                    _short(cell["ours"]),
                    "–" if cell["delta"] is None else significant(cell["delta"], 4, sign=True),
                    _short(cell["tolerance"]),
                    cell["rule"] or "–",
                    status,
                )
            )
        lines.append("")
    if len(printed) > _SHOWN_PER_TABLE:
        lines += [f"{len(printed) - _SHOWN_PER_TABLE} more cells are in diff.json.", ""]
    silent = len(table["cells"]) - len(printed)
    if silent:
        lines += [f"The paper prints no number for {silent} further cells.", ""]
    for column, rank in table["rank"].items():
        lines += [f"Rank agreement, {column}: {rank_text(rank)}", ""]
    return lines


def rank_text(rank: dict[str, Any]) -> str:
    """The rank agreement of one column in a sentence or two."""
    best = "the same row is best" if rank["same_best"] else f"best here: {', '.join(rank['best_ours'])}"
    text = f"{best} (paper: {', '.join(rank['best_printed'])}; {rank['rows']} rows)"
    if rank["improvements"]:
        text += f"; sign of the difference from the baseline kept in {rank['improvements_kept']} of {rank['improvements']} rows"
        if rank["improvements_lost"]:
            text += f" (not in {', '.join(rank['improvements_lost'])})"
    if rank["kendall_tau"] is not None:
        text += f"; Kendall's tau {rank['kendall_tau']:+.2f}"
    return f"{text}. For information, not a verdict."
