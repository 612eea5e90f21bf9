"""What tables, figures and claims make of a run that was imported: its measurements count, its training is unknown."""

from __future__ import annotations

import pytest

from respath.comparison.costs import estimates
from respath.comparison.diff import compare, markdown
from respath.comparison.provenance import provenance_of
from respath.comparison.report import Report
from respath.config.request import RunRequest
from respath.files import read_json
from respath.papers import needs
from respath.quantities.keeping import restored_train
from respath.reference.bundle import bundle
from respath.reporting import page
from respath.reporting.footer import footer_lines
from respath.results.reader import Results
from tests.golden.synthetic_results import write_json
from tests.golden.toy import reading, toy


@pytest.fixture
def made(tmp_path):
    """The toy with one run that is imported: project, results, run."""
    project, results = toy(tmp_path, "paper")
    run = project.paper("toy").run(RunRequest(size="S", variant="mix"), 1)
    path = results.store.folder / "runs" / run.id / "train.json"
    record = read_json(path)
    record |= {
        "steps": None,
        "tokens": None,
        "loss": {"final": None, "window": None},
        "curve": {"step": [], "tokens": [], "loss": [], "lr": []},
        "manifest_sha256": None,
        "cost": {},
        "provenance": {
            "imported": {"name": "theirs", "format": "respath", "files": {}, "dtypes": ["float32"]}
        },
    }
    write_json(path, record)
    return project, Results(project, results.store.folder), run


def test_its_evaluation_counts_and_what_training_would_have_recorded_reads_not_run(made):
    project, results, run = made
    assert reading(results, run, "loss.mean").state == "measured"
    for metric in ("train.loss.final", "train.steps", "train.tokens", "train.cost.seconds"):
        found = reading(results, run, metric)
        assert (found.state, found.value) == ("not run", None) and "imported" in found.reason, metric
    found = reading(results, run, "curve.early")
    assert found.state == "not run" and found.reason == "imported, without a training curve"
    assert run.id not in {one.run for one in estimates(project, results, needs.all_runs(project).values())}


def test_footers_pages_and_the_comparison_say_that_it_was_imported(made, tmp_path):
    project, results, run = made
    runs = list(needs.all_runs(project).values())
    lines = footer_lines(provenance_of(project, results, "toy", runs))
    assert f"Warning: 1 of {len(runs)} runs were imported, not trained here: {run.id}." in lines
    assert "Warning: what tokens 1 of the imported runs were trained on is not recorded." in lines
    assert not [line for line in lines if "different" in line]
    assert f"runs were imported, not trained here: {run.id}" in markdown(compare(project, results))
    rows = page.run_rows(Report(project, results, "toy"))
    assert [row["id"] for row in rows if row["state"] == "imported"] == [run.id]


def test_a_bundle_keeps_where_it_came_from(made):
    _, results, run = made
    kept = bundle(results, run)
    assert kept["train"]["provenance"]["imported"]["name"] == "theirs"
    assert restored_train(kept["train"])["curve"]["tokens"] == []


def test_a_figure_of_curves_names_it_and_draws_the_others(made):
    from respath.reporting.panels.build import shown

    project, results, _ = made
    artifact = next(a for a in project.artifacts("toy") if not a.is_table)
    notes = shown(project, results, artifact).notes
    assert any("imported, without a training curve" in note for note in notes)
