"""Reference results: what is kept of a run, that everything renders from it alone, and that nothing is overwritten."""

from __future__ import annotations

import json

import pytest

from respath.comparison.cells import build_grid
from respath.comparison.claims import judge_claim, load_claims
from respath.comparison.results import Results
from respath.config.project import Project, find_root
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.reference.__main__ import main
from respath.reference.bundle import LARGEST, POINTS, collect, restored, thinned
from respath.reference.results import ReferenceResults
from tests.golden.synthetic_results import train_record
from tests.golden.toy import ROOT, run_id, toy


def kept(project, results, folder, **options):
    collect(project, results, folder, **options)
    return ReferenceResults(project, folder)


def test_tables_and_claims_read_the_same_from_bundles(tmp_path):
    project, results = toy(tmp_path / "results", "paper")
    reference = kept(project, results, tmp_path / "kept")
    for artifact in project.artifacts():
        if artifact.is_table and artifact.id != "kv":  # its made-up accounts are not the closed forms
            made, read = (build_grid(project, source, artifact) for source in (results, reference))
            assert [c.per_seed for c in made.compared()] == [c.per_seed for c in read.compared()]
            assert [c.status for c in made.compared()] == [c.status for c in read.compared()]
    for claim in load_claims(project, "toy"):
        if all(test.metric.startswith(("loss.", "lm.", "curve.")) for test in claim.tests):
            made, read = (judge_claim(project, source, "toy", claim) for source in (results, reference))
            assert (made.verdict, made.reason) == (read.verdict, read.reason)


def test_a_curve_is_thinned_to_means_of_neighbours_and_gets_its_tokens_back():
    curve = {"step": list(range(2, 1026, 2)), "loss": [float(n) for n in range(512)], "tokens": [], "lr": []}
    thin = thinned(curve)
    assert len(thin["step"]) == POINTS and thin["step"][:2] == [4, 8] and thin["loss"][:2] == [0.5, 2.5]
    whole = restored({"tokens": 10_240, "steps": 1024, "curve": thin})
    assert whole["curve"]["tokens"][:2] == [40, 80]


def test_a_bundle_names_no_path_and_no_host_and_is_small(tmp_path):
    project = Project(find_root(), {"scale": "mini", "papers": ["resformer"]})
    run = next(iter(project.all_runs().values()))
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
    assert len(text) < LARGEST
    assert "somewhere" not in text and "a-host" not in text and "arrays" not in text
    read = ReferenceResults(project, tmp_path / "kept")
    assert read.train(run.id)["provenance"]["processor"] == "a processor"
    assert read.analysis(run.id)["modules"]["a"]["series"]["a"][0][0] == 0.123457
    assert len(read.train(run.id)["curve"]["step"]) == POINTS


def test_collecting_twice_changes_nothing(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    first = collect(project, results, tmp_path / "kept")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    again = collect(project, results, tmp_path / "kept")
    assert len(first["written"]) == len(project.all_runs()) and again["same"] == first["written"]
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
    assert ReferenceResults(project, tmp_path / "kept").loss(run)["mean_loss"] != 1.0
    assert kept(project, changed, tmp_path / "kept", replace=True).loss(run)["mean_loss"] == 1.0


def test_a_part_that_comes_later_is_added_and_one_that_is_gone_stays(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    run = run_id(project, "S", "mix")
    lm = tmp_path / "results" / "evals" / run / "lm.json"
    text = lm.read_text()
    lm.unlink()
    assert kept(project, results, tmp_path / "kept").lm(run) is None
    lm.write_text(text)
    grown = collect(project, Results(project, tmp_path / "results"), tmp_path / "kept")
    assert grown["grown"] == [run]
    lm.unlink()
    assert kept(project, Results(project, tmp_path / "results"), tmp_path / "kept").lm(run) == json.loads(
        text
    )


def test_runs_that_have_not_ended_are_not_kept(tmp_path):
    project, _ = toy(tmp_path / "none", "smoke")
    absent = run_id(project, "S", "mix")
    project, results = toy(tmp_path / "results", "smoke", skip={absent})
    reference = kept(project, results, tmp_path / "kept")
    assert absent not in reference.runs() and reference.train(absent) is None


def test_accounts_are_the_closed_forms():
    project = Project(find_root(), {"papers": ["resformer"]})
    reference = ReferenceResults(project)
    assert reference.account("resformer", "82M", "svformer")["kv_cache"]["ratio_to_baseline"] == 0.5625
    assert reference.account("resformer", "2M", "sparse-5-6to8") is None


def test_a_bundle_that_belongs_to_another_run_is_refused(tmp_path):
    project, results = toy(tmp_path / "results", "smoke")
    reference = kept(project, results, tmp_path / "kept")
    one, other = reference.runs()[:2]
    (tmp_path / "kept" / f"{one}.json").write_text((tmp_path / "kept" / f"{other}.json").read_text())
    with pytest.raises(UserError, match=f"{one}.json: is no reference file"):
        ReferenceResults(project, tmp_path / "kept").train(one)


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
    assert "Not trained: 1 runs" in capsys.readouterr().out
    made = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert {path.suffix for path in made} == {".csv", ".tex", ".md", ".png", ".pdf", ".html", ".json"}
    for path in made:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes(), path
    page = (tmp_path / "a" / "toy" / "index.html").read_text()
    assert "not run, about" in page and 'id="noise"' in page
