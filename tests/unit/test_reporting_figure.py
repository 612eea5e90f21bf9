"""Figures: tidy data, identical bytes, what is missing is said, looks that differ without colour."""

import csv
import io
import itertools
import os
import shutil
import subprocess
import sys

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from respath.papers.check import open_papers
from respath.reporting.drawing import DASHES, draw, looks, style
from respath.reporting.figure import contents, main, render, scale_line
from respath.reporting.looks import fitted, width_of
from respath.reporting.panels.drawing import draw as draw_panels
from respath.reporting.series import human_tokens, series_of, short_count, spread
from respath.results.reader import Results
from tests.golden.synthetic_results import write_results
from tests.golden.toy import ROOT, run_id, toy, toy_loss, toy_project


def series(project, results, name="fig1"):
    return series_of(project, results, project.artifact(f"toy_{name}"))


def test_a_figure_is_the_same_bytes_in_another_process_whatever_its_environment(tmp_path):
    toy(tmp_path / "results", "paper")
    (tmp_path / "matplotlibrc").write_text("backend: nonsense\nfont.size: 20\n")
    # As Jupyter and Colab set it, and what else matplotlib, Python and the C library would heed.
    hostile = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MATPLOTLIBRC": str(tmp_path)}
    hostile |= {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "TZ": "Asia/Kolkata",
        "SOURCE_DATE_EPOCH": "1",
        "PYTHONHASHSEED": "2",
    }
    code = "import sys; from respath.reporting.figure import main; [main(sys.argv[1:] + ['--target', f'toy_{n}']) for n in ('fig1', 'fig2')]"
    for folder, settings in (("a", {"PYTHONHASHSEED": "1"}), ("b", hostile)):
        command = [sys.executable, "-c", code, "--project-root", str(ROOT), "--scale", "paper"]
        command += ["--results", str(tmp_path / "results"), "--out-dir", str(tmp_path / folder)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | settings
        done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
        assert done.stderr == ""
    for name in ("fig1", "fig2"):
        for ending in ("csv", "json", "svg", "pdf", "png"):
            one, two = ((tmp_path / folder / f"{name}.{ending}").read_bytes() for folder in ("a", "b"))
            assert one == two, f"{name}.{ending}"


def test_a_users_matplotlibrc_changes_nothing(tmp_path):
    project, results = toy(tmp_path)
    before = render(project, results, project.artifact("toy_fig1"))
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 5, "savefig.dpi": 30}):
        assert render(project, results, project.artifact("toy_fig1")) == before


def test_files_carry_no_date_and_no_version(tmp_path):
    project, results = toy(tmp_path)
    files = render(project, results, project.artifact("toy_fig1"))
    assert b"CreationDate" not in files["pdf"] and b"Matplotlib" not in files["png"]


def test_the_csv_is_tidy_and_names_its_quantities(tmp_path):
    rows = list(csv.DictReader(io.StringIO(series(*toy(tmp_path, "paper")).csv_text())))
    assert {row["panel"] for row in rows} == {"loss", "difference"}
    point = next(row for row in rows if row["panel"] == "difference" and row["variant"] == "base")
    assert float(point["y"]) == 0
    assert (point["x_name"], point["y_name"], point["seeds"]) == ("tokens", "nats per token", "3")


def test_the_difference_is_paired_and_zero_for_the_baseline(tmp_path):
    drawn = series(*toy(tmp_path, "paper"))
    assert {p.y for p in drawn.of("difference", "base")} == {0.0}
    last = drawn.of("difference", "mix")[-1]
    assert last.seeds == 3 and last.stderr is not None
    assert last.y == pytest.approx(-0.05, abs=0.02)


def test_the_smoothing_window_is_stated(tmp_path):
    assert series(*toy(tmp_path, "paper")).window == "moving average over 5 steps"


def test_missing_and_diverged_runs_are_left_out_and_named(tmp_path):
    project = toy_project()
    drawn = series(*toy(tmp_path, skip={run_id(project, "S", "mix")}, diverged={run_id(project, "S", "odd")}))
    assert drawn.of("loss", "mix") == [] and drawn.of("loss", "odd") == []
    assert drawn.notes == ("Not drawn: Mix (not trained); a_b&c%$(x) (diverged).",)


def test_without_the_baseline_there_are_no_differences(tmp_path):
    project = toy_project()
    drawn = series(*toy(tmp_path, skip={run_id(project, "S", "base")}))
    assert not [p for p in drawn.points if p.panel == "difference"]
    assert "No differences: the baseline has no finished run." in drawn.notes


def test_a_figure_is_drawn_from_nothing_at_all(tmp_path):
    for name in ("fig1", "fig2"):
        arguments = [
            "--project-root",
            str(ROOT),
            "--results",
            str(tmp_path / "none"),
            "--out-dir",
            str(tmp_path),
        ]
        assert main([*arguments, "--target", f"toy_{name}"]) == 0
        assert (tmp_path / f"{name}.pdf").stat().st_size > 1000


def test_a_table_is_refused_with_the_right_command(tmp_path, capsys):
    assert main(["--project-root", str(ROOT), "--target", "toy_table1", "--out-dir", str(tmp_path)]) == 2
    assert "python -m respath.reporting.table" in capsys.readouterr().err


def test_lines_differ_without_colour(tmp_path):
    chosen = looks(series(*toy(tmp_path)))
    assert len({str(look["linestyle"]) for look in chosen.values()}) == len(chosen)
    assert len(set(map(str, DASHES))) == len(DASHES)
    assert chosen["base"]["linestyle"] == (0, ())


def test_no_label_is_cut_and_none_covers_another(tmp_path):
    project, results = toy(tmp_path)
    artifact = project.artifact("toy_fig1")
    with style():
        figure = draw(series_of(project, results, artifact), artifact.definition, scale_line(project))
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = [text.get_window_extent(renderer) for axes in figure.axes for text in axes.texts]
    assert len(boxes) == 3
    assert all(box.x1 <= figure.bbox.x1 and box.y0 >= 0 for box in boxes)
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[i + 1 :])


LONG = {
    "Base": "A_baseline_whose_name_has_no_blank_and_is_longer_than_any_legend_and_any_figure_" * 2,
    "Mix": r"Mixes every layer with the first one, $V'_n = \\lambda_1 V_1 + V_n$, with a coefficient learned in each of them "
    "and started at one half",
}


@pytest.mark.parametrize(("name", "draw_it"), [("fig1", draw), ("fig2", draw_panels)])
def test_labels_of_any_length_stay_inside_the_figure(tmp_path, name, draw_it):
    shutil.copytree(ROOT, tmp_path / "project")
    variants = tmp_path / "project/papers/toy/variants.yaml"
    text = variants.read_text()
    for short, long in LONG.items():
        assert f'label: "{short}"' in text
        text = text.replace(f'label: "{short}"', f'label: "{long}"')
    variants.write_text(text)
    project = open_papers(tmp_path / "project", {"papers": ["toy"], "scale": "paper"})
    write_results(project, tmp_path / "results", loss_of=toy_loss)
    results = Results(project, tmp_path / "results")
    artifact = project.artifact(f"toy_{name}")
    with style():
        figure = draw_it(contents(project, results, artifact), artifact.definition, scale_line(project))
        renderer = FigureCanvasAgg(figure).get_renderer()
        FigureCanvasAgg(figure).draw()
        # Ticks beyond an axis' ends have labels too, which nothing draws.
        ticks = {
            id(text)
            for axes in figure.axes
            for axis in (axes.xaxis, axes.yaxis)
            for text in axis.findobj(Text)
        }
        texts = [text for text in figure.findobj(Text) if id(text) not in ticks]
        texts += [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
        boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    assert len(boxes) > 5
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_a_text_is_broken_into_lines_that_fit_and_loses_nothing():
    with style():
        for text in LONG.values():
            lines = fitted(text, 1.0, 8).split("\n")
            formulas = [line for line in lines if "$" in line]
            assert all(width_of(line, 8) <= 1.0 for line in lines if line not in formulas)
            assert "".join(lines).replace(" ", "") == text.replace(" ", "") and len(formulas) < 2
        assert fitted("as  it is", 5.0, 8) == "as  it is"


def test_the_scale_stands_above_the_panels():
    assert "not a replication" in scale_line(toy_project())
    assert scale_line(toy_project("paper")) == "Scale paper; seeds 1, 2, 3"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_spread_labels_keep_order_distance_and_room(wanted, gap):
    placed = spread(wanted, gap, 0.0, 1.0)
    room = min(gap, 1.0 / max(1, len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    positions = [placed[i] for i in order]
    assert all(b - a >= room - 1e-9 for a, b in itertools.pairwise(positions))
    assert min(positions) >= -1e-9 and max(positions) <= 1 + 1e-9


def test_labels_with_room_stay_where_their_lines_end():
    assert spread([0.1, 0.5, 0.9], 0.05, 0.0, 1.0) == pytest.approx([0.1, 0.5, 0.9])


def test_counts_and_tokens_are_short():
    assert [short_count(c) for c in (82_400_000, 1_040_000, 350_000, 17)] == ["82M", "1.0M", "350K", "17"]
    assert human_tokens(2.1e10) == (1e9, "B tokens")
    assert human_tokens(150_000) == (1e3, "K tokens")


def test_no_results_object_is_changed_by_drawing(tmp_path):
    project, results = toy(tmp_path)
    before = series(project, results).csv_text()
    render(project, results, project.artifact("toy_fig1"))
    assert series(project, Results(project, tmp_path)).csv_text() == before
