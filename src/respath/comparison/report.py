"""What the report of a paper says: one reading of its results, from which page, PDF, Markdown, diff.md and terminal are written."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterator, Sequence

from respath.comparison.cells import MATCH, NOT_RUN, OFF, STATUSES, Cell, Grid, build_grid, millions
from respath.comparison.claims import Judge, JudgedClaim
from respath.comparison.costs import duration, estimates
from respath.comparison.provenance import Provenance, provenance_of, provenance_of_artifact
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.letters import plain
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver, Run
from respath.quantities import metrics
from respath.quantities.quantity import Quantity, is_number
from respath.quantities.rounding import fixed
from respath.quantities.verdicts import (
    CONTRADICTED,
    LEVEL,
    NO_EFFECT,
    NOT_JUDGED,
    SUPPORTED,
    TOO_FEW,
    UNDECIDED,
    VERDICTS,
    Outcome,
)
from respath.quantities.verdicts import NOT_RUN as CLAIM_NOT_RUN
from respath.results.reader import Results

#: Kinds of result that a run is given, not what it shows.
_SETTINGS = ("spec", "launch", "sample")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
#: Decimals of a difference without an interval.
_DECIMALS = 3

#: Sizes whose missing runs a sentence counts one by one.
_SIZES = 5

#: A part of a sentence, and the verdict that it gives (or nothing).
Piece = tuple[str, str]


def word(number: int) -> str:
    """A small number in words."""
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def several(number: int, noun: str) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def shown(value: float, decimals: int, sign: bool = True) -> str:
    """A number for readers, with a true minus."""
    return fixed(value, decimals, sign).replace("-", "−")


def interval_decimals(low: float, high: float) -> int:
    """Decimals that show two digits of the interval's half-width."""
    half = (high - low) / 2
    return min(12, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else _DECIMALS


@dataclasses.dataclass(frozen=True)
class Difference:
    """What a comparison found, as texts: ``−0.043``, ``[−0.119, +0.033]``, ``3 seeds``, the printed value; empty where absent."""

    value: str
    interval: str
    seeds: str
    printed: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.value, self.interval)))


def difference(outcome: Outcome, sign: bool = True) -> Difference:
    """The texts of an outcome; ``sign``: is it a difference, and not a value?"""
    interval = outcome.interval
    decimals = interval_decimals(interval.low, interval.high) if interval else _DECIMALS
    if outcome.value is None:
        value = ""
    elif isinstance(outcome.value, int) or (float(outcome.value).is_integer() and interval is None):
        value = f"{outcome.value:,.0f}"
    else:
        value = shown(outcome.value, decimals, sign)
    return Difference(
        value,
        f"[{shown(interval.low, decimals, sign)}, {shown(interval.high, decimals, sign)}]"
        if interval
        else "",
        several(len(outcome.seeds), "seed") if outcome.seeds else "",
        "" if outcome.printed is None else printed_number(outcome.printed, sign),
    )


def printed_number(value: float, sign: bool) -> str:
    """A printed value (or the difference of two) in the digits that it has."""
    text = (
        f"{value:{'+' if sign else ''}.6g}" if isinstance(value, float) else f"{value:{'+' if sign else ''}}"
    )
    return text.replace("-", "−")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Distinct printed numbers and what became of them, settings, derived quantities and measured ones apart.

    ``differ``: settings and counts that are not the printed ones, ``"layers, M: printed 5, ours 4"``.
    """

    settings: int
    derived: int
    differ: dict[str, tuple[str, ...]]
    measured: dict[str, int]

    def texts(self) -> list[str]:
        """A sentence for each of the three."""
        lines = []
        for name, agree, word_of in (
            ("settings", self.settings, "Settings"),
            ("derived", self.derived, "Derived quantities"),
        ):
            differ = self.differ[name]
            if agree or differ:
                more = (
                    f", {len(differ)} differ{'s' * (len(differ) == 1)} ({'; '.join(differ)})"
                    if differ
                    else ""
                )
                lines.append(f"{word_of}: {agree} agree{'s' * (agree == 1)}{more}.")
        if self.measured:
            parts = ", ".join(f"{number} {status}" for status, number in self.measured.items())
            lines.append(f"Measured numbers that the paper prints: {parts}.")
        return lines

    def as_dict(self) -> dict:
        """Plain data for JSON."""
        return {
            "settings": {"agree": self.settings, "differ": list(self.differ["settings"])},
            "derived": {"agree": self.derived, "differ": list(self.differ["derived"])},
            "measured": self.measured,
        }


def printed_text(cell: Cell) -> str:
    """The printed value of a cell in its printed digits."""
    if not is_number(cell.printed):
        return str(cell.printed)
    return shown(
        cell.printed, cell.decimals if cell.printed_decimals is None else cell.printed_decimals, cell.signed
    )


class Report:
    """One paper at one scale. ``chosen``: only these tables and figures, and no claims."""

    def __init__(
        self, project: Resolver, results: Results, paper: str, chosen: Collection[str] | None = None
    ):
        self.project, self.results, self.id = project, results, paper
        self.chosen = chosen
        self.folder = project.folder(paper)
        self.paper = self.folder.paper
        self.scale = project.scale
        self.judge = Judge(project, results, paper)
        self.artifacts = [a for a in project.artifacts(paper) if chosen is None or a.id in chosen]

    # --- what there is ---------------------------------------------------------------------------------------------

    @functools.cached_property
    def grids(self) -> dict[str, Grid]:
        """Every table by its id."""
        return {
            a.id: build_grid(self.project, self.results, a, self.judge) for a in self.artifacts if a.is_table
        }

    @functools.cached_property
    def runs(self) -> dict[str, Run]:
        """Every trained run that the artifacts read, by id."""
        return {
            run.id: run for a in self.artifacts for run in needs.of_artifact(self.project, a).trained.values()
        }

    @functools.cached_property
    def ended(self) -> int:
        """Runs that have ended."""
        return sum(self.results.finished(run) for run in self.runs.values())

    @functools.cached_property
    def costs(self) -> dict[str, float]:
        """Seconds that each missing run would take, where like runs have ended."""
        return {one.run: one.seconds for one in estimates(self.project, self.results, self.runs.values())}

    @functools.cached_property
    def provenance(self) -> Provenance:
        """Of all its runs."""
        return provenance_of(self.project, self.results, self.id, self.runs.values())

    def provenance_of(self, artifact: Artifact) -> Provenance:
        """Of one table or figure."""
        return provenance_of_artifact(self.project, self.results, artifact)

    # --- claims ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def claims(self) -> list[JudgedClaim]:
        """All claims with their verdicts; none where only some artifacts were chosen."""
        return self.judge.claims if self.chosen is None else []

    @property
    def measured(self) -> list[JudgedClaim]:
        """The paper's claims that need runs: those that the headline counts."""
        return [claim for claim in self.claims if claim.measured and not claim.claim.ours]

    @property
    def exact(self) -> list[JudgedClaim]:
        """Claims that the printed shapes decide, without a run."""
        return [claim for claim in self.claims if not claim.measured]

    @property
    def questions(self) -> list[JudgedClaim]:
        """Questions of this project, which the paper does not ask."""
        return [claim for claim in self.claims if claim.measured and claim.claim.ours]

    @property
    def main(self) -> list[JudgedClaim]:
        """The primary claims; the first is the paper's main claim."""
        return [claim for claim in self.measured if claim.claim.primary]

    def of(self, verdict: str) -> list[JudgedClaim]:
        """The measured claims with a verdict."""
        return [claim for claim in self.measured if claim.verdict == verdict]

    @property
    def tally(self) -> dict[str, int]:
        """Measured claims per verdict, zeros included."""
        return {verdict: len(self.of(verdict)) for verdict in VERDICTS}

    def source_of(self, claim: JudgedClaim) -> str:
        """Where the paper says it."""
        return ", ".join(f"{key.capitalize()} {value}" for key, value in claim.claim.source.items())

    def same_as(self, claim: JudgedClaim) -> JudgedClaim | None:
        """The first claim that hangs on the same comparison, where this is a later one."""
        text = claim.shown.text
        first = next(c for c in self.claims if c.shown.text == text)
        return None if first is claim or not claim.shown.seeds else first

    # --- sentences -------------------------------------------------------------------------------------------------

    @functools.cached_property
    def headline(self) -> list[Piece]:
        """What this scale found, in 45 words at most, piece by piece."""
        runs, total = len(self.runs), len(self.measured)
        if not self.claims:
            return [(f"{self.ended} of {several(runs, 'run')} have ended; no claims are judged here.", "")]
        tally = self.tally
        if tally[NOT_JUDGED] == total:
            return [
                (
                    f"{self.ended} of {several(runs, 'run')} have ended. Scale {self.scale.id} shows that everything runs; "
                    f"it judges none of the {total} measured claims.",
                    "",
                )
            ]
        if not self.ended:
            cost = f", about {duration(sum(self.costs.values()))}" if self.costs else ""
            return [
                (f"Nothing has been run at scale {self.scale.id}: ", ""),
                (f"{several(total, 'measured claim')} wait for {several(runs, 'run')}{cost}.", CLAIM_NOT_RUN),
                (" To begin with the main claim, run " if self.main else " To begin, run ", ""),
                (self.first_command, "command"),
                (".", ""),
            ]
        pieces: list[Piece] = [(f"Of {several(total, 'measured claim')}, ", "")]
        pieces += [
            (f"{tally[SUPPORTED]} {'is' if tally[SUPPORTED] == 1 else 'are'} supported", SUPPORTED),
            (", ", ""),
        ]
        pieces += [(f"{tally[CONTRADICTED]} contradicted", CONTRADICTED)]
        if tally[NO_EFFECT]:
            pieces += [(f", {tally[NO_EFFECT]} without an effect", "")]
        lacking = tally[TOO_FEW] + tally[CLAIM_NOT_RUN] + tally[NOT_JUDGED]
        pieces += [(f", {tally[UNDECIDED]} undecided", "")]
        if lacking:
            why = ["lack" + "s" * (lacking == 1) + " runs"] * bool(lacking - tally[NOT_JUDGED])
            why += ["need" + "s" * (lacking == 1) + " the paper’s scale"] * bool(tally[NOT_JUDGED])
            pieces += [(f"; {lacking} {' or '.join(why)}", "")]
        pieces += [(". ", "")]
        if self.main:
            first = self.main[0]
            pieces += [
                (f"The main claim, “{plain(first.claim.title)}”, is ", ""),
                (first.verdict, first.verdict),
                (f": {self._why(first)}.", ""),
            ]
        return pieces

    @property
    def found(self) -> str:
        """The headline as one plain sentence or two."""
        return "".join(text for text, _ in self.headline).strip()

    @property
    def first_command(self) -> str:
        """The command that makes what the main claim is about, or everything."""
        targets = {artifact.target for artifact in self.project.artifacts(self.id)}
        asked = [claim for claim in self.main if claim.verdict != NOT_JUDGED]
        source = asked[0].claim.source if asked else {}
        names = [f"{self.id}_table{source.get('table')}", f"{self.id}_fig{source.get('figure')}"]
        target = next((name for name in names if name in targets), self.scale.id)
        return self.command(target)

    def command(self, target: str) -> str:
        """The command that makes a target at this scale."""
        return f"snakemake {target} --cores all --config scale={self.scale.id}"

    def _why(self, claim: JudgedClaim) -> str:
        outcome = claim.shown
        interval = outcome.interval
        if claim.verdict == CLAIM_NOT_RUN:
            return "its runs have not been trained"
        if claim.verdict == NOT_JUDGED:
            return "it needs the paper’s scale"
        if claim.verdict == TOO_FEW or interval is None:
            return f"{len(outcome.seeds)} of {claim.claim.needs_seeds} seeds"
        if claim.verdict != UNDECIDED:
            return f"difference {difference(outcome)}, 95\u00a0% interval"
        if outcome.verdict != UNDECIDED:
            return "its interval excludes zero, but not after adjustment for the number of main claims"
        low, high = outcome.region
        inside = [b for b in (low, high) if interval.low <= b <= interval.high]
        bound = inside[0] if inside else low if math.isfinite(low) else high
        sign = "claimed" if low < interval.mean < high else "other"
        includes = "zero" if bound == 0 else f"{bound:g}"
        return f"its mean has the {sign} sign, its interval includes {includes}"

    @functools.cached_property
    def sure(self) -> str:
        """How sure, in 55 words at most: seeds, parameters, tokens, data; what goes unseen; Holm; the floor; what may be compared."""
        judged = [claim for claim in self.main if claim.shown.interval]
        if not judged:
            return "" if self.scale.comparable else self.scale.purpose
        first = judged[0]
        side = first.claim.tests[0].right or first.claim.tests[0].left
        baseline = side.request()
        counts = sorted({len(claim.shown.seeds) for claim in judged})
        seeds = word(counts[0]) + (f" to {word(counts[-1])}" if counts[1:] else "")
        parameters = self.results.sample(
            self.id,
            Quantity(
                "account.parameters.total", RunRequest(size=side.size, variant=side.variant), own_scale=True
            ),
        ).value
        run = self.project.runs(self.id, baseline)[0]
        text = "stand-in text" if self.provenance.stand_in else "text"
        unit = metrics.unit_of(first.claim.tests[0].metric)
        seen = first.shown.interval.detectable
        sentences = [
            f"How sure: {seeds} seed{'s' * (counts != [1])} of {millions(parameters)}-parameter models, "
            f"{millions(run.spec.recipe.tokens)} tokens of {text}.",
            f"Differences below about {seen:.1g} {unit.replace('/', ' per ')} go unseen.".replace("  ", " "),
        ]
        kept = sum(claim.found.adjusted is not None and claim.found.adjusted < LEVEL for claim in self.main)
        sentences.append(
            f"Adjusted for {word(len(self.main))} test{'s' * (len(self.main) > 1)} (Holm), {word(kept)} of them {'stays' if kept == 1 else 'stay'} significant."
        )
        if floor := self._floor(baseline):
            sentences.append(floor)
        if not self.scale.comparable:
            sentences.append("Signs can be compared with the paper; levels cannot.")
        return " ".join(sentences)

    def _floor(self, baseline: RunRequest) -> str:
        """Does the baseline beat counting on the same tokens?"""
        try:
            counted = self.results.sample(self.id, Quantity("ngrams.trigram.mean", baseline)).value
            own = self.results.sample(self.id, Quantity("loss.mean", baseline)).value
        except UserError:
            return ""
        if not (is_number(counted) and is_number(own)):
            return ""
        how = "beats" if own < counted else "does not beat"
        return f"The {self.judge.model_name(baseline)} {how} a trigram count by {abs(counted - own):.2g}."

    @functools.cached_property
    def counts(self) -> Counts:
        """Distinct printed numbers of all tables."""
        agree = {"settings": 0, "derived": 0}
        differ: dict[str, list[str]] = {"settings": [], "derived": []}
        measured = dict.fromkeys(STATUSES, 0)
        for cell, what in self._distinct():
            kind = "measured" if cell.kind == "measured" else "derived"
            if cell.metric.partition(".")[0] in _SETTINGS:
                kind = "settings"
            if kind == "measured":
                measured[cell.status] += 1
            elif cell.status in (MATCH, "within"):
                agree[kind] += 1
            elif cell.status == OFF:
                differ[kind].append(f"{what}: printed {printed_text(cell)}, ours {ours_text(cell)}")
        return Counts(
            agree["settings"],
            agree["derived"],
            {name: tuple(lines) for name, lines in differ.items()},
            {status: number for status, number in measured.items() if number},
        )

    def _distinct(self) -> Iterator[tuple[Cell, str]]:
        """Every printed number once, however many tables print it, and a setting that all sizes share once; with its place."""
        seen = set()
        for grid in self.grids.values():
            rows = {row.id: row for row in grid.table.rows}
            columns = {column.id: column for column in grid.table.columns}
            for cell in grid.compared():
                if cell.printed is None:
                    continue
                row, column = rows[cell.row], columns[cell.column]
                quantity = grid.table.quantity(row, column)
                shared = cell.metric.partition(".")[0] in _SETTINGS and grid.table.kind == "configuration"
                key = (cell.metric, cell.printed, cell.ours) if shared else (repr(quantity), cell.show)
                if key not in seen:
                    seen.add(key)
                    yield cell, f"{plain(row.label)}, {plain(column.label)}"

    # --- what is missing -------------------------------------------------------------------------------------------

    def is_empty(self, artifact: Artifact) -> bool:
        """Is there nothing measured to show? A table of counts and settings alone is never empty."""
        if artifact.is_table:
            measured = [cell for cell in self.grids[artifact.id].compared() if cell.kind == "measured"]
            return bool(measured) and all(cell.status == NOT_RUN for cell in measured)
        wanted = needs.of_artifact(self.project, artifact).trained.values()
        return bool(wanted) and not any(self.results.finished(run) for run in wanted)

    def absence(self, artifact: Artifact) -> str:
        """How many values an empty artifact lacks, and what they would cost."""
        runs = needs.of_artifact(self.project, artifact).trained
        waiting = [id for id, run in runs.items() if not self.results.finished(run)]
        seconds = [self.costs[id] for id in waiting if id in self.costs]
        parts = []
        if artifact.is_table:
            cells = self.grids[artifact.id].compared()
            parts.append(several(sum(cell.status == NOT_RUN for cell in cells), "value"))
        if waiting:
            cost = f", about {duration(sum(seconds))}" if seconds else ""
            parts.append(several(len(waiting), "run") + cost)
        return "; ".join(parts)

    def missing_by_size(self) -> list[tuple[str, int, float]]:
        """Missing runs grouped by size: size, how many, seconds (0 where unknown)."""
        groups: dict[str, list[str]] = {}
        for id, run in self.runs.items():
            if not self.results.finished(run):
                groups.setdefault(run.size, []).append(id)
        return [(size, len(ids), sum(self.costs.get(id, 0.0) for id in ids)) for size, ids in groups.items()]

    def missing(self) -> str:
        """All missing runs in one sentence; empty where none is."""
        groups = self.missing_by_size()
        if not groups:
            return ""
        total, seconds = sum(n for _, n, _ in groups), sum(s for _, _, s in groups)
        groups = sorted(groups, key=lambda group: -group[1])
        each = ", ".join(
            f"{number} of size {size}" + (f" ({duration(cost)})" if cost else "")
            for size, number, cost in groups[:_SIZES]
        )
        if rest := sum(number for _, number, _ in groups[_SIZES:]):
            each += f", {rest} of other sizes"
        cost = f", about {duration(seconds)} of training one after the other" if seconds else ""
        return f"{several(total, 'run')} {'is' if total == 1 else 'are'} missing{cost}: {each}."


def ours_text(cell: Cell) -> str:
    """Our value of a cell as text."""
    if is_number(cell.ours):
        return shown(cell.ours, max(cell.decimals, cell.printed_decimals or 0), cell.signed)
    return "–" if cell.ours is None else str(cell.ours)


def take_away(report: Report, grid: Grid) -> str:
    """What a table of differences shows in a sentence or two; empty where it has none."""
    sentences = []
    for column in grid.table.columns:
        cells = [cell for row in grid.table.rows if (cell := grid.cells[row.id, column.id]).gain is not None]
        # A floor is no model of the paper.
        cells = [cell for cell in cells if cell.printed_gain is not None and cell.status != "diverged"]
        if not cells:
            continue
        kept = [cell for cell in cells if cell.gain * cell.printed_gain > 0]
        clear = [c for c in cells if c.gain_low is not None and not c.gain_low <= 0 <= c.gain_high]
        beside = [cell for cell in clear if cell in kept]
        rows = {row.id: plain(row.label) for row in grid.table.rows}
        bases = dict.fromkeys(rows[cell.base] for cell in cells)
        from_ = next(iter(bases)) if len(bases) == 1 else "their baseline"
        text = f"{_of(len(kept), len(cells))} differ{'s' * (len(kept) < 2)} from {from_} in the printed direction"
        if any(cell.gain_low is not None for cell in kept):
            them = "it" if len(kept) == 1 else f"{word(len(beside)) if beside else 'none'} of them"
            text += f"; for {them} the interval {'excludes' if beside or len(kept) > 1 else 'does not exclude'} zero"
        if against := len(clear) - len(beside):
            text += f"; {word(against)} {'lies' if against == 1 else 'lie'} clearly on the other side"
        named = (
            f"{plain(column.label)}: " if sum(c.metric is not None for c in grid.table.columns) > 1 else ""
        )
        sentences.append(f"{named}{text}." if named else f"{text[0].upper()}{text[1:]}.")
    return " ".join(sentences[:2])


def _of(number: int, total: int) -> str:
    if number == total:
        return f"all {word(total)} rows" if total > 1 else "the one row"
    few = "none" if number == 0 else word(number)
    return f"{few} of {several(total, 'row') if total > 10 else word(total) + ' rows'}"


def reports(project: Resolver, results: Results, targets: Sequence[str] | None = None) -> dict[str, Report]:
    """A report per chosen paper; with ``targets`` only of the papers and artifacts that they name."""
    chosen: dict[str, list[str]] = {}
    for target in targets or ():
        artifact = project.artifact(target)
        chosen.setdefault(artifact.paper, []).append(artifact.id)
    return {
        paper: Report(project, results, paper, None if targets is None else chosen[paper])
        for paper in project.chosen
        if targets is None or paper in chosen
    }
