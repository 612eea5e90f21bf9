"""What the Bank of Values paper prints: transcribed whole, with its version, and consistent where the paper is."""

from __future__ import annotations

from pathlib import Path

import pytest

from respath.accounting import account
from respath.papers.reported import load_reported

PAPER = Path(__file__).parents[2] / "papers" / "bov"
FILES = sorted((PAPER / "reported").glob("*.yaml"))

#: Scores of guessing in DCLM's first table, with which the paper centres. Its later table gives 0.236 for the baseline.
GUESSING = {
    "arc_easy": 0.25,
    "arc_challenge": 0.25,
    "copa": 0.5,
    "commonsense_qa": 0.2,
    "piqa": 0.5,
    "openbook_qa": 0.25,
    "hellaswag": 0.25,
    "winograd": 0.5,
    "winogrande": 0.5,
    "agi_eval_lsat_ar": 0.2,
    "boolq": 0.62,
    "bigbench_language_identification": 0.091,
}


def printed(table):
    return load_reported(PAPER / "reported" / f"{table}.yaml")


def accuracies(reported, model):
    """Raw accuracies of the 21 tasks; two decimals of v1 where a cell has both."""
    first = {(other.row, other.column): other.value for other in reported.also_printed if "v1" in other.where}
    tasks = [row for row in reported.rows if row not in ("bpb", "core")]
    return {task: first.get((task, model), reported.value(task, model)) for task in tasks}


def core(scores):
    """Mean over tasks of (accuracy - guessing) / (1 - guessing)."""
    centred = [
        (score - GUESSING.get(task, 0.0)) / (1 - GUESSING.get(task, 0.0)) for task, score in scores.items()
    ]
    return sum(centred) / len(centred)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_cell_of_a_table_is_transcribed_or_said_to_be_empty(path):
    reported = load_reported(path)
    given = {(cell.row, cell.column) for cell in reported.cells}
    assert given == {(row, column) for row in reported.rows for column in reported.columns}
    assert reported.source.paper == "bov" and 1 <= reported.source.page <= 14


@pytest.mark.parametrize("table", ["table5", "table6", "table7"])
def test_tables_of_tasks_have_the_21_tasks_of_the_paper(table):
    reported = printed(table)
    assert len(accuracies(reported, next(iter(reported.columns)))) == 21
    assert "hellaswag_zeroshot" not in reported.rows


@pytest.mark.parametrize(
    ("table", "model", "aggregate"),
    [("table5", "baseline", 0.2604), ("table7", "v-plus-table-gated", 0.2680)],
)
def test_centring_the_printed_accuracies_gives_the_printed_aggregate(table, model, aggregate):
    reported = printed(table)
    found = core(accuracies(reported, model))
    assert found == pytest.approx(aggregate, abs=5e-5)
    assert round(found, 3) == reported.value("core", model)


def test_the_printed_accuracies_of_bov_do_not_close_and_the_file_says_so():
    reported = printed("table5")
    found = core(accuracies(reported, "bov"))
    assert found == pytest.approx(0.2747, abs=5e-5)
    assert abs(found - reported.value("core", "bov")) > 0.002
    assert any("does not close" in note for note in reported.notes)


def test_the_same_run_has_the_same_numbers_in_every_table_that_prints_it():
    for metric in ("bpb", "core"):
        assert printed("table3").value("baseline", metric) == printed("table5").value(metric, "baseline")
        for other in ("table5", "table7"):
            assert printed("table3").value("bov", metric) == printed(other).value(metric, "bov")
    ends = printed("fig4")
    for variant in ("baseline", "x0wv-last-third", "v1-last-third", "v1-all"):
        assert round(ends.value(f"d12-{variant}", "end"), 3) == printed("table1").value(variant, "bpb")
    for variant in ("baseline", "x0wv-last-third", "v1-last-third", "v1-all", "bov"):
        assert round(ends.value(f"d24-{variant}", "end"), 3) == printed("table3").value(variant, "bpb")


def test_what_was_read_off_a_figure_is_compared_at_the_accuracy_of_reading():
    assert printed("fig2").half_unit("scaled-v-own-12", "coefficient") == 0.02
    assert printed("fig4").half_unit("d12-bov", "end") == 1e-4
    assert printed("table1").half_unit("baseline", "bpb") == pytest.approx(0.0005)
    assert {cell.version for cell in printed("fig4").cells} == {"v1"}


def test_printed_counts_are_those_of_the_specs():
    table = printed("table8")
    for size in ("d12", "d24"):
        baseline = account(f"bov/{size}/baseline")
        label = baseline.parameters.total / 1e6
        assert abs(label - table.value("parameters", size)) <= table.half_unit("parameters", size)
        flops = baseline.flops.training_per_token / 1e9
        assert abs(flops - table.value("flops_per_token", size)) <= table.half_unit("flops_per_token", size)
        tokens = table.value("iterations", size) * table.value("batch_tokens", size) / 1e9
        assert abs(tokens - table.value("tokens", size)) <= table.half_unit("tokens", size)
        machine = (
            table.value("device_batch", size)
            * table.value("accumulation", size)
            * 4
            * table.value("context", size)
        )
        assert machine == table.value("batch_tokens", size), "four GPUs"


def test_the_printed_saving_of_training_flops_is_a_quotient_of_rounded_figures():
    counts = {name: account(f"bov/d24/{name}").flops.training_per_token for name in ("baseline", "bov")}
    assert (counts["baseline"] - counts["bov"], counts["baseline"]) == (113_246_208, 4_775_215_104)
    assert round(100 * 113_246_208 / 4_775_215_104, 4) == 2.3715
    assert round(100 * (1 - 4.66 / 4.78), 2) == 2.51
