"""Analyses as tables, claims and the workflow read them: values, ratios of two runs, and what is not there."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import yaml

from respath.comparison.claims import judge_claims
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.claims import Claim
from respath.papers.library import find_root
from respath.papers.tables import Column
from tests.golden.synthetic_results import write_json
from tests.golden.toy import ROOT, reading, toy


@pytest.fixture
def toy_paper(tmp_path):
    """Project and results of the toy at scale paper, three seeds, nothing analysed."""
    return toy(tmp_path, "paper")


def analysed(results, run, /, modules, arrays=None, **changes):
    """Write the analyses of a run."""
    content = {
        "schema": 1,
        "kind": "analysis",
        "run": run.id,
        "status": "done",
        "modules": modules,
        **changes,
    }
    write_json(results.store.folder / "analyses" / run.id / "analysis.json", content)
    if arrays:
        np.savez(results.store.folder / "analyses" / run.id / "arrays.npz", **arrays)


def runs(project, variant):
    return [project.paper("toy").run(RunRequest(size="S", variant=variant), seed) for seed in project.seeds]


def scalars(module, **values):
    return {module: {"scalars": values, "series": {}}}


def test_a_scalar_is_a_metric_of_a_run(toy_paper):
    project, results = toy_paper
    run = runs(project, "mix")[0]
    analysed(results, run, scalars("importance", entropy_mean=5.5))
    assert reading(results, run, "analysis.importance.entropy_mean").value == 5.5


def test_what_is_not_there_is_said(toy_paper):
    project, results = toy_paper
    first, second, third = runs(project, "mix")
    metric = "analysis.pca.components_mean_from_layer2"
    assert reading(results, first, metric).reason == "trained, not analysed"
    analysed(results, second, scalars("importance", entropy_mean=5.5))
    assert reading(results, second, metric).reason == "analysed without pca"
    modules = scalars("coefficients")
    modules["coefficients"]["reason"] = "the value path own has no coefficients"
    analysed(results, third, modules)
    found = reading(results, third, "analysis.coefficients.late_over_early")
    assert (found.state, "the value path own has no coefficients" in found.reason) == ("not run", True)


def test_the_analyses_of_a_diverged_run_are_diverged(toy_paper):
    project, results = toy_paper
    run = runs(project, "mix")[0]
    analysed(results, run, {}, status="diverged", reason="loss is nan")
    found = reading(results, run, "analysis.pca.components_mean_from_layer2")
    assert (found.state, found.reason) == ("diverged", "loss is nan")


def test_arrays_are_read_by_name_and_checked_against_the_json(toy_paper):
    project, results = toy_paper
    run, other = runs(project, "mix")[:2]
    modules = {"norms": {"scalars": {}, "series": {}, "arrays": {"value": [2, 3]}}}
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    analysed(results, run, modules, {"norms.value": array})
    assert np.array_equal(results.store.array("analysis", "norms.value", {"run": run.id}), array)
    assert results.store.array("analysis", "norms.hidden", {"run": run.id}) is None
    analysed(results, other, modules, {"norms.value": array.T})
    with pytest.raises(UserError, match=r"has shape \[3, 2\], not \[2, 3\]"):
        results.store.array("analysis", "norms.value", {"run": other.id})
    (results.store.folder / "analyses" / other.id / "arrays.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read"):
        results.store.array("analysis", "norms.value", {"run": other.id})


def test_an_analysis_of_another_run_is_refused(toy_paper):
    project, results = toy_paper
    run, other = runs(project, "mix")[:2]
    analysed(results, run, {}, run=other.id)
    with pytest.raises(UserError, match="belongs to"):
        results.of_run("analysis", run.id)


# --- claims -----------------------------------------------------------------------------------------------------------


def claim(**changes):
    entry = {
        "id": "it",
        "title": "It",
        "source": {"figure": 4},
        "metric": "analysis.gradients.value_ratio_layer1",
        "left": {"size": "S", "variant": "mix"},
        "right": {"size": "S", "variant": "base"},
        "expect": {"equals": 2, "tolerance": 0.5},
        "judged_at": ["paper"],
        "needs_seeds": 3,
    }
    return Claim.model_validate_json(json.dumps({**entry, **changes}))


def test_a_ratio_is_lefts_value_over_rights_of_the_same_seed(toy_paper):
    project, results = toy_paper
    for factor, pair in zip(
        (2.0, 2.1, 1.9), zip(runs(project, "mix"), runs(project, "base"), strict=True), strict=True
    ):
        for run, value in zip(pair, (3.0 * factor * pair[0].seed, 3.0 * pair[0].seed), strict=True):
            analysed(results, run, scalars("gradients", value_layer1=value))
    judged = judge_claims(project, results, "toy", [claim()])[0]
    assert judged.verdict == "supported"
    assert judged.tests[0].value == pytest.approx(2.0)
    assert judged.tests[0].interval.mean == pytest.approx(2.0)
    halved = judge_claims(project, results, "toy", [claim(expect={"equals": 0.5, "tolerance": 0.2})])[0]
    assert halved.verdict == "contradicted"


def test_a_scalar_is_compared_in_pairs(toy_paper):
    project, results = toy_paper
    for variant, values in (("mix", (5.5, 5.6, 5.4)), ("base", (5.0, 5.1, 4.9))):
        for run, value in zip(runs(project, variant), values, strict=True):
            analysed(results, run, scalars("importance", entropy_mean=value))
    metric = {"metric": "analysis.importance.entropy_mean"}
    higher = claim(**metric, expect={"direction": "higher", "min_effect": 0.0})
    (judged,) = judge_claims(project, results, "toy", [higher])
    assert judged.verdict == "supported"


def test_claims_about_runs_that_are_not_analysed_are_not_run(toy_paper):
    judged = judge_claims(*toy_paper, "toy", [claim()])[0]
    assert (judged.verdict, judged.reason) == ("not run", "trained, not analysed")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": "analysis.gradiens.value_ratio_layer1"}, "did you mean 'gradients'"),
        ({"metric": "analysis.gradients.value_ratio_layer2"}, "did you mean 'value_ratio_layer1'"),
        ({"right": None}, "compares two runs"),
    ],
)
def test_a_claim_with_a_wrong_analysis_is_refused_when_it_is_read(changes, said, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(ROOT, folder)
    entry = json.loads(claim().model_dump_json(exclude_defaults=True)) | changes
    entry = {key: value for key, value in entry.items() if value is not None}
    (folder / "papers" / "toy" / "claims.yaml").write_text(yaml.safe_dump({"claims": [entry]}))
    with pytest.raises(UserError, match=said):
        open_papers(folder, {"papers": ["toy"]})


# --- what the workflow is told ----------------------------------------------------------------------------------------


def test_a_table_may_show_an_analysis_and_a_wrong_one_is_refused():
    assert Column(id="a", label="A", metric="analysis.importance.entropy_mean").metric
    with pytest.raises(ValueError, match="did you mean 'entropy_mean'"):
        Column(id="a", label="A", metric="analysis.importance.entropi_mean")
    with pytest.raises(ValueError, match="compares two runs"):
        Column(id="a", label="A", metric="analysis.gradients.value_ratio_layer1")


def test_a_table_of_analyses_asks_for_trained_runs_and_their_modules(tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(ROOT, folder)
    path = folder / "papers" / "toy" / "tables.yaml"
    tables = yaml.safe_load(path.read_text())
    wanted = {"id": "entropy", "label": "Entropy", "metric": "analysis.importance.entropy_mean"}
    tables["tables"]["table1"]["columns"] = [wanted]
    path.write_text(yaml.safe_dump(tables))
    project = open_papers(folder, {"papers": ["toy"], "scale": "paper"})
    artifact = project.artifact("toy_table1")
    trained = {run.id for run in needs.of_artifact(project, artifact).trained.values()}
    assert (
        needs.of_artifact(project, artifact).analyses == {key: {"importance"} for key in trained}
        and len(trained) == 9
    )
    assert (
        needs.of_artifact(project, artifact).kinds == {"analysis"}
        and needs.of_artifact(project, artifact).untrained == {}
    )


def test_the_modules_that_claims_read_are_known_per_run():
    project = open_papers(find_root(), {"scale": "smoke", "papers": ["resformer"]})
    found = needs.needs_of(project, "resformer", needs.quantities_of_claims(project, "resformer"))
    modules = {
        (found.trained[id].size, found.trained[id].variant): names for id, names in found.analyses.items()
    }
    assert modules["82M", "dense"] == {"coefficients"}
    assert modules["82M", "learnable"] == {"coefficients", "similarity"}
    assert {"gradients", "similarity", "pca", "removal", "importance"} <= modules["82M", "identity"]
    # Nothing else than what judging a claim would read.
    metrics = [test.metric for entry in project.folder("resformer").claims for test in entry.tests]
    named = {metric.split(".")[1] for metric in metrics if metric.startswith("analysis.")}
    assert set().union(*modules.values()) == named
