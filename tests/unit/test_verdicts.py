"""Verdicts on hypotheses: seven of them, their error rates and powers, and what divergence and alternatives do to them."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from respath.quantities.statistics import SEEDS, Documents, Group, detectable_factor, t_interval
from respath.quantities.verdicts import (
    CONTRADICTED,
    LEVEL,
    NO_EFFECT,
    NOT_JUDGED,
    NOT_RUN,
    OFF,
    SUPPORTED,
    TOO_FEW,
    UNDECIDED,
    WITHIN,
    Comparison,
    Hypothesis,
    Outcome,
    judge,
    judge_cell,
    judge_comparison,
    p_values,
)

BELOW, ABOVE = (-math.inf, 0.0), (0.0, math.inf)
RUNS = {"new": 1, "base": -1}
CLEAR = (-0.031, -0.027, -0.035)


def by_seed(values):
    return dict(enumerate(map(float, values), start=1))


def comparison(values=CLEAR, region=BELOW, runs=RUNS, **more):
    return Comparison("new against base", region, by_seed(values), runs, family="f", **more)


def verdict(*comparisons, variance="own", **more):
    found = judge([Hypothesis("h", comparisons, **{"needs_seeds": 3, **more})], variance)
    return found["h"]


# --- one comparison ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "region", "margin", "expected"),
    [
        (CLEAR, BELOW, None, SUPPORTED),
        (CLEAR, ABOVE, None, CONTRADICTED),
        (CLEAR, (-math.inf, -0.1), None, CONTRADICTED),
        ((-0.3, 0.4, 0.1), BELOW, None, UNDECIDED),
        ((-0.001, 0.001, 0.0), BELOW, 0.01, NO_EFFECT),
        ((-0.001, 0.001, 0.0), BELOW, 0.001, UNDECIDED),
        # Below 0 for certain, by less than matters: the claim asks for no more than "below".
        ((-0.0021, -0.0020, -0.0019), BELOW, 0.01, SUPPORTED),
        # Above 0 for certain, by less than matters: nothing that contradicts anybody.
        ((0.0021, 0.0020, 0.0019), BELOW, 0.01, NO_EFFECT),
        ((0.001, 0.002, 0.0), (-0.01, 0.01), None, SUPPORTED),
        ((0.101, 0.102, 0.1), (-0.01, 0.01), None, CONTRADICTED),
        ((-0.101, -0.102, -0.1), (-0.01, 0.01), None, CONTRADICTED),
        ((-0.101, -0.102, -0.1), (-math.inf, 0.01), None, SUPPORTED),  # "not higher": lower is allowed
    ],
)
def test_a_verdict_says_where_the_whole_interval_lies(values, region, margin, expected):
    assert verdict(comparison(values, region, margin=margin)).verdict == expected


def test_p_values_are_below_the_level_exactly_where_the_interval_clears_the_bounds():
    generator = np.random.default_rng(1)
    for values in generator.normal(0.2, 0.5, size=(300, 4)):
        interval = t_interval(list(values))
        p = p_values(interval, (-0.4, 0.6), 0.3)
        assert (p[SUPPORTED] < LEVEL) == (interval.low > -0.4 and interval.high < 0.6)
        assert (p[NO_EFFECT] < LEVEL) == (interval.low > -0.3 and interval.high < 0.3)
        assert (p[CONTRADICTED] < LEVEL) == (interval.high < -0.4 or interval.low > 0.6)


def test_a_verdict_against_zero_has_scipys_p_value():
    found = verdict(comparison((-0.031, -0.027, 0.002, -0.020)))
    assert found.p == pytest.approx(stats.ttest_1samp([-0.031, -0.027, 0.002, -0.020], 0.0).pvalue)
    assert found.adjusted is None and not found.primary


def test_fewer_runs_than_needed_are_too_few_and_none_are_not_run():
    found = verdict(comparison(CLEAR[:2]))
    assert found.verdict == TOO_FEW and "2 of the 3 paired seeds" in found.reason
    assert verdict(comparison(CLEAR[:1]), needs_seeds=0).verdict == TOO_FEW
    missing = verdict(comparison((), absent="run abc is not trained"))
    assert (missing.verdict, missing.reason) == (NOT_RUN, "run abc is not trained")
    elsewhere = verdict(comparison(), not_judged="judged at paper")
    assert (elsewhere.verdict, elsewhere.reason) == (NOT_JUDGED, "judged at paper")
    assert elsewhere.outcomes[0].verdict == SUPPORTED


def test_an_undecided_verdict_says_what_so_many_seeds_could_have_shown():
    outcome = judge_comparison(comparison((-0.3, 0.4, 0.1), printed=-0.02, cost=0.5), 3)
    std = np.std([-0.3, 0.4, 0.1], ddof=1)
    assert outcome.detectable[3] == pytest.approx(detectable_factor(2) * std / math.sqrt(3))
    assert tuple(outcome.detectable) == SEEDS and f"{outcome.detectable[3]:.2g}" in outcome.reason
    assert outcome.needed > 100 and outcome.needed_hours == (outcome.needed - 3) * 0.5
    assert (
        judge_comparison(comparison(printed=0.02), 3).needed is None
    )  # the printed value is not what is claimed


def test_the_choice_of_text_can_leave_undecided_what_seeds_alone_would_support():
    sizes = np.full(8, 100.0)
    documents = {"C4": Documents(tuple("abcdefgh"), sizes * np.linspace(-0.2, 0.14, 8), sizes)}
    found = verdict(comparison(documents=documents))
    assert found.verdict == UNDECIDED and verdict(comparison()).verdict == SUPPORTED
    interval = found.outcomes[0].interval
    assert interval.text_error > interval.seed_error > 0 and found.outcomes[0].documents == {"C4": 8}


# --- runs that diverged --------------------------------------------------------------------------------------------


def test_a_run_that_diverged_on_one_side_ranks_worst_there():
    agrees = verdict(comparison(diverged={4: -1}))
    assert agrees.verdict == SUPPORTED and "1 of 4 seeds diverged, which rank worst" in agrees.reason
    assert verdict(comparison(diverged={4: 1})).verdict == UNDECIDED
    assert verdict(comparison(diverged={4: 1, 5: -1})).verdict == UNDECIDED
    assert verdict(comparison(region=ABOVE, diverged={4: -1})).verdict == CONTRADICTED
    assert verdict(comparison(region=ABOVE, diverged={4: 1})).verdict == UNDECIDED


def test_survivors_alone_give_no_verdict():
    assert verdict(comparison(diverged={4: 0})).verdict == UNDECIDED
    assert verdict(comparison(region=(-1.0, 1.0), diverged={4: -1})).verdict == UNDECIDED
    assert verdict(comparison((0.001, 0.002, 0.0), margin=0.1, diverged={4: -1})).verdict == UNDECIDED
    few = verdict(comparison(CLEAR[:2], diverged={3: -1}))
    assert few.verdict == UNDECIDED and "1 of 3 seeds diverged" in few.reason
    assert verdict(comparison((), diverged={1: -1})).verdict == TOO_FEW


# --- claims over several comparisons, alternatives -------------------------------------------------------------------


def test_a_claim_over_several_comparisons_needs_all_of_them_and_falls_with_one():
    good, bad = comparison(), comparison([-value for value in CLEAR])
    open_one, none = comparison((-0.3, 0.4, 0.1)), comparison(())
    assert verdict(good, good).verdict == SUPPORTED
    found = verdict(good, good, bad)
    assert found.verdict == CONTRADICTED and "1 of 3 comparisons, clearest" in found.reason
    assert verdict(good, open_one).verdict == UNDECIDED
    assert verdict(good, none).verdict == TOO_FEW and verdict(none, none).verdict == NOT_RUN
    assert verdict(bad, none).verdict == CONTRADICTED
    assert verdict(good, comparison((-0.001, 0.001, 0.0), margin=0.01)).verdict == NO_EFFECT


def test_one_of_many_comparisons_refutes_only_what_it_would_refute_after_bonferroni():
    t = stats.t.ppf(1 - 0.03 / 2, 2)  # p = 0.03 against 0
    slight = comparison(np.array([-1.0, 0.0, 1.0]) + t / math.sqrt(3))
    assert verdict(slight).verdict == CONTRADICTED
    assert verdict(slight, comparison(), comparison()).verdict == UNDECIDED


def test_exact_comparisons_are_certain():
    assert verdict(Outcome("cache", SUPPORTED, "9/16 (exact)"), comparison()).verdict == SUPPORTED
    assert verdict(Outcome("cache", CONTRADICTED, "0.5 (exact)"), comparison()).verdict == CONTRADICTED


def test_no_verdict_stands_until_the_alternatives_agree():
    bad = comparison([-value for value in CLEAR])
    agree = verdict(bad, alternatives={"mean of norms": [bad]})
    assert agree.verdict == CONTRADICTED
    for other in (comparison(), comparison((-0.3, 0.4, 0.1)), comparison(())):
        found = verdict(bad, alternatives={"mean of norms": [other]})
        assert found.verdict == UNDECIDED and "mean of norms" in found.reason
    assert verdict(comparison(()), alternatives={"mean of norms": [bad]}).verdict == NOT_RUN


def test_nothing_is_contradicted_by_a_functional_or_setting_that_is_not_the_papers():
    bad = comparison([-value for value in CLEAR])
    found = verdict(bad, faithful=False)
    assert found.verdict == UNDECIDED and "not the paper's" in found.reason
    assert verdict(comparison(), faithful=False).verdict == SUPPORTED


# --- pools and families --------------------------------------------------------------------------------------------

WIDE = (-0.10, -0.04, -0.05)


def others(spread=0.002, count=4):
    rows = np.random.default_rng(3).normal(0.0, spread, size=(count, 3))
    return {"f": [Group(by_seed(row), {f"v{i}": 1, "base": -1}) for i, row in enumerate(rows)]}


def test_a_pooled_spread_decides_only_where_the_paper_says_so_and_both_are_shown():
    more, asked = others(0.02), [Hypothesis("h", [comparison(WIDE)], needs_seeds=3)]
    own, pooled = judge(asked, "own", more)["h"], judge(asked, "pooled", more)["h"]
    assert own.verdict == UNDECIDED and pooled.verdict == SUPPORTED
    assert own.outcomes[0].pooled == pooled.outcomes[0].pooled == pooled.outcomes[0].interval
    assert own.outcomes[0].interval == own.outcomes[0].own == pooled.outcomes[0].own


def test_a_refused_pool_leaves_the_own_variance_and_its_reason():
    asked = [Hypothesis("h", [comparison(WIDE)], needs_seeds=3)]
    for more, reason in ((others(), "times that of the others"), ({}, "1 of the 3 comparisons")):
        outcome = judge(asked, "pooled", more)["h"].outcomes[0]
        assert outcome.interval == outcome.own and outcome.pooled is None
        assert reason in outcome.not_pooled and f"own variance: {outcome.not_pooled}" in outcome.reason


def test_differences_of_differences_and_single_values_are_not_pooled_with_differences():
    four = {"a": 1, "b": -1, "c": -1, "d": 1}
    asked = [
        Hypothesis("double", [comparison(WIDE, runs=four)]),
        Hypothesis("value", [comparison(WIDE, runs={"new": 1})]),
    ]
    found = judge(asked, "pooled", others(0.02))
    assert "1 of the 3" in found["double"].outcomes[0].not_pooled
    assert "only differences" in found["value"].outcomes[0].not_pooled


def test_primary_verdicts_are_adjusted_as_one_family_and_exploratory_ones_are_not():
    t = stats.t.ppf(1 - 0.02 / 2, 2)  # p = 0.02 against 0
    slight = comparison(np.array([-1.0, 0.0, 1.0]) - t / math.sqrt(3))
    alone = judge([Hypothesis("a", [slight], 3, primary=True)])["a"]
    assert alone.verdict == SUPPORTED and alone.adjusted == pytest.approx(0.02)
    unrun = Hypothesis("b", [comparison(())], 3, primary=True)
    found = judge([Hypothesis("a", [slight], 3, primary=True), unrun])
    assert found["a"].verdict == SUPPORTED and found["a"].adjusted == pytest.approx(0.04)
    more = [unrun, Hypothesis("d", [comparison((-0.3, 0.4, 0.1))], 3, primary=True)]
    found = judge([Hypothesis("a", [slight], 3, primary=True), *more, Hypothesis("c", [slight], 3)])
    assert found["a"].verdict == UNDECIDED and "not after Holm's adjustment over 3" in found["a"].reason
    assert found["c"].verdict == SUPPORTED and found["c"].adjusted is None
    elsewhere = [Hypothesis(x, [slight], 3, primary=True, not_judged="judged at paper") for x in "xyz"]
    assert judge([Hypothesis("a", [slight], 3, primary=True), *elsewhere])["a"].verdict == SUPPORTED


def test_outcomes_are_plain_data_for_json():
    outcome = judge_comparison(comparison(printed=-0.027), 3)
    data = json.loads(json.dumps(outcome.as_dict(), allow_nan=False))
    assert data["region"] == [None, 0.0] and data["detectable"]["3"] == outcome.detectable[3]
    assert data["interval"]["seed_error"] == outcome.interval.seed_error


# --- a thousand experiments ----------------------------------------------------------------------------------------

EXPERIMENTS = 1000


def bounds(rate, trials=EXPERIMENTS):
    """Where the share of ``trials`` independent events of this rate lies in 999 of 1,000 cases."""
    low, high = stats.binom.interval(0.999, trials, rate)
    return low / trials, high / trials


def experiments(effects, n, *, spread=1.0, seed=0, variance="own", primary=False):
    """Verdicts (EXPERIMENTS, k): k variants against one baseline over n seeds, differences of true standard deviation ``spread``.

    Each claim says "lower". Runs differ by a common part of their seed, which pairing takes away, and noise of their own.
    """
    generator = np.random.default_rng(seed)
    k = len(effects)
    common = generator.normal(0, 5 * spread, size=(EXPERIMENTS, n))
    noise = generator.normal(0, spread / math.sqrt(2), size=(EXPERIMENTS, k + 1, n))
    runs = noise + common[:, None, :]
    differences = runs[:, 1:] - runs[:, :1] + np.asarray(effects)[None, :, None]
    result = []
    for experiment in differences:
        asked = [
            Hypothesis(str(i), [comparison(row, runs={f"v{i}": 1, "base": -1})], n, primary)
            for i, row in enumerate(experiment)
        ]
        result.append([found.verdict for found in judge(asked, variance).values()])
    return np.array(result)


@pytest.mark.parametrize("n", [3, 5])
def test_own_variances_err_at_the_stated_rate_and_show_the_stated_effect(n):
    effect = detectable_factor(n - 1) / math.sqrt(n)
    found = experiments([0.0, -effect, effect], n, seed=n)
    low, high = bounds(LEVEL)
    assert low <= (found[:, 0] != UNDECIDED).mean() <= high
    for column, right, wrong in ((1, SUPPORTED, CONTRADICTED), (2, CONTRADICTED, SUPPORTED)):
        low, high = bounds(0.80)
        assert low <= (found[:, column] == right).mean() <= high
        assert not (found[:, column] == wrong).any()


def test_pooled_variances_err_at_no_more_than_the_stated_rate_and_show_more():
    k, n = 6, 3
    found = experiments([0.0] * k, n, seed=11, variance="pooled")
    # Claims of one experiment share runs and pool, so each claim is held to the bounds by itself.
    for column in range(k):
        assert (found[:, column] != UNDECIDED).mean() <= bounds(LEVEL)[1]
    # 4 k (n - 1) / (k + 3) degrees of freedom (test_statistics): own variances would show half as much, and those that stand
    # out or are refused use them.
    freedom = 4 * k * (n - 1) / (k + 3)
    effect = detectable_factor(freedom) / math.sqrt(n)
    found = experiments([-effect] * k, n, seed=12, variance="pooled")
    power = (found == SUPPORTED).mean()
    own = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, effect * math.sqrt(n))
    assert own + 0.2 < power < bounds(0.80)[1] and power > 0.70


@pytest.mark.parametrize(("wide", "most"), [(1 / 0.6, 0.13), (1 / 0.3, 0.12)])
def test_a_wide_comparison_among_narrow_ones_errs_in_about_a_tenth_of_cases_at_worst(wide, most):
    generator = np.random.default_rng(7)
    spreads = np.array([wide, 1.0, 1.0, 1.0, 1.0, 1.0])
    wrong = np.zeros(6)
    for rows in generator.normal(0, 1, size=(EXPERIMENTS, 6, 3)) * spreads[:, None]:
        asked = [
            Hypothesis(str(i), [comparison(row, runs={f"v{i}": 1, f"b{i}": -1})], 3)
            for i, row in enumerate(rows)
        ]
        wrong += [found.verdict != UNDECIDED for found in judge(asked, "pooled").values()]
    assert wrong[0] / EXPERIMENTS < most
    assert wrong[1:].max() / EXPERIMENTS <= bounds(LEVEL)[1]


@pytest.mark.parametrize("variance", ["own", "pooled"])
def test_adjusted_verdicts_err_in_no_more_than_the_stated_share_of_whole_papers(variance):
    found = experiments([0.0] * 6, 3, seed=21, variance=variance, primary=True)
    wrong = (found != UNDECIDED).any(axis=1).mean()
    assert wrong <= bounds(LEVEL)[1]
    assert wrong > 0.5 * LEVEL * (variance == "own")
    unadjusted = experiments([0.0] * 6, 3, seed=21, variance=variance)
    assert (unadjusted != UNDECIDED).any(axis=1).mean() > bounds(LEVEL)[1]


def test_true_effects_beside_true_nulls_do_not_raise_the_error_of_adjusted_verdicts():
    effects = [-20.0, -20.0, -20.0, 0.0, 0.0, 0.0]
    found = experiments(effects, 5, seed=31, primary=True)
    assert (found[:, :3] == SUPPORTED).mean() > 0.99
    assert (found[:, 3:] != UNDECIDED).any(axis=1).mean() <= bounds(LEVEL)[1]


def test_intervals_with_the_error_of_the_text_hold_the_true_value_as_often_as_stated():
    # Each document moves the difference of all seeds alike; five domains of ten documents, three seeds.
    generator = np.random.default_rng(41)
    sizes = np.full(10, 100.0)
    held = seeds_only = 0
    for number in range(EXPERIMENTS):
        shifts = generator.normal(0.0, 1.0, size=(5, 10))
        seeds = generator.normal(0.0, 0.1, size=3)
        documents = {
            f"d{d}": Documents(
                tuple(f"{number}-{d}-{k}" for k in range(10)), (row + seeds.mean()) * sizes, sizes
            )
            for d, row in enumerate(shifts)
        }
        outcome = judge_comparison(comparison(seeds + shifts.mean(), documents=documents), 3)
        held += outcome.interval.low < 0.0 < outcome.interval.high
        without = t_interval(list(seeds + shifts.mean()))
        seeds_only += without.low < 0.0 < without.high
    low, high = bounds(1 - LEVEL)
    assert low <= held / EXPERIMENTS <= high + 0.01
    assert seeds_only / EXPERIMENTS < 0.9


# --- cells ---------------------------------------------------------------------------------------------------------


def test_a_cell_agrees_when_all_that_its_interval_holds_is_near_the_printed_value():
    assert judge_cell(0.004, 0.005, 0.01) == WITHIN
    assert judge_cell(-0.004, 0.007, 0.01) == UNDECIDED
    assert judge_cell(0.03, 0.005, 0.01) == OFF and judge_cell(-0.03, 0.05, 0.01) == UNDECIDED
    assert judge_cell(0.0, None, 0.01) == UNDECIDED
    assert judge_cell(2.7 - 2.69, 0.0, 0.01) == WITHIN  # 0.010000000000000231


def test_a_noisier_measurement_never_agrees_more_easily():
    for delta in np.linspace(-0.03, 0.03, 61):
        found = [judge_cell(float(delta), float(width), 0.01) for width in np.linspace(0, 0.05, 51)]
        assert all(found[0] == name or name == UNDECIDED for name in found), (delta, found)
        assert WITHIN not in found[found.index(UNDECIDED) :] if UNDECIDED in found else True
