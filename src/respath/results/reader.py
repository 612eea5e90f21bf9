"""From a quantity to a sample: the one way from result files to cells, figures, claims, captions and differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.papers.needs import key_of
from respath.papers.resolve import Resolver, Run
from respath.papers.subjects import Resolved
from respath.quantities.derived import DERIVED, Derived
from respath.quantities.kinds import Kind, is_array, split
from respath.quantities.quantity import Checkpoint, Domain, Quantity, Reading, missing
from respath.quantities.sample import Sample
from respath.results.kept import KeptStore
from respath.results.store import Store
from respath.spec.data import tokens_id

if TYPE_CHECKING:
    from collections.abc import Mapping


class Results:
    """The results of a project at its scale: a store of files, read as the papers ask."""

    def __init__(self, project: Resolver, store: Store | str | Path | None = None):
        self.project = project
        self.store = (
            store if isinstance(store, Store) else Store(store or project.root / "results", project.root)
        )

    @property
    def source(self) -> str:
        """Where the files lie, for readers."""
        return self.store.source

    # --- documents -------------------------------------------------------------------------------------------------

    def key(self, paper: str = "", **more: str) -> dict[str, str]:
        """What paths are made from, for a paper at the project's scale."""
        tokens = {"paper": paper, "tokens": tokens_id(self.project.paper(paper).data)} if paper else {}
        return {"scale": self.project.scale.id, **tokens, **more}

    def train(self, run: str) -> dict[str, Any] | None:
        """train.json of a run by its id."""
        return self.store.document("train", {"run": run})

    def of_run(self, kind: str, run: str) -> dict[str, Any] | None:
        """Another result file of a run by its id."""
        return self.store.document(kind, {"run": run})

    def of_paper(self, kind: str, paper: str) -> dict[str, Any] | None:
        """A result file of a paper: its token store's manifest (``sample``), its measured caches (``cache``)."""
        return self.store.document(kind, self.key(paper))

    def finished(self, run: Run) -> bool:
        """Has this run ended (finished or diverged)?"""
        return self.train(run.id) is not None

    # --- samples ---------------------------------------------------------------------------------------------------

    def sample(self, paper: str, quantity: Quantity) -> Sample:
        """The readings of a quantity over the seeds of its runs, whatever exists of them.

        Raises UserError for a metric, run or model that cannot exist: then the document is wrong, not the results.
        """
        derived = DERIVED.get(quantity.metric)
        if quantity.against is not None and not (derived and derived.compares):
            sides = quantity.of(against=None), quantity.of(subject=quantity.against, against=None)
            left, right = (self.sample(paper, side) for side in sides)
            return left.minus(right)
        if derived is not None:
            return self._derived(paper, quantity, derived)
        kind, name = split(quantity.metric)
        exact = kind.is_exact(name) and not quantity.own_scale
        by_seed, runs = self._readings(paper, quantity, kind, name)
        return Sample(quantity, by_seed, kind.unit(name), exact, runs)

    def _derived(self, paper: str, quantity: Quantity, derived: Derived) -> Sample:
        inputs = derived.inputs(quantity, self.project.library.folder(paper).paper.accounting.baseline)
        samples = [self.sample(paper, one) for one in inputs]
        seeded = [sample for sample in samples if set(sample.by_seed) != {None}]
        seeds = (
            [s for s in seeded[0].by_seed if all(s in other.by_seed for other in seeded)]
            if seeded
            else [None]
        )
        by_seed = {}
        for seed in seeds:
            readings = [sample.by_seed[seed if seed in sample.by_seed else None] for sample in samples]
            problem = next((reading for reading in readings if reading.state != "measured"), None)
            by_seed[seed] = problem or derived.compute(quantity, readings)
        runs = dict.fromkeys(run for sample in samples for run in sample.runs)
        return Sample(quantity, by_seed, derived.unit, runs=tuple(runs))

    def _readings(
        self, paper: str, quantity: Quantity, kind: Kind, name: str
    ) -> tuple[dict[int | None, Reading], tuple[str, ...]]:
        project, subject = self.project, quantity.subject
        if kind.of in ("run", "start"):
            request = quantity.run
            runs = project.runs(paper, request)
            readings: dict[int | None, Reading] = {
                run.seed: self._of_run(paper, run, request, kind, name) for run in runs
            }
            return readings, tuple(run.id for run in runs)
        expects = {"checkpoint": Checkpoint, "data": Domain}.get(kind.of, RunRequest)
        if not isinstance(subject, expects):
            raise UserError(f"{quantity.metric} is no metric of a {type(subject).__name__.lower()}")
        at = project.paper(paper)
        if kind.exact and kind.of == "model" and not quantity.own_scale:
            at = at.full
        if kind.path and kind.exact and kind.of == "model" and at is not at.full:
            return {None: missing("measured at the paper's shapes only")}, ()
        resolved = Resolved(at, subject)
        if kind.compute is not None:
            try:
                document = kind.compute(resolved)
            except UserError as error:  # the variant does not fit this size
                return {None: missing(error.lines[0])}, ()
            return {None: kind.value(document, name, resolved)}, ()
        key = self.key(paper, checkpoint=resolved.entry)
        if isinstance(subject, RunRequest):
            key |= key_of(project, paper, subject)
        lacks = kind.lacks or f"{self.store.path(kind.name, key)} is not there yet"
        return {None: self._read(kind, name, key, resolved, lacks)}, ()

    def _of_run(self, paper: str, run: Run, subject: RunRequest, kind: Kind, name: str) -> Reading:
        key, lacks = {"run": run.id}, kind.lacks
        if kind.of == "run":
            train = self.train(run.id)
            if train is None:
                return missing("not trained")
            if train.get("status") == "diverged" and kind.name != "train":
                return Reading(state="diverged", reason=train.get("reason") or "training diverged")
        resolved = Resolved(self.project.paper(paper), subject, run.seed)
        return self._read(kind, name, key, resolved, lacks)

    def _read(self, kind: Kind, name: str, key: Mapping[str, str], subject: Resolved, lacks: str) -> Reading:
        document = self.store.document(kind.name, key)
        if document is None:
            return missing(lacks)
        if document.get("status") == "diverged" and kind.name != "train":
            return Reading(state="diverged", reason=document.get("reason") or "training diverged")
        if is_array(kind, name):
            array = self.store.array(kind.name, name, key)
            return missing(f"has no {name.partition('.')[2]}") if array is None else Reading(array)
        return kind.value(document, name, subject)


def kept_folder(project: Resolver) -> Path:
    """Where the bundles of the chosen scale lie."""
    return project.root / "reports" / "reference" / project.scale.id


def kept_results(project: Resolver, folder: str | Path | None = None) -> Results:
    """The results that the repository keeps at the chosen scale, or the bundles of another folder."""
    return Results(project, KeptStore(folder or kept_folder(project), project.root))
