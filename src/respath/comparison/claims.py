"""Claims of a paper as pre-registered tests, and their verdicts: paired over seeds, never from one seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, model_validator

from respath.accounting import account
from respath.analysis.catalogue import CATALOGUE, is_ratio, unknown_metric
from respath.comparison.cells import is_number
from respath.comparison.curves import critical_step, data_saving, early_loss, parameter_saving
from respath.comparison.readings import Reading, dig, missing, read_exact, read_run
from respath.comparison.results import Results
from respath.comparison.statistics import CONFIDENCE, POWER, Interval, t_interval
from respath.config.documents import Collector, Document, check, load_yaml
from respath.config.paper import Overrides, RunRequest
from respath.config.project import Project
from respath.errors import UserError, did_you_mean

SUPPORTED, CONTRADICTED, INCONCLUSIVE = "supported", "contradicted", "inconclusive"
NOT_RUN, NOT_JUDGED = "not run", "not judged at this scale"
#: Every verdict, in the order of reports.
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_RUN, NOT_JUDGED)

#: Metrics of a claim that come from the paper's own shapes, and the metric that a table calls them by.
_EXACT = {
    "account": "account",
    "kv": "account.kv_cache",
    "parameters": "account.parameters",
    "flops": "account.flops",
    "spec": "spec",
}
#: Metrics of trained runs: whole names, or a prefix with its dot.
_TRAINED = (
    "loss.",
    "lm.",
    "train.",
    "analysis.",
    "curve.early_difference",
    "curve.critical_step",
    "scaling.parameter_saving",
    "scaling.data_saving",
)

# --- the document --------------------------------------------------------------------------------------------------


class Side(Document):
    """One side of a comparison, in the paper's terms; ``sizes`` for fits over sizes."""

    size: str | None = None
    sizes: tuple[str, ...] = ()
    variant: str
    context: int | None = None
    recipe: Overrides = {}

    @model_validator(mode="after")
    def _one_or_many(self):
        if (self.size is None) == (not self.sizes):
            raise ValueError("names exactly one of `size` and `sizes`")
        return self

    def request(self, size: str | None = None) -> RunRequest:
        """The run, at ``size`` for a side with several."""
        return RunRequest(
            size=size or self.size, variant=self.variant, context=self.context, recipe=self.recipe
        )


#: Allowed combinations of keys in ``expect``; docs/claims.md says what each means.
_FORMS = (
    {"direction", "min_effect"},
    {"direction", "max_effect"},
    {"direction", "than"},
    {"equals", "tolerance"},
    {"difference", "tolerance"},
    {"equals", "exact"},
    {"difference", "exact"},
    {"rounds_to_million"},
)


class Expect(Document):
    """What the claim says of left minus right, or of the left value alone."""

    direction: Literal["lower", "higher", "not_lower", "none"] | None = None
    min_effect: float | None = Field(None, ge=0)
    max_effect: float | None = Field(None, ge=0)
    than: float | None = None
    equals: int | float | None = None
    difference: int | float | None = None
    tolerance: float | None = Field(None, gt=0)
    exact: Literal[True] | None = None
    rounds_to_million: int | None = None

    @model_validator(mode="after")
    def _known_form(self):
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if given not in _FORMS:
            raise ValueError(f"the keys {sorted(given)} do not go together; docs/claims.md lists the forms")
        wants = "max_effect" if self.direction in ("not_lower", "none") else "min_effect"
        if self.direction and wants not in given and "than" not in given:
            raise ValueError(f"direction {self.direction} goes with {wants}")
        return self

    @property
    def of_left_alone(self) -> bool:
        """Is the left value judged, and not a difference?"""
        return self.than is not None or self.equals is not None or self.rounds_to_million is not None

    def region(self) -> tuple[float, float]:
        """The open interval that the judged quantity must lie in (exact forms: see ``judge_exact_claim``)."""
        if self.than is not None:
            return (self.than, math.inf) if self.direction == "higher" else (-math.inf, self.than)
        if self.direction == "lower":
            return -math.inf, -self.min_effect
        if self.direction == "higher":
            return self.min_effect, math.inf
        if self.direction == "not_lower":
            return -self.max_effect, math.inf
        if self.direction == "none":
            return -self.max_effect, self.max_effect
        centre = self.equals if self.equals is not None else self.difference
        return centre - self.tolerance, centre + self.tolerance


class Test(Document):
    """One comparison."""

    __test__ = False  # a document, not a test case

    metric: str
    left: Side
    right: Side | None = None
    expect: Expect
    printed: dict[str, Any] = {}
    printed_from: dict[str, Any] = {}

    @model_validator(mode="after")
    def _has_two_sides(self):
        if self.right is None and not self.expect.of_left_alone:
            raise ValueError("a difference needs `right`")
        return self


class Claim(Document):
    """One claim: a comparison, or ``all_of`` several."""

    id: str
    title: str
    source: dict[str, Any]
    metric: str | None = None
    left: Side | None = None
    right: Side | None = None
    expect: Expect | None = None
    printed: dict[str, Any] = {}
    printed_from: dict[str, Any] = {}
    all_of: tuple[Test, ...] = ()
    judged_at: tuple[str, ...] = Field(min_length=1)
    needs_seeds: int = Field(ge=0)
    decisions: tuple[str, ...] = ()
    note: str = ""

    @model_validator(mode="after")
    def _one_form(self):
        single = (self.metric, self.left, self.expect)
        if self.all_of and (any(single) or self.right):
            raise ValueError("has both `all_of` and a comparison of its own; keep one")
        if not self.all_of and not all(single):
            raise ValueError("needs `metric`, `left` and `expect`, or `all_of`")
        if self.expect and self.right is None and not self.expect.of_left_alone:
            raise ValueError("a difference needs `right`")
        return self

    @property
    def tests(self) -> tuple[Test, ...]:
        """Its comparisons, one or several."""
        if self.all_of:
            return self.all_of
        return (
            Test(
                metric=self.metric,
                left=self.left,
                right=self.right,
                expect=self.expect,
                printed=self.printed,
                printed_from=self.printed_from,
            ),
        )


def load_claims(project: Project, paper: str) -> tuple[Claim, ...]:
    """The claims of a paper, in the file's order; none when it has no claims.yaml. Raises UserError, all problems at once."""
    path = project.folder(paper).path / "claims.yaml"
    if not path.exists():
        return ()
    data = load_yaml(path)
    if not isinstance(data, list):
        raise UserError(f"{path}: is not a list of claims; start each with `- id:`")
    collect = Collector()
    claims = [collect(check, Claim, entry, path, (index,)) for index, entry in enumerate(data)]
    seen: set[str] = set()
    for claim in filter(None, claims):
        if claim.id in seen:
            collect.lines.append(f"{path}: id: {claim.id!r} is given twice; rename one")
        seen.add(claim.id)
        for metric in {test.metric for test in claim.tests}:
            if not metric.startswith((*_TRAINED, *(f"{prefix}." for prefix in _EXACT))):
                known = [*_TRAINED, *(f"{prefix}." for prefix in _EXACT)]
                collect.lines.append(
                    f"{path}: {claim.id}.metric: {metric!r} is not known{did_you_mean(metric, known)}"
                )
        for test in claim.tests:
            if not test.metric.startswith("analysis."):
                continue
            if problem := unknown_metric(test.metric, comparing=True):
                collect.lines.append(f"{path}: {claim.id}.metric: {problem}")
            elif is_ratio(test.metric) and test.right is None:
                collect.lines.append(f"{path}: {claim.id}.right: is missing; {test.metric} compares two runs")
        for metric, side in {test.metric: test.left for test in claim.tests}.items():
            problem = project.unknown_metric(paper, metric) or _unknown_quantity(project, paper, metric, side)
            if problem:
                collect.lines.append(f"{path}: {claim.id}.metric: {problem}")
        for scale in claim.judged_at:
            if scale not in project.scales:
                collect.lines.append(
                    f"{path}: {claim.id}.judged_at: {scale!r} is no scale{did_you_mean(scale, project.scales)}"
                )
    collect.finish()
    return tuple(claims)


def _unknown_quantity(project: Project, paper: str, metric: str, side: Side) -> str:
    """Why a quantity of the paper's own shapes does not exist; empty when it does, or when its model does not (yet)."""
    kind, _, name = metric.partition(".")
    if kind not in _EXACT:
        return ""
    request = side.request(side.sizes[0] if side.sizes else None)
    try:
        if kind == "spec":
            data = project.view_of(project.resolve(paper, request, seed=0, scale="paper"))
        else:
            data = account(project.model_of(paper, request.size, request.variant, "paper")).to_json()
    except UserError:
        return ""
    path = f"{_EXACT[kind]}.{name}".partition(".")[2]
    _, unknown = dig(data, path)
    return f"{metric!r} does not exist{unknown}" if unknown else ""


# --- verdicts ------------------------------------------------------------------------------------------------------


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
    tests = tuple(_judge_test(project, results, paper, claim, test) for test in claim.tests)
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
    return f"{value:+.3g}".replace("-", "−")


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
    folder = project.folder(paper)
    for side in (test.left, test.right):
        if side is not None and side.variant not in folder.variants:
            # A claim may be written before its variant: that is "not run", not a broken project.
            reason = f"no variant {side.variant!r} yet{did_you_mean(side.variant, folder.variants)}"
            return TestVerdict(text, NOT_RUN, reason, printed=test.printed)
    try:
        if test.metric.partition(".")[0] in _EXACT:
            return _judge_exact(project, results, paper, test, text)
        return _judge_seeds(project, results, paper, claim, test, text)
    except UserError as error:
        # Likewise a size that the variant does not fit, or an analysis that does not exist.
        return TestVerdict(text, NOT_RUN, error.lines[0], printed=test.printed)


def _judge_exact(project: Project, results: Results, paper: str, test: Test, text: str) -> TestVerdict:
    kind, _, path = test.metric.partition(".")
    values = []
    for side in (test.left, test.right):
        if side is None:
            continue
        project.parse_ref(f"{paper}/{side.size}/{side.variant}")
        reading = read_exact(project, results, paper, side.request(), f"{_EXACT[kind]}.{path}", "paper")
        if reading.state != "measured":
            return TestVerdict(text, NOT_RUN, reading.reason, printed=test.printed)
        values.append(reading.value)
    left, right = values[0], values[1] if test.right else None
    verdict = judge_exact_claim(test.expect, left, right)
    if test.expect.difference is not None:
        found = f"the difference is {left - right:,}".replace("-", "−")
    elif test.expect.rounds_to_million is not None:
        found = f"the count is {left:,}"
    else:
        found = f"the value is {left:.12g}"
    return TestVerdict(text, verdict, f"{found} (exact)", left, right, printed=test.printed)


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
        return TestVerdict(text, INCONCLUSIVE if diverged else NOT_RUN, reason, printed=test.printed)
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
        return TestVerdict(
            text, INCONCLUSIVE, why, left_mean, right_mean, seeds, interval, None, test.printed
        )
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
    return TestVerdict(text, verdict, reason, left_mean, right_mean, seeds, interval, region, test.printed)


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
