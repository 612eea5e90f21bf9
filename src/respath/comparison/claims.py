"""Verdicts on the claims of a paper: paired over seeds, never from one seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from respath.analysis.catalogue import CATALOGUE
from respath.comparison.cells import is_number
from respath.comparison.curves import critical_step, data_saving, early_loss, parameter_saving
from respath.comparison.readings import Reading, missing, read_exact, read_run
from respath.comparison.results import Results
from respath.config.project import Project
from respath.errors import UserError
from respath.papers.claims import EXACT, Claim, Expect, Side, Test
from respath.quantities.rounding import significant
from respath.quantities.statistics import CONFIDENCE, POWER, Interval, t_interval

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
        dataclasses.replace(_judge_test(project, results, paper, claim, test), printed=printed(test))
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


def _judge_test(project: Project, results: Results, paper: str, claim: Claim, test: Test) -> TestVerdict:
    text = _describe_test(test)
    try:
        if test.metric.partition(".")[0] in EXACT:
            return _judge_exact(project, results, paper, test, text)
        return _judge_seeds(project, results, paper, claim, test, text)
    except UserError as error:
        # Likewise a size that the variant does not fit, or an analysis that does not exist.
        return TestVerdict(text, NOT_RUN, error.lines[0])


def _judge_exact(project: Project, results: Results, paper: str, test: Test, text: str) -> TestVerdict:
    kind, _, path = test.metric.partition(".")
    values = []
    for side in (test.left, test.right):
        if side is None:
            continue
        project.parse_ref(f"{paper}/{side.size}/{side.variant}")
        reading = read_exact(project, results, paper, side.request(), f"{EXACT[kind]}.{path}", "paper")
        if reading.state != "measured":
            return TestVerdict(text, NOT_RUN, reading.reason)
        values.append(reading.value)
    left, right = values[0], values[1] if test.right else None
    verdict = judge_exact_claim(test.expect, left, right)
    if test.expect.difference is not None:
        found = f"the difference is {left - right:,}".replace("-", "−")
    elif test.expect.rounds_to_million is not None:
        found = f"the count is {left:,}"
    else:
        found = f"the value is {left:.12g}"
    return TestVerdict(text, verdict, f"{found} (exact)", left, right)


def _judge_seeds(
    project: Project, results: Results, paper: str, claim: Claim, test: Test, text: str
) -> TestVerdict:
    read = _reader(project, results, paper, test)
    values: dict[int, tuple[float, float | None]] = {}
    absent: list[Reading] = []
    remarks: list[str] = []
    for seed in project.seeds:
        left, right = read(seed)
        bad = [r for r in (left, right) if r is not None and r.state != "measured"]
        if bad:
            absent += bad[:1]
        elif is_number(left.value) and (right is None or is_number(right.value)):
            values[seed] = (left.value, right.value if right else None)
            remarks += [side.reason for side in (left, right) if side is not None and side.reason]
    seeds, n = tuple(values), len(values)
    if n == 0:
        diverged = [r for r in absent if r.state == "diverged"]
        reason = (
            f"diverged: {diverged[0].reason}" if diverged else absent[0].reason if absent else "no values"
        )
        return TestVerdict(text, INCONCLUSIVE if diverged else NOT_RUN, reason)
    paired = test.right is not None and not test.expect.of_left_alone
    judged = [left - right if paired else left for left, right in values.values()]
    left_mean = math.fsum(left for left, _ in values.values()) / n
    right_mean = (
        None
        if test.right is None or values[seeds[0]][1] is None
        else math.fsum(r for _, r in values.values()) / n
    )
    need = max(2, claim.needs_seeds)
    kind = "difference" if paired else "value"
    show = signed if paired else "{:.4g}".format
    if n < need:
        pairs = "paired seeds" if test.right else "seeds"
        why = f"{n} of the {need} {pairs} that a verdict needs ({kind} {show(math.fsum(judged) / n)})"
        if any(r.state == "diverged" for r in absent):
            why += "; some runs diverged"
        interval = t_interval(judged) if n >= 2 else None
        return TestVerdict(text, INCONCLUSIVE, why, left_mean, right_mean, seeds, interval, None)
    interval, region = t_interval(judged), test.expect.region()
    verdict = judge_interval(interval, region)
    reason = (
        f"{kind} {show(interval.mean)}, {CONFIDENCE:.0%} interval {show(interval.low)} to {show(interval.high)} "
        f"over {n} {'paired ' if test.right else ''}seeds"
    )
    if remarks:
        reason += f" ({'; '.join(dict.fromkeys(remarks))})"
    if verdict == INCONCLUSIVE:
        reason += f"; smallest effect that {n} seeds could have detected: {interval.detectable:.2g} (power {POWER:.0%})"
    return TestVerdict(text, verdict, reason, left_mean, right_mean, seeds, interval, region)


Reader = Callable[[int], tuple[Reading, Reading | None]]


def _reader(project: Project, results: Results, paper: str, test: Test) -> Reader:
    """How to read both sides of one seed. The second is None where one value judges the claim."""
    kind, _, name = test.metric.partition(".")
    if kind in ("loss", "lm", "train"):
        # Claims give accuracies in per cent, lm-eval writes fractions.
        factor = 100.0 if kind == "lm" and name.rpartition(".")[2].startswith("acc") else 1.0
        return _both(
            test,
            lambda side, seed: _scaled(
                read_run(results, project.resolve(paper, side.request(), seed), test.metric), factor
            ),
        )
    if test.metric == "curve.early_difference":
        return _both(
            test, lambda side, seed: early_loss(results, project.resolve(paper, side.request(), seed))
        )
    if test.metric == "curve.critical_step":
        return _both(test, lambda side, seed: critical_step(project, results, paper, side.request(), seed))
    if test.metric == "scaling.parameter_saving":
        left, right = test.left, test.right
        sizes = [(left.request(size), right.request(size)) for size in left.sizes]
        return lambda seed: (parameter_saving(project, results, paper, sizes, seed), None)
    if test.metric == "scaling.data_saving":
        left, right = test.left.request(), test.right.request()
        return lambda seed: (data_saving(project, results, paper, left, right, seed), None)
    if kind == "analysis":
        return _analysis_reader(project, results, paper, test)
    raise AssertionError(f"load_claims lets no metric {test.metric!r} through")


def _analysis_reader(project: Project, results: Results, paper: str, test: Test) -> Reader:
    """A scalar of both sides; or one ratio, left over right."""

    def read(side: Side, seed: int, metric: str = test.metric) -> Reading:
        return read_run(results, project.resolve(paper, side.request(), seed), metric)

    _, module, name = test.metric.split(".")
    behind = CATALOGUE[module].ratios.get(name)
    if behind is None:
        return _both(test, read)

    def ratio(seed: int) -> tuple[Reading, None]:
        left, right = (read(side, seed, f"analysis.{module}.{behind}") for side in (test.left, test.right))
        for reading in (left, right):
            if reading.state != "measured":
                return reading, None
        if not right.value:
            return missing(f"{behind} of {_describe(test.right)} is 0"), None
        return Reading(left.value / right.value), None

    return ratio


def _both(test: Test, read: Callable[[Side, int], Reading]) -> Reader:
    return lambda seed: (read(test.left, seed), read(test.right, seed) if test.right else None)


def _scaled(reading: Reading, factor: float) -> Reading:
    return dataclasses.replace(reading, value=reading.value * factor) if is_number(reading.value) else reading
