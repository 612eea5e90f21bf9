"""Verdicts on the claims of a paper: paired over seeds, never from one seed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from respath.config.project import Project
from respath.errors import UserError
from respath.papers.claims import Claim, Expect, Side, Test
from respath.quantities import metrics
from respath.quantities.quantity import Reading
from respath.quantities.rounding import significant
from respath.quantities.sample import Sample
from respath.quantities.statistics import CONFIDENCE, POWER, Interval, mean, t_interval
from respath.results.reader import Results

SUPPORTED, CONTRADICTED, INCONCLUSIVE = "supported", "contradicted", "inconclusive"
NOT_RUN, NOT_JUDGED = "not run", "not judged at this scale"
#: Every verdict, in the order of reports.
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_RUN, NOT_JUDGED)


@dataclasses.dataclass(frozen=True)
class TestVerdict:
    """Verdict of one comparison with its evidence. ``left`` and ``right`` are means over the seeds that have both."""

    __test__ = False

    text: str
    verdict: str
    reason: str
    left: float | None = None
    right: float | None = None
    seeds: tuple[int, ...] = ()
    interval: Interval | None = None
    region: tuple[float, float] | None = None
    printed: dict[str, Any] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a bound that does not exist is null."""
        data = dataclasses.asdict(self) | {"seeds": list(self.seeds)}
        data["region"] = (
            [bound if math.isfinite(bound) else None for bound in self.region] if self.region else None
        )
        return data


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict of a claim. ``tests`` carries the evidence also where the scale may not judge."""

    claim: Claim
    verdict: str
    reason: str
    tests: tuple[TestVerdict, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "id": self.claim.id,
            "title": self.claim.title,
            "source": self.claim.source,
            "verdict": self.verdict,
            "reason": self.reason,
            "judged_at": list(self.claim.judged_at),
            "needs_seeds": self.claim.needs_seeds,
            "decisions": list(self.claim.decisions),
            "note": self.claim.note,
            "tests": [test.as_dict() for test in self.tests],
        }


def judge_interval(interval: Interval, region: tuple[float, float]) -> str:
    """Inside the open region: supported. Wholly beyond a bound: contradicted. Holding a bound: inconclusive."""
    low, high = region
    if low < interval.low and interval.high < high:
        return SUPPORTED
    if interval.high < low or interval.low > high:
        return CONTRADICTED
    return INCONCLUSIVE


def judge_exact_claim(expect: Expect, left: float, right: float | None) -> str:
    """Exact forms: equal up to the rounding of double precision, or rounding to the printed number of millions."""
    if expect.rounds_to_million is not None:
        return SUPPORTED if abs(left / 1e6 - expect.rounds_to_million) <= 0.5 else CONTRADICTED
    value = left if expect.equals is not None else left - right
    wanted = expect.equals if expect.equals is not None else expect.difference
    return (
        SUPPORTED
        if math.isclose(value, wanted, rel_tol=1e-12, abs_tol=0.0) or value == wanted
        else CONTRADICTED
    )


def judge_claim(project: Project, results: Results, paper: str, claim: Claim) -> Verdict:
    """The verdict on one claim from whatever results exist."""
    printed = project.folder(paper).printed
    tests = tuple(
        dataclasses.replace(_judge_test(results, paper, claim, test), printed=printed(test))
        for test in claim.tests
    )
    if project.scale.id not in claim.judged_at:
        return Verdict(claim, NOT_JUDGED, f"judged at {', '.join(claim.judged_at)}", tests)
    verdicts = [test.verdict for test in tests]
    if len(tests) == 1:
        return Verdict(claim, verdicts[0], tests[0].reason, tests)
    for verdict in (CONTRADICTED, SUPPORTED, NOT_RUN):
        concerned = [test for test in tests if test.verdict == verdict]
        # One contradicted comparison refutes a claim over all of them; the other verdicts need all.
        if concerned and (verdict == CONTRADICTED or len(concerned) == len(tests)):
            reason = f"{len(concerned)} of {len(tests)} comparisons"
            if verdict == NOT_RUN:
                reason += f": {'; '.join(dict.fromkeys(test.reason for test in concerned))}"
            else:
                # The reader wants the comparison that decides: the clearest refutation, or the weakest support.
                shown = (max if verdict == CONTRADICTED else min)(concerned, key=_clearance)
                reason += (
                    f", {'clearest' if verdict == CONTRADICTED else 'weakest'}: {shown.text}: {shown.reason}"
                )
            return Verdict(claim, verdict, reason, tests)
    parts = [f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts]
    open_ones = [test for test in tests if test.verdict == INCONCLUSIVE] or [
        test for test in tests if test.verdict == NOT_RUN
    ]
    reason = f"of {len(tests)} comparisons {', '.join(parts)}; {open_ones[0].text}: {open_ones[0].reason}"
    return Verdict(claim, INCONCLUSIVE, reason, tests)


def _clearance(test: TestVerdict) -> float:
    """Distance of a decided interval from the bound that it had to clear, in standard errors (exact ones: infinite)."""
    interval = test.interval
    if interval is None or interval.stderr == 0:
        return math.inf
    low, high = test.region
    inside = test.verdict == SUPPORTED
    gaps = (
        (interval.low - low, high - interval.high) if inside else (low - interval.high, interval.low - high)
    )
    return (min if inside else max)(gaps) / interval.stderr


def signed(value: float) -> str:
    """Three significant digits with a sign that reads as one."""
    return significant(value, 3, sign=True).replace("-", "−")


def _describe(side: Side) -> str:
    parts = [side.size or "+".join(side.sizes), side.variant]
    parts += [f"T {side.context}"] if side.context else []
    parts += [f"{key} {value}" for key, value in side.recipe.items()]
    return " ".join(parts)


def _describe_test(test: Test) -> str:
    against = f" against {_describe(test.right)}" if test.right else ""
    return f"{test.metric} of {_describe(test.left)}{against}"


def _judge_test(results: Results, paper: str, claim: Claim, test: Test) -> TestVerdict:
    text = _describe_test(test)
    try:
        left, right, judged = _samples(results, paper, test)
        if metrics.is_exact(test.metric):
            return _judge_exact(test, left, right, text)
        return _judge_seeds(claim, test, left, right, judged, text)
    except UserError as error:
        # Likewise a size that the variant does not fit, or an analysis that does not exist.
        return TestVerdict(text, NOT_RUN, error.lines[0])


def _samples(results: Results, paper: str, test: Test) -> tuple[Sample | None, Sample | None, Sample]:
    """Both sides, where they are numbers of their own, and what is judged."""
    left, *others = (results.sample(paper, side) for side in test.sides())
    if not others:
        return (left, None, left) if test.right is None else (None, None, left)
    (right,) = others
    pairs = left.minus(right)
    if not test.expect.of_left_alone:
        return left, right, pairs
    # Judged where both sides are there: a claim that names another run speaks of their pairs.
    kept = {seed: left.by_seed[seed] for seed, one in pairs.by_seed.items() if one.state == "measured"}
    return left, right, dataclasses.replace(pairs, by_seed={**pairs.by_seed, **kept})


def _judge_exact(test: Test, left: Sample, right: Sample | None, text: str) -> TestVerdict:
    for side in (left, right):
        if side is not None and side.state != "measured":
            return TestVerdict(text, NOT_RUN, side.reason)
    left, right = left.value, right.value if right else None
    verdict = judge_exact_claim(test.expect, left, right)
    if test.expect.difference is not None:
        found = f"the difference is {left - right:,}".replace("-", "−")
    elif test.expect.rounds_to_million is not None:
        found = f"the count is {left:,}"
    else:
        found = f"the value is {left:.12g}"
    return TestVerdict(text, verdict, f"{found} (exact)", left, right)


def _judge_seeds(
    claim: Claim, test: Test, left: Sample | None, right: Sample | None, judged: Sample, text: str
) -> TestVerdict:
    values = judged.numbers
    seeds, n = tuple(values), len(values)
    absent = [reading for reading in judged.by_seed.values() if reading.state != "measured"]
    if n == 0:
        return _nothing(test, absent, text)
    paired = test.right is not None and not test.expect.of_left_alone
    left_mean = mean([(left or judged).values[seed] for seed in seeds])
    right_mean = mean([right.values[seed] for seed in seeds]) if right else None
    need = max(2, claim.needs_seeds)
    kind, show = ("difference", signed) if paired else ("value", "{:.4g}".format)
    interval = t_interval(list(values.values())) if n >= 2 else None
    if n < need:
        pairs = "paired seeds" if test.right else "seeds"
        why = f"{n} of the {need} {pairs} that a verdict needs ({kind} {show(mean(list(values.values())))})"
        if any(reading.state == "diverged" for reading in absent):
            why += "; some runs diverged"
        return TestVerdict(text, INCONCLUSIVE, why, left_mean, right_mean, seeds, interval, None)
    region = test.expect.region()
    verdict = judge_interval(interval, region)
    reason = (
        f"{kind} {show(interval.mean)}, {CONFIDENCE:.0%} interval {show(interval.low)} to {show(interval.high)} "
        f"over {n} {'paired ' if test.right else ''}seeds"
    )
    remarks = dict.fromkeys(judged.by_seed[seed].reason for seed in seeds if judged.by_seed[seed].reason)
    if remarks:
        reason += f" ({'; '.join(remarks)})"
    if verdict == INCONCLUSIVE:
        reason += f"; smallest effect that {n} seeds could have detected: {interval.detectable:.2g} (power {POWER:.0%})"
    return TestVerdict(text, verdict, reason, left_mean, right_mean, seeds, interval, region)


def _nothing(test: Test, absent: list[Reading], text: str) -> TestVerdict:
    """Of a comparison without a single value: why."""
    diverged = [reading for reading in absent if reading.state == "diverged"]
    if diverged:
        return TestVerdict(text, INCONCLUSIVE, f"diverged: {diverged[0].reason}")
    return TestVerdict(text, NOT_RUN, absent[0].reason if absent else "no values")
