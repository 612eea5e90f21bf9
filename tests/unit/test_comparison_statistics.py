"""Means, intervals, smoothing and fits that comparisons rest on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from respath.comparison.curves import saving_at_equal_loss, smooth
from respath.comparison.statistics import jackknife_interval, mean, standard_error, t_interval


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


def test_an_effect_of_the_detectable_size_clears_zero_in_about_eight_of_ten_draws():
    # The formula treats the spread as known; with the spread estimated from 5 values the power is a little lower.
    rng = np.random.default_rng(0)
    n, sigma = 5, 1.0
    t = stats.t(n - 1)
    effect = (t.ppf(0.975) + t.ppf(0.80)) * sigma / math.sqrt(n)
    cleared = sum(t_interval(list(row)).low > 0 for row in rng.normal(effect, sigma, size=(2000, n)))
    assert 0.70 < cleared / 2000 < 0.88
    one = t_interval([0.0, 1.0, 2.0, 3.0, 4.0])
    assert one.detectable == pytest.approx((t.ppf(0.975) + t.ppf(0.80)) * one.stderr, rel=1e-12)


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


def test_smoothing_keeps_a_straight_line_inside_and_the_mean_of_what_there_is_at_the_ends():
    line = np.arange(10.0)
    assert smooth(line, 3)[1:-1] == pytest.approx(line[1:-1])
    assert smooth(line, 3)[0] == pytest.approx(0.5)
    assert smooth(line, 1) == pytest.approx(line)


def test_the_saving_on_the_losses_of_v1_is_near_what_v3_prints():
    # v1 Table 5: Transformer and Identity at 82M, 180M and 468M; v3's abstract prints 10.4 %.
    saving = saving_at_equal_loss([82e6, 180e6, 468e6], [2.7117, 2.4692, 2.2537], [2.7389, 2.5015, 2.2806])
    assert 100 * saving == pytest.approx(10.6, abs=0.05)


def test_a_worse_model_saves_a_negative_share():
    assert saving_at_equal_loss([1e6, 1e7, 1e8], [3.1, 2.6, 2.2], [3.0, 2.5, 2.1]) < 0


def test_there_is_no_saving_at_a_loss_that_the_fit_never_has():
    assert saving_at_equal_loss([1e6, 1e7, 1e8], [3.0, 2.5, 2.4], [3.0, 2.5, 0.1]) is None
