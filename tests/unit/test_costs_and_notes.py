"""What runs that have not ended would cost, and what a scale says of itself."""

from __future__ import annotations

import pytest

from respath.comparison.costs import duration, estimates
from respath.comparison.notes import scale_notes
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.results.reader import Results
from tests.golden.toy import run_id, toy, toy_project


def test_a_run_that_has_not_ended_costs_what_like_runs_took_per_token(tmp_path):
    project = toy_project("smoke")
    absent = run_id(project, "S", "odd")
    project, results = toy(tmp_path, "smoke", skip={absent})
    (one,) = estimates(project, results, needs.all_runs(project).values())
    assert one.run == absent and "of size S" in one.like
    # Equal tokens at equal speed: what the others recorded.
    assert one.seconds == pytest.approx(12.5)


def test_a_run_without_like_ones_is_estimated_from_flops(tmp_path):
    project = toy_project("smoke")
    absent = {run.id for run in needs.all_runs(project).values() if run.size == "L"}
    project, results = toy(tmp_path, "smoke", skip=absent)
    found = estimates(project, results, needs.all_runs(project).values())
    assert {one.run for one in found} == absent
    assert all("FLOPs" in one.like and one.seconds > 12.5 for one in found)


def test_without_a_finished_run_there_is_no_estimate(tmp_path):
    project = toy_project("smoke")
    assert estimates(project, Results(project, tmp_path), needs.all_runs(project).values()) == []


def test_durations_read_well():
    assert [duration(s) for s in (45, 600, 7200, 90_000, 864_000)] == [
        "45 s",
        "10 min",
        "2.0 h",
        "25 h",
        "10 days",
    ]


def test_a_scale_says_where_its_coefficients_learn_more_slowly_than_in_the_paper():
    (note,) = scale_notes(open_papers(find_root(), {"scale": "smoke"}), "resformer")
    assert "in 12 steps their rate would have to be 90.8 times" in note and "it is 10 times" in note
    mini = open_papers(find_root(), {"scale": "mini"})
    assert "move less" not in " ".join(scale_notes(mini, "resformer"))
    note, _ = scale_notes(mini, "bov")
    assert note.startswith("What so many seeds cannot show") and "  " not in note
