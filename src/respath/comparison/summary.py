"""A comparison on screen: counts per table, verdicts, failures; or three lines of it."""

from __future__ import annotations

from typing import Any

from respath.comparison.diff import check_text, counts_text

#: Failures printed on screen; all of them are in the files.
_SHOWN = 20


def summary(document: dict[str, Any]) -> None:
    """Print counts per table, verdicts per paper and failures to standard output."""
    from rich.console import Console
    from rich.table import Table

    # Names such as "[a]" in data must not be read as rich markup.
    console = Console(markup=False, highlight=False, soft_wrap=True)
    console.print(document["note"])
    for paper_id, paper in document["papers"].items():
        grid = Table(
            title=f"{paper_id}: {paper['runs']['ended']} of {paper['runs']['wanted']} runs ended",
            title_justify="left",
        )
        grid.add_column("table", no_wrap=True)
        statuses = [name for name, number in document["counts"].items() if number]
        for name in statuses:
            grid.add_column(name, justify="right")
        for table in paper["tables"].values():
            grid.add_row(table["target"], *[str(table["counts"][name] or "") for name in statuses])
        console.print(grid)
        for line in code_lines(paper, document["scale"]):
            console.print(f"warning: {line}")
        if paper["claims"]:
            verdicts: dict[str, int] = {}
            for claim in paper["claims"]:
                verdicts[claim["verdict"]] = verdicts.get(claim["verdict"], 0) + 1
            console.print(f"claims of {paper_id}: {counts_text(verdicts)}")
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
    """Where the tables are (below reports/out/<scale> unless told otherwise) and how many cells match, in a few lines."""
    scale = document["scale"]
    folder = folder or f"reports/out/{scale}"
    lines = [f"Tables, figures and pages: {folder}/<paper>/. {document['note']}"]
    for paper_id, paper in document["papers"].items():
        lines.append(brief_of(paper_id, paper, scale))
        lines += [f"{paper_id}: warning: {line}" for line in code_lines(paper, scale)]
    return "\n".join(lines)


def brief_of(paper_id: str, paper: dict[str, Any], scale: str) -> str:
    """How many cells of a paper match, how many runs ended, and what became of its claims."""
    judged = [
        cell for table in paper["tables"].values() for cell in table["cells"] if cell["printed"] is not None
    ]
    counts: dict[str, int] = {}
    for cell in judged:
        counts[cell["status"]] = counts.get(cell["status"], 0) + 1
    matching = counts.pop("match", 0) + counts.pop("within", 0)
    rest = f"; {counts_text(counts)}" if counts else ""
    supported = sum(claim["verdict"] == "supported" for claim in paper["claims"])
    claims = f"; {supported} of {len(paper['claims'])} claims supported" if paper["claims"] else ""
    return (
        f"{paper_id}: {matching} of {len(judged)} printed cells match{rest}. {paper['runs']['ended']} of "
        f"{paper['runs']['wanted']} runs ended{claims}. Cell by cell: respath diff --scale {scale}"
    )
