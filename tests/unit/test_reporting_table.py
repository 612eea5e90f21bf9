"""Tables: golden files, identical bytes, escaping, layout."""

import csv
import io
import re

import jinja2
import pytest

from respath.comparison.cells import build_grid
from respath.comparison.report import Report
from respath.files import read_json, write_json
from respath.papers import needs
from respath.reporting.latex import cell_tex, column_type, environment, tex, tex_math
from respath.reporting.layout import Head, Shown, fixed, lay_out, plain_cell
from respath.reporting.table import main, render
from tests.golden.regenerate import SCALES, texts
from tests.golden.toy import EXPECTED, ROOT, account, run_id, toy, toy_project


def table(project, results, name="table1"):
    return render(Report(project, results, "toy"), project.artifact(f"toy_{name}"))[1]


# --- golden files ---


@pytest.mark.parametrize("scale", SCALES)
def test_tables_and_diff_are_the_golden_files(scale):
    made = texts(scale)
    assert {path.name for path in (EXPECTED / scale).iterdir()} == set(made)
    for name, text in made.items():
        assert text == (EXPECTED / scale / name).read_text(), (
            f"{scale}/{name}: python -m tests.golden.regenerate"
        )


def test_a_table_of_accuracies_says_how_many_of_the_items_were_evaluated_and_no_other_table_does(tmp_path):
    project, results = toy(tmp_path / "results")
    assert (
        "Items evaluated: hellaswag 4 of 1,000, wikitext 4 of 62." in table(project, results, "table4")["md"]
    )
    assert "Items evaluated" not in table(project, results, "table1")["md"]


def test_runs_that_were_evaluated_on_different_items_are_a_warning_and_old_results_are_named(tmp_path):
    project, results = toy(tmp_path / "results")
    run = next(run.id for run in needs.of_artifact(project, project.artifact("toy_table4")).trained.values())
    path = tmp_path / "results/evals" / run / "lm.json"
    record = read_json(path)
    del record["tasks"]["hellaswag"]["of_items"]
    write_json(path, record)
    said = table(project, results, "table4")["md"]
    assert (
        "hellaswag 4 (the first ones) or 4 of 1,000" in said
        or "hellaswag 4 of 1,000 or 4 (the first ones)" in said
    )
    assert "Warning: its runs were evaluated on different items of hellaswag." in said


def test_rendering_twice_gives_the_same_bytes(tmp_path):
    toy(tmp_path / "results")
    arguments = [
        "--project-root",
        str(ROOT),
        "--results",
        str(tmp_path / "results"),
        "--target",
        "toy_table1",
    ]
    for folder in ("a", "b"):
        assert main([*arguments, "--out-dir", str(tmp_path / folder)]) == 0
    for ending in ("csv", "tex", "md"):
        assert (tmp_path / "a" / f"table1.{ending}").read_bytes() == (
            tmp_path / "b" / f"table1.{ending}"
        ).read_bytes()


def test_a_table_renders_without_any_results(tmp_path):
    for name in ("table1", "table2", "table3", "table4", "kv"):
        arguments = [
            "--project-root",
            str(ROOT),
            "--results",
            str(tmp_path / "none"),
            "--out-dir",
            str(tmp_path),
        ]
        assert main([*arguments, "--target", f"toy_{name}"]) == 0
    assert "not run" in (tmp_path / "table1.md").read_text()


def test_a_figure_is_refused_with_the_right_command(tmp_path, capsys):
    assert main(["--project-root", str(ROOT), "--target", "toy_fig1", "--out-dir", str(tmp_path)]) == 2
    assert "python -m respath.reporting.figure" in capsys.readouterr().err


# --- CSV ---


def test_the_csv_has_one_line_per_cell_in_full_precision(tmp_path):
    project, results = toy(tmp_path, "paper")
    rows = list(csv.DictReader(io.StringIO(table(project, results)["csv"])))
    cells = build_grid(project, results, project.artifact("toy_table1")).compared()
    assert [float(row["ours"]) for row in rows] == [cell.ours for cell in cells]
    assert rows[0]["per_seed"] == "1=3.001;2=3.004;3=2.998"
    assert rows[0]["runs"].split(";") == [run_id(project, "S", "base", seed) for seed in (1, 2, 3)]
    assert rows[0]["rule"] == "configured; our interval is ± 0.0068"


# --- LaTeX ---


def test_every_special_character_is_escaped():
    assert tex("a_b&c%$(x)") == r"a\_b\&c\%\$(x)"
    assert tex("\\{}#^~<>|[*]") == (
        r"\textbackslash{}\{\}\#\textasciicircum{}\textasciitilde{}\textless{}\textgreater{}\textbar{}{[}{*}]"
    )
    assert tex('say "no"') == "say ``no''"
    assert tex("−5 ± 2 × Δ – ok…") == r"$-$5 $\pm$ 2 $\times$ $\Delta$ -- ok\ldots{}"
    assert tex("naïve 漢") == r"naïve \textless{}U+6F22\textgreater{}"


def test_mathematics_of_table_texts_is_kept_and_the_rest_escaped():
    assert tex_math("$V_1$ & 5 %") == r"$V_1$ \& 5 \%"
    assert tex_math("costs 5 $ & more") == r"costs 5 \$ \& more"


def test_a_variant_with_special_characters_reaches_the_table_escaped(tmp_path):
    made = table(*toy(tmp_path))
    line = next(line for line in made["tex"].splitlines() if line.lstrip().startswith("a\\_b"))
    assert line.lstrip().startswith(r"a\_b\&c\%\$(x) & costs 5 \$ \& more &")
    assert r"$V'_n = \sum_{i \le n} V_i$" in made["tex"]


def test_an_undefined_name_in_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        environment(toy_project()).from_string(r"\VAR{ absent }").render()


def test_number_columns_are_sized_to_what_they_hold():
    head = Head("Loss", "number")
    cells = [Shown("number", "12.345"), Shown("number", "2.700"), Shown("number", "not run")]
    assert column_type(head, cells, False) == "S[table-format=2.3]"
    signed = [Shown("number", "+0.01"), Shown("number", "-10.00")]
    assert column_type(head, signed, False) == "S[table-format=+2.2]"
    assert column_type(head, cells, True) == "r"
    assert column_type(Head("95 %", "interval"), cells, False) == "l"


def test_words_in_number_columns_stand_in_braces_and_intervals_have_true_minus_signs():
    assert cell_tex(Shown("number", "diverged"), mixed=False) == "{diverged}"
    assert cell_tex(Shown("number", "–"), mixed=False) == "{--}"
    assert cell_tex(Shown("number", "2.700", bold=True), mixed=False) == r"\bfseries 2.700"
    assert cell_tex(Shown("blank"), mixed=False) == ""
    assert cell_tex(Shown("status", "undecided"), mixed=False, in_numbers=False) == "undecided"
    interval = cell_tex(Shown("interval", "[-0.1, +0.2]"), mixed=False, in_numbers=False)
    assert interval == "{[}$-$0.1, +0.2]"


def test_the_footer_tells_what_the_runs_recorded_and_no_date(tmp_path):
    project, results = toy(tmp_path)
    made = table(project, results)
    for text in (made["tex"], made["md"]):
        assert "0123456789ab" in text
        assert "Scale smoke, seed 1." in text
        assert not re.search(r"\b20\d\d-\d\d", text)
    assert run_id(project, "S", "mix").rsplit("-", 1)[1] in made["tex"]
    assert made["tex"].startswith("% Generated by `snakemake toy_table1`, do not edit.\n")


def test_the_level_of_a_small_scale_is_said_to_be_incomparable_once_and_that_of_the_papers_scale_not(
    tmp_path,
):
    small, full = table(*toy(tmp_path / "s")), table(*toy(tmp_path / "p", "paper"))
    assert small["tex"].count("not comparable") == 1
    assert "not comparable" not in full["tex"]


# --- layout ---


def heads(project, results, name="table1"):
    return [
        head.text for head in lay_out(build_grid(project, results, project.artifact(f"toy_{name}"))).heads
    ]


#: Printed value and difference, ours with the paired difference, its interval and seeds, and the verdict.
COLUMNS = [
    "Model",
    "Form",
    "Value",
    "Δ",
    "Value",
    "Δ paired",
    "95 % interval",
    "Seeds",
    "On the printed side of Base?",
]


def test_a_comparable_scale_asks_too_whether_the_value_is_as_printed(tmp_path):
    shown = heads(*toy(tmp_path, "paper"))
    assert shown == [*COLUMNS, "As printed?"]


def test_a_small_scale_answers_the_question_of_the_difference_alone(tmp_path):
    assert heads(*toy(tmp_path)) == COLUMNS


def test_many_printed_columns_are_stacked(tmp_path):
    assert heads(*toy(tmp_path), "table4") == ["Model", "", "Prose", "Code", "HellaSwag", "PIQA", "Train"]


def test_a_table_without_printed_numbers_has_no_column_for_them(tmp_path):
    assert heads(*toy(tmp_path), "kv") == ["Model", "Parameters", "Bytes", "Measured"]


def test_a_small_scales_own_counts_stand_below_the_paper_scale_ones(tmp_path):
    project, results = toy(tmp_path)
    layout = lay_out(build_grid(project, results, project.artifact("toy_kv")))
    assert [block.title for block in layout.blocks] == ["", "At this scale's shapes (smoke)"]
    own = account(results, "S", "base", own_scale=True)
    assert layout.blocks[1].rows[0][1].text == str(own)


def cells_of(text, label):
    line = next(line for line in text.splitlines() if line.startswith(f"| {label}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_diverged_cell_shows_no_mean_of_the_seeds_that_survived(tmp_path):
    project = toy_project("paper")
    made = table(*toy(tmp_path, "paper", diverged={run_id(project, "S", "mix", 2)}))
    shown = cells_of(made["md"], "Mix")
    assert shown[4] == "diverged" and shown[5].startswith("–") and shown[-1] == "diverged"


def test_only_means_over_seeds_are_marked_best(tmp_path):
    one, three = table(*toy(tmp_path / "s"))["md"], table(*toy(tmp_path / "p", "paper"))["md"]
    assert "**2.950**" in one and "**2.907" not in one
    assert "**2.907**" in three


def test_every_paired_difference_is_the_difference_of_values_that_are_shown(tmp_path):
    """Where a row has fewer seeds than its baseline, a note holds the baseline's value over those seeds."""
    project = toy_project("paper")
    skip = {run_id(project, "S", "mix", seed) for seed in (2, 3)}
    project, results = toy(tmp_path, "paper", skip=skip)
    text = table(project, results)["md"]
    mix, odd, base = (cells_of(text, label) for label in ("Mix", "a_b", "Base"))
    alone = re.search(r"Base over seed 1 alone: (\d+\.\d+)", text)
    assert float(mix[4]) - float(alone[1]) == pytest.approx(float(mix[5].replace("−", "-")), abs=1e-9)
    difference = float(odd[4].strip("*")) - float(base[4])
    assert difference == pytest.approx(float(odd[5].split()[0].replace("−", "-")), abs=0.0011)
    assert "[" not in mix[5] and "[" in odd[5]


def test_a_row_and_the_claim_that_asks_the_same_have_one_interval_and_one_verdict(tmp_path):
    report = Report(*toy(tmp_path, "paper"), "toy")
    claims = {claim.claim.id: claim for claim in report.claims}
    for row, claim in (("mix", "mix-beats-base"), ("odd", "odd-beats-base")):
        cell, shown = report.grids["table1"].cells[row, "loss"], claims[claim].shown
        assert cell.gain == pytest.approx(shown.value)
        assert (cell.gain_low, cell.gain_high) == (shown.interval.low, shown.interval.high)
        if cell.claim:
            assert (cell.claim, cell.verdict) == (claim, claims[claim].verdict)
    assert report.grids["table1"].cells["mix", "loss"].claim == "mix-beats-base"


def test_numbers_read_well():
    assert fixed(-0.0001, 3) == "0.000"
    assert fixed(-0.0001, 3, sign=True) == "+0.000"
    assert plain_cell(Shown("number", "-33554432")) == "−33,554,432"
    assert plain_cell(Shown("number", "1024")) == "1024"
