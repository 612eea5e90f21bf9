"""A comparison on screen: what was found, how sure, the main claims and what is missing; or a line per paper."""

from __future__ import annotations

from typing import Any

from respath.comparison.diff import check_text

#: Failures printed on screen; all of them are in the files.
_SHOWN = 20


def summary(document: dict[str, Any]) -> None:
    """Print the reports of all papers and the failures of the check to standard output."""
    from rich.console import Console
    from rich.table import Table

    # Names such as "[a]" in data must not be read as rich markup.
    console = Console(markup=False, highlight=False, soft_wrap=True)
    for paper_id, paper in document["papers"].items():
        console.print(f"{paper_id}: {paper['title']}, scale {document['scale']}", style="bold")
        console.print(paper["found"])
        if paper["sure"]:
            console.print(paper["sure"])
        main = [claim for claim in paper["claims"] if claim["primary"]]
        if main:
            grid = Table("main claim", title_justify="left")
            grid.add_column("difference [95 % interval]", no_wrap=True)
            grid.add_column("printed", justify="right")
            grid.add_column("verdict", no_wrap=True)
            for claim in main:
                shown = (
                    claim["title"],
                    claim["difference"] or "–",
                    claim["printed"] or "–",
                    claim["verdict"],
                )
                grid.add_row(*shown)
            console.print(grid)
        for text in paper["printed_numbers"]["text"]:
            console.print(text)
        if paper["missing_text"]:
            console.print(paper["missing_text"])
        for line in code_lines(paper, document["scale"]):
            console.print(f"warning: {line}")
        console.print()
    console.print(document["note"])
    failed = document["check"]["failures"] if document["check"]["passed"] is False else []
    for line in failed[:_SHOWN]:
        console.print(f"  {line}")
    if len(failed) > _SHOWN:
        console.print(f"  ... and {len(failed) - _SHOWN} more")
    console.print(f"check: {check_text(document)}")


def code_lines(paper: dict[str, Any], scale: str) -> list[str]:
    """What is mixed among a paper's results, and how many are older than today's code, a sentence each."""
    lines = dict.fromkeys(
        line
        for kind in ("tables", "figures")
        for artifact in paper[kind].values()
        for line in artifact["provenance"]["code"]
    )
    if stale := paper["stale_runs"]:
        lines[
            f"{len(stale)} of {paper['runs']['ended']} runs are of other or earlier code than today's; with the command that makes "
            f"each anew: respath stale --scale {scale}"
        ] = None
    return list(lines)


def brief(document: dict[str, Any], folder: str | None = None) -> str:
    """Where the pages are (below reports/out/<scale> unless told otherwise) and what this scale found, in a few lines."""
    scale = document["scale"]
    lines = [f"Tables, figures and pages: {folder or f'reports/out/{scale}'}/<paper>/. {document['note']}"]
    for paper_id, paper in document["papers"].items():
        lines.append(brief_of(paper_id, paper, scale))
        lines += [f"{paper_id}: warning: {line}" for line in code_lines(paper, scale)]
    return "\n".join(lines)


def brief_of(paper_id: str, paper: dict[str, Any], scale: str) -> str:
    """What this scale found of a paper, and the command that says more."""
    return " ".join(
        filter(
            None,
            (f"{paper_id}: {paper['found']}", paper["missing_text"], f"More: respath diff --scale {scale}"),
        )
    )
