"""Smoothing and fits that comparisons rest on."""

import numpy as np
import pytest

from respath.quantities.curves import saving_at_equal_loss, smooth, tokens_saved


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


def test_tokens_are_saved_from_where_the_validation_loss_is_the_others_final_one():
    right = {"tokens": [100, 200], "loss": [4.0, 3.0]}
    assert tokens_saved({"tokens": [100, 200], "loss": [3.5, 2.5]}, right) == pytest.approx(0.25)  # at 150
    assert tokens_saved({"tokens": [100, 200], "loss": [3.0, 2.5]}, right) == pytest.approx(0.5)
    assert tokens_saved({"tokens": [100, 200], "loss": [2.0, 1.5]}, right) == pytest.approx(0.5)
    assert tokens_saved(right, right) == 0.0
    assert tokens_saved({"tokens": [100, 200], "loss": [4.0, 3.01]}, right) is None
