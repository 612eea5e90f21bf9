"""Reads results for panels: values per seed, and a record of what is missing and why."""

from __future__ import annotations

from collections.abc import Sequence

from respath.config.request import RunRequest, merged
from respath.papers.figures import Printed, PrintedCell
from respath.papers.library import Artifact
from respath.papers.reported import Reported, load_reported
from respath.papers.resolve import Resolver, Run
from respath.quantities.kinds import factor
from respath.quantities.quantity import Quantity, Subject, is_number
from respath.quantities.sample import Sample
from respath.reporting.panels.data import Line, Mark, Role
from respath.results.reader import Results

#: Missing lines of a panel that the foot of the figure names before it only counts.
_NAMED = 6

Curve = dict[int, tuple[int, float]]


class Reader:
    """The results that one figure draws. ``absent`` collects what is not there, per panel, for the foot of the figure."""

    def __init__(self, project: Resolver, results: Results, artifact: Artifact):
        self.project, self.results, self.artifact = project, results, artifact
        self.paper = artifact.paper
        self.order = list(project.folder(self.paper).variants)
        self.panel = ""
        self.remarks: list[str] = []
        #: Panel -> reason -> name -> seeds that are missing, and how many there should be.
        self._absent: dict[str, dict[str, dict[str, tuple[set[int], int]]]] = {}
        self._reported: dict[str, Reported] = {}

    # --- runs --------------------------------------------------------------------------------------------------------

    def request(self, *layers: RunRequest) -> RunRequest:
        """Requests merged over the figure's."""
        return merged(self.artifact.definition.run, *layers)

    def runs(self, request: RunRequest) -> list[Run]:
        """The run of every seed."""
        return list(self.project.runs(self.paper, request))

    def label(self, request: RunRequest) -> str:
        """Label of the variant."""
        return self.project.folder(self.paper).variants[request.variant].label

    def line(
        self,
        request: RunRequest,
        marks: Sequence[Mark],
        *,
        label: str | None = None,
        id: str | None = None,
        role: Role = "ours",
    ) -> Line:
        """Marks in the look of a variant."""
        variant = self.project.folder(self.paper).variants[request.variant]
        return Line(
            id=id or request.variant,
            label=label or variant.label,
            colour=variant.colour,
            rank=self.order.index(request.variant),
            marks=tuple(marks),
            role=role,
        )

    # --- what is missing ---------------------------------------------------------------------------------------------

    def _miss(self, name: str, sample: Sample) -> None:
        """Remember which seeds of a line the panel at hand lacks."""
        for seed, reading in sample.by_seed.items():
            if reading.state != "measured":
                reason = "diverged" if reading.state == "diverged" else reading.reason
                names = self._absent.setdefault(self.panel, {}).setdefault(reason, {})
                names.setdefault(name, (set(), len(sample.by_seed)))[0].add(seed)

    def remark(self, text: str) -> None:
        """A sentence for the foot of the figure, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def notes(self) -> tuple[str, ...]:
        """What is not drawn, panel by panel, and the remarks."""
        panels: dict[str, list[str]] = {}
        for panel, reasons in self._absent.items():
            parts = []
            for reason, names in reasons.items():
                named = [_with_seeds(name, *seeds) for name, seeds in names.items()]
                if len(named) > _NAMED:
                    named = [*named[: _NAMED - 1], f"{len(named) - _NAMED + 1} more"]
                parts.append(f"{', '.join(named)} ({reason})")
            panels.setdefault("; ".join(parts), []).append(panel.lower())
        several = len(self.artifact.definition.panels) > 1
        missing = [f"{', '.join(where)}: {what}" if several else what for what, where in panels.items()]
        return ((f"Not drawn: {'. '.join(missing)}.",) if missing else ()) + tuple(self.remarks)

    # --- values ------------------------------------------------------------------------------------------------------

    def sample(self, quantity: Quantity, name: str = "") -> Sample:
        """A quantity; the seeds that lack it are noted under ``name``, if it is given."""
        sample = self.results.sample(self.paper, quantity)
        if name:
            self._miss(name, sample)
        return sample

    def values(self, request: RunRequest, metric: str, name: str, unit: str = "") -> Sample:
        """A metric of a run, in a unit that it converts to (none: as it comes)."""
        sample = self.sample(Quantity(metric, request), name)
        return sample.times(factor(sample.unit, unit), unit) if unit else sample

    def curves(self, request: RunRequest, name: str) -> dict[int, Curve]:
        """seed -> step -> (tokens, loss) of the finished runs."""
        found = {}
        for seed, curve in self.values(request, "train.curve", name).values.items():
            columns = zip(curve["step"], curve["tokens"], curve["loss"], strict=True)
            found[seed] = {step: (tokens, loss) for step, tokens, loss in columns}
        return found

    def series(self, subject: Subject, path: str, name: str, untrained: bool = False) -> Sample:
        """A series, matrix (as a list of rows) or array of an analysis."""
        return self.sample(Quantity(f"{'untrained' if untrained else 'analysis'}.{path}", subject), name)

    # --- printed -----------------------------------------------------------------------------------------------------

    def reported(self, name: str) -> Reported:
        """A file of printed numbers, read once."""
        if name not in self._reported:
            folder = self.project.folder(self.paper).path / "reported"
            self._reported[name] = load_reported(folder / f"{name}.yaml")
        return self._reported[name]

    def printed_cell(self, cell: PrintedCell | None) -> float | None:
        """One printed number."""
        return None if cell is None else self.reported(cell.reported).value(cell.row, cell.column)

    def printed(self, printed: Printed | None, request: RunRequest) -> float | None:
        """What the paper prints for a run; None where it prints nothing (or another recipe was asked for)."""
        if printed is None or request.recipe:
            return None
        context = request.context or self.project.folder(self.paper).paper.recipe.context
        names = {"variant": request.variant, "size": request.size, "context": context}
        row, column = printed.row.format(**names), printed.column.format(**names)
        for name in printed.reported:
            document = self.reported(name)
            if row in document.rows and column in document.columns:
                value = document.value(row, column)
                if is_number(value):
                    return float(value)
        return None


def _with_seeds(name: str, seeds: set[int], of: int) -> str:
    if len(seeds) == of:
        return name
    return f"{name} seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"


def averaged(x: float | None, sample: Sample, reference: Sample | None = None) -> Mark:
    """Mean over seeds, and over the seeds that both have, the difference from a reference."""
    paired = sample.minus(reference) if reference is not None else None
    return Mark(
        x=x,
        value=sample.value,
        stderr=sample.stderr,
        seeds=len(sample.numbers),
        difference=paired.value if paired else None,
        difference_stderr=paired.stderr if paired else None,
    )
