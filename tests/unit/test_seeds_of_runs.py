"""Which runs take every seed of a scale, in which order they are trained, and what a table says of it."""

from __future__ import annotations

import shutil

import pytest

from respath.comparison.cells import build_grid
from respath.comparison.claims import judge_claims
from respath.comparison.report import Report
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.claims import Claim
from respath.papers.library import find_root
from respath.reporting.table import render
from respath.results.reader import Results
from tests.golden.synthetic_results import write_results
from tests.golden.toy import ROOT as TOY
from tests.golden.toy import toy_loss

PAIRED = "paired: [{size: S, variants: [mix, base]}]\nfirst: [table3]\n"
OF_TOY = "papers/toy/scales/smoke.yaml"


@pytest.fixture
def paired_toy(tmp_path):
    """The toy with three seeds, of which only mix and base at size S take all."""
    folder = tmp_path / "project"
    shutil.copytree(TOY, folder)
    scale = folder / "scales" / "smoke.yaml"
    scale.write_text(scale.read_text().replace("seeds: [1]", "seeds: [1, 2, 3]"))
    with (folder / OF_TOY).open("a") as stream:
        stream.write(PAIRED)
    return folder


def open_toy(folder, **chosen):
    return open_papers(folder, {"papers": ["toy"], "scale": "smoke", **chosen})


def seeds_of(project, **request):
    return [run.seed for run in project.runs("toy", RunRequest(**request))]


def test_only_paired_runs_take_every_seed(paired_toy):
    project = open_toy(paired_toy)
    assert seeds_of(project, size="S", variant="mix") == [1, 2, 3]
    assert seeds_of(project, size="S", variant="odd") == [1]
    assert seeds_of(project, size="M", variant="mix") == [1]


def test_a_request_that_spells_a_default_out_is_the_same_run(paired_toy):
    project = open_toy(paired_toy)
    recipe = project.folder("toy").paper.recipe
    spelled = {"context": recipe.context, "recipe": {"peak_lr": recipe.peak_lr}}
    assert seeds_of(project, size="S", variant="mix", **spelled) == [1, 2, 3]
    assert seeds_of(project, size="S", variant="mix", recipe={"peak_lr": 2 * recipe.peak_lr}) == [1]


def test_seeds_that_the_user_names_go_for_every_run(paired_toy):
    assert seeds_of(open_toy(paired_toy, seeds=[4, 5]), size="S", variant="odd") == [4, 5]


def test_without_a_list_of_pairs_every_run_takes_every_seed(paired_toy):
    scale = paired_toy / OF_TOY
    scale.write_text(scale.read_text().replace("paired: [{size: S, variants: [mix, base]}]\n", ""))
    assert seeds_of(open_toy(paired_toy), size="S", variant="odd") == [1, 2, 3]


def test_paired_runs_come_first_then_those_of_the_first_artifacts(paired_toy):
    project = open_toy(paired_toy)
    order = list(needs.all_runs(project))
    paired = [run.id for v in ("mix", "base") for run in project.runs("toy", RunRequest(size="S", variant=v))]
    assert order[:6] == paired
    following = [
        r.id
        for r in needs.of_artifact(project, project.artifact("toy_table3")).trained.values()
        if r.id not in paired
    ]
    assert order[6 : 6 + len(following)] == following
    assert len(order) == len(set(order))


def test_a_name_that_a_scale_misspells_is_one_line(paired_toy):
    scale = paired_toy / OF_TOY
    text = scale.read_text()
    scale.write_text(text.replace("[mix, base]", "[mixx]").replace("first: [table3]", "first: [tabel3]"))
    with pytest.raises(UserError) as refused:
        open_toy(paired_toy)
    lines = refused.value.lines
    assert any(f"{OF_TOY}: paired" in line and "did you mean 'mix'" in line for line in lines)
    assert any(f"{OF_TOY}: first" in line and "did you mean 'table3'" in line for line in lines)


def test_a_table_tells_the_seeds_of_each_row_and_a_claim_with_one_seed_stays_open(paired_toy, tmp_path):
    project = open_toy(paired_toy)
    write_results(project, tmp_path / "results", loss_of=toy_loss)
    results = Results(project, tmp_path / "results")
    artifact = project.artifact("toy_table1")
    _, texts = render(Report(project, results, "toy"), artifact)
    head, *_ = [line for line in texts["md"].splitlines() if line.startswith("|")]
    assert "Seeds" in [name.strip() for name in head.split("|")]
    grid = build_grid(project, results, artifact)
    counts = {len(cell.per_seed) for cell in grid.compared() if cell.kind == "measured" and cell.per_seed}
    assert counts == {1, 3}
    claim = Claim.model_validate(
        {
            "id": "it",
            "title": "It",
            "source": {"table": 1},
            "metric": "loss.mean",
            "left": {"size": "S", "variant": "odd"},
            "right": {"size": "S", "variant": "base"},
            "expect": {"direction": "lower", "min_effect": 0.0},
            "judged_at": ("smoke",),
            "needs_seeds": 3,
        }
    )
    (verdict,) = judge_claims(project, results, "toy", [claim])
    assert verdict.verdict == "too few runs" and verdict.reason.startswith("1 of the 3 paired seeds")


def test_a_run_set_may_take_fewer_seeds_and_all_others_more_than_one(paired_toy):
    scale = paired_toy / OF_TOY
    sets = (
        "paired:\n  - {size: S, variants: [mix, base], seeds: 2}\n  - {size: S, variants: [mix]}\nothers: 2\n"
    )
    scale.write_text(scale.read_text().replace("paired: [{size: S, variants: [mix, base]}]\n", sets))
    project = open_toy(paired_toy)
    assert seeds_of(project, size="S", variant="mix") == [1, 2, 3]
    assert seeds_of(project, size="S", variant="base") == seeds_of(project, size="S", variant="odd") == [1, 2]
    order = [(run.variant, run.seed) for run in needs.all_runs(project).values()]
    assert order[:5] == [("mix", 1), ("mix", 2), ("base", 1), ("base", 2), ("mix", 3)]
    scale.write_text(scale.read_text().replace("seeds: 2", "seeds: 9"))
    with pytest.raises(
        UserError, match=r"smoke\.yaml: paired: 9 seeds of mix, base, but scales/smoke.yaml lists 3"
    ):
        open_toy(paired_toy)


def test_mini_trains_three_seeds_of_the_first_models_then_five():
    project = open_papers(find_root(), {"scale": "mini", "papers": ["resformer"]})
    order = [(run.variant, run.seed) for run in needs.all_runs(project).values()]
    first = ["transformer", "identity", "svformer", "plus"]
    assert order[:12] == [(variant, seed) for variant in first for seed in (1, 2, 3)]
    assert order[12:20] == [(variant, seed) for variant in first for seed in (4, 5)]
    assert {seed for _, seed in order[20:]} == {1, 2, 3}
