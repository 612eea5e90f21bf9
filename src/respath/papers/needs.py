"""What tables, figures and claims need: which quantities of which runs, from which files, in what order few cores should train."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator

from respath.config.request import RunRequest, merged
from respath.papers.claims import Claim
from respath.papers.figures import Panel
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver, Run
from respath.papers.tables import Row, Table
from respath.quantities.kinds import KINDS, Kind, is_array
from respath.quantities.metrics import is_exact, read_from
from respath.quantities.quantity import Checkpoint, Quantity
from respath.spec.data import Data, tokens_id


def excluded(resolver: Resolver, part: Row | Panel) -> str | None:
    """Why the runs of a row or panel are not trained at this scale; None where they are."""
    return part.only.because if part.only and resolver.scale.id not in part.only.scales else None


def named(artifact: Artifact) -> Iterator[tuple[str, Quantity]]:
    """Every quantity that an artifact is about at any scale, with the key that names its run."""
    definition = artifact.definition
    if isinstance(definition, Table):
        for i, row in enumerate(definition.rows):
            for j, column in enumerate(definition.columns):
                quantity = definition.quantity(row, column)
                if quantity is not None:
                    yield f"columns.{j}" if definition.kind == "configuration" else f"rows.{i}", quantity
    else:
        yield from definition.quantities()


def claimed(claim: Claim) -> Iterator[tuple[str, Quantity]]:
    """Every quantity that a claim and its alternatives compare, with the key that names it."""
    for reading, tests in claim.readings():
        where = f"alternatives.{reading}." if reading else ""
        for i, test in enumerate(tests):
            for name, quantity in zip(("left", "right"), test.sides(), strict=False):
                yield f"{where}all_of.{i}.{name}" if claim.all_of else f"{where}{name}", quantity


def requests(quantity: Quantity) -> Iterator[tuple[str, RunRequest]]:
    """The runs or models that a quantity names: its own under ``run``, the other side's under ``minus``.

    Accounts and decoding are of a model at whatever length: no run of that length need exist.
    """
    for name, side in (("run", quantity.subject), ("minus", quantity.against)):
        if isinstance(side, RunRequest):
            if quantity.metric.startswith(("account.", "decode.")):
                side = side.model_copy(update={"context": None})
            yield from ((name, merged(side, change)) for change in quantity.along or (RunRequest(),))


def quantities(resolver: Resolver, artifact: Artifact) -> list[Quantity]:
    """What an artifact reads at the resolver's scale."""
    definition = artifact.definition
    if isinstance(definition, Table):
        cells = (
            (row, definition.quantity(row, column))
            for row in definition.rows
            for column in definition.columns
        )
        return [
            quantity
            for row, quantity in cells
            if quantity and (is_exact(quantity.metric) or excluded(resolver, row) is None)
        ]
    found = [quantity for _, quantity in definition.quantities(resolver.scale.id)]
    for panel in definition.panels:
        if panel.kind == "checkpoints":
            metric = f"checkpoint.{panel.series}"
            found += [Quantity(metric, Checkpoint(name)) for name in resolver.settings.hf_models]
    return found


def runs_of_claim(resolver: Resolver, paper: str, claim: Claim) -> set[str]:
    """Ids of all trained runs that a claim reads."""
    return set(needs_of(resolver, paper, [quantity for _, quantity in claimed(claim)]).trained)


def quantities_of_claims(resolver: Resolver, paper: str) -> list[Quantity]:
    """What the claims of a paper compare."""
    return [quantity for claim in resolver.library.folder(paper).claims for _, quantity in claimed(claim)]


def reads(resolver: Resolver, paper: str, wanted: Iterable[Quantity]) -> Iterator[tuple[Kind, str, Quantity]]:
    """Kind, name and quantity of everything that is read for some quantities of a paper."""
    baseline = resolver.library.folder(paper).paper.accounting.baseline
    for quantity in wanted:
        yield from read_from(quantity, baseline)


@dataclasses.dataclass
class Needs:
    """What some quantities of a paper are read from.

    ``kinds``: names of kinds of result. ``trained``: runs by id. ``analyses`` and ``arrays`` are of trained runs (id -> modules,
    id -> ``<module>.<array>``), ``untrained`` of runs as they are before training, ``checkpoints`` of the user's (name -> modules).
    ``files``: paths below the results' folder, with the ids of their runs where a training is needed.
    """

    kinds: set[str] = dataclasses.field(default_factory=set)
    trained: dict[str, Run] = dataclasses.field(default_factory=dict)
    analyses: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    arrays: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    untrained: dict[str, tuple[Run, set[str]]] = dataclasses.field(default_factory=dict)
    checkpoints: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)

    def paths(self, *, trained: bool = True, among: Container[str] | None = None) -> list[str]:
        """The files. ``trained`` false: those that need no training. ``among``: ids of the only runs whose files are wanted."""
        return [
            path
            for path, run in self.files.items()
            if run is None or (trained and (among is None or run in among))
        ]


def key_of(resolver: Resolver, paper: str, request: RunRequest) -> dict[str, str]:
    """What paths of results of a model are made from; the length is in the paper's terms, its own where none is named."""
    context = request.context or resolver.library.folder(paper).paper.recipe.context
    return {"size": request.size or "", "variant": request.variant or "", "context": str(context)}


def needs_of(resolver: Resolver, paper: str, wanted: Iterable[Quantity]) -> Needs:
    """What quantities of a paper need at the resolver's scale, all seeds, in their order."""
    needs = Needs()
    key = {"paper": paper, "scale": resolver.scale.id}
    for kind, name, quantity in reads(resolver, paper, wanted):
        needs.kinds.add(kind.name)
        module = name.partition(".")[0]
        if isinstance(quantity.subject, Checkpoint):
            needs.checkpoints.setdefault(quantity.subject.name, set()).add(module)
            key["checkpoint"] = quantity.subject.name
        if kind.of not in ("run", "start"):
            if "tokens" in kind.keyed_by() and "tokens" not in key:
                key["tokens"] = tokens_id(resolver.paper(paper).data)
            if isinstance(quantity.subject, RunRequest):
                key |= key_of(resolver, paper, quantity.subject)
            if kind.path:
                needs.files[kind.file(key)] = None
            continue
        for run in resolver.runs(paper, quantity.run):
            if kind.of == "start":
                if kind.name == "untrained":
                    needs.untrained.setdefault(run.id, (run, set()))[1].add(module)
                # N-grams need no weights, but all of a run's tokens: they come with what is trained.
                needs.files[kind.file({"run": run.id})] = None if kind.name == "untrained" else run.id
                continue
            needs.trained[run.id] = run
            needs.files[KINDS["train"].file({"run": run.id})] = run.id
            needs.files[kind.file({"run": run.id})] = run.id
            if kind.name == "analysis":
                needs.analyses.setdefault(run.id, set()).add(module)
                if is_array(kind, name):
                    needs.arrays.setdefault(run.id, set()).add(name)
    return needs


def of_artifact(resolver: Resolver, artifact: Artifact) -> Needs:
    """What a table or figure needs at the resolver's scale."""
    if artifact.target not in resolver.needs:
        resolver.needs[artifact.target] = needs_of(resolver, artifact.paper, quantities(resolver, artifact))
    return resolver.needs[artifact.target]


def all_runs(resolver: Resolver) -> dict[str, Run]:
    """Every run that some artifact needs, by id, in the order in which few cores should train them.

    First the runs that the scale pairs, one variant after the other with the seeds of its entry, then those of its ``first``
    artifacts, then all others in the order of the papers' files.
    """
    of = {artifact.target: of_artifact(resolver, artifact).trained for artifact in resolver.artifacts()}
    wanted = {id: run for runs in of.values() for id, run in runs.items()}
    ordered: dict[str, Run] = {}
    for paper in resolver.chosen:
        for run_set in resolver.paper(paper).changes.paired or ():
            for request in run_set.requests():
                runs = resolver.runs(paper, request)[: run_set.seeds]
                ordered |= {run.id: run for run in runs if run.id in wanted}
    for paper in resolver.chosen:
        for name in resolver.paper(paper).changes.first:
            ordered |= of[f"{paper}_{name}"]
    return {**ordered, **wanted}


def data_sets(resolver: Resolver) -> dict[str, Data]:
    """Token stores by id: one per distinct data spec of the chosen papers."""
    return {tokens_id(data): data for data in (resolver.paper(paper).data for paper in resolver.chosen)}
