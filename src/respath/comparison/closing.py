"""The last lines of an invocation of Snakemake: what was asked for, how it came out, and what of it is not fresh.

``python -m respath.comparison.closing --files FILE...``. Exit code 1: a run was trained on other tokens, or evaluated on
other items, than there are now, so what was asked for stands on two sets of data.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable

from respath.comparison.diff import compare, counts_text
from respath.comparison.options import add_options, open_project
from respath.comparison.summary import brief_of, code_lines
from respath.errors import CHECK_FAILED, OK, guard
from respath.files import read_json, sha256_file
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver, Run
from respath.results.items import LISTS, other_items
from respath.results.reader import Results
from respath.spec.data import tokens_id

#: Tables that are printed on a terminal, at most; more would push each other out of sight.
_SHOWN = 2


def asked_for(project: Resolver, files: Iterable[str]) -> tuple[list[Artifact], list[str], list[str]]:
    """Tables and figures that the files belong to, pages, and other files."""
    by_stem = {f"{folder_of(project, a)}/{a.id}": a for a in project.artifacts()}
    artifacts: dict[str, Artifact] = {}
    pages, others = [], []
    for file in files:
        if artifact := by_stem.get(file.rsplit(".", 1)[0]):
            artifacts[artifact.target] = artifact
        else:
            (pages if file.endswith(".html") else others).append(file)
    return list(artifacts.values()), pages, others


def folder_of(project: Resolver, artifact: Artifact) -> str:
    """Where the files of an artifact are rendered."""
    return f"reports/out/{project.scale.id}/{artifact.paper}"


def on_other_tokens(project: Resolver, results: Results, runs: Iterable[Run]) -> dict[str, list[str]]:
    """Manifest -> runs that were trained on another one in its place."""
    found: dict[str, list[str]] = {}
    now: dict[str, str] = {}
    for run in runs:
        manifest = f"results/tokens/{tokens_id(project.paper(run.paper).data)}/manifest.json"
        record = results.train(run.id)
        if manifest not in now:
            path = project.root / manifest
            now[manifest] = sha256_file(path) if path.exists() else ""
        trained_on = (record or {}).get("manifest_sha256")
        if trained_on and now[manifest] and trained_on != now[manifest]:
            found.setdefault(manifest, []).append(run.id)
    return found


def on_other_items(
    project: Resolver, results: Results, artifacts: Iterable[Artifact]
) -> dict[str, list[str]]:
    """items.json -> files of evaluations that stand on other items than it lists now."""
    found: dict[str, list[str]] = {}
    for artifact in artifacts:
        wanted = needs.of_artifact(project, artifact)
        for kind, place in LISTS.items():
            items = place.format(paper=artifact.paper)
            if kind not in wanted.kinds or not (project.root / items).exists():
                continue
            listed = read_json(project.root / items)
            for run in wanted.trained:
                result, file = results.of_run(kind, run), results.store.path(kind, {"run": run})
                if result is not None and other_items(result, listed) and file not in found.get(items, ()):
                    found.setdefault(items, []).append(file)
    return found


def problems(project: Resolver, results: Results, artifacts: Collection[Artifact]) -> list[str]:
    """What of some tables and figures stands on two sets of tokens or items, a sentence each with the ways out."""
    runs = {
        run.id: run for artifact in artifacts for run in needs.of_artifact(project, artifact).trained.values()
    }
    tokens = [
        f"{manifest}: {len(ids)} of {len(runs)} runs were trained on other tokens than it lists now (first: {ids[0]}); put those tokens "
        "back, or delete " + _some([f"{folder}/{run}" for run in ids[:3] for folder in ("results/runs", project.settings.checkpoints)])
        + (", and so on," if ids[3:] else "") + " and run the same command to train on these"
        for manifest, ids in on_other_tokens(project, results, runs.values()).items()
    ]  # fmt: skip
    items = [
        f"{listed}: {len(files)} runs were evaluated on other items than it lists now; put those items back, or delete {_some(files)} and run "
        "the same command to evaluate on these"
        for listed, files in on_other_items(project, results, artifacts).items()
    ]
    return tokens + items


def _some(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " * bool(names[1:]) + names[-1]


def closing(
    project: Resolver, results: Results, files: Iterable[str], terminal: bool
) -> tuple[list[str], list[str]]:
    """Lines on what was asked for; and on what of it is not fresh. ``terminal``: a table or two are shown themselves."""
    artifacts, pages, others = asked_for(project, files)
    lines = []
    document = compare(project, results, [artifact.target for artifact in artifacts])
    if terminal and len(artifacts) <= _SHOWN:
        lines += [shown for a in artifacts if a.is_table and (shown := _table_text(project, a))]
    scale = project.scale.id
    if len(artifacts) <= 10:
        for artifact in artifacts:
            paper = document["papers"][artifact.paper]
            found = paper["tables" if artifact.is_table else "figures"][artifact.id]
            endings = ",".join(("csv", "tex", "md") if artifact.is_table else ("csv", "json", "svg", "pdf"))
            how = f"{counts_text(found['counts'])}; " if artifact.is_table else ""
            lines.append(
                f"{artifact.target}: {how}{folder_of(project, artifact)}/{artifact.id}.{{{endings}}}"
            )
    else:
        lines += [brief_of(paper, document["papers"][paper], scale) for paper in document["papers"]]
    lines += others[:10] + ([f"... and {len(others) - 10} more files"] if others[10:] else [])
    if artifacts:
        lines.append(document["note"])
    for name, paper in document["papers"].items():
        lines += [f"{name}: warning: {line}" for line in code_lines(paper, scale)]
    lines += [f"open {page}" for page in pages]
    return lines, problems(project, results, artifacts)


def _table_text(project: Resolver, artifact: Artifact) -> str:
    """The rendered Markdown without what a terminal does not show; empty where it is not there."""
    path = project.root / folder_of(project, artifact) / f"{artifact.id}.md"
    if not path.exists():
        return ""
    return re.sub(
        r"<!--.*?-->\s*|<sub>.*?</sub>\s*", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
    ).rstrip()


@guard
def main(arguments: list[str] | None = None) -> int:
    """Print the lines on standard error."""
    parser = argparse.ArgumentParser(prog="python -m respath.comparison.closing", description=__doc__)
    add_options(parser)
    parser.add_argument("--files", nargs="*", default=[], help="what was asked for")
    options = parser.parse_args(arguments)
    project, results = open_project(options)
    lines, wrong = closing(project, results, options.files, sys.stderr.isatty())
    for line in [*lines, *(f"error: {problem}" for problem in wrong)]:
        print(line, file=sys.stderr)
    return CHECK_FAILED if wrong else OK


if __name__ == "__main__":
    sys.exit(main())
