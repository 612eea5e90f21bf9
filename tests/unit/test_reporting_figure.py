"""Figures: tidy data, identical bytes, what is missing is said, looks that differ without colour."""

import csv
import html
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import jinja2
import matplotlib
import pytest
from docutils.core import publish_parts
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.quantities.rounding import human_tokens, short_count
from respath.reporting.figure import main, render, said, scale_line
from respath.reporting.looks import (
    AGAINST,
    BEHIND,
    DARK,
    DASHES,
    FOR,
    GREY,
    INK,
    MARKERS,
    ON_DARK,
    PALETTE,
    SMALL,
    SOFT,
    VARIABLES,
    fitted,
    line_looks,
    spread,
    style,
    width_of,
)
from respath.reporting.panels.build import shown
from respath.reporting.panels.drawing import draw
from respath.reporting.panels.reader import slots
from respath.results.reader import Results
from tests.colours import DEFICIENCIES, ciede2000, contrast, difference
from tests.golden.synthetic_results import write_results
from tests.golden.toy import ROOT, run_id, toy, toy_loss, toy_project


def content(project, results, name="fig1"):
    return shown(project, results, project.artifact(f"toy_{name}"))


def words(project, results, name="fig1"):
    return said(project, project.artifact(f"toy_{name}"), content(project, results, name))


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
        for ending in ("csv", "json", "svg", "pdf"):
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
    assert b"CreationDate" not in files["pdf"] and b"matplotlib" not in files["svg"].lower()


def test_the_csv_is_tidy_and_names_its_quantities(tmp_path):
    rows = list(csv.DictReader(io.StringIO(content(*toy(tmp_path, "paper")).csv_text())))
    assert {row["panel"] for row in rows} == {"A", "B"}
    point = next(row for row in rows if row["kind"] == "difference" and row["line"] == "mix")
    assert point["value"] == point["difference"] and float(point["low"]) < float(point["difference"])
    assert (point["x_name"], point["seeds"]) == ("steps, moving average over 5", "3")
    assert "stderr" not in rows[0]


def test_the_difference_is_paired_and_its_interval_is_the_only_error(tmp_path):
    project, results = toy(tmp_path, "paper")
    (mix, _) = content(project, results).panel("A").of("ours")
    last = mix.marks[-1]
    assert len(last.seeds) == 3 and last.difference.low < last.value < last.difference.high
    assert last.value == pytest.approx(-0.05, abs=0.02)
    levels = content(project, results).panel("B").of("ours")
    assert all(mark.difference is None for line in levels for mark in line.marks)


def test_missing_and_diverged_runs_are_left_out_and_named(tmp_path):
    project = toy_project()
    found = content(
        *toy(tmp_path, skip={run_id(project, "S", "mix")}, diverged={run_id(project, "S", "odd")})
    )
    assert [line.id for line in found.panel("B").of("ours")] == ["base"] and found.panel("A").is_empty
    assert found.notes == (
        "Missing: a, b: Mix (not trained); a_b&c%$(x) (diverged).",
        "Panel left out: a (no finished run).",
    )


def test_without_the_baseline_there_are_no_differences_and_no_panel_of_them(tmp_path):
    project, results = toy(tmp_path, skip={run_id(toy_project(), "S", "base")})
    found = content(project, results)
    assert found.panel("A").is_empty and "Panel left out: a (no finished run)." in found.notes
    with style():
        figure = draw(found, project.artifact("toy_fig1").definition)
    assert len(figure.axes) == 1


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


def test_lines_differ_without_colour():
    chosen = line_looks({name: slot for slot, name in enumerate("abcdef")})
    for part in ("linestyle", "marker", "color"):
        assert len({str(look[part]) for look in chosen.values()}) == 6
    assert chosen["a"] == {"color": INK, "linestyle": DASHES[0], "marker": MARKERS[0]}
    alike = line_looks({"one": 2, "two": 2, "grey": 6})
    assert alike["one"]["color"] == alike["two"]["color"] != alike["grey"]["color"] == GREY
    assert alike["one"]["linestyle"] != alike["two"]["linestyle"]


@pytest.mark.parametrize(("lines", "page"), [(PALETTE, "#FFFFFF"), (ON_DARK, DARK)], ids=["white", "dark"])
def test_six_lines_stay_apart_under_three_colour_deficiencies_and_stand_out(lines, page):
    for matrix in DEFICIENCIES.values():
        assert min(difference(*pair, matrix) for pair in itertools.combinations(lines, 2)) >= 15
    assert min(contrast(line, page) for line in lines) >= 3.1
    verdicts = (FOR, AGAINST) if page == "#FFFFFF" else (VARIABLES[FOR][1], VARIABLES[AGAINST][1])
    texts = (INK, SOFT) if page == "#FFFFFF" else (VARIABLES[INK][1], VARIABLES[SOFT][1])
    assert min(contrast(one, page) for one in (*texts, *verdicts)) >= 4.5
    assert all(difference(*verdicts, matrix) >= 15 for matrix in DEFICIENCIES.values())
    # What only stands behind is paler than any line.
    behind = BEHIND if page == "#FFFFFF" else VARIABLES[BEHIND][1]
    assert contrast(behind, page) < min(contrast(line, page) for line in lines)


@pytest.mark.parametrize("paper", ["resformer", "depthbench"])
def test_a_model_has_one_colour_in_a_paper_and_models_of_one_panel_have_different_ones(paper):
    folder = open_papers(find_root(), {"papers": [paper], "scale": "smoke"}).folder(paper)
    slot = slots(folder)
    assert slot[folder.paper.accounting.baseline] == 0 and set(slot) == set(folder.variants)
    for figure in folder.figures.values():
        for panel in figure.panels:
            if panel.kind not in ("layers", "difference", "tokens", "sizes", "sweep"):
                continue
            models = {figure.run.variant, *(wanted.layers[-1].variant for wanted in panel.wanted())} - {None}
            if len(models) <= 6:
                coloured = [slot[name] for name in models if slot[name] < 6]
                assert len(set(coloured)) == len(coloured), (figure.title, panel.title)


def test_an_svg_is_an_element_with_text_a_title_and_colours_that_a_page_may_set(tmp_path):
    project, results = toy(tmp_path, "paper")
    files = render(project, results, project.artifact("toy_fig1"))
    svg = files["svg"].decode()
    assert svg.startswith('<svg class="figure"') and "<?xml" not in svg and "<!--" not in svg
    tree = ElementTree.fromstring(svg)
    text = {"".join(one.itertext()).strip() for one in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Base", "Mix", "a_b&c%$(x)"} <= text and "a  Less the baseline" in text
    title, described = (tree.find(f"{{http://www.w3.org/2000/svg}}{name}").text for name in ("title", "desc"))
    assert title == "Curves of the toy" and described == json.loads(files["json"])["alt"]
    ids = re.findall(r' id="([^"]+)"', svg)
    assert all(f"#{one}" in svg for one in ids)
    bare = re.sub(r"var\(--[\w-]+, #[0-9A-F]{6}\)", "", svg.partition("</style>")[2])
    assert not any(colour.lower() in bare.lower() for colour in VARIABLES)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:[a-z]+ )*([\d.]+)px", svg)]
    assert sizes and min(sizes) >= SMALL
    assert len(svg) < 120_000


def test_the_words_give_the_finding_the_marks_and_what_is_missing(tmp_path):
    project, results = toy(tmp_path, "paper", skip={run_id(toy_project("paper"), "S", "odd", 2)})
    document = words(project, results)
    assert document["caption"]["finding"].startswith("a: At the last common step: Mix −0.0")
    assert "95 % interval of the difference from Base, paired by seed" in document["caption"]["marks"]
    assert "a_b&c%$(x) seed 2 (not trained)" in document["caption"]["missing"]
    assert (
        "Mix falls from" in document["alt"] and "largest" in document["alt"] and "smallest" in document["alt"]
    )
    assert "diverged" not in document["caption"]["marks"]
    nothing = words(project, Results(project, tmp_path / "nothing"))
    assert nothing["caption"]["finding"] == "Nothing is measured yet."


LONG = {
    "Base": "A_baseline_whose_name_has_no_blank_and_is_longer_than_any_legend_and_any_figure_" * 2,
    "Mix": r"Mixes every layer with the first one, $V'_n = \\lambda_1 V_1 + V_n$, with a coefficient learned in each of them "
    "and started at one half",
}


@pytest.mark.parametrize("name", ["fig1", "fig2"])
def test_labels_of_any_length_stay_inside_the_figure(tmp_path, name):
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
        figure = draw(shown(project, results, artifact), artifact.definition, project.scale.comparable)
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
        boxes = [text.get_window_extent(renderer) for text in texts if text.get_text() and text.get_visible()]
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
    assert [short_count(c) for c in (82_400_000, 1_040_000, 350_000, 17)] == ["82M", "1.0M", "0.35M", "17"]
    assert human_tokens(2.1e10) == (1e9, "B tokens")
    assert human_tokens(150_000) == (1e3, "K tokens")


def test_no_results_object_is_changed_by_drawing(tmp_path):
    project, results = toy(tmp_path)
    before = content(project, results).csv_text()
    render(project, results, project.artifact("toy_fig1"))
    assert content(project, Results(project, tmp_path)).csv_text() == before


def test_the_colour_distance_is_the_published_one():
    # Sharma, Wu and Dalal 2005, Table 1, pairs 1, 7, 17 and 25.
    pairs = [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ]
    for one, other, expected in pairs:
        assert ciede2000(one, other) == pytest.approx(expected, abs=1e-4)


def test_the_report_of_snakemake_carries_the_same_caption(tmp_path):
    project, results = toy(tmp_path, "paper")
    path = tmp_path / "fig1.json"
    path.write_bytes(render(project, results, project.artifact("toy_fig1"))["json"])
    job = SimpleNamespace(
        output=SimpleNamespace(json=str(path)),
        wildcards=SimpleNamespace(figure="fig1", paper="toy", scale="paper"),
    )
    source = (find_root() / "workflow/report/figure.rst").read_text()
    rendered = jinja2.Environment().from_string(source).render(snakemake=job)
    body = publish_parts(rendered, writer="html")["body"]
    text = html.unescape(re.sub(r"<[^>]+>", "", body))
    for part in ("finding", "marks"):
        assert json.loads(path.read_text())["caption"][part] in text
    assert "system-message" not in body
