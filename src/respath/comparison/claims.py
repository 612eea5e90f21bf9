"""Verdicts on a paper's claims: the samples of both sides become comparisons, and all claims are judged together."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.files import canonical_json
from respath.letters import plain
from respath.papers import needs
from respath.papers.claims import Claim, Expect, Side, Test
from respath.papers.resolve import Resolver
from respath.quantities import metrics
from respath.quantities.derived import DERIVED
from respath.quantities.quantity import Quantity, is_number
from respath.quantities.rounding import signed
from respath.quantities.sample import Sample, documents_of
from respath.quantities.statistics import Group, mean
from respath.quantities.verdicts import (
    CONTRADICTED,
    NOT_JUDGED,
    NOT_RUN,
    SUPPORTED,
    TOO_FEW,
    UNDECIDED,
    Comparison,
    Hypothesis,
    Outcome,
    Verdict,
    deciding,
    judge,
    judge_alone,
    pools_of,
)
from respath.results.reader import Results


@dataclasses.dataclass(frozen=True)
class JudgedClaim:
    """A claim with its verdict. ``printed``: what the paper prints of each comparison, by side. ``changed``: was it written or
    changed after results that it reads were kept?"""

    claim: Claim
    found: Verdict
    printed: tuple[dict[str, Any], ...]
    changed: bool = False

    @property
    def verdict(self) -> str:
        """One of the seven."""
        return self.found.verdict

    @property
    def reason(self) -> str:
        """What decided it, or what is missing."""
        return self.found.reason

    @property
    def shown(self) -> Outcome:
        """The comparison that the verdict hangs on."""
        return deciding(self.verdict, self.tests)

    @property
    def measured(self) -> bool:
        """Does it need runs, or is it a count from the printed shapes?"""
        return self.claim.needs_seeds > 0

    @property
    def standing(self) -> str:
        """Primary with its adjusted p-value, or exploratory; ours, where the paper does not ask."""
        words = ["a question of ours"] if self.claim.ours else []
        if self.claim.primary:
            words.append("primary")
            if self.found.adjusted is not None:
                words.append(f"adjusted p = {self.found.adjusted:.2g}")
        elif self.claim.needs_seeds:
            words.append("exploratory")
        if self.changed:
            words.append("written or changed after its results were kept")
        return ", ".join(words)

    @property
    def tests(self) -> tuple[Outcome, ...]:
        """Its comparisons, with their evidence also where the scale may not judge."""
        return self.found.outcomes

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        claim = self.claim
        return {
            "id": claim.id,
            "title": claim.title,
            "source": claim.source,
            "verdict": self.verdict,
            "reason": self.reason,
            "primary": claim.primary,
            "changed": self.changed,
            "ours": claim.ours,
            "p": self.found.p,
            "adjusted_p": self.found.adjusted,
            "judged_at": list(claim.judged_at),
            "needs_seeds": claim.needs_seeds,
            "decisions": list(claim.decisions),
            "note": claim.note,
            "tests": [
                outcome.as_dict() | {"printed": printed}
                for outcome, printed in zip(self.tests, self.printed, strict=True)
            ],
            "alternatives": {
                name: [outcome.as_dict() for outcome in outcomes]
                for name, outcomes in self.found.alternatives.items()
            },
        }


def judge_claims(
    project: Resolver, results: Results, paper: str, claims: Sequence[Claim] | None = None
) -> list[JudgedClaim]:
    """Verdicts on all claims of a paper, in the order of its file, from whatever results exist; or on these claims as if they were
    all."""
    return Judge(project, results, paper, claims).claims


def _without_ground(
    claims: Sequence[Claim], given: Sequence[str], found: dict[str, Verdict]
) -> dict[str, str]:
    """Claims that say nothing here, and why: what they are given is judged and not supported. What was not run, or too seldom, decides nothing."""
    of = {claim.id: claim for claim in claims}
    open_ = (NOT_RUN, TOO_FEW, NOT_JUDGED, SUPPORTED)
    unmet = {name: found[name].verdict for name in of if found[name].verdict not in open_}
    reasons = {}
    for claim in claims:
        names = (*(given if claim.needs_seeds else ()), *claim.given)
        lacking = [name for name in names if name in unmet and name != claim.id]
        if lacking:
            reasons[claim.id] = "; ".join(f"given that: {of[name].title} ({unmet[name]})" for name in lacking)
    return reasons


def _changed(project: Resolver, results: Results, paper: str, claim: Claim) -> bool:
    try:
        runs = needs.runs_of_claim(project, paper, claim)
    except UserError:  # a size that the variant does not fit
        return False
    kept = filter(lambda hashes: hashes is not None, map(results.store.claims, runs))
    return any(hashes.get(claim.id) != claim.sha256[:12] for hashes in kept)


def evidence(outcome: Outcome) -> str:
    """Both intervals, both parts of the error, and what the printed effect would need; empty where nothing was tested."""
    if outcome.own is None:
        return ""
    parts = []
    for name, interval in (("own", outcome.own), ("pooled", outcome.pooled)):
        if interval is not None:
            parts.append(
                f"{name} variance: {signed(interval.low)} to {signed(interval.high)} ({interval.freedom:.3g} degrees of freedom)"
            )
    if outcome.pooled is None:
        parts.append(f"not pooled: {outcome.not_pooled}")
    used = outcome.interval
    error = f"standard error from seeds {used.seed_error:.2g}"
    if used.text_error is not None:
        error += (
            f", from the choice of text {used.text_error:.2g} ({sum(outcome.documents.values())} documents)"
        )
    parts.append(error)
    if outcome.unknown:
        parts.append(f"one document only, so no error from the choice of text: {', '.join(outcome.unknown)}")
    if outcome.verdict == UNDECIDED and outcome.printed is not None:
        if outcome.needed is None:
            parts.append("no number of seeds would show the printed effect")
        else:
            hours = f", {outcome.needed_hours:.2g} core-hours more" if outcome.needed_hours else ""
            parts.append(f"the printed effect needs {outcome.needed} seeds{hours}")
    return "; ".join(parts)


def judge_exact_claim(expect: Expect, left: float, right: float | None) -> str:
    """Exact forms: equal up to the rounding of double precision, or rounding to the printed number of millions."""
    if expect.rounds_to_million is not None:
        return SUPPORTED if abs(left / 1e6 - expect.rounds_to_million) <= 0.5 else CONTRADICTED
    value = left if expect.equals is not None else left - right
    wanted = expect.equals if expect.equals is not None else expect.difference
    same = math.isclose(value, wanted, rel_tol=1e-12, abs_tol=0.0) or value == wanted
    return SUPPORTED if same else CONTRADICTED


#: One part of a comparison: its coefficient, what it is of which run, and its readings.
Part = tuple[int, str, Sample]


class Judge:
    """All that is judged of one paper at one scale, from one reading of its results: claims, and the rows of its tables.

    A row is judged as claims are, with the same variance and the same pool; where a claim asks the same, the row has its verdict.
    """

    def __init__(
        self, project: Resolver, results: Results, paper: str, claims: Sequence[Claim] | None = None
    ):
        self.project, self.results, self.paper = project, results, paper
        self.folder = project.folder(paper)
        self._claims = self.folder.claims if claims is None else tuple(claims)
        self._samples: dict[tuple[str, str], Sample] = {}
        #: Differences from the baseline of every metric and size of which a comparison has values, for its pool.
        self._families: dict[tuple[str, str | None], list[Group]] = {}

    # --- claims ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def hypotheses(self) -> list[Hypothesis]:
        """The claims as comparisons."""
        return [
            Hypothesis(
                id=claim.id,
                comparisons=[self.comparison(test) for test in claim.tests],
                needs_seeds=claim.needs_seeds,
                primary=claim.primary,
                faithful=claim.as_in_paper,
                alternatives={
                    each.name: [self.comparison(test) for test in each.of(claim.tests)]
                    for each in claim.alternatives
                },
                not_judged=""
                if self.project.scale.id in claim.judged_at
                else f"judged at {', '.join(claim.judged_at)}",
            )
            for claim in self._claims
        ]

    @functools.cached_property
    def claims(self) -> list[JudgedClaim]:
        """Every claim with its verdict."""
        hypotheses = self.hypotheses
        found = judge(hypotheses, self.folder.variance, self._families)
        if without := _without_ground(self._claims, self.folder.given, found):
            judged = [
                dataclasses.replace(each, not_judged=each.not_judged or without.get(each.id, ""))
                for each in hypotheses
            ]
            found = judge(judged, self.folder.variance, self._families)
        return [
            JudgedClaim(
                claim,
                found[claim.id],
                tuple(self.folder.printed(test) for test in claim.tests),
                _changed(self.project, self.results, self.paper, claim),
            )
            for claim in self._claims
        ]

    # --- rows of tables --------------------------------------------------------------------------------------------

    @functools.cached_property
    def needs_seeds(self) -> int:
        """Seeds that the verdict on a row needs: as many as the paper's least demanding claim."""
        return min((claim.needs_seeds for claim in self._claims if claim.needs_seeds), default=2)

    def row(
        self,
        metric: str,
        left: RunRequest,
        right: RunRequest,
        *,
        lower: bool,
        printed: float | None,
        base_metric: str = "",
    ) -> tuple[Outcome, str]:
        """Left less right with a verdict, and the id of the claim that asks just this (or nothing).

        ``lower``: should it be below 0? ``printed``: the paper's difference. ``base_metric``: the right side's, where it is another.
        """
        other = f"{base_metric} of " if base_metric and base_metric != metric else ""
        parts = [
            (1, _name(left), self.sample(metric, left)),
            (-1, other + _name(right), self.sample(base_metric or metric, right)),
        ]
        region = (-math.inf, 0.0) if lower else (0.0, math.inf)
        family = f"{metric}, {other}{_name(left)}" if other else (metric, left.size)
        comparison = self._of_parts("", parts, region, family, printed=printed)
        for hypothesis, claim in zip(self.hypotheses, self.claims, strict=True):
            # One comparison has one verdict, wherever it is shown.
            asked = hypothesis.comparisons[0]
            if (
                len(hypothesis.comparisons) == 1
                and isinstance(comparison, Comparison)
                and isinstance(asked, Comparison)
                and (asked.runs, asked.region, asked.family) == (comparison.runs, region, comparison.family)
            ):
                return dataclasses.replace(claim.tests[0], verdict=claim.verdict), claim.claim.id
        pools = pools_of(self.hypotheses, self._families) if self.folder.variance == "pooled" else {}
        outcome = judge_alone(comparison, self.needs_seeds, self.folder.variance, pools)
        judged = any(self.project.scale.id in claim.judged_at for claim in self._claims if claim.needs_seeds)
        if not judged and outcome.verdict != NOT_RUN:
            outcome = dataclasses.replace(outcome, verdict=NOT_JUDGED)
        return outcome, ""

    # --- comparisons -----------------------------------------------------------------------------------------------

    def sample(self, metric: str, request: RunRequest) -> Sample:
        """A metric of one run."""
        key = metric, _name(request)
        if key not in self._samples:
            self._samples[key] = self.results.sample(self.paper, Quantity(metric, request))
        return self._samples[key]

    def comparison(self, test: Test) -> Comparison | Outcome:
        """One comparison; an Outcome where it is exact, or where it cannot be made."""
        text = self._describe(test)
        try:
            if metrics.is_exact(test.metric):
                return self._exact(test, text)
            derived = DERIVED.get(test.metric)
            if derived is not None and derived.compares:
                return self._compared(test, text)
            return self._measured(test, text)
        except UserError as error:
            # A size that the variant does not fit, or an analysis that does not exist.
            return Outcome(text, NOT_RUN, error.lines[0])

    def _exact(self, test: Test, text: str) -> Outcome:
        sides = [self.sample(test.metric, side.request()) for side in (test.left, test.right) if side]
        for side in sides:
            if side.state != "measured":
                return Outcome(text, NOT_RUN, side.reason)
        left, right = sides[0].value, sides[1].value if test.right else None
        if test.expect.difference is not None:
            value, found = left - right, f"the difference is {left - right:,}".replace("-", "−")
        elif test.expect.rounds_to_million is not None:
            value, found = left, f"the count is {left:,}"
        else:
            value, found = left, f"the value is {left:.12g}"
        return Outcome(text, judge_exact_claim(test.expect, left, right), f"{found} (exact)", value=value)

    def _compared(self, test: Test, text: str) -> Comparison:
        """A metric that compares two runs by itself (a ratio, a saving): one value per seed, without a common part to take away."""
        (quantity,) = test.sides()
        whole = self.results.sample(self.paper, quantity)
        diverged = dict.fromkeys((s for s, r in whole.by_seed.items() if r.state == "diverged"), 0)
        return Comparison(
            text=text,
            region=test.expect.region(),
            values=whole.numbers,
            runs={text: 1},
            diverged=diverged,
            absent=whole.reason,
            printed=self._printed(test),
        )

    def _measured(self, test: Test, text: str) -> Comparison | Outcome:
        # What is compared with another metric shares its spread with nothing.
        alike = len({side.metric for side in test.sides()}) == 1
        return self._of_parts(
            text,
            list(self._parts(test)),
            test.expect.region(),
            (test.metric, test.left.size) if alike else text,
            margin=test.expect.matters,
            printed=self._printed(test),
        )

    def _of_parts(
        self,
        text: str,
        parts: Sequence[Part],
        region: tuple[float, float],
        family: tuple[str, str | None] | str,
        *,
        margin: float | None = None,
        printed: float | None = None,
    ) -> Comparison | Outcome:
        samples = [sample for _, _, sample in parts]
        values, diverged = {}, {}
        for seed in (
            seed for seed in samples[0].by_seed if all(seed in sample.by_seed for sample in samples)
        ):
            lost = {
                weight * metrics.worst(sample.quantity.metric)
                for weight, _, sample in parts
                if sample.by_seed[seed].state == "diverged"
            }
            if lost:
                diverged[seed] = lost.pop() if len(lost) == 1 else 0
            elif all(seed in sample.numbers for sample in samples):
                values[seed] = math.fsum(weight * sample.numbers[seed] for weight, _, sample in parts)
        runs: collections.Counter[str] = collections.Counter()
        for weight, name, _ in parts:
            runs[name] += weight
        try:
            documents = documents_of([(weight, sample) for weight, _, sample in parts], values)
        except ValueError as error:
            return Outcome(text, UNDECIDED, f"{error}; evaluate both sides again, on one token store")
        absent = "; ".join(dict.fromkeys(sample.reason for sample in samples if sample.reason))
        costs = [self._hours(sample) for sample in samples]
        if values and not isinstance(family, str) and family not in self._families:
            self._families[family] = list(self._differences(*family))
        return Comparison(
            text=text,
            region=region,
            values=values,
            runs={run: weight for run, weight in runs.items() if weight},
            family=family,
            margin=margin,
            diverged=diverged,
            documents=documents,
            absent=absent,
            printed=printed,
            cost=math.fsum(costs) if None not in costs else None,
        )

    def _parts(self, test: Test) -> Iterator[Part]:
        """The runs of a comparison; of a claim about the left value, those of the left side."""
        for weight, side in zip((1,) if test.expect.of_left_alone else (1, -1), test.sides(), strict=False):
            other = f"{side.metric} of " if side.metric != test.metric else ""
            yield weight, other + _name(side.subject), self.sample(side.metric, side.subject)
            if side.against:
                yield -weight, other + _name(side.against), self.sample(side.metric, side.against)

    def _printed(self, test: Test) -> float | None:
        """The paper's value of what is judged, where it prints one as a number."""
        printed = self.folder.printed(test)
        value = printed.get("left") if test.expect.of_left_alone else printed.get("difference")
        if value is None and not test.expect.of_left_alone and {"left", "right"} <= printed.keys():
            value = printed["left"] - printed["right"]
        return value if is_number(value) else None

    def _hours(self, sample: Sample) -> float | None:
        """Core-hours of one seed: the mean over those that are trained; None where none is."""
        hours = []
        for run in sample.runs:
            train = self.results.train(run) or {}
            seconds = (train.get("cost") or {}).get("seconds")
            if seconds:
                used = train.get("provenance") or {}
                cores = (used.get("threads") or 1) * (used.get("processes") or 1)
                hours.append(seconds * cores / 3600)
        return mean(hours) if hours else None

    @functools.cached_property
    def _sizes(self) -> dict[str, dict[str, RunRequest]]:
        """Every run of the paper's tables and figures that is no baseline, by size and name."""
        baseline = self.folder.paper.accounting.baseline
        sizes: dict[str, dict[str, RunRequest]] = {}
        for artifact in self.project.artifacts(self.paper):
            for _, quantity in needs.named(artifact):
                for _, request in needs.requests(quantity):
                    if request.size and request.variant not in (None, baseline):
                        sizes.setdefault(request.size, {})[_name(request)] = request
        return sizes

    def _differences(self, metric: str, size: str | None) -> Iterator[Group]:
        """Differences from the baseline of all runs of a size that were measured, for the pool."""
        baseline = self.folder.paper.accounting.baseline
        for request in self._sizes.get(size or "", {}).values():
            base = request.model_copy(update={"variant": baseline})
            try:
                left, right = self.sample(metric, request).numbers, self.sample(metric, base).numbers
            except UserError:  # a run or metric that this one cannot have
                continue
            both = {seed: left[seed] - right[seed] for seed in left if seed in right}
            if len(both) > 1:
                yield Group(both, {_name(request): 1, _name(base): -1})

    # --- words -----------------------------------------------------------------------------------------------------

    def model_name(self, request: RunRequest) -> str:
        """A model by its label, with what else its run changes: ``Identity (length 512)``."""
        variant = self.folder.variants.get(request.variant or "")
        changes = [f"length {request.context:,}"] if request.context else []
        changes += [_setting(key, value) for key, value in request.recipe.items()]
        label = plain(variant.label) if variant else request.variant or ""
        return label + (f" ({', '.join(changes)})" if changes else "")

    def _describe(self, test: Test) -> str:
        """What is compared, in words: ``Identity − Transformer, validation loss (82M)``."""
        sides = [side for side in (test.left, test.right) if side]
        names = [self._side(side) for side in sides]
        sizes = dict.fromkeys(size for side in sides for size in (side.sizes or (side.size or "",)))
        if test.right and test.right.metric:
            names[1] += f" in {self.metric_name(test.right.metric)}"
        return f"{' − '.join(names)}, {self.metric_name(test.metric)} ({', '.join(filter(None, sizes))})"

    def _side(self, side: Side) -> str:
        other = side.subtracted()
        name = self.model_name(side.request())
        return f"({name} − {self.model_name(other)})" if other else name

    def metric_name(self, metric: str) -> str:
        """A metric in words, domains and tasks by their names."""
        return metrics.title_of(
            metric, {name: plain(domain.label) for name, domain in self.folder.paper.data.domains.items()}
        )


def _setting(key: str, value: Any) -> str:
    """A changed setting in words; what has parts is named alone."""
    name = key.replace("_", " ").replace("lr", "learning rate")
    return f"other {name}" if isinstance(value, Mapping) else f"{name} {value}"


def _name(request: RunRequest) -> str:
    """A run in the paper's terms, whatever way it was written down."""
    return canonical_json(request.model_dump(mode="json", exclude_defaults=True))
