"""Figures of panels: what is drawn are the results, what is missing is said, every figure of the paper can be made."""

import csv
import dataclasses
import io
import itertools
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import ttest_1samp

from respath.accounting import account as account_of
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.figures import Panels
from respath.papers.library import Artifact, find_root
from respath.quantities.curves import critical_point, smoothing_steps
from respath.quantities.keeping import position_bins
from respath.quantities.quantity import Quantity
from respath.quantities.rounding import short_count
from respath.reporting.figure import main, render, said, scale_line
from respath.reporting.looks import PAGE, style
from respath.reporting.panels.axes import colours_of, groups_of_heat, log_bar, log_ticks, values_of
from respath.reporting.panels.build import READERS, shown
from respath.reporting.panels.data import Drawn, Grid, Line, Mark
from respath.reporting.panels.drawing import draw
from respath.reporting.panels.training import exponential
from respath.results.reader import Results
from tests.golden.synthetic_analyses import write_analyses, write_analysis
from tests.golden.synthetic_results import noise, write_json, write_results
from tests.golden.toy import LOSSES, ROOT, account, run_id, toy, toy_loss, toy_project

LOSS = {"label": "loss"}


def saving(results, paper, variant, baseline, sizes):
    """Per cent of parameters saved at equal loss, by seed."""
    sides = (RunRequest(variant=name) for name in (variant, baseline))
    along = tuple(RunRequest(size=size) for size in sizes)
    return results.sample(paper, Quantity("scaling.parameter_saving", *sides, along=along)).numbers


def figure(*panels, **fields):
    """A figure of the toy that is not in its file."""
    panels = [{"title": "A panel", **panel} for panel in panels]
    document = {
        "kind": "panels",
        "title": "T",
        "section": "1",
        "run": {"size": "S"},
        "panels": panels,
        **fields,
    }
    return Artifact("toy", "made", Panels.model_validate_json(json.dumps(document)))


def of(variant, **more):
    return {"variant": variant, **more}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Project, results with analyses, and analyses by run id: three seeds at the toy's own scale."""
    folder = tmp_path_factory.mktemp("panels")
    project, results = toy(folder, "paper")
    documents = {
        run.id: write_analysis(folder, run)
        for variant in ("base", "mix")
        for run in project.runs("toy", RunRequest(size="S", variant=variant))
    }
    return project, results, documents


def panel(made, **fields):
    """The only panel of a figure, as it is shown."""
    return shown(made[0], made[1], figure(fields)).panels[0]


def values(variant):
    return [round(loss, 4) for loss in LOSSES[variant]]


# --- a metric of runs ------------------------------------------------------------------------------------------------


SWEEP = {
    "kind": "sweep",
    "x": {"label": "x", "scale": "log"},
    "lines": [{"label": "One", "points": [{"x": 2, "run": of("mix")}, {"x": 1, "run": of("odd")}]}],
    "reference": of("base"),
    "printed": {"reported": ["table1"]},
}


def interval(differences):
    """The t interval of a mean, from scipy."""
    return ttest_1samp(differences, 0.0).confidence_interval(0.95)


def test_a_sweep_draws_paired_differences_with_their_interval_from_left_to_right(made):
    drawn = panel(made, **SWEEP)
    (line,) = drawn.of("ours")
    assert drawn.differences and drawn.against == "Base" and [mark.x for mark in line.marks] == [1, 2]
    base, odd, mix = (values(name) for name in ("base", "odd", "mix"))
    assert [mark.value for mark in line.marks] == pytest.approx([np.mean(odd), np.mean(mix)])
    differences = np.array(mix) - np.array(base)
    found = line.marks[1].difference
    assert found.value == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx(tuple(interval(differences)))
    assert found.by_seed == pytest.approx(differences) and line.marks[1].seeds == (1, 2, 3)


def test_a_line_of_another_metric_stands_beside_the_panels_and_has_its_unit(made):
    points = [{"x": 1, "run": of("mix")}]
    lines = [
        {"label": "Total", "points": points},
        {"label": "Backbone", "metric": "account.parameters.backbone", "points": points},
    ]
    fields = {"metric": "account.parameters.total", "lines": lines, "reference": None, "printed": None}
    total, backbone = (line.marks[0].value for line in panel(made, **SWEEP | fields).of("ours"))
    assert total == account(made[1], "S", "mix") and 0 < backbone < total
    lines[1]["metric"] = "account.kv_cache.bytes"
    with pytest.raises(ValueError, match="has another unit than the panel's"):
        figure(SWEEP | fields)


def test_rows_have_the_verdict_on_the_printed_side_and_one_seed_has_none(made, tmp_path):
    bars = [{"label": name, "run": of(name)} for name in ("mix", "odd")]
    fields = {
        "kind": "bars",
        "x": LOSS,
        "bars": bars,
        "reference": of("base"),
        "printed": {"reported": ["table1"]},
    }
    mix, odd = panel(made, **fields).of("ours")
    # The paper prints 2.95 and 3.1 beside 3.0.
    assert (mix.marks[0].verdict, odd.marks[0].verdict) == ("supported", "contradicted")
    project, results = toy(tmp_path, "smoke")
    (one, _) = shown(project, results, figure(fields)).panels[0].of("ours")
    assert one.marks[0].verdict == "too few runs" and one.marks[0].difference.low is None


def test_lines_without_a_reference_are_compared_with_the_baselines_at_the_same_place(made):
    points = [{"x": x, "run": {"size": size}} for x, size in ((1, "S"), (2, "M"))]
    lines = [{"run": of(name), "points": points} for name in ("base", "mix")]
    drawn = panel(made, kind="sweep", x=LOSS, lines=lines)
    base, mix = drawn.of("ours")
    assert not drawn.differences and drawn.against == "Base"
    assert all(mark.difference is None for mark in base.marks)
    assert [mark.difference.value for mark in mix.marks] == pytest.approx(
        [np.mean(values("mix")) - np.mean(values("base"))] * 2
    )


def test_places_come_from_the_papers_shapes_and_intervals_from_the_run_of_the_same_shape(made):
    fields = {"at": "account.parameters.total", "reference": None, "baseline": of("base"), "printed": None}
    points = [{"run": of("mix")}, {"run": of("base")}]
    drawn = panel(made, **SWEEP | fields | {"lines": [{"label": "One", "points": points}]})
    counted = {account(made[1], "S", variant) for variant in ("base", "mix")}
    base, mix = sorted(drawn.of("ours")[0].marks, key=lambda mark: -mark.value)
    assert {base.x, mix.x} == counted
    assert mix.difference.value == pytest.approx(np.mean(values("mix")) - np.mean(values("base")))
    assert base.difference is None and drawn.against == "Base"


def test_a_run_that_diverged_is_a_mark_without_a_height_at_its_place(tmp_path):
    diverged = {run_id(toy_project("paper"), "S", "mix", seed) for seed in (1, 2)}
    project, results = toy(tmp_path, "paper", diverged=diverged)
    content = shown(project, results, figure(SWEEP | {"reference": None, "printed": None}))
    marks = content.panels[0].of("ours")[0].marks
    assert [(mark.x, mark.diverged) for mark in marks if mark.value is None] == [(2, 2)]
    row = next(row for row in csv.DictReader(io.StringIO(content.csv_text())) if row["note"])
    assert (float(row["x"]), row["value"], row["note"]) == (2, "", "2 of 3 seeds diverged")
    with style():
        axes = draw(content, figure(SWEEP).definition).axes[0]
    assert [text.xy for text in axes.texts if text.get_text() == "×"] == [(2, 1)]
    rows = {"kind": "bars", "x": LOSS, "bars": [{"label": "m", "run": of("mix")}], "reference": of("base")}
    text = said(project, figure(rows), shown(project, results, figure(rows)))["caption"]
    assert text["finding"] == "M diverged." and "×: diverged." in text["marks"]


def test_printed_differences_stand_beside_ours(made):
    (printed,) = panel(made, **SWEEP).of("printed")
    assert [(mark.x, mark.value) for mark in printed.marks] == [(1, 3.1), (2, 2.95)]
    assert [mark.difference.value for mark in printed.marks] == pytest.approx([0.1, -0.05])


def test_another_recipe_has_no_printed_value(made):
    lines = [{"points": [{"x": 1, "run": of("mix", recipe={"peak_lr": 1e-3})}]}]
    drawn = panel(made, **(SWEEP | {"lines": lines}))
    assert drawn.of("printed") == [] and drawn.is_empty


def test_bars_stand_at_their_places_in_order(made):
    bars = [{"label": "first", "group": "g", "run": of("mix")}, {"label": "second", "run": of("base")}]
    drawn = panel(made, kind="bars", x={"label": "x"}, bars=bars, reference=of("base"))
    rows = [(line.label, line.group, line.marks[0].x) for line in drawn.of("ours")]
    assert rows == [("first", "g", 0), ("second", "", 1)]
    # The reference itself has no difference.
    assert drawn.of("ours")[1].marks[0].difference is None and drawn.form == "dots"


def test_only_what_has_a_zero_is_drawn_as_bars(made):
    bars = [{"label": name, "run": of(name)} for name in ("base", "odd")]
    forms = {
        metric: panel(made, kind="bars", metric=metric, x=LOSS, bars=bars).form
        for metric in ("account.kv_cache.bytes", "loss.mean")
    }
    assert forms == {"account.kv_cache.bytes": "bars", "loss.mean": "dots"}


# --- analyses --------------------------------------------------------------------------------------------------------


def series(documents, project, variant, module, name):
    runs = project.runs("toy", RunRequest(size="S", variant=variant))
    return [documents[run.id]["modules"][module]["series"][name] for run in runs]


def test_layers_are_means_over_seeds_and_layers_without_a_value_are_left_out(made):
    project, _, documents = made
    lines = [{"run": of("mix")}, {"run": of("base"), "series": "pca.components"}]
    drawn = panel(made, kind="layers", series="coefficients.ratio", y=LOSS, lines=lines)
    ratio, components = drawn.of("ours")
    found = series(documents, project, "mix", "coefficients", "ratio")
    assert found[0][0] is None and [mark.x for mark in ratio.measured] == [2, 3, 4]
    assert [mark.value for mark in ratio.measured] == pytest.approx(
        np.mean([row[1:] for row in found], axis=0)
    )
    assert len(components.marks) == 5 and components.marks[0].x == 1


def test_series_that_begin_with_the_embedding_count_from_zero(made):
    drawn = panel(made, kind="layers", series="pca.components", first=0, y=LOSS, lines=[{"run": of("base")}])
    assert [mark.x for mark in drawn.of("ours")[0].marks] == [0, 1, 2, 3, 4]


def test_the_uniform_line_is_what_the_analyses_recorded(made):
    lines = [{"run": of("base")}, {"run": of("mix")}]
    drawn = panel(made, kind="layers", series="importance.entropy", y=LOSS, lines=lines, uniform="entropy")
    (line,) = drawn.of("reference")
    shares = [sum(1 / t for t in range(s, 129)) / 128 for s in range(1, 129)]
    assert line.marks[0].value == pytest.approx(-sum(share * math.log(share) for share in shares))


def test_a_matrix_is_the_mean_over_seeds_and_keeps_its_holes(made):
    project, _, documents = made
    drawn = panel(
        made, kind="matrix", series="coefficients.matrix", run=of("mix"), x=LOSS, y=LOSS, value={"label": "v"}
    )
    found = series(documents, project, "mix", "coefficients", "matrix")
    assert drawn.grid.values[1][0] == pytest.approx(np.mean([rows[1][0] for rows in found]))
    assert drawn.grid.values[0][1] is None and drawn.grid.seeds == 3
    assert drawn.grid.x_edges == drawn.grid.y_edges == (0.5, 1.5, 2.5, 3.5, 4.5)


def test_positions_are_averaged_in_bins_that_begin_with_single_positions(made):
    project, results, _ = made
    drawn = panel(
        made, kind="positions", array="importance.token_importance", run=of("base"), value={"label": "v"}
    )
    runs = project.runs("toy", RunRequest(size="S", variant="base"))
    whole = np.mean(
        [results.store.array("analysis", "importance.token_importance", {"run": run.id}) for run in runs],
        axis=0,
    )
    grid = drawn.grid
    assert grid.x_edges[:3] == (1, 2, 3) and grid.x_edges[-1] == 129
    assert grid.values[2][0] == pytest.approx(whole[2, 0], rel=1e-3)
    widths = np.diff(grid.x_edges)
    assert (np.array(grid.values) * widths).sum(axis=1) == pytest.approx(whole.sum(axis=1), rel=1e-3)


@pytest.mark.parametrize("positions", [2, 17, 128, 2048])
def test_bins_of_positions_cover_all_of_them_once(positions):
    borders = position_bins(positions)
    assert borders[0] == 0 and borders[-1] == positions
    assert all(b > a for a, b in itertools.pairwise(borders))


def test_ranks_beyond_the_matrix_are_left_out(made):
    project, _, documents = made
    drawn = panel(made, kind="ranks", series="importance.top", ranks=[1, 3, 99], run=of("mix"), y=LOSS)
    first, third = drawn.of("ours")
    found = series(documents, project, "mix", "importance", "top")
    assert first.label == "top 1" and third.marks[1].value == pytest.approx(
        np.mean([rows[1][2] for rows in found])
    )


# --- training curves -------------------------------------------------------------------------------------------------


def test_a_baseline_has_no_line_of_differences_from_itself(made):
    drawn = panel(made, kind="difference", y=LOSS, lines=[{"run": of("base")}], baseline=of("base"))
    assert drawn.lines == () and drawn.is_empty


def test_differences_are_paired_over_seeds(made):
    project, results, _ = made
    drawn = panel(made, kind="difference", y=LOSS, lines=[{"run": of("mix")}], baseline=of("base"))
    last = drawn.of("ours")[0].marks[-1]
    curves = [
        [
            results.train(run.id)["curve"]["loss"]
            for run in project.runs("toy", RunRequest(size="S", variant=v))
        ]
        for v in ("mix", "base")
    ]
    # The last mark averages the steps that a window of five still has.
    differences = [
        np.mean(np.array(mix[-3:]) - np.array(base[-3:])) for mix, base in zip(*curves, strict=True)
    ]
    assert last.seeds == (1, 2, 3) and last.value == pytest.approx(np.mean(differences))
    assert (last.difference.low, last.difference.high) == pytest.approx(tuple(interval(differences)))


def test_a_critical_point_is_observed_prolonged_or_not_in_sight():
    steps = list(range(1, 101))
    behind_until_40 = [-1.0] * 40 + [1.0] * 60
    assert critical_point(steps, behind_until_40, 100).step == 41
    assert critical_point(steps, [1.0] * 100, 100).step == 1
    rising = [-2.0 + 0.01 * step for step in steps]
    prolonged = critical_point(steps, rising, 100)
    assert not prolonged.observed and prolonged.step == pytest.approx(200)
    assert critical_point(steps, [-1.0] * 100, 100) is None
    assert critical_point([], [], 100) is None


def test_the_smoothing_window_is_the_papers_or_a_twentieth_of_a_short_training():
    assert [smoothing_steps(steps) for steps in (10_000, 1_000, 40, 5)] == [100, 50, 2, 1]


def test_an_exponential_is_fitted_to_observed_points_only():
    marks = [Mark(t, 50 * math.exp(0.001 * t)) for t in (512.0, 2048.0, 4096.0)]
    line = Line("sv", "SV", 1, (*marks, Mark(8192.0, 1e6, note="extrapolated")))
    (fit,) = exponential(line)
    assert fit.marks[-1].x == 8192 and fit.marks[-1].value == pytest.approx(50 * math.exp(8.192))
    assert exponential(Line("sv", "SV", 1, tuple(marks[:2]))) == []


def test_crossings_that_are_not_in_sight_are_said(made):
    crossing = {"kind": "crossing", "run": of("base"), "contexts": [128], "baseline": of("base")}
    drawn = shown(made[0], made[1], figure(crossing))
    # Never ahead and never behind: a difference of zero is no crossing.
    assert drawn.panels[0].is_empty and drawn.panels[0].empty == "no crossing observed or in sight"
    assert drawn.notes == ("No crossing within the run or in sight of its end at length 128.",)


def test_losses_against_tokens_are_smoothed_and_end_with_the_training(made):
    tokens = {"kind": "tokens", "variants": ["base", "mix"], "baseline": "base", "saving": ["mix"]}
    drawn = panel(made, **tokens)
    base, _ = drawn.of("ours")
    assert len(base.marks) == 100 and base.marks[-1].x == 100 * 8 * 1024


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_losses_stand_at_all_parameters_and_a_saving_without_an_interval_is_in_the_csv_alone(made):
    project, results, _ = made
    drawn = shown(project, results, project.artifact("toy_fig2")).panel("A")
    base = next(line for line in drawn.of("ours") if line.id == "base")
    counts = [account(results, size, "base") for size in "SML"]
    assert [mark.x for mark in base.marks] == counts
    saved = list(saving(results, "toy", "mix", "base", "SML").values())
    (shown_saving,) = drawn.savings
    # A quadratic goes through three sizes, and through no two of them.
    assert shown_saving.value == pytest.approx(np.mean(saved)) and shown_saving.seeds == 3
    assert shown_saving.interval is None and not shown_saving.given and drawn.sentences == ()
    content = shown(project, results, project.artifact("toy_fig2"))
    assert "No saving of Mix: an interval needs four sizes." in content.notes
    rows = [row for row in csv.DictReader(io.StringIO(content.csv_text())) if row["role"] == "saving"]
    assert float(rows[0]["value"]) == shown_saving.value and rows[0]["note"] == "an interval needs four sizes"
    assert not any(line.id.endswith(".equal-loss") for line in drawn.of("fit"))


@pytest.fixture(scope="module")
def four_sizes(tmp_path_factory):
    """Figures 2 and 11 of the paper at mini with made-up losses: Plus saves, at one seed of all sizes but the first."""
    folder = tmp_path_factory.mktemp("sizes")
    project = open_papers(find_root(), {"papers": ["resformer"], "scale": "mini"})
    wanted = {run.id for name in ("fig2", "fig11") for run in trained(project, name)}

    def loss(run):
        size = run.spec.model.layers * run.spec.model.width**2
        better = {"transformer": 0.0, "svformer": -0.05}.get(run.variant, 0.08)
        return 6.0 - 0.2 * math.log(size) - better + 0.01 * noise(run.size, run.variant)

    write_results(project, folder, loss_of=loss, skip=set(needs.all_runs(project)) - wanted)
    return project, Results(project, folder)


def test_a_saving_is_told_with_a_jackknife_over_sizes_that_holds_it(four_sizes):
    project, results = four_sizes
    drawn = shown(project, results, project.artifact("resformer_fig2")).panel("A")
    plus = drawn.savings[0]
    sizes = drawn.definition.sizes
    left_out = ([size for size in sizes if size != other] for other in sizes)
    without = [saving(results, "resformer", "plus", "transformer", some)[1] for some in left_out]
    assert plus.value == saving(results, "resformer", "plus", "transformer", sizes)[1]
    error = math.sqrt(3 / 4 * sum((value - np.mean(without)) ** 2 for value in without))
    assert plus.interval.stderr == pytest.approx(error)
    assert plus.interval.high - plus.value == pytest.approx(3.182446 * error, rel=1e-6)
    low, high = (f"{end:.1f}".replace("-", "−") for end in (plus.interval.low, plus.interval.high))
    start = f"Fewer parameters at equal loss: Plus {plus.value:.1f} % [{low}, {high}]; "
    assert drawn.sentences[0].startswith(start) and drawn.sentences[0].endswith("; printed 16.11 %.")
    caption = said(
        project,
        project.artifact("resformer_fig2"),
        shown(project, results, project.artifact("resformer_fig2")),
    )
    assert start in caption["caption"]["finding"]
    assert any(line.id == "plus.equal-loss" for line in drawn.of("fit"))


def test_more_parameters_are_told_as_more(four_sizes):
    project, results = four_sizes
    (panel,) = shown(project, results, project.artifact("resformer_fig11")).panels
    (saving,) = panel.savings
    (text,) = panel.sentences
    assert saving.value < 0
    assert text.startswith(f"More parameters at equal loss: SVFormer {-saving.value:.1f} % [")
    assert text.endswith("; printed 12.2 %.")


def test_tokens_saved_by_one_seed_are_not_given(tmp_path):
    project, results = toy(tmp_path)
    content = shown(project, results, project.artifact("toy_fig2"))
    drawn = content.panel("B")
    assert drawn.sentences == () and drawn.savings[0].value is not None
    assert "No saving of Mix: one seed has no interval." in content.notes


def test_tokens_saved_by_several_seeds_have_a_t_interval(made):
    tokens = {"kind": "tokens", "variants": ["base", "mix"], "baseline": "base", "saving": ["mix"]}
    drawn = panel(made, **tokens)
    (saving,) = drawn.savings
    assert saving.seeds == 3 and saving.interval.low <= saving.value <= saving.interval.high
    assert drawn.sentences[0].startswith(f"Fewer tokens at equal loss: Mix {saving.value:.1f} % [")


def test_smoke_gives_no_saving_and_no_verdict_and_fits_no_exponential(smoke):
    project, results = smoke
    content = shown(project, results, project.artifact("resformer_fig2"))
    assert [panel.sentences for panel in content.panels] == [
        ("Fewer parameters at equal loss: printed 16.11 %.",),
        ("Fewer tokens at equal loss: printed 20.3 %.",),
    ]
    assert (
        "No saving of Plus, Learnable, Identity: scale smoke only shows that everything runs."
        in content.notes
    )
    rows = [
        line.marks[0]
        for line in shown(project, results, project.artifact("resformer_fig5")).panel("A").of("ours")
    ]
    assert {mark.verdict for mark in rows} == {"", "not judged at this scale"}
    assert [saving.given for panel in content.panels for saving in panel.savings] == [False] * 6
    assert not any(line.id.endswith(".equal-loss") for line in content.panels[0].of("fit"))


def test_sizes_that_hardly_differ_have_one_tick_and_stay_together():
    with style():
        axes = Figure(figsize=(6, 3)).add_subplot()
        log_ticks(axes, [541_696.0, 541_710.0, 542_500.0], short_count)
    assert len(axes.get_xticks()) == 1 and axes.get_xlim()[1] / axes.get_xlim()[0] > 2


def test_a_line_whose_neighbours_are_missing_keeps_its_name(made):
    project, results, _ = made
    lines = [{"run": of("base")}, {"run": of("odd")}]
    artifact = figure({"kind": "layers", "series": "pca.components", "y": LOSS, "lines": lines})
    drawn = shown(project, results, artifact).panels[0]
    assert [line.label for line in drawn.of("ours") if line.measured] == ["Base"]
    with style():
        texts = [
            text.get_text()
            for text in draw(shown(project, results, artifact), artifact.definition).axes[0].texts
        ]
    assert texts == ["Base"]


def test_a_difference_keeps_zero_in_sight(made):
    project, results, _ = made
    artifact = figure(
        {"kind": "difference", "y": LOSS, "lines": [{"run": of("mix")}], "baseline": of("base")}
    )
    with style():
        drawn = draw(shown(project, results, artifact), artifact.definition)
    low, high = drawn.axes[0].get_ylim()
    assert low < 0 < high


def test_printed_differences_are_open_diamonds_in_sight(made):
    project, results, _ = made
    points = [{"x": x, "run": of(v)} for x, v in ((0.1, "mix"), (1, "odd"), (50, "base"))]
    artifact = figure(SWEEP | {"lines": [{"label": "One", "points": points}]})
    with style():
        (axes,) = draw(shown(project, results, artifact), artifact.definition).axes
    (diamonds,) = [
        line for line in axes.get_lines() if line.get_marker() == "D" and line.get_markerfacecolor() == PAGE
    ]
    assert diamonds.get_ydata() == pytest.approx([-0.05, 0.1])
    assert axes.get_ylim()[0] < -0.05 and axes.get_ylim()[1] > 0.1 and axes.get_xlim()[0] < 0.1


def test_no_line_crosses_what_was_not_measured_or_joins_other_seeds(tmp_path):
    project = toy_project("paper")
    fewer = {run_id(project, "L", variant, 3) for variant in ("base", "mix")}
    none = {run_id(project, "M", "mix", seed) for seed in (1, 2, 3)}
    project, results = toy(tmp_path, "paper", skip=fewer | none)
    points = [{"x": x, "run": {"size": size}} for x, size in ((1, "S"), (2, "M"), (3, "L"))]
    lines = [{"label": name, "run": of(name), "points": points} for name in ("base", "mix")]
    artifact = figure({"kind": "sweep", "x": LOSS, "lines": lines})
    with style():
        (axes,) = draw(shown(project, results, artifact), artifact.definition).axes
    drawn = [
        line for line in axes.get_lines() if line.get_linestyle() != "None" and len(line.get_xdata()) > 2
    ]
    joined = [
        sum(np.isfinite(line.get_ydata()[[k, k + 1]]).all() for k in range(len(line.get_xdata()) - 1))
        for line in drawn[:2]
    ]
    assert joined == [1, 0]
    # M lacks all seeds of mix; L has two seeds of both, where S has three.
    mix = shown(project, results, artifact).panels[0].of("ours")[1]
    assert [mark.seeds for mark in mix.marks] == [(1, 2, 3), (), (1, 2)]


def test_one_seed_is_open_and_a_bar_that_leaves_the_axis_ends_in_an_arrow(made, tmp_path):
    project, results, _ = made
    rows = {"kind": "bars", "x": LOSS, "reference": of("base"), "printed": {"reported": ["table1"]}}
    rows["bars"] = [{"label": name, "run": of(name)} for name in ("mix", "odd")]

    def faces(project, results):
        with style():
            (axes,) = draw(shown(project, results, figure(rows)), figure(rows).definition).axes
        marks = [
            line for line in axes.get_lines() if line.get_marker() in "os" and len(line.get_xdata()) == 1
        ]
        return [line.get_markerfacecolor() != PAGE for line in marks], axes

    assert faces(project, results)[0] == [True, True]
    alone, axes = faces(*toy(tmp_path, "smoke"))
    assert alone == [False, False] and not any(line.get_marker() in "<>" for line in axes.get_lines())
    # Two seeds that lie apart have an interval twelve times as long as their standard error.
    wild = {"mix": {1: 2.95, 2: 2.8}}
    third = {run_id(toy_project("paper"), "S", "mix", 3)}
    project, results = toy(
        tmp_path / "wild",
        "paper",
        loss_of=lambda run: wild.get(run.variant, {}).get(run.seed, toy_loss(run)),
        skip=third,
    )
    _, axes = faces(project, results)
    assert [line.get_marker() for line in axes.get_lines() if line.get_marker() in "<>"] == ["<", ">"]


def test_more_models_than_colours_get_axes_of_their_own(made):
    project, results, _ = made
    points = [{"x": 1, "run": {"size": "S"}}, {"x": 2, "run": {"size": "M"}}]
    lines = [{"label": f"line {k}", "run": of("mix" if k else "base"), "points": points} for k in range(8)]
    fields = {"kind": "sweep", "x": LOSS, "baseline": of("base"), "lines": lines}
    content = shown(project, results, figure(fields))
    content = dataclasses.replace(content, panels=(dataclasses.replace(content.panels[0], differences=True),))
    with style():
        made_figure = draw(content, figure(fields).definition)
    assert [axes.get_title(loc="left") for axes in made_figure.axes] == [f"line {k}" for k in range(1, 8)]
    limits = {axes.get_ylim() for axes in made_figure.axes}
    assert len(limits) == 1 and not any(axes.texts for axes in made_figure.axes)


def test_a_heat_map_with_both_signs_is_white_at_zero_and_one_about_a_start_there(made):
    grid = Grid("m", "M", ((-1.0, 0.5), (2.0, 1.0)), (0.5, 1.5, 2.5), (0.5, 1.5, 2.5))
    fields = {"kind": "matrix", "series": "coefficients.matrix", "x": LOSS, "y": LOSS, "value": LOSS}
    for about, white in ((None, 0.0), (1.0, 1.0)):
        definition = figure(fields | {"about": about}).definition.panels[0]
        norm, colours = colours_of([Drawn("A", definition, grid=grid)])
        assert colours(norm(white))[:3] == pytest.approx((1, 1, 1), abs=0.01)
        assert norm.vmax - white == white - norm.vmin
    whole = Grid("m", "M", ((1.0, 0.5), (0.5, 1.0)), (0.5, 1.5, 2.5), (0.5, 1.5, 2.5))
    lower = values_of(Drawn("A", figure(fields).definition.panels[0], grid=whole))
    assert np.isnan(lower[0, 1]) and np.isfinite(lower[1]).all()


def test_the_history_of_validation_is_drawn_as_it_is_and_floors_where_the_scale_has_them(made, tmp_path):
    project, results, _ = made
    floors = [{"label": "Trigram", "only": {"scales": ["paper"], "because": "small"}}]
    fields = {"kind": "tokens", "metric": "train.validation", "variants": ["base"], "baseline": "base"}
    drawn = panel(made, **fields)
    run = project.runs("toy", RunRequest(size="S", variant="base"))[0]
    history = results.train(run.id)["validation"]
    base = drawn.of("ours")[0]
    assert [mark.x for mark in base.marks] == history["tokens"]
    assert not drawn.of("reference")
    artifact = figure(fields | {"floors": floors})
    assert any("ngrams.json" in path for path in needs.of_artifact(project, artifact).files)
    elsewhere = Artifact("toy", "other", artifact.definition)
    assert not any("ngrams" in path for path in needs.of_artifact(toy_project("mini"), elsewhere).files)
    for one in project.runs("toy", RunRequest(size="S", variant="base")):
        entry = {"domains": {}, "mean_loss": 3.3, "mean_bits_per_byte": 1.0}
        document = {
            "schema": 1,
            "kind": "ngrams",
            "run": one.id,
            "status": "done",
            "orders": {"trigram": entry},
        }
        write_json(tmp_path / "evals" / one.id / "ngrams.json", document)
    write_results(project, tmp_path, loss_of=toy_loss)
    (floor,) = shown(project, Results(project, tmp_path), artifact).panels[0].of("reference")
    assert (floor.label, floor.marks[0].value) == ("Trigram", pytest.approx(3.3))


def test_an_axis_names_what_was_measured_beside_the_papers_size(four_sizes):
    project, results = four_sizes
    drawn = shown(project, results, project.artifact("resformer_fig2"))
    first = drawn.panel("A").of("ours")[0].marks[0]
    count = project.paper("resformer").model("82M", "transformer")
    assert first.tick == f"{short_count(account_of(count).parameters.total)}\nfor 82M"
    assert re.fullmatch(r"Validation loss on the way, [\d.]+M \(for 468M\)", drawn.panel("B").title)


@pytest.mark.parametrize(("low", "high"), [(2.0, 5.0), (1.5, 90.0), (3e-4, 4e-2), (1e-6, 1.0)])
def test_a_logarithmic_colour_bar_has_a_handful_of_ticks(low, high):
    with style():
        axes = Figure().add_subplot()
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        log_bar(axes.xaxis, low, high)
    ticks = [tick for tick in axes.xaxis.get_majorticklocs() if low <= tick <= high]
    assert 2 <= len(ticks) <= 7 and len(axes.xaxis.get_minorticklocs()) == 0


def test_the_fit_lies_near_four_sizes_and_the_arrow_ends_at_the_baseline(four_sizes):
    project, results = four_sizes
    drawn = shown(project, results, project.artifact("resformer_fig2")).panel("A")
    fits = {line.id: line for line in drawn.of("fit")}
    mix = next(line for line in drawn.of("ours") if line.id == "plus")
    assert [fits["plus.fit"].marks[k].value for k in (0, -1)] == pytest.approx(
        [mix.marks[k].value for k in (0, -1)], abs=0.01
    )
    base = next(line for line in drawn.of("ours") if line.id == "transformer")
    arrow = fits["plus.equal-loss"].marks
    assert arrow[1] == Mark(base.marks[-1].x, base.marks[-1].value)
    assert arrow[0].x < arrow[1].x and arrow[0].value == arrow[1].value


def test_printed_losses_stand_at_the_papers_own_sizes_where_levels_are_drawn(tmp_path):
    project, results = toy(tmp_path, "paper")
    drawn = shown(project, results, project.artifact("toy_fig2")).panel("A")
    printed = next(line for line in drawn.of("printed") if line.id == "base")
    sizes = [account(results, size, "base") for size in "SM"]
    assert [(mark.x, mark.value) for mark in printed.marks] == list(zip(sizes, [3.0, 2.8], strict=True))


@pytest.mark.parametrize(
    ("target", "said"), [("resformer_fig2", 1), ("resformer_fig11", 1), ("resformer_fig4", 0)]
)
def test_a_size_whose_shape_the_paper_does_not_print_is_marked_in_the_foot(four_sizes, target, said):
    project, results = four_sizes
    notes = shown(project, results, project.artifact(target)).notes
    assert sum("shape of 320M is inferred" in note for note in notes) == said
    assert not any(f"shape of {size}" in note for size in ("82M", "180M", "468M") for note in notes)


# --- what is missing -------------------------------------------------------------------------------------------------


def test_missing_and_diverged_runs_are_named_with_their_panel(tmp_path):
    project = toy_project("paper")
    project, results = toy(
        tmp_path,
        "paper",
        skip={run_id(project, "S", "mix", 2)},
        diverged={run_id(project, "S", "odd", seed) for seed in (1, 2, 3)},
    )
    bars = [{"label": v, "run": of(v)} for v in ("mix", "odd")]
    layers = {"kind": "layers", "series": "pca.components", "y": LOSS, "lines": [{"run": of("base")}]}
    drawn = shown(project, results, figure({"kind": "bars", "x": LOSS, "bars": bars}, layers))
    assert drawn.panels[0].of("ours")[0].marks[0].seeds == (1, 3)
    assert drawn.notes == (
        "Missing: a: mix seed 2 (not trained); odd (diverged). b: Base (trained, not analysed).",
        "Panel left out: b (no analysed run).",
    )


def test_panels_that_lack_the_same_are_named_together(tmp_path):
    lines = [{"run": of("base")}]
    panels = [
        {"kind": "layers", "series": f"norms.{name}_first", "y": LOSS, "lines": lines}
        for name in ("value", "hidden")
    ]
    drawn = shown(toy_project(), Results(toy_project(), tmp_path), figure(*panels))
    assert drawn.notes[0] == "Missing: a, b: Base (not trained)."


def test_many_missing_runs_are_counted(tmp_path):
    bars = [{"label": f"bar {k}", "run": of("mix")} for k in range(9)]
    drawn = shown(
        toy_project(), Results(toy_project(), tmp_path), figure({"kind": "bars", "x": LOSS, "bars": bars})
    )
    assert drawn.notes == ("Missing: bar 0, bar 1, bar 2, bar 3, bar 4, 4 more (not trained).",)
    assert drawn.panels[0].is_empty


def test_a_variant_without_a_quantity_says_why(made, tmp_path):
    project, _, documents = made
    run = project.runs("toy", RunRequest(size="S", variant="odd"))[0]
    write_results(project, tmp_path, loss_of=toy_loss)
    document = {**next(iter(documents.values())), "run": run.id}
    document["modules"] = {"coefficients": {"scalars": {}, "series": {}, "reason": "values are not mixed"}}
    write_json(tmp_path / "analyses" / run.id / "analysis.json", document)
    layers = {"kind": "layers", "series": "coefficients.ratio", "y": LOSS, "lines": [{"run": of("odd")}]}
    drawn = shown(project, Results(project, tmp_path), figure(layers))
    assert "a_b&c%$(x) seed 1 (no coefficients.ratio: values are not mixed)" in drawn.notes[0]


def test_no_checkpoint_is_named_until_the_user_names_one(tmp_path):
    wanted = {"kind": "checkpoints", "series": "importance.entropy", "y": LOSS, "uniform": "entropy"}
    project = toy_project()
    drawn = shown(project, Results(project, tmp_path), figure(wanted)).panels[0]
    assert drawn.is_empty and drawn.empty.startswith("no checkpoint named")
    project = toy_project(hf_models={"llama-8b": "/models/llama", "other": "/models/other"})
    module = {"scalars": {"uniform_entropy": 3.0}, "series": {"entropy": [2.0, 2.5]}}
    write_json(
        tmp_path / "analyses" / "checkpoint-llama-8b-smoke" / "analysis.json",
        {"schema": 1, "kind": "analysis", "status": "done", "modules": {"importance": module}},
    )
    content = shown(project, Results(project, tmp_path), figure(wanted))
    assert [(m.x, m.value) for m in content.panels[0].of("ours")[0].marks] == [(1, 2.0), (2, 2.5)]
    assert content.notes == ("Missing: checkpoint other (not analysed).",)


ALONG = {
    "kind": "along", "series": "importance.entropy", "at": "importance.first_token", "x": LOSS, "y": LOSS,
    "lines": [{"run": of("mix")}],
}  # fmt: skip


def test_a_series_stands_at_the_values_of_another_and_means_are_over_the_seeds_of_a_place(made):
    project, _, documents = made
    found: dict[float, list[float]] = {}
    for run in project.runs("toy", RunRequest(size="S", variant="mix")):
        module = documents[run.id]["modules"]["importance"]["series"]
        for x, y in zip(module["first_token"], module["entropy"], strict=True):
            found.setdefault(x, []).append(y)
    marks = panel(made, **ALONG).of("ours")[0].marks
    assert [(mark.x, len(mark.seeds)) for mark in marks] == [(x, len(found[x])) for x in sorted(found)]
    assert [mark.value for mark in marks] == pytest.approx([np.mean(found[x]) for x in sorted(found)])


def test_a_metric_is_drawn_in_the_unit_that_the_panel_names(made):
    points = {"at": "spec.model.layers", "lines": [{"points": [{"run": of("mix")}]}], "x": LOSS}
    drawn = panel(made, kind="sweep", metric="account.flops.forward", unit="MFLOP", **points).of("ours")
    plain = panel(made, kind="sweep", metric="account.flops.forward", **points).of("ours")
    assert drawn[0].marks[0].value == pytest.approx(1e-6 * plain[0].marks[0].value)
    with pytest.raises(ValueError, match="unit: 'GiB' does not fit"):
        figure({"kind": "sweep", "metric": "account.flops.forward", "unit": "GiB", **points})


def test_columns_of_a_matrix_may_count_from_another_number_than_its_rows(made):
    fields = {"kind": "matrix", "series": "similarity.hidden_layers", "run": of("base"), "x": LOSS, "y": LOSS}
    grid = panel(made, **fields, value=LOSS, first=1, first_column=0).grid
    assert (grid.x_edges[0], grid.y_edges[0]) == (-0.5, 0.5)


# --- files -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_panel_is_drawn_and_the_bytes_are_the_same_twice(made):
    project, results, _ = made
    matrix = {"kind": "matrix", "series": "similarity.hidden_layers", "run": of("base"), "x": LOSS, "y": LOSS}
    everything = figure(
        SWEEP,
        {"kind": "bars", "x": LOSS, "bars": [{"label": "$m$", "run": of("mix")}], "reference": of("base")},
        {
            "kind": "layers",
            "series": "pca.components",
            "y": LOSS,
            "lines": [{"run": of("base")}, {"run": of("mix")}],
        },
        matrix | {"value": {"label": "v"}},
        {
            "kind": "positions",
            "array": "norms.hidden",
            "run": of("base"),
            "value": {"label": "v", "scale": "log"},
        },
        {"kind": "ranks", "series": "importance.top", "ranks": [1, 2], "run": of("mix"), "y": LOSS},
        {"kind": "checkpoints", "series": "importance.entropy", "y": LOSS},
        {"kind": "difference", "y": LOSS, "lines": [{"run": of("mix")}], "baseline": of("base")},
        {"kind": "crossing", "run": of("odd"), "contexts": [128], "baseline": of("base")},
        {"kind": "tokens", "variants": ["base"], "baseline": "base"},
        {"kind": "sizes", "sizes": ["S", "M", "L"], "variants": ["base"], "baseline": "base"},
        ALONG,
        layout=["ABCD", "EFGH", "IJKL"],
    )
    kinds = [panel.kind for panel in everything.definition.panels]
    assert set(kinds) == set(READERS)
    one, two = (render(project, results, everything) for _ in range(2))
    assert one == two and set(one) == {"csv", "json", "svg", "pdf"}


def test_the_csv_has_a_row_per_value_and_names_its_quantities(made):
    project, results, _ = made
    text = shown(project, results, project.artifact("toy_fig2")).csv_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["panel"] for row in rows} == {"A", "B"} and {row["role"] for row in rows} == {
        "ours",
        "printed",
        "fit",
        "saving",
    }
    point = next(row for row in rows if (row["line"], row["role"], row["panel"]) == ("mix", "ours", "A"))
    assert float(point["value"]) == pytest.approx(np.mean(values("mix")))
    assert (point["x_name"], point["seeds"]) == ("parameters", "3")
    assert point["value_name"] == "validation loss (nats per token)"


def test_a_figure_of_panels_is_drawn_from_nothing_at_all(tmp_path):
    arguments = ["--project-root", str(ROOT), "--results", str(tmp_path / "none"), "--out-dir", str(tmp_path)]
    assert main([*arguments, "--target", "toy_fig2"]) == 0
    assert (tmp_path / "fig2.svg").read_text().startswith("<svg")


def test_no_text_covers_another_or_leaves_the_figure(smoke):
    project, results = smoke
    for name in ("curves3", "fig5", "fig8"):
        artifact = project.artifact(f"resformer_{name}")
        with style():
            drawn = draw(shown(project, results, artifact), artifact.definition)
            canvas = FigureCanvasAgg(drawn)
            canvas.draw()
            texts = [*drawn.texts, *(text for axes in drawn.axes for text in axes.texts if text.get_text())]
            boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
        assert all(box.x0 >= -1 and box.x1 <= drawn.bbox.x1 and box.y1 <= drawn.bbox.y1 for box in boxes), (
            name
        )
        for (one, a), (other, b) in itertools.combinations(zip(texts, boxes, strict=True), 2):
            assert not a.padded(-1).overlaps(b.padded(-1)), (name, one.get_text(), other.get_text())


@pytest.mark.parametrize(("scale", "differences"), [("paper", False), ("smoke", True)])
def test_levels_are_drawn_only_where_they_may_be_compared(tmp_path, scale, differences):
    project, results = toy(tmp_path, scale)
    drawn = shown(project, results, project.artifact("toy_fig2")).panel("A")
    assert drawn.differences is differences


def test_the_words_say_how_many_seeds_the_runs_have():
    project = open_papers(find_root(), {"papers": ["resformer"], "scale": "mini"})
    for name in ("fig4", "fig13"):
        artifact = project.artifact(f"resformer_{name}")
        seeds: dict[str, set[int]] = {}
        for run in trained(project, name):
            seeds.setdefault(str((run.size, run.variant, run.context, run.spec.recipe)), set()).add(run.seed)
        counts = sorted({len(found) for found in seeds.values()})
        line = scale_line(project, artifact)
        ends = (
            f"{' or '.join(map(str, counts))} seeds per run"
            if len(counts) > 1
            else ", ".join(map(str, range(1, counts[0] + 1)))
        )
        assert line.endswith(ends), (name, line)


def test_reading_a_figure_does_not_import_matplotlib():
    code = "import sys, respath.reporting.figure, respath.reporting.panels.build; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "layers", "series": "importance.entropi", "y": LOSS, "lines": [{}]}, "did you mean"),
        ({"kind": "layers", "y": LOSS, "lines": [{}]}, "lines.0 names no series"),
        ({"kind": "sweep", "x": LOSS, "metric": "kv.bytes", "lines": [{"points": [{"x": 1}]}]}, "no metric"),
        ({"kind": "tokens", "variants": ["base"], "baseline": "bases"}, "not among the panel's variants"),
    ],
    ids=["series", "no series", "metric", "baseline"],
)
def test_a_wrong_panel_is_refused_with_a_reason(fields, words):
    with pytest.raises(ValueError, match=words):
        figure(fields)


@pytest.mark.parametrize("layout", [["AC"], ["AB", "A"], ["A"]])
def test_a_layout_must_place_every_panel_in_rows_of_one_length(layout):
    tokens = {"kind": "tokens", "variants": ["base"], "baseline": "base"}
    with pytest.raises(ValueError, match="layout"):
        figure(tokens, tokens, layout=layout)


# --- the paper -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper():
    return open_papers(find_root(), {"papers": ["resformer"], "scale": "paper", "seeds": [1]})


def trained(project, name):
    return list(needs.of_artifact(project, project.artifact(f"resformer_{name}")).trained.values())


def test_every_figure_of_the_paper_has_a_target(paper):
    names = {artifact.id for artifact in paper.artifacts() if not artifact.is_table}
    assert {f"fig{number}" for number in range(2, 16)} <= names


def test_figures_train_the_papers_runs(paper):
    sources = {"identity", *(f"identity-v{k}" for k in range(2, 8)), "adjacent-identity", "dense-fixed"}
    single = {f"identity-at-{k}" for k in range(2, 9)}
    several = {"identity", *(f"identity-{k}to8" for k in range(3, 8))}
    assert {run.variant for run in trained(paper, "fig5")} == {"transformer"} | sources | single | several
    assert len(sources) == 9 and len(single | several) == 13
    rates = [run for run in trained(paper, "fig4") if not run.spec.recipe.lr_multipliers]
    assert {(run.variant, run.spec.recipe.peak_lr) for run in rates} == {
        (variant, rate)
        for variant in ("transformer", "identity")
        for rate in (3e-4, 6e-4, 1.5e-3, 3e-3, 6e-3)
    }
    assert len(trained(paper, "fig4")) == 12
    lengths = {(run.variant, run.context) for run in trained(paper, "fig10")}
    assert lengths == {(v, t) for v in ("transformer", "svformer") for t in (512, 2048, 8192, 32000, 64000)}
    for name in ("fig13", "fig14", "fig15"):
        found = {(run.size, run.variant) for run in trained(paper, name)}
        assert found == {("468M", v) for v in ("transformer", "neutreno", "identity", "svformer")}
    assert {run.size for run in trained(paper, "fig2")} == {"82M", "180M", "320M", "468M"}
    assert trained(paper, "fig12") == []


def test_equal_specs_of_several_figures_are_one_run(paper):
    by_rate, by_variant = ({run.id for run in trained(paper, name)} for name in ("fig4", "fig5"))
    assert {run.variant for run in trained(paper, "fig4") if run.id in by_variant} == {
        "transformer",
        "identity",
    }
    assert len(by_rate & by_variant) == 2


def test_every_analysis_that_figures_draw_is_wanted_of_the_right_runs(paper):
    wanted = {
        name: needs.of_artifact(paper, paper.artifact(f"resformer_{name}")).analyses
        for name in ("fig4", "fig6", "fig9", "fig13")
    }
    assert {frozenset(modules) for modules in wanted["fig4"].values()} == {frozenset({"gradients"})}
    assert len(wanted["fig4"]) == 2 and len(wanted["fig6"]) == 3
    assert {frozenset(modules) for modules in wanted["fig9"].values()} == {frozenset({"removal", "pca"})}
    assert {frozenset(modules) for modules in wanted["fig13"].values()} == {
        frozenset({"importance", "norms"})
    }
    (untrained,) = needs.of_artifact(paper, paper.artifact("resformer_fig12")).untrained.values()
    assert untrained[0].size == "468M" and untrained[1] == {"importance", "similarity"}


def test_named_checkpoints_are_analysed_for_figure_12_alone():
    project = open_papers(find_root(), {"papers": ["resformer"], "hf_models": {"llama-8b": "/models/llama"}})
    wanted = {
        a.id: found for a in project.artifacts() if (found := needs.of_artifact(project, a).checkpoints)
    }
    assert wanted == {"fig12": {"llama-8b": {"importance"}}}
    with pytest.raises(UserError, match="hf_models"):
        open_papers(find_root(), {"hf_models": {"a/b": "/models/llama"}})


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The paper at smoke with made-up results."""
    folder = tmp_path_factory.mktemp("smoke")
    project = open_papers(find_root(), {"papers": ["resformer"], "scale": "smoke"})
    write_results(project, folder)
    write_analyses(project, folder)
    return project, Results(project, folder)


def test_every_panel_of_the_paper_has_something_to_show_at_smoke(smoke):
    project, results = smoke
    for artifact in project.artifacts():
        if not artifact.is_table:
            content = shown(project, results, artifact)
            # A crossing need not exist, and no checkpoint is named.
            empty = {p.definition.kind for p in content.panels if p.is_empty}
            assert empty <= {"crossing", "checkpoints"}, artifact.id
            assert not any(note.startswith("Missing") and "n-grams" not in note for note in content.notes), (
                artifact.id,
                content.notes,
            )
            assert len(content.csv_text().splitlines()) > 5


@pytest.mark.slow
def test_every_figure_of_the_paper_renders_at_smoke(smoke):
    project, results = smoke
    for artifact in project.artifacts():
        if not artifact.is_table:
            files = render(project, results, artifact)
            assert files["svg"].startswith(b"<svg") and files["pdf"].startswith(b"%PDF"), artifact.id
            assert len(files["svg"]) < 300_000, artifact.id


def test_maps_of_one_series_under_two_names_have_colours_of_their_own(made):
    fields = {"kind": "matrix", "series": "similarity.hidden_layers", "run": of("base"), "x": LOSS, "y": LOSS}
    same = [panel(made, **fields, value={"label": label}) for label in ("a", "a", "b")]
    assert [len(group) for group in groups_of_heat(same)] == [2, 1]
