"""What an artifact or a claim needs: which metrics of which runs, in what order few cores should train them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from respath.analysis.catalogue import CATALOGUE
from respath.config.request import RunRequest
from respath.papers.claims import Claim
from respath.papers.figures import Panels
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver, Run, merged
from respath.papers.tables import Column, Row, Table
from respath.spec.data import Data, tokens_id

#: Kinds of metric that exist only once a run has been trained.
TRAINED = ("loss", "lm", "train", "analysis")


def cell_request(table: Table, row: Row, column: Column) -> tuple[str, RunRequest]:
    """Metric and run of one table cell (text columns have no metric: an empty one)."""
    return (row.metric or column.metric or ""), merged(table.run, column.run, row.run)


def cell_reads(table: Table, row: Row, column: Column) -> tuple[tuple[str, RunRequest], ...]:
    """Metric and run of everything that a cell reads: in a column of differences two runs, or none."""
    metric, request = cell_request(table, row, column)
    if not column.difference:
        return ((metric, request),)
    if row.minus is None:
        return ()
    return ((metric, request), (metric, merged(table.run, column.run, row.minus)))


def excluded(resolver: Resolver, row: Row) -> str | None:
    """Why a row's runs are not trained at this scale; None where they are."""
    return row.only.because if row.only and resolver.scale.id not in row.only.scales else None


def requests(artifact: Artifact) -> Iterator[tuple[str, RunRequest]]:
    """Every run that an artifact names at any scale, with the key that names it."""
    definition = artifact.definition
    if isinstance(definition, Table):
        if definition.kind == "domains":
            return
        for i, row in enumerate(definition.rows):
            for j, column in enumerate(definition.columns):
                if row.metric or column.metric:
                    key = f"rows.{i}.run" if definition.kind == "runs" else f"columns.{j}.run"
                    yield key, merged(definition.run, column.run, row.run)
            if row.minus is not None:
                yield f"rows.{i}.minus", merged(definition.run, row.minus)
    elif isinstance(definition, Panels):
        for i, panel in enumerate(definition.panels):
            for wanted in panel.wanted():
                yield f"panels.{i}.{wanted.key}", merged(definition.run, *wanted.layers)
    else:
        for i, variant in enumerate(definition.variants):
            yield f"variants.{i}", merged(definition.run, RunRequest(variant=variant))


def metrics(artifact: Artifact) -> set[str]:
    """Every metric that an artifact names."""
    definition = artifact.definition
    if isinstance(definition, Table):
        return {row.metric or column.metric or "" for row in definition.rows for column in definition.columns}
    panels = getattr(definition, "panels", ())
    return {metric for panel in panels for wanted in panel.wanted() for metric in wanted.metrics}


def measured(resolver: Resolver, artifact: Artifact) -> Iterator[tuple[str, RunRequest]]:
    """Every metric that an artifact reads, with the run that it is read of (cells of text have an empty metric)."""
    definition = artifact.definition
    if isinstance(definition, Table):
        for row in definition.rows:
            if excluded(resolver, row) is None:
                for column in definition.columns:
                    yield from cell_reads(definition, row, column)
    elif isinstance(definition, Panels):
        for panel in definition.panels:
            for wanted in panel.wanted():
                request = merged(definition.run, *wanted.layers)
                yield from ((metric, request) for metric in wanted.metrics)
    else:
        for _, request in requests(artifact):
            yield "train.curve", request


@dataclasses.dataclass
class Needs:
    """What one artifact reads: kinds of result (loss, lm, train, analysis, untrained, account, kv, spec, launch, sample), and runs
    by id. ``analyses`` and ``arrays`` are of trained runs (id -> modules, id -> ``<module>.<array>``), ``untrained`` of runs as they
    are before training."""

    kinds: set[str] = dataclasses.field(default_factory=set)
    trained: dict[str, Run] = dataclasses.field(default_factory=dict)
    analyses: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    arrays: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    untrained: dict[str, tuple[Run, set[str]]] = dataclasses.field(default_factory=dict)


def needs_of(resolver: Resolver, artifact: Artifact) -> Needs:
    """What an artifact needs at the resolver's scale, all seeds, in the order of its file."""
    needs = Needs()
    for metric, request in measured(resolver, artifact):
        kind, _, name = metric.partition(".")
        if not metric:
            continue
        needs.kinds.add(kind)
        runs = resolver.runs(artifact.paper, request) if kind in (*TRAINED, "untrained") else ()
        for run in runs:
            module = name.partition(".")[0]
            if kind == "untrained":
                needs.untrained.setdefault(run.id, (run, set()))[1].add(module)
                continue
            needs.trained[run.id] = run
            if kind == "analysis":
                needs.analyses.setdefault(run.id, set()).add(module)
                if name.partition(".")[2] in CATALOGUE[module].arrays:
                    needs.arrays.setdefault(run.id, set()).add(name)
    return needs


def checkpoints(resolver: Resolver, artifact: Artifact) -> dict[str, set[str]]:
    """Which analyses of the user's ``hf_models`` an artifact reads: name -> names of modules."""
    panels = getattr(artifact.definition, "panels", ())
    modules = {panel.series.split(".")[0] for panel in panels if panel.kind == "checkpoints"}
    return {name: set(modules) for name in resolver.settings.hf_models} if modules else {}


def claim_requests(claim: Claim) -> Iterator[tuple[str, str, RunRequest]]:
    """Key, metric and run of every side of a claim and of its alternatives, at every size of it."""
    for reading, tests in claim.readings():
        where = f"alternatives.{reading}." if reading else ""
        for i, test in enumerate(tests):
            for name, side in (("left", test.left), ("right", test.right)):
                key = f"{where}all_of.{i}.{name}" if claim.all_of else f"{where}{name}"
                for size in (side.sizes or (side.size,)) if side else ():
                    yield key, test.metric, side.request(size)
                if side and (other := side.subtracted()):
                    yield f"{key}.minus", test.metric, other


def claimed_analyses(resolver: Resolver, paper: str) -> dict[str, tuple[Run, set[str]]]:
    """Which analyses the claims of a paper read: run id -> run and names of modules, for all seeds."""
    wanted: dict[str, tuple[Run, set[str]]] = {}
    for claim in resolver.library.folder(paper).claims:
        for _, metric, request in claim_requests(claim):
            if metric.startswith("analysis."):
                for run in resolver.runs(paper, request):
                    wanted.setdefault(run.id, (run, set()))[1].add(metric.split(".")[1])
    return wanted


def all_runs(resolver: Resolver) -> dict[str, Run]:
    """Every run that some artifact needs, by id, in the order in which few cores should train them.

    First the runs that the scale pairs, one variant after the other with all its seeds, then those of its ``first``
    artifacts, then all others in the order of the papers' files.
    """
    of = {artifact.target: needs_of(resolver, artifact).trained for artifact in resolver.artifacts()}
    wanted = {id: run for runs in of.values() for id, run in runs.items()}
    ordered: dict[str, Run] = {}
    for paper in resolver.chosen:
        for run_set in resolver.paper(paper).changes.paired or ():
            for request in run_set.requests():
                ordered |= {run.id: run for run in resolver.runs(paper, request) if run.id in wanted}
    for paper in resolver.chosen:
        for name in resolver.paper(paper).changes.first:
            ordered |= of[f"{paper}_{name}"]
    return {**ordered, **wanted}


def data_sets(resolver: Resolver) -> dict[str, Data]:
    """Token stores by id: one per distinct data spec of the chosen papers."""
    return {tokens_id(data): data for data in (resolver.paper(paper).data for paper in resolver.chosen)}
