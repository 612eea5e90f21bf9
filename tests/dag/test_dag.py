"""What the workflow plans: on a clean checkout, after edits that matter, and after edits that do not."""

from __future__ import annotations

import json
import re

import pytest

from respath.letters import plain
from respath.papers import needs
from respath.papers.check import open_papers
from tests.project_copy import ROOT, ProjectCopy, job_counts


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> ProjectCopy:
    """A copy in which everything has already been made (by empty stand-ins)."""
    copy = ProjectCopy(tmp_path_factory.mktemp("done"))
    copy.pretend_done("all")
    return copy


@pytest.fixture
def edited(done):
    """The finished copy; every file that a test edits is put back afterwards."""
    names = [
        "config.yaml",
        *(str(p.relative_to(done.path)) for p in done.path.glob("papers/resformer/**/*.yaml")),
    ]
    before = {name: (done.path / name).read_text() for name in names}
    yield done
    for name, text in before.items():
        (done.path / name).write_text(text)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> ProjectCopy:
    return ProjectCopy(tmp_path_factory.mktemp("fresh"))


def test_a_bare_dry_run_on_a_clean_checkout_plans_every_run(fresh):
    planned = fresh.planned()
    assert planned["train"] == len(needs.all_runs(open_papers(fresh.path)))
    assert planned["all"] == 1


def test_the_default_profile_is_loaded(fresh):
    assert (
        "Using workflow specific profile profiles/default"
        in fresh.snakemake("-n", "resformer_table13").stderr
    )


def test_the_listed_targets_carry_their_titles(fresh):
    listed = fresh.snakemake("--list-target-rules").stdout
    for target in ("all", "demo", "plan", "diff", "check", "clean_checkpoints", "pdf"):
        assert f"\n{target} (" in f"\n{listed}"
    for artifact in open_papers(fresh.path).artifacts():
        assert f"{artifact.target} ({plain(artifact.definition.title)}" in listed


def test_table3_trains_exactly_its_ten_runs(fresh):
    graph = json.loads(fresh.snakemake("resformer_table3", "-F", "--d3dag").stdout)
    trained = [node["value"] for node in graph["nodes"] if node["value"]["label"] == "train"]
    project = open_papers(fresh.path)
    assert len(trained) == len(needs.of_artifact(project, project.artifact("resformer_table3")).trained) == 10


def test_the_scales_target_trains_everything_the_most_important_runs_first(fresh):
    done = fresh.snakemake("-n", "-p", "mini", "--config", "scale=mini")
    jobs = re.findall(
        r"rule train:\n.*?wildcards: run=(\S+)\n +priority: (\d+)\n", done.stdout + done.stderr, re.DOTALL
    )
    ordered = [run for run, _ in sorted(jobs, key=lambda job: -int(job[1]))]
    assert ordered == list(
        needs.all_runs(open_papers(fresh.path, {"scale": "mini", "papers": ["resformer"]}))
    )


@pytest.mark.parametrize(
    "target", ["diff", "check", "plan", "reference", "resformer_kv", "resformer_table13", "resformer_table14"]
)
def test_comparing_planning_and_accounting_never_train(fresh, target):
    assert "train" not in fresh.planned(target)


def test_table12_needs_tokens_but_no_training(fresh):
    planned = fresh.planned("resformer_table12")
    assert planned["manifest"] == 1
    assert "train" not in planned


def test_missing_allow_renders_without_training(fresh):
    planned = fresh.planned("resformer_table3", "--config", "missing=allow")
    assert planned == {"table": 1, "resformer_table3": 1}


def test_nothing_is_planned_when_everything_is_there(done):
    assert done.planned("all") == {}


def rendered_again(copy: ProjectCopy) -> tuple[set[str], str]:
    """Tables, figures and pages that are planned, and nothing else may be; and what the dry run says."""
    done = copy.snakemake("-n", "-p", "all")
    said = done.stdout + done.stderr
    assert done.returncode == 0 and set(job_counts(said)) <= {"table", "figure", "page", "overview", "all"}, (
        said[-3000:]
    )
    found = re.findall(r"wildcards: scale=smoke, paper=resformer(?:, (?:table|figure)=(\w+))?\n", said)
    return {name or "page" for name in found}, said


@pytest.mark.parametrize(
    ("name", "old", "new", "shown", "not_shown", "named"),
    [
        (
            "papers/resformer/variants.yaml",
            'label: "Identity"\n    colour: "#4e79a7"',
            'label: "Identity!"\n    colour: "#4e79a8"',
            {"table3", "page"},
            {"table12", "table13", "table14"},
            "papers/resformer/variants.yaml: identity",
        ),
        (
            "papers/resformer/tables.yaml",
            'title: "Average valid loss for',
            'title: "Mean valid loss for',
            {"page"},
            {"table12", "table13", "fig2"},
            "papers/resformer/tables.yaml: table",
        ),
        (
            "papers/resformer/figures.yaml",
            'title: "Validation loss on the way, 468M"',
            'title: "Validation loss, 468M"',
            {"page"},
            {"table3", "table12"},
            "papers/resformer/figures.yaml: fig",
        ),
        (
            "papers/resformer/reported/table13.yaml",
            "rows:",
            "# Looked at again.\nrows:",
            {"table13", "page"},
            {"table3", "table12", "table14", "fig2"},
            "papers/resformer/reported/table13.yaml",
        ),
        (
            "papers/resformer/claims.yaml",
            "claims:",
            "# Looked at again.\nclaims:",
            {"page"},
            {"table3", "table13", "fig2"},
            "papers/resformer/claims.yaml",
        ),
        (
            "papers/resformer/paper.yaml",
            "# Value Residual Learning as data",
            "# The paper as data",
            {"page"},
            {"table3", "table13", "fig2"},
            "papers/resformer/paper.yaml",
        ),
    ],
    ids=["label", "title", "panel", "printed number", "claim", "comment"],
)
def test_an_edit_for_people_renders_what_shows_it_and_the_reason_names_it(
    edited, name, old, new, shown, not_shown, named
):
    edited.edit(name, old, new)
    found, said = rendered_again(edited)
    assert shown <= found and not found & not_shown, found
    assert named in said


def test_settings_that_are_resources_run_nothing_again(edited):
    assert edited.planned(
        "all", "--config", "runtime={threads: 2}", "checkpoints=elsewhere", "items=wheel"
    ) == {
        "eval_items": 1,
        "overlap": 1,
        "page": 1,
        "overview": 1,
        "all": 1,
    }


def test_a_dry_run_shows_no_json(fresh):
    """Specs, settings and resources are files, also in the command lines that a failed job repeats."""
    done = fresh.snakemake("-n", "resformer_table3", "-p")
    said = done.stdout + done.stderr
    assert "--spec @.snakemake/respath/" in said and "--runtime @.snakemake/respath/" in said
    assert not [line for line in said.splitlines() if '{"' in line]


def test_an_edited_learning_rate_trains_exactly_one_run_and_reverting_it_none(edited):
    edited.edit(
        "papers/resformer/variants.yaml",
        "model: {values: {kind: mix, layers: all, coefficients: {source: 0.5, own: 0.5}}}",
        "model: {values: {kind: mix, layers: all, coefficients: {source: 0.5, own: 0.5}}}\n    recipe: {peak_lr: 1e-3}",
    )
    planned = edited.planned("resformer_table3")
    assert planned["train"] == planned["evaluate_loss"] == 1
    edited.edit("papers/resformer/variants.yaml", "\n    recipe: {peak_lr: 1e-3}", "")
    assert "train" not in edited.planned("resformer_table3")


def test_reordered_keys_and_a_new_table_train_nothing(edited):
    edited.edit(
        "papers/resformer/variants.yaml",
        "{values: {kind: mix, layers: all, coefficients: {source: 0.5, own: 0.5}}}",
        "{values: {layers: all, coefficients: {own: 0.5, source: 0.5}, kind: mix}}",
    )
    with (edited.path / "papers/resformer/tables.yaml").open("a") as stream:
        stream.write(
            "\n  extra1:\n    title: Extra\n    section: none\n    run: {size: 82M}\n"
            "    rows: [{id: identity, label: Identity, run: {variant: identity}}]\n"
            "    columns: [{id: loss, label: Loss, metric: loss.mean}]\n"
        )
    planned = edited.planned("resformer_extra1")
    assert planned == {"table": 1, "resformer_extra1": 1}


def test_two_more_seeds_train_two_more_runs_of_each_row(edited):
    planned = edited.planned("resformer_table3", "--config", "seeds=[1,2,3]")
    assert planned["train"] == 20


def test_newer_data_does_not_retrain(edited):
    for path in edited.path.glob("results/tokens/*/manifest.json"):
        path.write_text('{"changed": true}\n')
    assert "train" not in edited.planned("all")


def test_the_snakefile_imports_no_torch(fresh, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('the Snakefile imported torch')\n")
    assert fresh.snakemake("-n", env={"PYTHONPATH": str(tmp_path)}).returncode == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (
            "config.yaml",
            "scale: smoke",
            "scale: smok",
            "config.yaml:1: scale: 'smok' is not known (did you mean 'smoke'?)",
        ),
        ("config.yaml", "missing: error", "mising: error", "mising: unknown key (did you mean 'missing'?)"),
        (
            "config.yaml",
            "threads: 1",
            'threads: "1"',
            "runtime.threads: expects a number, got the text '1'",
        ),
        (
            "papers/resformer/tables.yaml",
            'id: plus, label: "ResFormer-Plus*", group: "ResFormer", run: {variant: plus}',
            'id: plus, label: "ResFormer-Plus*", group: "ResFormer", run: {variant: pluss}',
            "resformer has no variant 'pluss' (did you mean 'plus'?)",
        ),
        (
            "papers/resformer/variants.yaml",
            "strength: 0.4}",
            "strenght: 0.4}",
            "neutreno.model.values.strenght: unknown key (did you mean 'strength'?)",
        ),
    ],
    ids=["scale", "key", "type", "variant", "nested key"],
)
def test_a_wrong_word_is_one_line_with_file_key_and_remedy(edited, name, old, new, expected):
    edited.edit(name, old, new)
    refused = edited.snakemake("-n")
    assert refused.returncode != 0
    assert expected in refused.stderr
    assert name in refused.stderr
    assert "Traceback" not in refused.stderr and "File " not in refused.stderr


def test_all_problems_are_reported_at_once(edited):
    edited.edit("config.yaml", "scale: smoke", "scale: smok")
    edited.edit("papers/resformer/paper.yaml", "corpus: slimpajama-62b", "corpus: slimpajam-62b")
    refused = edited.snakemake("-n")
    assert "'smok' is not known" in refused.stderr
    edited.edit("config.yaml", "scale: smok", "scale: smoke")
    refused = edited.snakemake("-n")
    assert "data.corpus: 'slimpajam-62b' is not known (did you mean 'slimpajama-62b'?)" in refused.stderr


def test_the_picture_of_the_rule_graph_shows_the_rules_that_there_are(fresh):
    graph = fresh.snakemake("--forceall", "--rulegraph", "dot", "demo")
    rules = set(re.findall(r'label = "(\w+)"', graph.stdout)) - {"demo"}
    drawn = set(re.findall(r">(\w+)</text>", (ROOT / "docs/rulegraph.svg").read_text()))
    assert rules and drawn == rules, "draw it anew: docs/architecture.md has the command"


def test_the_views_that_the_docs_name_exist(fresh):
    from snakemake.cli import get_argument_parser

    text = (ROOT / "docs/architecture.md").read_text()
    views = re.search(r"Snakemake's own views.*?\n\n.*?\n\n", text, re.DOTALL)[0]
    named = set(re.findall(r"snakemake (?:-n |--forceall )?(--[a-z]+)", views)) | set(
        re.findall(r"`(--[a-z]+)`", views)
    )
    known = {option for action in get_argument_parser()._actions for option in action.option_strings}
    assert {"--summary", "--report", "--rulegraph", "--dag"} <= named | {"--rulegraph"} and named <= known
    assert "update pending" in fresh.snakemake("--summary", "resformer_table13").stdout
