"""Where a table's numbers come from: what its runs recorded, and warnings where they do not belong together."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from respath.comparison.code import code_warnings
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver, Run
from respath.quantities.kinds import imported
from respath.results.reader import Results


@dataclasses.dataclass(frozen=True)
class Provenance:
    """What the runs behind an artifact recorded. Hashes are shortened to what a reader can compare by eye.

    ``items``: per task what its accuracies were measured on, "100 of 10,042" (of an artifact that shows accuracies).
    ``commits``: commits of the training runs (``+`` marks uncommitted changes), never today's; empty when no run is there
    or none ran in a git checkout. ``present`` of ``wanted`` runs have ended.
    """

    scale: str
    seeds: tuple[int, ...]
    specs: tuple[str, ...]
    commits: tuple[str, ...]
    manifests: tuple[str, ...]
    present: int
    wanted: int
    stand_in: bool
    data_note: str
    items: tuple[str, ...]
    code: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }


def _ordered(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def run_commit(record: dict[str, Any]) -> str | None:
    """Commit that a run recorded, twelve digits, with ``+`` when its sources had uncommitted changes."""
    commit = record.get("provenance", {}).get("commit")
    return f"{commit[:12]}{'+' if record['provenance'].get('dirty') else ''}" if commit else None


def provenance_of_artifact(project: Resolver, results: Results, artifact: Artifact) -> Provenance:
    """Provenance of a table or figure from its runs (all seeds, finished or not)."""
    runs = list(needs.of_artifact(project, artifact).trained.values())
    return provenance_of(project, results, artifact.paper, runs, needs.of_artifact(project, artifact).kinds)


def provenance_of(
    project: Resolver, results: Results, paper: str, runs: Iterable[Run], kinds: Collection[str] = ()
) -> Provenance:
    """Provenance of runs; ``kinds``: what an artifact reads of them, to name the items that their tasks were evaluated on."""
    runs = list(runs)
    items = items_of(results, runs, kinds)
    records = {run.id: record for run in runs if (record := results.train(run.id)) is not None}
    manifest = results.of_paper("sample", paper)
    return Provenance(
        scale=project.scale.id,
        seeds=tuple(sorted({run.seed for run in runs})) or tuple(project.seeds),
        # The last eight digits of a run id are the hash of its spec; seeds are part of the spec.
        specs=_ordered(run.id.rsplit("-", 1)[1] for run in runs),
        commits=_ordered(commit for record in records.values() if (commit := run_commit(record))),
        manifests=_ordered(
            hash_[:12] for record in records.values() if (hash_ := record.get("manifest_sha256"))
        ),
        present=len(records),
        wanted=len(runs),
        stand_in=bool(manifest and manifest.get("stand_in")),
        data_note=str((manifest or {}).get("note") or ""),
        items=tuple(f"{task} {' or '.join(counts)}" for task, counts in items.items()),
        code=(mixes := tuple(code_warnings(results, runs, records))),
        warnings=(
            *mixes,
            *_warnings(results, runs, records),
            *(
                f"its runs were evaluated on different items of {task}"
                for task, counts in items.items()
                if len(counts) > 1
            ),
        ),
    )


def items_of(results: Results, runs: Iterable[Run], kinds: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Per evaluated task the numbers of items that there are among the runs: one, unless a limit was changed between them."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for task, entry in _tasks_of(results, run, kinds):
            if entry["status"] == "done":
                # Older results took the first items of the file and did not record how many there are.
                whole = f" of {entry['of_items']:,}" if "of_items" in entry else " (the first ones)"
                found.setdefault(task, {})[f"{entry['items']:,}{whole}"] = None
    return {task: tuple(counts) for task, counts in found.items()}


def _tasks_of(results: Results, run: Run, kinds: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Evaluated tasks of a run, of the kinds of result that an artifact reads."""
    if "lm" in kinds:
        yield from ((results.of_run("lm", run.id) or {}).get("tasks") or {}).items()
    if "nll" in kinds:
        yield from ((results.of_run("nll", run.id) or {}).get("sets") or {}).items()
    if "core" in kinds:
        for suite in ((results.of_run("core", run.id) or {}).get("suites") or {}).values():
            yield from suite["tasks"].items()


def _warnings(results: Results, runs: list[Run], records: dict[str, dict[str, Any]]) -> list[str]:
    """What a reader must know before trusting the table. Nothing here depends on today's sources (see ``respath.comparison.code.stale_runs``)."""
    warnings = []
    brought = [run for run, record in records.items() if imported(record)]
    if brought:
        shown = ", ".join(brought[:3]) + (", ..." if len(brought) > 3 else "")
        warnings.append(f"{len(brought)} of {len(records)} runs were imported, not trained here: {shown}")
    unknown = [run for run in brought if records[run].get("manifest_sha256") is None]
    if unknown:
        warnings.append(f"what tokens {len(unknown)} of the imported runs were trained on is not recorded")
    manifests = _ordered(
        record.get("manifest_sha256", "") for run, record in records.items() if run not in unknown
    )
    if len(manifests) > 1:
        warnings.append(
            f"its runs saw {len(manifests)} different token manifests: {', '.join(m[:12] or 'none' for m in manifests)}"
        )
    dirty = [run for run, record in records.items() if record.get("provenance", {}).get("dirty")]
    if dirty:
        warnings.append(f"{len(dirty)} of {len(records)} runs were trained with uncommitted changes")
    for run in runs:
        record, loss = records.get(run.id), results.of_run("loss", run.id)
        if record is None or loss is None:
            continue
        trained, evaluated = record.get("weights", {}).get("sha256"), loss.get("weights_sha256")
        if trained and evaluated and trained != evaluated:
            warnings.append(f"{run.id}: evaluated weights are not those of its training")
        trained, evaluated = record.get("manifest_sha256"), loss.get("manifest_sha256")
        if trained and evaluated and trained != evaluated:
            warnings.append(f"{run.id}: evaluated on another token manifest than it was trained on")
    return warnings
