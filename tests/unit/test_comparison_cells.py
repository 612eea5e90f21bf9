"""Every status, every tolerance rule, and what a grid reads from where."""

import pytest

from respath.comparison.cells import (
    CONFIGURED,
    EXACT,
    HALF_UNIT,
    STATUSES,
    build_grid,
    judge_exact,
    judge_measured,
    rank_agreement,
)
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.results.reader import Results
from tests.golden.toy import account, run_id, toy, toy_project


def grid(project, results, table="table1"):
    return build_grid(project, results, project.artifact(f"toy_{table}"))


def measured(ours=2.0, printed=2.0, **changes):
    rules = {"configured": 0.0, "half_unit": 0.0005, "half_width": 0.0}
    return judge_measured(ours, printed, **{**rules, **changes})


# --- exact quantities ---


def test_equal_numbers_match_exactly():
    assert judge_exact(8192, 8192, 0.5).rule == EXACT
    assert judge_exact(6.0e-4, 0.0006, 5e-5).status == "match"


def test_a_number_that_rounds_to_the_printed_one_matches_by_half_a_unit():
    judgement = judge_exact(2.097152, 2, 0.5)
    assert (judgement.status, judgement.rule, judgement.tolerance) == ("match", HALF_UNIT, 0.5)
    assert judge_exact(2.6, 2, 0.5).status == "off"


def test_a_value_on_the_edge_of_the_printed_digit_matches_in_spite_of_rounding_dust():
    assert judge_exact(2.7005, 2.7, 0.0005).status == "match"
    assert judge_exact(0.15 + 0.15, 0.3, 0.0).status == "match"


def test_counts_that_differ_by_one_are_off():
    assert judge_exact(9, 8, 0.5).status == "off"


def test_texts_and_booleans_must_be_equal():
    assert judge_exact("SwiGLU", "SwiGLU", None).status == "match"
    assert judge_exact("GELU", "SwiGLU", None).status == "off"
    assert judge_exact(False, False, None).status == "match"
    assert judge_exact(0, False, None).status == "off"


def test_what_the_paper_does_not_print_is_not_reported():
    assert judge_exact(1, None, None).status == "not reported"
    assert measured(printed=None).status == "not reported"


# --- measured quantities ---


@pytest.mark.parametrize(
    ("changes", "rule", "tolerance"),
    [({"configured": 0.01}, CONFIGURED, 0.01), ({}, HALF_UNIT, 0.0005)],
)
def test_the_wider_tolerance_applies_and_says_which_it_is(changes, rule, tolerance):
    judgement = measured(**changes)
    assert (judgement.rule, judgement.tolerance) == (rule, pytest.approx(tolerance))
    assert measured(ours=2.0 + tolerance * 0.99, **changes).status == "within"
    assert measured(ours=2.0 - tolerance * 1.01, **changes).status == "off"


def test_noise_widens_no_tolerance_and_can_leave_a_cell_undecided():
    for half_width, near, far in (
        (0.0, "within", "off"),
        (0.02, "undecided", "undecided"),
        (None, *["undecided"] * 2),
    ):
        given = {"configured": 0.01, "half_width": half_width}
        assert measured(ours=2.009, **given).status == near
        assert measured(ours=2.02, **given).status == far
    assert measured(ours=2.1, configured=0.01, half_width=0.02).status == "off"
    assert "our interval is ± 0.02" in measured(configured=0.01, half_width=0.02).rule


# --- grids ---


def test_every_status_is_reached(tmp_path):
    project = toy_project("paper")
    skip = {run_id(project, "S", "base", seed) for seed in (1, 2, 3)}
    diverged = {run_id(project, "S", "mix", 2)}
    found = set()
    paper = toy(tmp_path / "paper", "paper")
    broken = toy(tmp_path / "broken", "paper", skip=skip, diverged=diverged)
    smoke = toy(tmp_path / "smoke", "smoke")
    for project, results in (paper, broken, smoke):
        for artifact in project.artifacts():
            if artifact.is_table:
                found |= {cell.status for cell in build_grid(project, results, artifact).compared()}
    assert found == set(STATUSES)


def test_ours_is_the_mean_over_seeds_with_its_standard_error(tmp_path):
    cell = grid(*toy(tmp_path, "paper")).cells["base", "loss"]
    assert cell.per_seed == {1: 3.001, 2: 3.004, 3: 2.998}
    assert cell.ours == pytest.approx(3.001)
    assert cell.stderr == pytest.approx(0.003 / 3**0.5)
    # Two domains with a standard error of 0.004 each, added in quadrature.
    assert cell.item_stderr == pytest.approx(0.004 / 2**0.5)
    assert len(cell.runs) == 3


def test_measured_cells_of_a_small_scale_are_shown_but_never_compared(tmp_path):
    cell = grid(*toy(tmp_path, "smoke")).cells["base", "loss"]
    assert cell.status == "not comparable at this scale"
    assert cell.ours == pytest.approx(3.001)
    assert cell.delta is None and cell.tolerance is None and cell.rule == ""


def test_scale_free_cells_of_a_small_scale_are_compared_at_the_papers_own_shape(tmp_path):
    project, results = toy(tmp_path, "smoke")
    cell = grid(project, results, "kv").cells["base", "parameters"]
    assert (cell.kind, cell.ours, cell.scale_value) == (
        "exact",
        account(results, "S", "base"),
        account(results, "S", "base", own_scale=True),
    )
    assert cell.ours != cell.scale_value
    assert grid(project, results, "table3").cells["layers", "S"].status == "match"
    assert grid(project, results, "table3").cells["layers", "M"].status == "off"


def test_the_share_of_a_domain_is_scale_free_and_its_tokens_are_not(tmp_path):
    cells = grid(*toy(tmp_path, "smoke"), "table2").cells
    assert (cells["Prose", "proportion"].status, cells["Prose", "proportion"].ours) == (
        "match",
        pytest.approx(70),
    )
    assert cells["Code", "proportion"].status == "off"
    assert cells["Prose", "tokens"].status == "not comparable at this scale"


def test_a_missing_run_leaves_its_cell_not_run_with_the_reason(tmp_path):
    project = toy_project()
    cells = grid(*toy(tmp_path, skip={run_id(project, "S", "mix")})).cells
    assert (cells["mix", "loss"].status, cells["mix", "loss"].reason) == ("not run", "not trained")
    assert cells["mix", "loss"].ours is None


def test_a_trained_run_without_evaluation_says_so(tmp_path):
    project, results = toy(tmp_path)
    (tmp_path / "evals" / run_id(project, "S", "mix") / "loss.json").unlink()
    assert grid(project, results).cells["mix", "loss"].reason == "trained, not evaluated"


def test_missing_seeds_are_named(tmp_path):
    project = toy_project("paper")
    cell = grid(*toy(tmp_path, "paper", skip={run_id(project, "S", "mix", 2)})).cells["mix", "loss"]
    assert cell.reason == "seed 2 missing: not trained"
    assert set(cell.per_seed) == {1, 3}


def test_one_diverged_seed_makes_the_cell_diverged(tmp_path):
    project = toy_project("paper")
    cell = grid(*toy(tmp_path, "paper", diverged={run_id(project, "S", "mix", 2)})).cells["mix", "loss"]
    assert (cell.status, cell.reason) == ("diverged", "seed 2 diverged: loss is not finite at step 27")


def test_a_task_that_could_not_be_loaded_carries_its_reason(tmp_path):
    cell = grid(*toy(tmp_path), "table4").cells["base", "piqa"]
    assert (cell.status, cell.reason) == ("not run", "piqa: needs the hub or a local file")


def test_accuracies_carry_the_standard_error_of_their_items_in_the_columns_unit(tmp_path):
    cell = grid(*toy(tmp_path), "table4").cells["base", "hellaswag"]
    assert cell.item_stderr == pytest.approx(5.0)


def test_gains_are_paired_over_seeds(tmp_path):
    cell = grid(*toy(tmp_path, "paper")).cells["mix", "loss"]
    assert cell.gain == pytest.approx((-0.05 - 0.047 - 0.052) / 3)
    assert cell.printed_gain == pytest.approx(-0.05)
    assert grid(*toy(tmp_path, "paper")).cells["base", "loss"].gain is None


def test_rank_agreement_counts_kept_signs_and_names_the_best(tmp_path):
    project, results = toy(tmp_path, "paper")
    rank = rank_agreement(project, grid(project, results))["loss"]
    assert (rank["best_printed"], rank["best_ours"], rank["same_best"]) == (["mix"], ["odd"], False)
    assert (rank["improvements"], rank["improvements_kept"], rank["improvements_lost"]) == (2, 1, ["odd"])
    assert rank["kendall_tau"] == pytest.approx(-1 / 3)


def test_without_any_results_every_measured_cell_is_not_run(tmp_path):
    project = toy_project()
    results = Results(project, tmp_path / "nothing")
    assert {cell.status for cell in grid(project, results).compared()} == {"not run"}
    cells = grid(project, results, "kv").cells
    assert {cells[row, "measured"].status for row in ("base", "odd")} == {"not run"}
    # Closed forms need no result.
    assert {cells[row, "bytes"].ours for row in ("base", "odd")} != {None}
    assert grid(project, results, "table3").cells["layers", "S"].status == "match"


def test_a_result_of_another_run_is_refused(tmp_path):
    project, results = toy(tmp_path)
    path = tmp_path / "evals" / run_id(project, "S", "mix") / "loss.json"
    write_json(path, read_json(path) | {"run": "toy-S-base-s1-00000000"})
    with pytest.raises(UserError, match="belongs to 'toy-S-base-s1-00000000'"):
        grid(project, results)


def test_a_result_of_a_later_schema_is_refused(tmp_path):
    project, results = toy(tmp_path)
    path = tmp_path / "runs" / run_id(project, "S", "mix") / "train.json"
    write_json(path, read_json(path) | {"schema": 2})
    with pytest.raises(UserError, match="version 2 is not readable"):
        grid(project, results)
