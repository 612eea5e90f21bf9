"""Bank of Values as data: what it prints of its recipe comes out of our specs, and its budgets are runs of their own."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from respath.accounting import account
from respath.comparison.cells import MATCH, build_grid
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.paper import PaperRecipe
from respath.papers.scaling import nanochat
from respath.quantities.derived import DERIVED
from respath.quantities.quantity import Quantity, Reading
from respath.reporting.layout import Shown
from respath.reporting.panels.build import shown
from respath.results.reader import Results
from respath.spec.model import ModelSpec
from tests.golden.synthetic_results import write_results

ROOT = Path(__file__).parents[2]
SCALES = ("smoke", "mini", "paper")
PROJECTS = {scale: open_papers(ROOT, {"papers": ["bov"], "scale": scale}) for scale in SCALES}


def recipe(scale: str, size: str, variant: str, **overrides):
    request = RunRequest(size=size, variant=variant, recipe=overrides)
    return PROJECTS[scale].paper("bov").run(request, 1).spec.recipe


@pytest.mark.parametrize("scale", SCALES)
def test_every_printed_cell_of_the_configuration_matches_at_every_scale(scale):
    project = PROJECTS[scale]
    cells = build_grid(project, Results(project), project.artifact("bov_table8")).compared()
    assert len(cells) == 48
    assert {(cell.row, cell.column): cell.status for cell in cells if cell.status != MATCH} == {}


def test_rates_decay_and_batch_of_any_depth_follow_from_the_printed_one():
    """nanochat's ladder: N, tokens per step, rates and decay of 4, 6, 8 and 24 layers, worked out apart from the code."""
    paper = PROJECTS["paper"].paper("bov")
    terms, base = paper.folder.paper.recipe, paper.model("d12", "baseline")
    assert isinstance(terms, PaperRecipe)
    for layers, batch, matrix, embedding, table, scalar, decay in (
        (4, 2**18, 0.0141, 0.367, 0.184, 0.354, 1.9),
        (6, 2**18, 0.0141, 0.300, 0.150, 0.354, 0.94),
        (8, 2**18, 0.0141, 0.260, 0.130, 0.354, 0.52),
        (24, 2**20, 0.0283, 0.300, 0.150, 0.707, 0.0597),
    ):
        shape = {"layers": layers, "heads": layers // 2, "width": 64 * layers, "ffn_width": 256 * layers}
        heads = {"kv_heads": layers // 2}
        found = nanochat(terms, base, ModelSpec(**{**base.model_dump(mode="json"), **shape, **heads}), 8192)
        groups = found["optimizer"]["groups"]
        assert found["micro_batches"] * 8192 == batch
        assert round(found["peak_lr"], 4) == matrix
        assert [round(groups[name]["lr"], 3) for name in ("embedding", "tables", "coefficients")] == [
            *(embedding, table, scalar),
        ]
        assert float(f"{found['optimizer']['weight_decay']:.{2 if decay > 0.1 else 3}g}") == decay
        assert groups["smear"]["lr"] == 0.2


def test_a_longer_budget_is_a_longer_run_at_every_scale():
    for scale in SCALES:
        for variant, target in (("baseline", 4.775e20), ("bov", 4.662e20)):
            short, long = (recipe(scale, "d24", variant, **more) for more in ({}, {"target_flops": target}))
            assert long.steps / short.steps == pytest.approx(target / 3.91e19, rel=0.01)
            # Only the budget differs: rates, decay and warm-ups are those of Table 8.
            assert long.model_dump(exclude={"steps"}) == short.model_dump(exclude={"steps"})
    assert recipe("paper", "d24", "baseline", target_flops=4.775e20).steps == 95_363
    assert recipe("paper", "d24", "bov", target_flops=4.662e20).steps == 95_368


def test_at_equal_tokens_every_variant_takes_the_baselines_steps():
    for scale in SCALES:
        steps = {
            recipe(scale, "d12", name, target_flops=None).steps
            for name in PROJECTS[scale].folder("bov").variants
        }
        assert steps == {recipe(scale, "d12", "baseline").steps}


@pytest.mark.parametrize(("size", "layers", "width"), [("d12", 12, 768), ("d24", 24, 1536)])
def test_counts_of_bov_agree_with_an_independent_recomputation(size, layers, width):
    vocabulary, context, short, targets = 32_768, 2048, 512, layers // 3
    matrices, head = 12 * layers * width**2, vocabulary * width
    windows = [
        context if n % 4 == 3 else short for n in range(layers)
    ]  # SSSL; the last layer is long in both
    attention = 12 * width * sum(windows)
    baseline = 6 * (matrices + head) + attention
    found = account(f"bov/{size}/bov")
    assert found.flops.training_per_token == baseline - 6 * targets * width**2
    assert found.flops.saved_per_token == pytest.approx(6 * targets * width**2 / baseline, rel=1e-12)
    stored = matrices + 2 * head + 25 + targets * (vocabulary * width + 1)
    assert found.parameters.with_replaced == stored
    assert found.parameters.total == found.parameters.live == stored - targets * width**2
    for batch, length in ((1, 2048), (1, 32_768), (4, 65_536)):
        seen = [min(length, window if window < context else length) for window in windows]
        of = account(f"bov/{size}/bov", context=length, batch=batch).saved
        full = batch * targets * length - targets * vocabulary
        windowed = batch * sum(seen[-targets:]) - targets * vocabulary
        assert of.of_cache == pytest.approx(full / (2 * batch * layers * length), abs=1e-15)
        assert of.of_values == pytest.approx(full / (batch * layers * length), abs=1e-15)
        assert of.of_cache_windows == pytest.approx(windowed / (2 * batch * sum(seen)), abs=1e-15)
        assert of.of_values_windows == pytest.approx(windowed / (batch * sum(seen)), abs=1e-15)
    assert math.isclose(account(f"bov/{size}/bov", context=32_768).saved.of_cache, 0.0, abs_tol=1e-15)


def test_cost_of_equal_loss_is_read_between_two_points_of_the_history():
    """Right ends at 2.0 after 100 tokens at 3 FLOPs each; left is there halfway between 60 and 80, at 2.7 each."""
    right = {"tokens": [50, 100], "loss": [2.4, 2.0]}
    left = {"tokens": [60, 80], "loss": [2.1, 1.9]}
    compute = DERIVED["scaling.compute_multiplier"].compute
    pair = Quantity("scaling.compute_multiplier", RunRequest(variant="bov"), RunRequest(variant="baseline"))
    inputs = [Reading(value) for value in (left, right, 216, 80, 300, 100)]
    assert compute(pair, inputs).value == pytest.approx(70 * 2.7 / 300)
    inputs[0] = Reading({"tokens": [60, 80], "loss": [2.3, 2.1]})
    assert compute(pair, inputs).state == "not run"
    # A ratio is no difference, and gets no sign.
    project = PROJECTS["paper"]
    cells = build_grid(project, Results(project), project.artifact("bov_table1")).cells
    assert not cells["bov", "multiplier"].signed and cells["baseline", "multiplier"].kind == "text"


def test_coefficients_of_the_layers_that_have_one():
    def of(name, values):
        return DERIVED[f"coefficients.{name}"].compute(None, [Reading(values)])

    assert of("source_least", [None, 3.0, -2.5, 11.0]).value == 2.5
    assert of("source_last", [None, 3.0, -12.0, None]).value == 12.0
    assert of("own_most", [None, 0.02, -2.0]).value == 0.02
    assert of("own_most", [None, None]).state == "not run"


def test_drawn_curves_end_at_the_cells_that_were_read_off():
    for figure, column in (("fig4", "end"), ("fig5", "bpb")):
        reported = PROJECTS["paper"].folder("bov").reported[figure]
        assert len(reported.curves) == len(reported.rows)
        for row in reported.rows:
            curve = dict(reported.curve(row))
            last = max(curve) if figure == "fig4" else 3_750 * 2**19
            assert abs(curve[last] - reported.value(row, column)) <= 1e-4 + 1e-12, row


def test_a_text_that_ends_with_a_digit_is_no_number():
    assert not any(Shown("number", text).is_number for text in ("bf16", "final frac. 0.05", "not run", ""))
    assert all(Shown("number", text).is_number for text in ("7", "-0.5", "+0.03", "1e-05"))


def test_runs_of_24_layers_are_planned_at_paper_and_smoke_alone():
    sizes = {scale: {run.size for run in needs.all_runs(PROJECTS[scale]).values()} for scale in SCALES}
    assert sizes == {"smoke": {"d12", "d24"}, "mini": {"d12"}, "paper": {"d12", "d24"}}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("paper.yaml", "size: d12}", "size: d13}", "recipe.scaling.size: 'd13' is not a size of the paper (did you mean 'd12'?)"),
        ("paper.yaml", "target_flops: 1.5e+18", "target_flops: 1.0", "recipe.target_flops: 1 give no step of d12/baseline"),
        ("tables.yaml", "scales: [smoke, paper], because: \"24", "scales: [smok, paper], because: \"24", "only.scales: 'smok' is not a scale"),
        ("tables.yaml", "metric: core.squad.accuracy", "metric: core.squat.accuracy", "'squat' is no task of core21 or core22 (did you mean 'squad'?)"),
        ("claims.yaml", "metric: coefficients.own_most", "metric: coefficients.own_last", "'coefficients.own_last' is no metric"),
        ("figures.yaml", "series: coefficients.own,", "series: coefficients.owns,", "has no series 'owns'"),
        ("reported/fig4.yaml", "- row: d12-baseline", "- row: d12-baselin", "curves.0.row: 'd12-baselin' is not in `rows` (did you mean 'd12-baseline'"),
    ],
)  # fmt: skip
def test_wrong_names_and_budgets_are_refused_in_a_line_each(tmp_path, file, old, new, said):
    for name in ("papers", "scales"):
        shutil.copytree(ROOT / name, tmp_path / name)
    path = tmp_path / "papers/bov" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UserError) as refused:
        open_papers(tmp_path, {"papers": ["bov"], "scale": "paper"})
    assert any(said in line for line in refused.value.lines), refused.value.lines


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    """Made-up results of every run at the paper's scale."""
    folder, project = tmp_path_factory.mktemp("synthetic"), PROJECTS["paper"]
    write_results(project, folder)
    return project, Results(project, folder)


def test_histories_are_in_bits_per_byte_and_drawn_curves_stand_beside_them(synthetic):
    project, results = synthetic
    panel = shown(project, results, project.artifact("bov_fig4")).panel("A")
    (ours,) = (line for line in panel.of("ours") if line.id == "bov")
    runs = project.runs("bov", RunRequest(size="d12", variant="bov"))
    histories = [results.sample("bov", Quantity("train.validation", RunRequest(size="d12", variant="bov")))]
    last = [history["domains"]["ClimbMix"][-1] for history in histories[0].values.values()]
    # The made-up text has 4,096 tokens in 16,384 bytes.
    assert len(last) == len(runs) == 3
    assert ours.marks[-1].value == pytest.approx(sum(last) / 3 * 4096 / (math.log(2) * 16_384))
    (drawn,) = (line for line in panel.of("printed") if line.id == "bov")
    assert (drawn.marks[-1].x, drawn.marks[-1].value) == (3_838 * 2**19, 0.8411)
    assert len(panel.of("printed")) == 5


def test_printed_coefficients_stand_at_the_layers_that_the_paper_counts_from_0(synthetic):
    project, results = synthetic
    panel = shown(project, results, project.artifact("bov_fig2")).panel("C")
    printed = {
        line.label: [(mark.x, mark.value) for mark in line.marks]
        for line in panel.lines
        if line.role == "printed"
    }
    assert printed["V"] == [(8, 0.49), (9, 1.71), (10, 0.09), (11, 0.82)]
    assert printed["$x_0 W_V$"][-1] == (11, -10.95)
