"""Reads results for panels: samples of quantities as marks, and a record of what is missing and why."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from respath.config.request import RunRequest, merged
from respath.papers.figures import Floor, Panel, Printed, PrintedCell, metric_of
from respath.papers.library import Artifact, PaperFolder
from respath.papers.reported import Reported
from respath.papers.resolve import Resolver, Run
from respath.quantities.kinds import Document, factor
from respath.quantities.metrics import worst
from respath.quantities.quantity import Quantity, Reading, Subject, is_number
from respath.quantities.rounding import short_count
from respath.quantities.sample import Sample, documents_of
from respath.quantities.verdicts import NOT_JUDGED, Comparison, judge_comparison
from respath.reporting.panels.data import COLOURED, Estimate, Line, Mark, Role
from respath.results.reader import Results

#: Missing lines of a panel that the caption names before it only counts.
_NAMED = 6

#: step -> (tokens, value)
Curve = dict[int, tuple[int, float]]


class Reader:
    """The results that one figure draws. ``absent`` collects what is not there, per panel, for the caption."""

    def __init__(self, project: Resolver, results: Results, artifact: Artifact):
        self.project, self.results, self.artifact = project, results, artifact
        self.paper = artifact.paper
        self.folder = project.folder(self.paper)
        self.baseline = self.folder.paper.accounting.baseline
        self.slots = slots(self.folder)
        self.panel = ""
        self.remarks: list[str] = []
        #: Panel -> reason -> name -> seeds that are missing, and how many there should be.
        self._absent: dict[str, dict[str, dict[str, tuple[set[int], int]]]] = {}

    # --- runs --------------------------------------------------------------------------------------------------------

    def request(self, *layers: RunRequest) -> RunRequest:
        """Requests merged over the figure's."""
        return merged(self.artifact.definition.run, *layers)

    def runs(self, request: RunRequest) -> list[Run]:
        """The run of every seed."""
        return list(self.project.runs(self.paper, request))

    def label(self, request: RunRequest) -> str:
        """Label of the variant."""
        return self.folder.variants[request.variant].label

    def line(
        self,
        request: RunRequest,
        marks: Sequence[Mark],
        *,
        label: str | None = None,
        id: str | None = None,
        role: Role = "ours",
        group: str = "",
    ) -> Line:
        """Marks in the colour of a variant."""
        slot = self.slots[request.variant]
        name = self.measured_name(label or self.label(request))
        return Line(id or request.variant, name, slot, tuple(marks), role, group)

    def measured_name(self, text: str) -> str:
        """A text with the parameters that were measured beside the paper's sizes: ``0.54M (for 82M)``."""
        for size in self.folder.paper.sizes:
            text = re.sub(rf"(?<![\w.]){re.escape(size)}(?!\w)", lambda found: self.size(found[0]), text)
        return text

    def size(self, size: str) -> str:
        """A size of the paper as it was measured."""
        if self.project.scale.comparable:
            return size
        request = RunRequest(size=size, variant=self.baseline)
        count = self.sample(Quantity("account.parameters.total", request, own_scale=True)).value
        return size if count is None else f"{short_count(count)} (for {size})"

    # --- what is missing ---------------------------------------------------------------------------------------------

    def _miss(self, name: str, sample: Sample) -> None:
        """Remember which seeds of a line the panel at hand lacks."""
        for seed, reading in sample.by_seed.items():
            if reading.state != "measured":
                reason = "diverged" if reading.state == "diverged" else reading.reason
                names = self._absent.setdefault(self.panel, {}).setdefault(reason, {})
                names.setdefault(name, (set(), len(sample.by_seed)))[0].add(seed)

    def remark(self, text: str) -> None:
        """A sentence for the caption, once."""
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
        return ((f"Missing: {'. '.join(missing)}.",) if missing else ()) + tuple(self.remarks)

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

    def curves(self, request: RunRequest, name: str, metric: str, field: str = "loss") -> dict[int, Curve]:
        """seed -> step -> (tokens, value) of the finished runs."""
        found = {}
        for seed, curve in self.values(request, metric, name).values.items():
            values = (
                self._bits_per_byte(request, name, seed, curve) if field == "bits_per_byte" else curve["loss"]
            )
            columns = zip(curve["step"], curve["tokens"], values, strict=True) if values else ()
            found |= {seed: {step: (tokens, value) for step, tokens, value in columns}} if values else {}
        return found

    def _bits_per_byte(self, request: RunRequest, name: str, seed: int, curve: Document) -> list[float]:
        """A validation history in bits per byte, pooled over domains by their text in the final evaluation; none without one."""
        sizes = {
            domain: [
                self.values(request, f"loss.{domain}.{size}", name).numbers.get(seed)
                for size in ("tokens", "bytes")
            ]
            for domain in curve["domains"]
        }
        if any(None in pair for pair in sizes.values()):
            return []
        total = math.log(2) * sum(size for _, size in sizes.values())
        columns = [
            [loss * sizes[domain][0] for loss in losses] for domain, losses in curve["domains"].items()
        ]
        return [math.fsum(nats) / total for nats in zip(*columns, strict=True)]

    def series(self, subject: Subject, path: str, name: str, untrained: bool = False) -> Sample:
        """A series, matrix (as a list of rows) or array."""
        return self.sample(Quantity(metric_of(path, untrained), subject), name)

    # --- marks -------------------------------------------------------------------------------------------------------

    def mark(
        self, x: float | None, sample: Sample, against: Sample | None = None, printed: float | None = None
    ) -> Mark:
        """A sample at its place, with its paired difference from another, and the verdict on the printed difference.

        Where a seed diverged there is no mean: one over the survivors would flatter.
        """
        paired = None if against is None else sample.minus(against)
        difference = self.estimate(paired) if paired else None
        diverged = sum(reading.state == "diverged" for reading in sample.by_seed.values())
        verdict = self._verdict(paired, printed) if paired and paired.by_seed and printed else ""
        seeds = tuple(sample.numbers)
        if diverged:
            note = f"{diverged} of {len(sample.by_seed)} seeds diverged"
            return Mark(x, None, seeds, difference, verdict, diverged, note)
        return Mark(x, sample.value if seeds else None, seeds, difference, verdict)

    def estimate(self, sample: Sample) -> Estimate | None:
        """Mean, values by seed and interval of a sample; None where nothing was measured."""
        numbers = sample.numbers
        if not numbers:
            return None
        try:
            interval = sample.interval
        except ValueError as error:
            self.remark(f"No interval: {error}.")
            interval = None
        ends = (interval.low, interval.high) if interval else (None, None)
        return Estimate(sample.value, tuple(numbers.values()), *ends)

    def _verdict(self, paired: Sample, printed: float) -> str:
        """Does the difference have the printed one's sign? The scale must be one whose numbers mean something."""
        if not self.project.scale.fits:
            return NOT_JUDGED
        diverged = {}
        for seed in paired.by_seed:
            states = [side.by_seed.get(seed, Reading()).state == "diverged" for side in paired.sides]
            if any(states):
                sign = worst(paired.quantity.metric)
                diverged[seed] = 0 if all(states) else sign if states[0] else -sign
        region = (-math.inf, 0.0) if printed < 0 else (0.0, math.inf)
        runs = {"left": 1.0, "right": -1.0}
        try:
            documents = documents_of(list(paired.parts()), paired.numbers)
        except ValueError:
            documents = {}
        numbers = {seed: value for seed, value in paired.numbers.items() if seed is not None}
        return judge_comparison(
            Comparison("", region, numbers, runs, diverged=diverged, documents=documents)
        ).verdict

    def floors(self, floors: Iterable[Floor], place: float | None, *layers: RunRequest) -> list[Line]:
        """Horizontal lines of floors, or marks at a place, where the scale has them."""
        found = []
        for floor in floors:
            if floor.only and self.project.scale.id not in floor.only.scales:
                continue
            sample = self.values(self.request(*layers, floor.run), floor.metric, floor.label)
            if sample.numbers:
                mark = self.mark(place, sample)
                found.append(Line(f"floor.{floor.metric}", floor.label, COLOURED, (mark,), "reference"))
        return found

    # --- printed -----------------------------------------------------------------------------------------------------

    def reported(self, name: str) -> Reported:
        """A file of printed numbers."""
        return self.folder.reported[name]

    def printed_cell(self, cell: PrintedCell | None) -> float | None:
        """One printed number."""
        return None if cell is None else self.reported(cell.reported).value(cell.row, cell.column)

    def printed(self, printed: Printed | None, request: RunRequest, **more: object) -> float | None:
        """What the paper prints for a run; None where it prints nothing (or another recipe was asked for). ``more``: what else the
        row is named after."""
        row, column = self._place(printed, request, more)
        for document in self._documents(printed, request):
            if row in document.rows and column in document.columns:
                value = document.value(row, column)
                if is_number(value):
                    return float(value)
        return None

    def drawn(self, printed: Printed | None, request: RunRequest) -> list[Mark]:
        """The curve that the paper draws of a run, at its tokens; nothing where it draws none."""
        row, _ = self._place(printed, request, {})
        documents = self._documents(printed, request)
        return [Mark(tokens, value) for document in documents for tokens, value in document.curve(row)]

    def _documents(self, printed: Printed | None, request: RunRequest) -> list[Reported]:
        return [] if printed is None or request.recipe else [self.reported(name) for name in printed.reported]

    def _place(
        self, printed: Printed | None, request: RunRequest, more: Mapping[str, object]
    ) -> tuple[str, str]:
        context = request.context or self.folder.paper.recipe.context
        names = {"variant": request.variant, "size": request.size, "context": context, **more}
        return (printed.row.format(**names), printed.column.format(**names)) if printed else ("", "")

    def printed_difference(
        self, printed: Printed | None, request: RunRequest, against: RunRequest | None
    ) -> float | None:
        """The printed value less the printed one of the run that ours is compared with."""
        if against is None:
            return None
        return Reading(self.printed(printed, request)).minus(Reading(self.printed(printed, against))).number

    @staticmethod
    def printed_estimate(difference: float | None) -> Estimate | None:
        """A printed difference as what is drawn."""
        return None if difference is None else Estimate(difference)


def slots(folder: PaperFolder) -> dict[str, int]:
    """Which colour each model of a paper has in all its figures: 0 for the baseline, COLOURED for grey.

    Models whose lines stand in one panel get different colours, the most drawn first; where several are free, the one that
    fewest models have. Panels with more models than colours are drawn one by one, and ask for nothing.
    """
    baseline = folder.paper.accounting.baseline
    together = [
        {variant for variant in models if variant != baseline}
        for figure in folder.figures.values()
        for panel in figure.panels
        if 0 < len(models := _models(figure.run, panel)) <= COLOURED
    ]
    drawn_in = {name: sum(name in group for group in together) for name in folder.variants}
    found = {baseline: 0}
    for name in sorted(folder.variants, key=lambda name: -drawn_in[name]):
        if name == baseline:
            continue
        taken = {found[other] for group in together if name in group for other in group if other in found}
        free = [slot for slot in range(1, COLOURED) if slot not in taken]
        users = list(found.values())
        found[name] = min(free, key=lambda slot: (users.count(slot), slot)) if free else COLOURED
    return found


def _models(run: RunRequest, panel: Panel) -> Collection[str]:
    """Variants that a panel draws in their colours."""
    if panel.kind in ("bars", "matrix", "positions", "checkpoints"):
        return ()
    found = {merged(run, *wanted.layers).variant for wanted in panel.wanted() if wanted.key != "reference"}
    return found - {None}


def _with_seeds(name: str, seeds: set[int], of: int) -> str:
    if len(seeds) == of:
        return name
    return f"{name} seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"
