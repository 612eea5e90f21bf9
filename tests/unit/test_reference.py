"""Reference results: what is kept of a run, that everything renders from it alone, and that nothing is overwritten."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from respath.comparison.cells import build_grid
from respath.comparison.claims import judge_claims
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.quantities.keeping import POINTS, binned, restored_train, thinned, unbinned
from respath.quantities.quantity import Quantity
from respath.reference.__main__ import main
from respath.reference.bundle import LARGEST, collect
from respath.reporting.panels.build import shown
from respath.results.reader import Results, kept_results
from tests.golden.synthetic_analyses import write_analyses
from tests.golden.synthetic_results import train_record, write_results
from tests.golden.toy import ROOT, run_id, toy


def kept(project, results, folder, **options):
    collect(project, results, folder, **options)
    return kept_results(project, folder)


def test_tables_and_claims_read_the_same_from_bundles(tmp_path):
    project, results = toy(tmp_path / "results", "paper")
    reference = kept(project, results, tmp_path / "kept")
    for artifact in project.artifacts():
        if artifact.is_table:
            made, read = (build_grid(project, source, artifact) for source in (results, reference))
            assert [c.per_seed for c in made.compared()] == [c.per_seed for c in read.compared()]
            assert [c.status for c in made.compared()] == [c.status for c in read.compared()]
    for claim in project.folder("toy").claims:
        if all(test.metric.startswith(("loss.", "lm.", "curve.")) for test in claim.tests):
            made, read = (judge_claims(project, source, "toy", [claim])[0] for source in (results, reference))
            assert (made.verdict, made.reason) == (read.verdict, read.reason)


def test_a_curve_is_thinned_to_means_of_neighbours_and_gets_its_tokens_back():
    curve = {"step": list(range(2, 1026, 2)), "loss": [float(n) for n in range(512)], "tokens": [], "lr": []}
    thin = thinned(curve)
    assert len(thin["step"]) == POINTS and thin["step"][:2] == [4, 8] and thin["loss"][:2] == [0.5, 2.5]
    whole = restored_train({"tokens": 10_240, "steps": 1024, "curve": thin})
    assert whole["curve"]["tokens"][:2] == [40, 80]


def test_a_bundle_names_no_path_and_no_host_and_is_small(tmp_path):
    project = open_papers(find_root(), {"scale": "mini", "papers": ["resformer"]})
    run = next(iter(needs.all_runs(project).values()))
    record = train_record(run, 3.0, "a" * 64)
    long = {
        "step": list(range(1, 1025)),
        "tokens": list(range(1, 1025)),
        "loss": [3.123456789] * 1024,
        "lr": [0.1] * 1024,
    }
    record |= {"curve": long, "weights": {"path": "/somewhere/model.safetensors", "sha256": "b" * 64}}
    record["provenance"] |= {"hostname": "a-host", "command": "/somewhere/python", "processor": "a processor"}
    write_json(tmp_path / "results" / "runs" / run.id / "train.json", record)
    entry = {"loss": 3.0, "stderr": 0.01, "bits_per_byte": 1.0}
    domains = {domain: dict(entry) for domain in run.spec.data.sample.domains}
    loss = {"schema": 1, "kind": "loss", "run": run.id, "status": "done", "domains": domains}
    loss |= {"mean_loss": 3.0, "mean_bits_per_byte": 1.0}
    write_json(tmp_path / "results" / "evals" / run.id / "loss.json", loss)
    matrix = [[0.123456789] * 13 for _ in range(13)]
    modules = {
        name: {"scalars": {}, "series": {"a": matrix, "b": matrix}, "arrays": {"x": [8, 256]}}
        for name in "abcdefg"
    }
    analysis = {"schema": 1, "kind": "analysis", "run": run.id, "status": "done", "modules": modules}
    write_json(tmp_path / "results" / "analyses" / run.id / "analysis.json", analysis)
    collect(project, Results(project, tmp_path / "results"), tmp_path / "kept")
    text = (tmp_path / "kept" / f"{run.id}.json").read_text()
    # A hash of each of the claims that were in force is 6 kB of it.
    assert len(text) < 45_000 < LARGEST
    assert "somewhere" not in text and "a-host" not in text and "arrays" not in text
    read = kept_results(project, tmp_path / "kept")
    assert read.train(run.id)["provenance"]["processor"] == "a processor"
    assert read.of_run("analysis", run.id)["modules"]["a"]["series"]["a"][0][0] == 0.123457
    assert len(read.train(run.id)["curve"]["step"]) == POINTS


@pytest.fixture(scope="module")
def attention(tmp_path_factory):
    """The paper at smoke with the runs of Figures 12 to 15 alone, made up: project, results, and what is kept of them."""
    folder = tmp_path_factory.mktemp("attention")
    project = open_papers(find_root(), {"papers": ["resformer"], "scale": "smoke"})
    wanted = {
        run.id for run in needs.of_artifact(project, project.artifact("resformer_fig14")).trained.values()
    }
    write_results(project, folder / "results", skip=set(needs.all_runs(project)) - wanted)
    write_analyses(project, folder / "results", skip=set(needs.all_runs(project)) - wanted)
    results = Results(project, folder / "results")
    return project, results, kept(project, results, folder / "kept")


def test_figures_over_positions_are_drawn_from_bundles_to_four_digits(attention):
    project, results, reference = attention
    artifact = project.artifact("resformer_fig14")
    whole, read = (shown(project, source, artifact) for source in (results, reference))
    assert read.notes == whole.notes == ()
    for one, other in zip(whole.panels, read.panels, strict=True):
        assert one.grid.x_edges == other.grid.x_edges and one.grid.y_edges == other.grid.y_edges
        np.testing.assert_allclose(
            np.array(other.grid.values, float), np.array(one.grid.values, float), rtol=5e-4
        )


@pytest.mark.parametrize("name", ["fig12", "fig13", "fig15"])
def test_the_other_figures_of_attention_are_the_same_from_bundles(attention, name):
    project, results, reference = attention
    artifact = project.artifact(f"resformer_{name}")
    whole, read = (shown(project, source, artifact) for source in (results, reference))
    assert read.notes == whole.notes
    for one, other in zip(whole.panels, read.panels, strict=True):
        for line, again in zip(one.lines, other.lines, strict=True):
            assert [m.value for m in again.marks] == pytest.approx([m.value for m in line.marks], rel=1e-5)
    assert not read.panel("A").is_empty


def test_arrays_are_kept_of_runs_whose_arrays_a_figure_draws_and_of_no_other(attention):
    project, _, reference = attention
    drawn = needs.of_artifact(project, project.artifact("resformer_fig14")).arrays
    names = {"importance.token_importance", "norms.value", "norms.hidden"}
    assert len(drawn) == 4 and all(found == names for found in drawn.values())
    for run in reference.store.runs():
        assert set(read_json(reference.store.folder / f"{run}.json").get("arrays", ())) == drawn.get(
            run, set()
        )
    assert needs.of_artifact(project, project.artifact("resformer_fig13")).arrays == {}
    assert reference.store.array("analysis", "norms.value_packed", {"run": next(iter(drawn))}) is None


def test_binned_arrays_of_the_papers_length_are_small_and_keep_the_means_of_their_bins():
    array = np.random.default_rng(1).lognormal(size=(24, 2048)).astype("<f4")
    array[3, 1000] = np.nan
    small = binned(array)
    assert len(json.dumps(small)) < 24_000
    again = unbinned(small)
    assert again.shape == array.shape
    for a, b in itertools.pairwise(small["borders"]):
        np.testing.assert_allclose(again[:, a:b].mean(1), array[:, a:b].mean(1, dtype="f8"), rtol=5e-4)
    assert np.isnan(again[3, 1000]) and np.isfinite(np.delete(again, 3, axis=0)).all()


def test_arrays_that_come_later_are_added_and_contradicting_ones_refused(attention, tmp_path):
    project, results, _ = attention
    run = next(iter(needs.of_artifact(project, project.artifact("resformer_fig14")).arrays))
    collect(project, results, tmp_path)
    path = tmp_path / f"{run}.json"
    content = read_json(path)
    gone = content["arrays"].pop("norms.value")
    write_json(path, content)
    assert collect(project, results, tmp_path)["grown"] == [run]
    assert read_json(path)["arrays"]["norms.value"] == gone
    content = read_json(path)
    content["arrays"]["norms.value"]["values"][0][0] = 77.0
    write_json(path, content)
    with pytest.raises(UserError, match=f"{run}.json: arrays of this run differ"):
        collect(project, results, tmp_path)


def test_collecting_twice_changes_nothing(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    first = collect(project, results, tmp_path / "kept")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    again = collect(project, results, tmp_path / "kept")
    assert len(first["written"]) == len(needs.all_runs(project)) and again["same"] == first["written"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == before


def test_another_result_of_a_kept_run_is_refused_unless_it_is_meant(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    collect(project, results, tmp_path / "kept")
    run = run_id(project, "S", "mix")
    path = tmp_path / "results" / "evals" / run / "loss.json"
    write_json(path, {**read_json(path), "mean_loss": 1.0})
    changed = Results(project, tmp_path / "results")
    with pytest.raises(UserError, match=f"{run}.json: loss of this run differ.*--replace"):
        collect(project, changed, tmp_path / "kept")
    assert kept_results(project, tmp_path / "kept").of_run("loss", run)["mean_loss"] != 1.0
    assert kept(project, changed, tmp_path / "kept", replace=True).of_run("loss", run)["mean_loss"] == 1.0


def test_a_part_that_comes_later_is_added_and_one_that_is_gone_stays(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    run = run_id(project, "S", "mix")
    lm = tmp_path / "results" / "evals" / run / "lm.json"
    text = lm.read_text()
    lm.unlink()
    assert kept(project, results, tmp_path / "kept").of_run("lm", run) is None
    lm.write_text(text)
    grown = collect(project, Results(project, tmp_path / "results"), tmp_path / "kept")
    assert grown["grown"] == [run]
    lm.unlink()
    assert kept(project, Results(project, tmp_path / "results"), tmp_path / "kept").of_run(
        "lm", run
    ) == json.loads(text)


def test_runs_that_have_not_ended_are_not_kept(tmp_path):
    project, _ = toy(tmp_path / "none", "smoke")
    absent = run_id(project, "S", "mix")
    project, results = toy(tmp_path / "results", "smoke", skip={absent})
    reference = kept(project, results, tmp_path / "kept")
    assert absent not in reference.store.runs() and reference.train(absent) is None


def test_accounts_are_the_closed_forms():
    project = open_papers(find_root(), {"papers": ["resformer"]})
    ratio = "account.kv_cache.ratio_to_baseline"

    def read(size, variant):
        return kept_results(project).sample(
            "resformer", Quantity(ratio, RunRequest(size=size, variant=variant))
        )

    assert read("82M", "svformer").value == 0.5625
    assert read("2M", "sparse-5-6to8").state == "not run"


def test_a_bundle_that_belongs_to_another_run_is_refused(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    reference = kept(project, results, tmp_path / "kept")
    one, other = reference.store.runs()[:2]
    (tmp_path / "kept" / f"{one}.json").write_text((tmp_path / "kept" / f"{other}.json").read_text())
    with pytest.raises(UserError, match=f"{one}.json: is no reference file"):
        kept_results(project, tmp_path / "kept").train(one)


@pytest.mark.slow
def test_the_command_renders_everything_from_the_bundles_alone(tmp_path, capsys):
    project, results = toy(
        tmp_path / "results", "paper", skip={run_id(toy(tmp_path / "x", "paper")[0], "L", "mix")}
    )
    collect(project, results, tmp_path / "kept")
    options = [
        "--project-root",
        str(ROOT),
        "--config",
        '{"papers": ["toy"], "scale": "paper"}',
        "--folder",
        str(tmp_path / "kept"),
    ]
    for name in ("a", "b"):
        assert main(["render", *options, "--out", str(tmp_path / name)]) == 0
    assert "1 run is missing, about" in capsys.readouterr().out
    made = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert {path.suffix for path in made} == {".csv", ".tex", ".md", ".pdf", ".svg", ".html", ".json", ".css"}
    for path in made:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path
    page = (tmp_path / "a" / "toy" / "index.html").read_text()
    assert "not run, about" in page and 'id="runs"' in page
