"""ResFormer's tables: the paper's runs, each trained once; differences; rows of single scales; the arms of decisions."""

from __future__ import annotations

import pytest

from respath.comparison.cells import build_grid
from respath.comparison.report import Report
from respath.config.request import RunRequest, merged
from respath.documents import load_yaml
from respath.files import read_json, write_json
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.papers.reported import load_reported
from respath.quantities.kinds import factor
from respath.reporting.table import render
from respath.results.reader import Results
from tests.golden.synthetic_results import write_results

ROOT = find_root()
TABLES = [f"table{n}" for n in range(1, 15)]
#: Arms that are no run of their own: a size that Figure 2 draws, and which variant a fit over sizes takes.
NO_RUNS = {"320M-shape", "headline-variant", "post-analysis-models"}


@pytest.fixture(scope="module", params=["smoke", "paper"])
def made(request, tmp_path_factory):
    """Project and made-up results of every run at a scale."""
    project = open_papers(ROOT, {"scale": request.param, "papers": ["resformer"]})
    folder = tmp_path_factory.mktemp(request.param)
    write_results(project, folder)
    return project, Results(project, folder)


def table(project, name):
    return project.artifact(f"resformer_{name}")


def run_of(project, artifact, row, column="loss"):
    """First-seed run of a cell."""
    definition = artifact.definition
    rows, columns = (
        {entry.id: entry for entry in entries} for entries in (definition.rows, definition.columns)
    )
    request = definition.request(rows[row], columns[column])
    return project.runs("resformer", request)[0].id


def test_every_table_of_the_paper_is_a_target(made):
    project, _ = made
    assert {f"resformer_{name}" for name in TABLES} <= {artifact.target for artifact in project.artifacts()}


def test_every_table_renders_with_each_printed_value_in_it(made):
    report = Report(*made, "resformer")
    for name in TABLES:
        grid, texts = render(report, table(report.project, name))
        assert all(texts.values())
        assert any(cell.printed is not None for cell in grid.compared()), name


def test_equal_runs_of_several_tables_are_one_run(made):
    project, _ = made
    same = [
        [("table1", "transformer"), ("table3", "transformer"), ("table8", "2048-transformer"), ("table10", "transformer")],
        [("table3", "identity"), ("table5", "identity"), ("table6", "identity"), ("table7", "identity"), ("table11", "identity")],
        [("table1", "share-keys-values"), ("table8", "2048-cla2")],
        [("table3", "constant-2"), ("table10", "constant-2")],
        [("table3", "learnable"), ("table4", "learnable")],
    ]  # fmt: skip
    for cells in same:
        assert len({run_of(project, table(project, name), row) for name, row in cells}) == 1, cells
    nine = run_of(project, table(project, "table9"), "llama-6e-4-120", "relative_loss")
    assert nine == run_of(project, table(project, "table8"), "2048-svformer")
    ids = list(needs.all_runs(project))
    assert len(ids) == len(set(ids))


def test_the_long_rows_of_table_8_are_runs_of_their_own(made):
    project, _ = made
    short, long = (run_of(project, table(project, "table8"), f"{n}-svformer") for n in (2048, 64000))
    assert short != long and "T64000" in long


def test_table_9_sets_svformer_against_the_transformer_of_the_same_recipe(made):
    project, results = made
    grid = build_grid(project, results, table(project, "table9"))
    for row, variant, recipe in [
        ("llama-1e-4-120", "svformer", {"peak_lr": 1e-4}),
        ("llama-6e-4-1200", "svformer", {"warmup_steps": 1200}),
        ("gpt2-6e-4-120", "gpt2-svformer", {}),
    ]:
        cell = grid.cells[row, "relative_loss"]
        left, right = (
            project.runs("resformer", RunRequest(size="82M", variant=v, recipe=recipe))
            for v in (variant, variant.replace("svformer", "transformer"))
        )
        wanted = {
            a.seed: results.of_run("loss", a.id)["mean_loss"] - results.of_run("loss", b.id)["mean_loss"]
            for a, b in zip(left, right, strict=True)
        }
        assert cell.per_seed == wanted and set(cell.runs) == {run.id for run in (*left, *right)}
        assert cell.printed in (-0.033, 0.036, 0.029)
    sums = [grid.cells[row.id, "summed_lr"].ours for row in grid.table.rows[:3]]
    assert sums == pytest.approx([0.55, 1.65, 3.30], abs=0.01)


def test_a_difference_carries_its_sign_and_one_without_both_sides_is_not_run(made, tmp_path):
    project, _ = made
    pair = [
        run
        for variant in ("svformer", "transformer")
        for run in project.runs(
            "resformer", RunRequest(size="82M", variant=variant, recipe={"peak_lr": 3e-4})
        )
    ]
    losses = {"svformer": 2.75, "transformer": 2.5}
    write_results(project, tmp_path, loss_of=lambda run: losses.get(run.variant, 3.0))
    (tmp_path / "evals" / pair[-1].id / "loss.json").unlink()
    artifact = table(project, "table9")
    _, texts = render(Report(project, Results(project, tmp_path), "resformer"), artifact)
    assert "+0.250" in texts["md"] and "+0.021" in texts["md"] and "−0.033" in texts["md"]
    cell = build_grid(project, Results(project, tmp_path), artifact).cells["llama-3e-4-120", "relative_loss"]
    assert "trained, not evaluated" in cell.reason
    assert len(cell.per_seed) == len(project.seeds) - 1
    assert cell.status == ("not run" if len(project.seeds) == 1 else cell.status)


def test_the_average_of_table_2_is_over_its_eight_accuracies_and_over_no_fewer(made, tmp_path):
    """From the printed accuracies of each row comes its printed average, perplexities aside."""
    project, _ = made
    artifact = table(project, "table2")
    reported = load_reported(ROOT / "papers/resformer/reported/table2.yaml")
    write_results(project, tmp_path)
    for row in artifact.definition.rows:
        tasks = {}
        for column in artifact.definition.columns[:-1]:
            _, task, metric = column.metric.split(".")
            value = reported.value(row.id, column.id) / factor("1", column.unit)
            tasks.setdefault(task, {"status": "done", "metrics": {}})["metrics"][metric] = value
        assert set(tasks) == set(project.paper("resformer").evaluation.tasks)
        request = artifact.definition.request(row, artifact.definition.columns[-1])
        for run in project.runs("resformer", request):
            path = tmp_path / "evals" / run.id / "lm.json"
            write_json(path, {**read_json(path), "tasks": tasks})
    grid = build_grid(project, Results(project, tmp_path), artifact)
    for row in artifact.definition.rows:
        average = grid.cells[row.id, "avg"]
        assert average.ours == pytest.approx(reported.value(row.id, "avg"), abs=0.05 + 1e-9), row.id
    for run in project.runs("resformer", request):
        path = tmp_path / "evals" / run.id / "lm.json"
        absent = {"status": "not run", "reason": "needs hub or local file"}
        write_json(path, {**read_json(path), "tasks": {**tasks, "boolq": absent}})
    average = build_grid(project, Results(project, tmp_path), artifact).cells[row.id, "avg"]
    assert average.status == "not run" and "boolq: needs hub" in average.reason


def test_the_common_length_of_table_8_is_read_from_longer_runs(made, tmp_path):
    project, _ = made
    write_results(project, tmp_path)
    run = project.runs("resformer", RunRequest(size="82M", variant="svformer", context=64000))[0]
    path = tmp_path / "evals" / run.id / "loss.json"
    record = read_json(path)
    write_json(path, {**record, "common": {**record, "mean_loss": 1.25, "context": 2}})
    grid = build_grid(project, Results(project, tmp_path), table(project, "table8"))
    assert grid.cells["64000-svformer", "common"].per_seed[run.seed] == 1.25
    assert grid.cells["64000-svformer", "loss"].per_seed[run.seed] == record["mean_loss"]
    short = grid.cells["2048-svformer", "common"]
    assert short.per_seed == grid.cells["2048-svformer", "loss"].per_seed


def test_only_longer_runs_are_scored_at_a_second_length(made):
    project, _ = made
    divisor = (project.scale, project.paper("resformer").changes)[1].recipe.context_divisor
    for context, wanted in ((512, None), (2048, None), (64000, 2048 // divisor)):
        run = project.runs("resformer", RunRequest(size="82M", variant="svformer", context=context))[0]
        assert project.at(run.scale).paper(run.paper).common_context(run) == wanted


def test_every_arm_of_the_decisions_stands_beside_its_default(made):
    project, _ = made
    definition = table(project, "sensitivity").definition
    shown = {project.runs("resformer", merged(definition.run, row.run))[0].id for row in definition.rows}
    compared = {
        project.runs("resformer", merged(definition.run, row.run))[0].id
        for row in definition.rows
        if row.minus is not None
    }
    defaults = {
        project.runs("resformer", merged(definition.run, row.minus))[0].id
        for row in definition.rows
        if row.minus is not None
    }
    assert defaults <= shown
    for entry in load_yaml(ROOT / "papers/resformer/decisions.yaml"):
        for arm in entry["arms"] if entry["id"] not in NO_RUNS else ():
            arm = {"variant": arm} if isinstance(arm, str) else arm
            run = project.runs("resformer", RunRequest(**{"size": "82M", **arm}))[0].id
            assert run in shown, (entry["id"], arm)
            assert run in compared or arm["variant"] == entry["default_arm"], (entry["id"], arm)


def test_a_row_of_single_scales_is_not_run_elsewhere_and_says_why(made):
    project, results = made
    cell = build_grid(project, results, table(project, "sensitivity")).cells["learnable-fp16", "loss"]
    fp16 = [run for run in needs.all_runs(project).values() if run.spec.recipe.precision == "fp16"]
    if project.scale.id == "paper":
        assert cell.status == "not reported" and {run.seed for run in fp16} == set(project.seeds)
    else:
        assert (cell.status, cell.reason) == ("not run", "fp16 needs a GPU") and fp16 == []
