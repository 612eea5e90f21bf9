"""Seed noise, costs of what has not run, and what a scale says of itself."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import statistics

import pytest

from respath.comparison.cells import build_grid
from respath.comparison.costs import duration, estimates
from respath.comparison.diff import compare, markdown
from respath.comparison.noise import noise, pooled
from respath.comparison.notes import measured_text, scale_notes
from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.papers.scales import Measured
from respath.quantities.rounding import signed
from respath.quantities.statistics import t_interval
from respath.results.reader import Results, kept_results
from tests.golden.synthetic_results import write_results
from tests.golden.toy import LOSSES, run_id, toy, toy_loss, toy_project
from tests.golden.toy import ROOT as TOY


def found_in(project, results, name="table1"):
    return noise(project, [build_grid(project, results, project.artifact(f"toy_{name}"))])


def test_pooling_divides_by_the_degrees_of_freedom_of_all_groups():
    spread = pooled([[1.0, 3.0], [10.0, 10.0, 13.0], [5.0]])
    assert (spread.freedom, spread.groups) == (3, 2)
    assert spread.std == pytest.approx(math.sqrt((2 + 6) / 3))
    assert pooled([[1.0], []]) is None


def test_noise_is_that_of_the_baseline_of_all_models_and_of_paired_differences(tmp_path):
    entry, *others = found_in(*toy(tmp_path, "paper"))["metrics"]
    assert others == [] and (entry["metric"], entry["size"]) == ("loss.mean", "S")
    assert entry["baseline"]["std"] == pytest.approx(statistics.stdev(LOSSES["base"]))
    variances = [statistics.variance(values) for values in LOSSES.values()]
    assert entry["pooled"]["std"] == pytest.approx(math.sqrt(statistics.mean(variances)))
    assert (entry["pooled"]["freedom"], entry["pairs"]["freedom"]) == (6, 4)
    pairs = [[a - b for a, b in zip(LOSSES[v], LOSSES["base"], strict=True)] for v in ("mix", "odd")]
    assert entry["pairs"]["std"] == pytest.approx(math.sqrt(statistics.mean(map(statistics.variance, pairs))))
    wanted = t_interval(pairs[0])
    factor = wanted.detectable / (wanted.stderr * math.sqrt(3))
    assert entry["detectable"]["3"] == pytest.approx(factor * entry["pairs"]["std"])


def test_every_row_with_two_seeds_has_the_interval_of_its_paired_difference(tmp_path):
    rows = found_in(*toy(tmp_path, "paper"))["rows"]
    assert [row["row"] for row in rows] == ["mix", "odd"]
    expected = dataclasses.asdict(
        t_interval([a - b for a, b in zip(LOSSES["mix"], LOSSES["base"], strict=True)])
    )
    assert {key: rows[0][key] for key in expected} == pytest.approx(expected)


def test_one_seed_has_no_noise(tmp_path):
    project, results = toy(tmp_path, "smoke")
    assert found_in(project, results) == {"metrics": [], "rows": []}
    assert "Seed noise" not in markdown(compare(project, results))


# --- costs -----------------------------------------------------------------------------------------------------------


def test_a_run_that_has_not_ended_costs_what_like_runs_took_per_token(tmp_path):
    project = toy_project("smoke")
    absent = run_id(project, "S", "odd")
    project, results = toy(tmp_path, "smoke", skip={absent})
    (one,) = estimates(project, results, needs.all_runs(project).values())
    assert one.run == absent and "of size S" in one.like
    # Equal tokens at equal speed: what the others recorded.
    assert one.seconds == pytest.approx(12.5)
    text = markdown(compare(project, results))
    assert f"`{absent}` | 12 s" in text and "1 run has not been trained" in text


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


# --- notes -----------------------------------------------------------------------------------------------------------


def test_the_notes_of_a_scale_carry_its_own_numbers():
    project = open_papers(find_root(), {"scale": "mini"})
    notes = scale_notes(project, kept_results(project), "resformer")
    assert "10,000 steps" in notes[0] and "3.3" in notes[0] and "{" not in "".join(notes)
    other = open_papers(find_root(), {"scale": "paper"})
    assert scale_notes(other, kept_results(other), "resformer") == []


def test_a_scale_says_where_its_coefficients_learn_more_slowly_than_in_the_paper(tmp_path):
    project = open_papers(find_root(), {"scale": "smoke"})
    (note,) = scale_notes(project, Results(project, tmp_path), "resformer")
    assert "in 12 steps their rate would have to be 90.8 times" in note and "it is 10 times" in note
    mini = open_papers(find_root(), {"scale": "mini"})
    assert "move less" not in " ".join(scale_notes(mini, kept_results(mini), "resformer"))


def test_measured_numbers_of_a_note_are_read_from_the_results_and_nothing_stands_for_what_has_not_run(
    tmp_path,
):
    project = toy_project("paper")
    write_results(project, tmp_path, loss_of=toy_loss, skip={run_id(project, "S", "mix", 3)})
    results = Results(project, tmp_path)
    alone = Measured(metric="loss.mean", run={"size": "S", "variant": "base"})
    less = Measured(metric="loss.mean", run={"size": "S", "variant": "mix"}, minus={"variant": "base"})
    early = less.model_copy(update={"metric": "curve.early"})
    base, mix = LOSSES["base"], LOSSES["mix"]
    differences = [round(m, 4) - round(b, 4) for m, b in zip(mix[:2], base[:2], strict=True)]
    error = abs(differences[0] - differences[1]) / 2
    assert measured_text(project, results, "toy", alone) == "3 ± 0.0017 (3 seeds)"
    assert measured_text(project, results, "toy", less) == (
        f"{signed(sum(differences) / 2)} ± {error:.2g} (2 seeds)"
    )
    assert re.fullmatch(r"[+−][\d.]+ ± [\d.e-]+ \(2 seeds\)", measured_text(project, results, "toy", early))
    assert measured_text(project, Results(project, tmp_path / "none"), "toy", less) == "(not run)"


def test_an_unknown_quantity_in_a_note_is_one_line(tmp_path):
    shutil.copytree(TOY, tmp_path / "project")
    scale = tmp_path / "project/papers/toy/scales/smoke.yaml"
    scale.write_text(scale.read_text() + "notes: ['{summed} steps']\n")
    project = open_papers(tmp_path / "project", {"papers": ["toy"], "scale": "smoke"})
    with pytest.raises(UserError, match=r"papers/toy/scales/smoke.yaml: notes: \{summed\} is no quantity"):
        scale_notes(project, Results(project, tmp_path), "toy")
