"""Intervals, pooled spreads, the error from the choice of text, adjustments and power."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from respath.quantities.statistics import (
    SPREAD_FACTOR,
    STANDS_OUT,
    Documents,
    Group,
    TextError,
    detectable_effect,
    detectable_factor,
    holm,
    jackknife_interval,
    mean,
    paired_documents,
    pool,
    seeds_needed,
    standard_error,
    stands_out,
    t_interval,
    tail_probabilities,
    text_error,
)


def test_a_t_interval_is_scipys():
    values = [-0.031, -0.027, -0.035, -0.020]
    interval = t_interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert interval.low == pytest.approx(low, rel=1e-12)
    assert interval.high == pytest.approx(high, rel=1e-12)
    assert interval.stderr == pytest.approx(stats.sem(values), rel=1e-12)


def test_a_t_interval_over_three_known_values():
    # Mean 2, standard error 1/sqrt(3), t(0.975; 2) = 4.302653.
    interval = t_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.high - 2.0 == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-9)


def test_a_jackknifed_mean_has_the_interval_of_the_mean():
    values = [0.3, -1.2, 2.5, 0.9, 1.1]
    without = [mean(values[:k] + values[k + 1 :]) for k in range(len(values))]
    found, known = jackknife_interval(mean(values), without), t_interval(values)
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-12)


def test_a_jackknife_interval_holds_an_estimate_that_lies_outside_the_range_of_its_parts():
    found = jackknife_interval(25.2, [-2.4, 23.3, 11.0, 20.0])
    assert found.low < -2.4 and found.low < 25.2 < found.high and found.n == 4
    with pytest.raises(ValueError, match="at least two"):
        jackknife_interval(1.0, [1.0])


def test_one_value_has_no_spread():
    assert standard_error([1.0]) is None
    with pytest.raises(ValueError, match="at least two"):
        t_interval([1.0])
    with pytest.raises(ValueError, match="no values"):
        mean([])


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6))
def test_an_interval_holds_its_mean(values):
    interval = t_interval(values)
    assert interval.low <= interval.mean <= interval.high


# --- p-values and power --------------------------------------------------------------------------------------------


def test_tail_probabilities_are_those_of_scipys_one_sample_t_test():
    values, bound = [-0.031, -0.027, -0.035, -0.020, 0.004], -0.01
    below, above = tail_probabilities(t_interval(values), bound)
    assert below == pytest.approx(stats.ttest_1samp(values, bound, alternative="less").pvalue, rel=1e-10)
    assert above == pytest.approx(stats.ttest_1samp(values, bound, alternative="greater").pvalue, rel=1e-10)


def test_values_without_spread_are_below_or_above_a_bound_for_certain():
    assert tail_probabilities(t_interval([1.0, 1.0]), 2.0) == (0.0, 1.0)
    assert tail_probabilities(t_interval([1.0, 1.0]), 1.0) == (1.0, 1.0)


@pytest.mark.parametrize(("n", "factor"), [(2, 16.33), (3, 5.65), (5, 3.76), (8, 3.27), (10, 3.15)])
def test_detectable_effects_are_exact_by_the_noncentral_t(n, factor):
    assert detectable_factor(n - 1) == pytest.approx(factor, abs=0.005)
    power = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, detectable_factor(n - 1))
    assert power == pytest.approx(0.80, abs=1e-6)
    assert detectable_effect(2.0, n) == pytest.approx(2.0 * detectable_factor(n - 1) / math.sqrt(n))


def test_the_normal_limit_of_the_factor_joins_the_exact_one():
    assert detectable_factor(1.001e4) == pytest.approx(detectable_factor(0.999e4), rel=2e-4)


def test_the_seeds_that_an_effect_needs_are_the_fewest_that_show_it():
    for effect in (3.0, 1.0, 0.2):
        n = seeds_needed(effect, 1.0)
        assert detectable_effect(1.0, n) <= effect
        assert n == 2 or detectable_effect(1.0, n - 1) > effect
    assert seeds_needed(0.0, 1.0) is None


def test_no_number_of_seeds_shows_an_effect_that_the_choice_of_text_hides():
    text = TextError(stderr=0.01, freedom=50.0, documents={"C4": 51})
    assert seeds_needed(0.02, 0.001, text=text) is None
    assert seeds_needed(0.04, 0.001, text=text) is not None


def test_holms_adjustment_gives_the_textbooks_values():
    # Holm 1979: the smallest of four times 4, the next times 3 ..., never below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9]) and holm([]) == []


# --- pooling -------------------------------------------------------------------------------------------------------

SEED_LIST = (1, 2, 3)


def groups(rows, runs=None):
    """Groups of differences, each from a baseline of its own unless ``runs`` names them."""
    named = runs or [{f"v{i}": 1, f"b{i}": -1} for i in range(len(rows))]
    return [Group(dict(zip(SEED_LIST, row, strict=False)), r) for row, r in zip(rows, named, strict=True)]


ROWS = [[0.1, 0.3, 0.2], [1.0, 1.4, 1.1], [-0.2, 0.1, 0.0], [0.0, 0.2, 0.3]]


def test_a_pool_divides_all_squared_deviations_by_all_degrees_of_freedom():
    found = pool(groups(ROWS))
    assert found.std == pytest.approx(math.sqrt(np.mean([np.var(row, ddof=1) for row in ROWS])))
    assert found.freedom == pytest.approx(2 * len(ROWS)) and found.comparisons == 4 and not found.refused
    pooled = t_interval(ROWS[1], found)
    half = stats.t.ppf(0.975, 8) * found.std / math.sqrt(3)
    assert (pooled.low, pooled.high) == pytest.approx((np.mean(ROWS[1]) - half, np.mean(ROWS[1]) + half))
    assert pooled.variance == "pooled" and t_interval(ROWS[1]).variance == "own"


def test_comparisons_with_one_baseline_share_its_noise_and_have_fewer_degrees_of_freedom():
    k, n = len(ROWS), 3
    shared = pool(groups(ROWS, [{f"v{i}": 1, "base": -1} for i in range(k)]))
    assert shared.freedom == pytest.approx(4 * k * (n - 1) / (k + 3))
    assert shared.std == pool(groups(ROWS)).std


def test_a_comparison_that_several_claims_name_is_pooled_once():
    runs = [{f"v{i}": 1, f"b{i}": -1} for i in range(4)]
    once = pool(groups(ROWS, runs))
    turned = Group(
        {seed: -value for seed, value in zip(SEED_LIST, ROWS[0], strict=True)}, {"v0": -1, "b0": 1}
    )
    assert pool([*groups(ROWS, runs), *groups(ROWS, runs), turned]) == once


def test_a_pool_of_few_or_of_unlike_spreads_is_refused_with_the_reason():
    assert "1 of the 3" in pool(groups(ROWS[:1])).refused
    assert pool(groups([[1.0], [2.0]])) is None
    wide = [[value * 100 for value in ROWS[0]], *ROWS[1:]]
    assert f"times that of the others (at most {SPREAD_FACTOR:g})" in pool(groups(wide)).refused
    # Six wide and six narrow ones, none far from the pool of the others.
    halves = [[v * (1.0 if i % 2 else 0.05) for v in (-1.0, 0.1 * i, 1.0)] for i in range(12)]
    assert "Bartlett" in pool(groups(halves)).refused


def test_a_comparison_whose_own_spread_is_larger_does_not_use_the_pool():
    found = pool(groups(ROWS))
    level = stats.f(2, found.freedom).isf(STANDS_OUT)
    edge = [found.std * math.sqrt(level) * value for value in (-1, 0, 1)]
    assert found.freedom == pytest.approx(8)
    assert stands_out([1.001 * value for value in edge], found) and not stands_out([*edge[:2], 0.0], found)
    assert not stands_out([0.999 * value for value in edge], found)


def test_bartletts_test_is_scipys():
    from respath.quantities.statistics import _bartlett

    rows = [[0.1, 0.3, 0.2, 0.5], [1.0, 1.4, 1.1], [-0.2, 0.1, 0.0, 0.3, 0.2]]
    variances, freedoms = [np.var(r, ddof=1) for r in rows], [len(r) - 1.0 for r in rows]
    found = _bartlett(np.array(variances), np.array(freedoms))
    assert found == pytest.approx(stats.bartlett(*rows).pvalue, rel=1e-10)


# --- the choice of text --------------------------------------------------------------------------------------------


def text(count, seed, spread=1.0, size=100):
    generator = np.random.default_rng(seed)
    sizes = np.full(count, float(size)) if size else generator.integers(20, 400, count).astype(float)
    ids = tuple(f"doc-{seed}-{k}" for k in range(count))
    return Documents(ids, sizes * generator.normal(0.02, spread, count), sizes)


@pytest.mark.parametrize("count", [4, 40])
def test_documents_of_equal_size_have_the_standard_error_of_their_mean(count):
    stratum = text(count, 3)
    found = text_error({"C4": stratum}, draws=20_000)
    assert found.stderr == pytest.approx(stats.sem(stratum.sums / stratum.sizes), rel=0.02)
    assert found.freedom == count - 1 and found.documents == {"C4": count}


def test_documents_of_unequal_size_have_the_error_of_a_ratio():
    # The linearised variance of a ratio estimator (Cochran 1977, 6.13).
    stratum = text(300, 5, size=None)
    ratio = stratum.sums.sum() / stratum.sizes.sum()
    residuals = stratum.sums - ratio * stratum.sizes
    linear = math.sqrt(residuals.var(ddof=1) / 300) / stratum.sizes.mean()
    assert text_error({"C4": stratum}, draws=20_000).stderr == pytest.approx(linear, rel=0.03)


def test_the_error_of_a_mean_over_domains_adds_up_from_their_documents():
    domains = {"C4": text(40, 1), "ArXiv": text(12, 2, spread=3.0), "Book": text(1, 4)}
    found = text_error(domains)
    parts = [text_error({name: domains[name]}).stderr ** 2 for name in ("C4", "ArXiv")]
    assert found.stderr == pytest.approx(math.sqrt(sum(parts)) / 3)
    assert found.freedom == pytest.approx(sum(parts) ** 2 / (parts[0] ** 2 / 39 + parts[1] ** 2 / 11))
    assert found.unknown == ("Book",) and text_error({"Book": domains["Book"]}) is None


def test_a_bootstrap_gives_the_same_number_again_whatever_order_documents_come_in():
    stratum = text(30, 7, size=None)
    order = np.random.default_rng(0).permutation(30)
    shuffled = Documents(tuple(stratum.ids[k] for k in order), stratum.sums[order], stratum.sizes[order])
    assert text_error({"a": stratum}).stderr == text_error({"a": shuffled}).stderr
    assert text_error({"a": stratum}).stderr != text_error({"a": text(30, 8, size=None)}).stderr


def test_the_error_from_the_text_widens_an_interval_and_stays_a_part_of_its_own():
    values = [0.1, 0.2, 0.4]
    error = text_error({"C4": text(40, 3)})
    both, seeds = t_interval(values, text=error), t_interval(values)
    assert both.stderr == pytest.approx(math.hypot(seeds.stderr, error.stderr))
    assert (both.seed_error, both.text_error) == (seeds.stderr, error.stderr) and seeds.text_error is None
    assert both.freedom == pytest.approx(both.stderr**4 / (seeds.stderr**4 / 2 + error.stderr**4 / 39))


def test_documents_are_paired_over_sides_and_averaged_over_the_seeds_that_both_have():
    left = {1: {"C4": {"a": (10.0, 4), "b": (3.0, 1)}}, 2: {"C4": {"a": (12.0, 4), "b": (3.0, 1)}}}
    right = {1: {"C4": {"a": (8.0, 4), "b": (4.0, 1)}}, 2: {"C4": {"a": (9.0, 4), "b": (2.0, 1)}}, 3: {}}
    found = paired_documents([(1, left), (-1, right)])["C4"]
    assert found.ids == ("a", "b") and list(found.sums) == [2.5, 0.0] and list(found.sizes) == [4, 1]
    assert list(paired_documents([(1, left)], factor=100.0)["C4"].sums) == [1100.0, 300.0]


def test_sides_that_were_scored_on_different_text_are_not_paired():
    left = {1: {"C4": {"a": (10.0, 4), "b": (3.0, 1)}}}
    for other in ({"a": (8.0, 4)}, {"a": (8.0, 4), "b": (3.0, 2)}, {"a": (8.0, 4), "c": (3.0, 1)}):
        with pytest.raises(ValueError, match="C4: the sides were scored on different documents"):
            paired_documents([(1, left), (-1, {1: {"C4": other}})])
