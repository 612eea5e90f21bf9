"""What may be concluded: verdicts on hypotheses from aligned samples, and whether a measured cell agrees with the paper.

Everything here is a pure function of numbers. Who reads results builds ``Comparison`` and ``Hypothesis``; docs/claims.md says
in words what happens to them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from respath.quantities.rounding import signed
from respath.quantities.statistics import (
    CONFIDENCE,
    POWER,
    SEEDS,
    Documents,
    Group,
    Interval,
    Pool,
    TextError,
    detectable_effect,
    holm,
    mean,
    pool,
    seeds_needed,
    stands_out,
    t_interval,
    tail_probabilities,
    text_error,
)

SUPPORTED, CONTRADICTED = "supported", "contradicted"
#: The interval lies inside the margin that matters; and: it is too wide to tell.
NO_EFFECT, UNDECIDED = "no effect seen", "undecided"
TOO_FEW, NOT_RUN, NOT_JUDGED = "too few runs", "not run", "not judged at this scale"
#: Every verdict, in the order of reports.
VERDICTS = (SUPPORTED, CONTRADICTED, NO_EFFECT, UNDECIDED, TOO_FEW, NOT_RUN, NOT_JUDGED)

#: The verdicts that a test can reach; where several would hold, the first counts.
_DECISIONS = (SUPPORTED, NO_EFFECT, CONTRADICTED)
#: Two-sided level of a verdict, and of all primary verdicts of a paper together.
LEVEL = 1 - CONFIDENCE

# --- what is asked -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One number per seed, and the open region that a claim puts its true mean in.

    ``values``: seed -> left less right, or left alone, of seeds that all runs have. ``runs``: coefficient of each run in it
    ({left: 1, right: -1}; a difference of differences has four). ``family``: comparisons with equal ones may share a pooled
    spread (paper, size, metric, scale). ``margin``: a true value within ± margin of 0 does not matter. ``diverged``: seed
    -> +1 where the value ranks above all others because the run that should be low diverged alone, -1 where it ranks below,
    0 where no rank exists (both sides diverged, or the metric has no better side). ``absent``: why there is nothing.
    ``documents``: per stratum, for the error from the choice of text. ``printed``: the paper's value, in the same unit.
    ``cost``: core-hours of one more seed of all its runs.
    """

    text: str
    region: tuple[float, float]
    values: Mapping[int, float]
    runs: Mapping[str, float]
    family: Hashable = None
    margin: float | None = None
    diverged: Mapping[int, int] = dataclasses.field(default_factory=dict)
    documents: Mapping[str, Documents] = dataclasses.field(default_factory=dict)
    absent: str = ""
    printed: float | None = None
    cost: float | None = None

    @property
    def is_difference(self) -> bool:
        """Do the runs' common parts (order of the data, level of the loss) cancel?"""
        return math.isclose(math.fsum(self.runs.values()), 0.0, abs_tol=1e-12)


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A claim: it holds where all its comparisons do.

    ``comparisons``: to be judged here, or ``Outcome`` where an exact comparison was decided elsewhere. ``alternatives``: other
    functionals or settings that the paper may have meant, by name; no verdict stands until all agree. ``faithful``: false
    where functional or setting are known not to be the paper's, so that nothing here contradicts the paper.
    ``not_judged``: why this scale may not judge it; empty where it may.
    """

    id: str
    comparisons: Sequence[Comparison | Outcome]
    needs_seeds: int = 2
    primary: bool = False
    faithful: bool = True
    alternatives: Mapping[str, Sequence[Comparison | Outcome]] = dataclasses.field(default_factory=dict)
    not_judged: str = ""


# --- what is answered ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One comparison judged by itself. ``p``: two-sided p-value of each decision that a test can reach.

    ``values``: of the seeds. ``interval`` gives the verdict; ``own`` and ``pooled`` are both variances' intervals, ``not_pooled`` why there is no second.
    ``documents``: how many each stratum of text has; ``unknown``: strata whose error nobody can estimate. ``detectable``:
    number of seeds -> smallest effect that they show. ``needed``: seeds that the printed effect needs, and ``needed_hours``
    the core-hours of those that are missing.
    """

    text: str
    verdict: str
    reason: str
    seeds: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    value: float | None = None
    region: tuple[float, float] | None = None
    margin: float | None = None
    interval: Interval | None = None
    own: Interval | None = None
    pooled: Interval | None = None
    not_pooled: str = ""
    p: dict[str, float] = dataclasses.field(default_factory=dict)
    documents: dict[str, int] = dataclasses.field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    detectable: dict[int, float] = dataclasses.field(default_factory=dict)
    printed: float | None = None
    needed: int | None = None
    needed_hours: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a bound that does not exist is null."""
        data = dataclasses.asdict(self) | {
            name: list(getattr(self, name)) for name in ("seeds", "values", "unknown")
        }
        if self.region:
            data["region"] = [bound if math.isfinite(bound) else None for bound in self.region]
        data["detectable"] = {str(n): effect for n, effect in self.detectable.items()}
        return data


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict of a hypothesis. ``p``: of the decision nearest to being reached, None where no test was made.

    ``adjusted``: the same after Holm's adjustment over the primary claims; None for exploratory ones. ``outcomes`` carry the
    evidence also where the scale may not judge.
    """

    id: str
    verdict: str
    reason: str
    outcomes: tuple[Outcome, ...]
    alternatives: dict[str, tuple[Outcome, ...]]
    primary: bool
    p: float | None = None
    adjusted: float | None = None


# --- comparisons ---------------------------------------------------------------------------------------------------


def p_values(
    interval: Interval, region: tuple[float, float], margin: float | None = None, signs: Iterable[int] = ()
) -> dict[str, float]:
    """Two-sided p-value of each decision; below LEVEL exactly where the interval lies wholly where the decision says.

    supported: inside the region. contradicted: wholly beyond one of its bounds. no effect seen: within ± margin. ``signs``
    of seeds whose value ranks above (+1) or below (-1) all numbers leave only decisions that they agree with.
    """
    signs = set(signs)
    inside, beyond = [], []
    for bound, outward in zip(region, (-1, 1), strict=True):
        if not math.isfinite(bound):
            continue
        below, above = tail_probabilities(interval, bound)
        inside.append((below if outward == 1 else above, -outward))
        beyond.append((above if outward == 1 else below, outward))
    support = 2 * max(p for p, _ in inside)
    if signs and (len(inside) == 2 or signs != {inside[0][1]}):
        support = 1.0
    contradict = min((2 * p for p, side in beyond if signs <= {side}), default=1.0)
    none = 1.0
    if margin and not signs:
        none = 2 * max(tail_probabilities(interval, margin)[0], tail_probabilities(interval, -margin)[1])
    return {SUPPORTED: min(1.0, support), NO_EFFECT: min(1.0, none), CONTRADICTED: min(1.0, contradict)}


def decide(p: Mapping[str, float], level: float = LEVEL) -> str:
    """The first decision whose p-value is below the level; ``undecided`` where none is."""
    return next((decision for decision in _DECISIONS if p.get(decision, 1.0) < level), UNDECIDED)


def judge_comparison(
    comparison: Comparison, needs_seeds: int = 2, variance: str = "own", pooled: Pool | None = None
) -> Outcome:
    """One comparison by itself. ``variance``: which interval gives the verdict where both exist."""
    if not comparison.region[0] < comparison.region[1]:
        raise ValueError(f"{comparison.text}: the region {comparison.region} is empty")
    values = list(comparison.values.values())
    n, need = len(values), max(2, needs_seeds)
    signs = [sign for sign in comparison.diverged.values() if sign]
    unranked = len(signs) < len(comparison.diverged)
    diverged = len(comparison.diverged)
    base = Outcome(
        text=comparison.text,
        verdict=NOT_RUN,
        reason=comparison.absent or "no values",
        seeds=tuple(comparison.values),
        values=tuple(values),
        value=mean(values) if values else None,
        region=comparison.region,
        margin=comparison.margin,
        printed=comparison.printed,
    )
    lost = f"{diverged} of {n + diverged} seeds diverged" if diverged else ""
    if n == 0 and not diverged:
        return base
    kind, show = ("difference", signed) if comparison.is_difference else ("value", "{:.4g}".format)
    seeds = f"{'paired ' if len(comparison.runs) > 1 else ''}seeds"
    if n < need:
        if n + diverged >= need:
            return dataclasses.replace(base, verdict=UNDECIDED, reason=f"{lost}; the others do not count")
        found = f" ({kind} {show(mean(values))})" if values else ""
        why = f"{n} of the {need} {seeds} that a verdict needs{found}"
        if absent := "; ".join(filter(None, (lost, comparison.absent))):
            why += f"; {absent}"
        return dataclasses.replace(base, verdict=TOO_FEW, reason=why)
    text = text_error(comparison.documents) if comparison.documents else None
    own = t_interval(values, text=text)
    not_pooled = _not_pooled(comparison, pooled)
    other = None if not_pooled else t_interval(values, pooled, text)
    interval = other if variance == "pooled" and other is not None else own
    p = p_values(interval, comparison.region, comparison.margin, signs)
    if unranked:
        p = dict.fromkeys(p, 1.0)
    verdict = decide(p)
    reason = f"{kind} {show(interval.mean)}, {CONFIDENCE:.0%} interval {show(interval.low)} to {show(interval.high)} over {n} {seeds}"
    if lost:
        reason += f"; {lost}, " + ("without a rank" if unranked else "which rank worst")
    if verdict == UNDECIDED:
        reason += f"; smallest effect that {n} seeds could have shown: {interval.detectable:.2g} (power {POWER:.0%})"
    if variance == "pooled" and not_pooled and comparison.is_difference:
        reason += f"; own variance: {not_pooled}"
    return dataclasses.replace(
        base,
        verdict=verdict,
        reason=reason,
        interval=interval,
        own=own,
        pooled=other,
        not_pooled=not_pooled,
        p=p,
        documents={name: len(stratum.ids) for name, stratum in comparison.documents.items()},
        unknown=text.unknown if text else tuple(comparison.documents),
        **_power(comparison, n, interval, pooled, text),
    )


def _not_pooled(comparison: Comparison, pooled: Pool | None) -> str:
    if not comparison.is_difference:
        # Values of one seed share the order of the data; only differences are free of it.
        return "only differences are pooled"
    if pooled is None:
        return "nothing to pool"
    return pooled.refused or stands_out(list(comparison.values.values()), pooled)


def _power(
    comparison: Comparison, n: int, interval: Interval, pooled: Pool | None, text: TextError | None
) -> dict[str, Any]:
    """Smallest effects per number of seeds, and the seeds and core-hours that the printed value would need."""
    std = interval.seed_error * math.sqrt(n)

    def freedom(count: int) -> float:
        # More seeds in the whole family give its pool as many more degrees of freedom.
        share = pooled.freedom / (n - 1) if pooled and interval.variance == "pooled" else 1.0
        return share * (count - 1)

    found: dict[str, Any] = {
        "detectable": {count: detectable_effect(std, count, freedom(count), text) for count in SEEDS}
    }
    low, high = comparison.region
    printed = comparison.printed
    if printed is None or not low < printed < high:
        return found
    needed = seeds_needed(min(printed - low, high - printed), std, freedom, text)
    if needed is not None and comparison.cost is not None:
        found["needed_hours"] = max(0, needed - n) * comparison.cost
    return {**found, "needed": needed}


# --- hypotheses ----------------------------------------------------------------------------------------------------


def judge(
    hypotheses: Sequence[Hypothesis],
    variance: str = "own",
    more: Mapping[Hashable, Sequence[Group]] | None = None,
) -> dict[str, Verdict]:
    """Verdicts of all hypotheses of one paper at one scale.

    ``variance``: own or pooled, one rule for the whole paper. ``more``: paired differences of a family that no hypothesis
    names, for its pool. Primary hypotheses that this scale judges are adjusted by Holm's method as one family, those that were
    not run included, so that what was left out makes nothing easier. All others are exploratory and are not adjusted.
    """
    pools = pools_of(hypotheses, more or {})

    def outcomes(given: Sequence[Comparison | Outcome], needs_seeds: int) -> tuple[Outcome, ...]:
        return tuple(judge_alone(item, needs_seeds, variance, pools) for item in given)

    judged: dict[
        str, tuple[Hypothesis, tuple[Outcome, ...], dict[str, tuple[Outcome, ...]], dict[str, float]]
    ] = {}
    for hypothesis in hypotheses:
        own = outcomes(hypothesis.comparisons, hypothesis.needs_seeds)
        others = {
            name: outcomes(given, hypothesis.needs_seeds) for name, given in hypothesis.alternatives.items()
        }
        judged[hypothesis.id] = hypothesis, own, others, _claim_p(hypothesis, own, others)
    family = [
        id for id, (hypothesis, *_) in judged.items() if hypothesis.primary and not hypothesis.not_judged
    ]
    adjusted = dict(zip(family, holm([min(judged[id][3].values()) for id in family]), strict=True))
    return {id: _verdict(*entry, adjusted.get(id), len(family)) for id, entry in judged.items()}


def _pool_key(comparison: Comparison) -> Hashable:
    """A spread is shared by comparisons of one family that combine runs with the same weights."""
    return comparison.family, tuple(sorted(map(abs, comparison.runs.values())))


def judge_alone(
    item: Comparison | Outcome, needs_seeds: int, variance: str, pools: Mapping[Hashable, Pool | None]
) -> Outcome:
    """One comparison with the pool of its family, as claims and the rows of tables are judged alike; an outcome stays as it is."""
    if isinstance(item, Outcome):
        return item
    return judge_comparison(item, needs_seeds, variance, pools.get(_pool_key(item)))


def pools_of(
    hypotheses: Sequence[Hypothesis], more: Mapping[Hashable, Sequence[Group]]
) -> dict[Hashable, Pool | None]:
    """The pooled spread of every family that has comparisons."""
    groups: dict[Hashable, list[Group]] = {}
    for hypothesis in hypotheses:
        for given in (hypothesis.comparisons, *hypothesis.alternatives.values()):
            for item in given:
                if isinstance(item, Comparison) and item.is_difference:
                    groups.setdefault(_pool_key(item), []).append(Group(item.values, item.runs))
    for family, differences in more.items():
        for group in differences:
            key = family, tuple(sorted(map(abs, group.runs.values())))
            groups.setdefault(key, []).append(group)
    return {key: pool(given) for key, given in groups.items()}


def _all_of(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """p-values of a claim over several comparisons: all must support it, any one of them refutes it (Bonferroni)."""
    p = [outcome.p or _decided(outcome) for outcome in outcomes]
    return {
        SUPPORTED: max(each[SUPPORTED] for each in p),
        **{
            decision: min(1.0, len(p) * min(each[decision] for each in p))
            for decision in (NO_EFFECT, CONTRADICTED)
        },
    }


def _decided(outcome: Outcome) -> dict[str, float]:
    """p-values of an outcome without a test: exact comparisons are certain, missing ones say nothing."""
    return {decision: 0.0 if outcome.verdict == decision else 1.0 for decision in _DECISIONS}


def _claim_p(
    hypothesis: Hypothesis, own: Sequence[Outcome], others: Mapping[str, Sequence[Outcome]]
) -> dict[str, float]:
    """p-values of a hypothesis: with alternatives, that of the one which agrees least."""
    readings = [_all_of(outcomes) for outcomes in (own, *others.values())]
    p = {decision: max(reading[decision] for reading in readings) for decision in _DECISIONS}
    return p if hypothesis.faithful else {**p, CONTRADICTED: 1.0}


def _verdict(
    hypothesis: Hypothesis,
    own: tuple[Outcome, ...],
    others: dict[str, tuple[Outcome, ...]],
    p: Mapping[str, float],
    adjusted: float | None,
    family: int,
) -> Verdict:
    tested = any(outcome.interval for outcome in own)
    made = Verdict(
        hypothesis.id, NOT_JUDGED, hypothesis.not_judged, own, others, hypothesis.primary,
        min(p.values()) if tested else None, adjusted if tested else None,
    )  # fmt: skip
    if hypothesis.not_judged:
        return made
    verdict = _missing(own) or decide(p)
    reason = _reason(verdict, own)
    alone = decide(_all_of(own))
    if verdict == UNDECIDED and alone != UNDECIDED:
        if others:
            readings = ", ".join(f"{name}: {_summary(outcomes)}" for name, outcomes in others.items())
            reason = (
                f"{alone} as written, but the alternatives do not agree ({readings}); {_reason(alone, own)}"
            )
        elif not hypothesis.faithful:
            reason = f"functional or setting are not the paper's, so nothing is contradicted; {_reason(alone, own)}"
    if verdict in _DECISIONS and adjusted is not None and adjusted >= LEVEL:
        reason = f"{verdict} by itself, not after Holm's adjustment over {family} primary claims (p = {adjusted:.2g}); {reason}"
        verdict = UNDECIDED
    return dataclasses.replace(made, verdict=verdict, reason=reason)


def _missing(outcomes: Sequence[Outcome]) -> str:
    """``not run`` where nothing was, ``too few runs`` where a comparison lacks runs and no other refutes the claim."""
    if decide(_all_of(outcomes)) in (CONTRADICTED, NO_EFFECT):
        return ""
    verdicts = {outcome.verdict for outcome in outcomes}
    if verdicts == {NOT_RUN}:
        return NOT_RUN
    return TOO_FEW if verdicts & {NOT_RUN, TOO_FEW} else ""


def _summary(outcomes: Sequence[Outcome]) -> str:
    return _missing(outcomes) or decide(_all_of(outcomes))


def _reason(verdict: str, outcomes: Sequence[Outcome]) -> str:
    """What decides: the clearest refutation, the weakest support, or the first that is open."""
    if len(outcomes) == 1:
        return outcomes[0].reason
    shown = deciding(verdict, outcomes)
    if shown.verdict == verdict and verdict in _DECISIONS:
        concerned = sum(outcome.verdict == verdict for outcome in outcomes)
        word = "weakest" if verdict == SUPPORTED else "clearest"
        return f"{concerned} of {len(outcomes)} comparisons, {word}: {shown.text}: {shown.reason}"
    if verdict == NOT_RUN:
        return f"{len(outcomes)} comparisons: {'; '.join(dict.fromkeys(o.reason for o in outcomes))}"
    counts = [outcome.verdict for outcome in outcomes]
    parts = ", ".join(f"{counts.count(name)} {name}" for name in VERDICTS if name in counts)
    return f"of {len(outcomes)} comparisons {parts}; {shown.text}: {shown.reason}"


def deciding(verdict: str, outcomes: Sequence[Outcome]) -> Outcome:
    """The comparison that a verdict hangs on: its weakest support, its clearest refutation, or the first that is open."""
    concerned = [outcome for outcome in outcomes if outcome.verdict == verdict]
    if verdict in _DECISIONS and concerned:
        pick = max if verdict == SUPPORTED else min
        return pick(concerned, key=lambda outcome: (outcome.p or _decided(outcome))[verdict])
    return next((outcome for outcome in outcomes if outcome.verdict not in _DECISIONS), outcomes[0])


# --- cells ---------------------------------------------------------------------------------------------------------

WITHIN, OFF = "within", "off"


def judge_cell(delta: float, half_width: float | None, tolerance: float) -> str:
    """Does a measured cell agree with the printed value? ``delta``: ours less printed; ``half_width``: of our interval.

    within: all values that the interval holds are no further than ``tolerance`` from the printed one. off: none is.
    undecided: the interval is too wide to tell, or (None) there is none, as from one seed. So a noisier measurement passes
    less easily, never more. Deterministic quantities have a half width of 0.
    """
    if half_width is None:
        return UNDECIDED
    # The rounding dust of a subtraction must not turn a value on the edge into one beyond it.
    dust = 1e-9 * max(tolerance, abs(delta)) + 1e-15
    if abs(delta) + half_width <= tolerance + dust:
        return WITHIN
    return OFF if abs(delta) - half_width > tolerance + dust else UNDECIDED
