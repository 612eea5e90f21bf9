"""A new measurement of a run, in a table, a figure and a claim, is a record, a module, a rule, and the lines that ask for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.errands import ROOT, TreeCopy
from tests.golden.toy import ROOT as TOY

SCRIPT = f"""
import json, sys
from pathlib import Path
sys.path.append({str(ROOT)!r})
from respath.comparison.cells import build_grid
from respath.comparison.claims import judge_claims
from respath.papers import needs
from respath.papers.check import open_papers
from respath.reference.bundle import collect
from respath.reporting.panels.build import shown
from respath.results.reader import Results, kept_results
from tests.golden.synthetic_results import write_results, write_json

project = open_papers(Path.cwd(), {{"papers": ["toy"], "scale": "paper"}})
write_results(project, Path("made"))
for run in needs.all_runs(project).values():
    rms = {{"base": 0.03, "mix": 0.02, "odd": 0.04}}[run.variant] + 0.001 * run.seed
    document = {{"schema": 1, "kind": "weights", "run": run.id, "status": "done", "rms": rms}}
    write_json(Path("made") / "weights" / f"{{run.id}}.json", document)
results = Results(project, "made")
grid = build_grid(project, results, project.artifact("toy_table1"))
claim = next(claim for claim in project.folder("toy").claims if claim.id == "mix-keeps-small")
figure = shown(project, results, project.artifact("toy_fig3"))
collect(project, results, Path("kept"))
kept = build_grid(project, kept_results(project, "kept"), project.artifact("toy_table1"))
print(json.dumps({{
    "cell": grid.cells["mix", "rms"].ours,
    "gain": grid.cells["mix", "rms"].sample.minus(grid.cells["base", "rms"].sample).value,
    "kept": kept.cells["mix", "rms"].per_seed,
    "marks": [line.marks[0].value for line in figure.panel("A").of("ours")],
    "verdict": judge_claims(project, results, "toy", [claim])[0].verdict,
    "files": needs.of_artifact(project, project.artifact("toy_fig3")).paths(),
}}))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The toy's project with the change applied, and the files that it touches."""
    copy = TreeCopy(tmp_path_factory.mktemp("measured"), "src", "workflow", "profiles", "Snakefile", "envs")
    for part in ("papers", "scales"):
        shutil.copytree(TOY / part, copy.path / part)
    (copy.path / "reports").mkdir()
    shutil.copytree(ROOT / "reports/templates", copy.path / "reports/templates")
    (copy.path / "config.yaml").write_text("papers: [toy]\n")
    return copy, copy.apply("measured_metric")


def test_it_touches_a_record_a_module_a_rule_and_what_asks_for_it(tree):
    code = [
        "src/respath/measure/sizes_of_weights.py",
        "src/respath/quantities/kinds.py",
        "workflow/rules/evaluate.smk",
    ]
    asking = [f"papers/toy/{name}.yaml" for name in ("claims", "figures", "tables")]
    assert sorted(tree[1]) == sorted(code + asking)


def test_table_figure_claim_and_kept_bundle_read_it(tree):
    said = json.loads(tree[0].python(SCRIPT))
    assert said["cell"] == pytest.approx(0.022) and said["gain"] == pytest.approx(-0.01)
    assert said["marks"] == pytest.approx([0.032, 0.022])
    assert said["kept"] == pytest.approx({"1": 0.021, "2": 0.022, "3": 0.023})
    assert said["verdict"] == "supported"
    assert sum(path.startswith("weights/toy-S-") for path in said["files"]) == 6


def test_the_workflow_plans_it_for_the_runs_that_are_shown(tree):
    copy, _ = tree
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "toy_fig3"],
        cwd=copy.path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert (jobs["weights"], jobs["train"], jobs["figure"]) == ("2", "2", "1")


def test_the_module_measures_real_weights(tree, tmp_path):
    copy, _ = tree
    (tmp_path / "final").mkdir()
    save_file(
        {"a": np.full((2, 3), 2.0, "<f4"), "b": np.zeros(6, "<f4")}, tmp_path / "final/model.safetensors"
    )
    (tmp_path / "train.json").write_text(json.dumps({"run": "some-run"}))
    copy.python(
        "from respath.measure.sizes_of_weights import main; "
        f"assert main(['--train', '{tmp_path}/train.json', '--checkpoints', '{tmp_path}', '--out', '{tmp_path}/out.json']) == 0"
    )
    assert json.loads((tmp_path / "out.json").read_text())["rms"] == pytest.approx(2**0.5)
