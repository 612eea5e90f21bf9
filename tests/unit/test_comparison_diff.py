"""The comparison as a whole: documents, check, warnings and command line."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from respath.comparison.__main__ import main
from respath.comparison.diff import compare, markdown
from respath.comparison.provenance import provenance_of_artifact
from respath.comparison.summary import brief, summary
from respath.files import read_json, write_json
from respath.fingerprint import training_code
from respath.papers import needs
from respath.papers.check import open_papers
from respath.reporting.footer import footer_lines
from respath.results.reader import Results
from tests.golden.toy import ROOT, run_id, toy, toy_project


def call(folder, *arguments, scale="smoke"):
    return main(["--project-root", str(ROOT), "--results", str(folder), "--scale", scale, *arguments])


def test_the_document_is_json_and_the_same_for_the_same_results(tmp_path):
    project, results = toy(tmp_path, "paper")
    one = json.dumps(compare(project, results), sort_keys=True, allow_nan=False)
    project, results = toy(tmp_path, "paper")
    assert json.dumps(compare(project, results), sort_keys=True, allow_nan=False) == one


def test_counts_add_up_to_the_cells(tmp_path):
    document = compare(*toy(tmp_path, "paper"))
    tables = document["papers"]["toy"]["tables"].values()
    assert sum(document["counts"].values()) == sum(len(table["cells"]) for table in tables)
    # Three claims need runs; the fourth is a count.
    assert sum(document["verdicts"].values()) == 3 and len(document["papers"]["toy"]["claims"]) == 4


def test_check_at_a_small_scale_asks_for_scale_free_cells_only(tmp_path):
    project = toy_project()
    document = compare(*toy(tmp_path, skip=set(needs.all_runs(project))))
    assert document["check"]["failures"] == [
        "toy_table2: Code, proportion: off (paper 35, ours 30)",
        "toy_table3: layers, M: off (paper 5, ours 4)",
    ]


def test_check_at_a_comparable_scale_asks_for_every_printed_cell(tmp_path):
    project = toy_project("paper")
    skip = {run_id(project, "S", "base", seed) for seed in (1, 2, 3)}
    failures = compare(*toy(tmp_path, "paper", skip=skip))["check"]["failures"]
    assert "toy_table1: base, loss: not run (not trained)" in failures
    assert any(line.startswith("toy_table1: odd, loss: off") for line in failures)


def test_a_contradicted_claim_fails_the_check(tmp_path):
    losses = {"mix": (3.2, 3.21, 3.19), "base": (3.0, 3.01, 2.99), "odd": (3.0, 3.0, 3.0)}
    document = compare(*toy(tmp_path, "paper", loss_of=lambda run: losses[run.variant][run.seed - 1]))
    assert any(
        line.startswith("claim mix-beats-base: contradicted") for line in document["check"]["failures"]
    )


def test_a_scale_free_claim_about_what_is_not_measured_fails_the_check(tmp_path):
    folder = shutil.copytree(ROOT, tmp_path / "toy")
    claims = folder / "papers/toy/claims.yaml"
    closed, measured = "account.kv_cache.ratio_to_baseline", "cache.ratio_to_baseline"
    claims.write_text(claims.read_text().replace(closed, measured))
    project = open_papers(folder, {"papers": ["toy"]})
    failures = compare(project, Results(project, tmp_path / "nothing"))["check"]["failures"]
    assert any(line.startswith("claim odd-cache: not run") for line in failures)


def test_a_cache_that_differs_from_its_formula_fails_the_check(tmp_path):
    project, _results = toy(tmp_path)
    path = tmp_path / "kv" / "toy.json"
    data = read_json(path)
    data["entries"][0]["measured_bytes"] += 2
    write_json(path, data)
    failures = compare(project, Results(project, tmp_path))["check"]["failures"]
    assert any(line.startswith("KV cache of") and "formula" in line for line in failures)


def change_record(folder, run, **changes):
    path = folder / "runs" / run / "train.json"
    write_json(path, read_json(path) | changes)


def warnings(project, folder, table="table1"):
    return compare(project, Results(project, folder))["papers"]["toy"]["tables"][table]["provenance"][
        "warnings"
    ]


def test_runs_that_saw_different_manifests_are_warned_about(tmp_path):
    project, _ = toy(tmp_path)
    assert warnings(project, tmp_path) == []
    change_record(tmp_path, run_id(project, "S", "mix"), manifest_sha256="f" * 64)
    found = warnings(project, tmp_path)
    assert found[0].startswith("its runs saw 2 different token manifests")
    assert any("evaluated on another token manifest" in line for line in found)


def test_runs_of_different_sources_or_with_uncommitted_changes_are_warned_about(tmp_path):
    project, _ = toy(tmp_path)
    code = dict.fromkeys(("model", "training", "shared"), "a" * 64)
    provenance = {"commit": "c" * 40, "dirty": True, "code": code}
    change_record(tmp_path, run_id(project, "S", "mix"), provenance=provenance)
    text = " ".join(warnings(project, tmp_path))
    assert "its runs were trained by 2 different states of the code" in text
    assert "earlier code" in text and "aaaaaaaa" in text
    assert "1 of 3 runs were trained with uncommitted changes" in text


def test_weights_that_changed_after_the_evaluation_are_warned_about(tmp_path):
    project, _ = toy(tmp_path)
    change_record(tmp_path, run_id(project, "S", "mix"), weights={"path": "x", "sha256": "e" * 64})
    assert any("evaluated weights are not those" in line for line in warnings(project, tmp_path))


def test_runs_of_older_code_than_todays_are_listed(tmp_path):
    project, results = toy(tmp_path)
    stale = compare(project, results)["papers"]["toy"]["stale_runs"]
    assert run_id(project, "S", "mix") in stale
    spec = needs.all_runs(project)[run_id(project, "S", "mix")].spec
    today = {"commit": None, "dirty": None, "code": training_code(spec, "torch")}
    change_record(tmp_path, run_id(project, "S", "mix"), provenance=today)
    stale = compare(project, Results(project, tmp_path))["papers"]["toy"]["stale_runs"]
    assert run_id(project, "S", "mix") not in stale


def test_markdown_escapes_bars(tmp_path):
    document = compare(*toy(tmp_path, "paper"))
    document["papers"]["toy"]["claims"][0] |= {"title": "a | b", "verdict": "contradicted"}
    assert r"a \| b" in markdown(document)


# --- command line ---


def test_diff_exits_zero_and_check_one_for_the_same_deviations(tmp_path, capsys):
    toy(tmp_path / "results")
    arguments = ["--out-json", str(tmp_path / "diff.json"), "--out-md", str(tmp_path / "diff.md")]
    assert call(tmp_path / "results", *arguments) == 0
    assert call(tmp_path / "results", "--check") == 1
    assert read_json(tmp_path / "diff.json")["kind"] == "diff"
    assert "not a replication" in (tmp_path / "diff.md").read_text()
    shown = capsys.readouterr().out
    assert "it judges none of the 3 measured claims" in shown and "check: 2 failures" in shown


def test_one_target_can_be_checked_alone(tmp_path):
    toy(tmp_path)
    assert call(tmp_path, "--target", "toy_table1", "--check", "--quiet") == 0
    assert call(tmp_path, "--target", "toy_table3", "--check", "--quiet") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "toy_tabel1"], "did you mean 'toy_table1'"),
        (["--config", "{"], "--config: not valid JSON"),
        (["--config", "[1]"], "--config: expects a JSON object"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(tmp_path, capsys, arguments, message):
    assert call(tmp_path, *arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown


def test_comparing_needs_no_training_library(tmp_path):
    code = (
        "import sys, respath.comparison.__main__ as m;"
        f"m.main(['--project-root', {str(ROOT)!r}, '--results', {str(tmp_path)!r}, '--quiet']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib', 'transformers', 'lm_eval')))"
    )
    path = os.pathsep.join(sys.path)
    assert subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}).returncode == 0


def test_a_mix_of_codes_is_in_the_footer_on_screen_and_in_the_closing_lines(tmp_path, capsys):
    project, _ = toy(tmp_path)
    code = dict.fromkeys(("model", "training", "shared"), "a" * 64)
    change_record(
        tmp_path,
        run_id(project, "S", "mix"),
        provenance={"code": code, "accepted": ["other code (model ...)"]},
    )
    results = Results(project, tmp_path)
    document = compare(project, results)
    table = next(artifact for artifact in project.artifacts() if artifact.id == "table1")
    shown = {
        "footer": " ".join(footer_lines(provenance_of_artifact(project, results, table))),
        "closing lines": brief(document),
    }
    summary(document)
    shown["screen"] = capsys.readouterr().out
    for place, text in shown.items():
        assert "went on from steps that other code had computed (accepted)" in text, place
        assert "2 different states of the code" in text, place
    for place in ("screen", "closing lines"):
        assert "runs are of other or earlier code than today's" in shown[place]
        assert f"respath stale --scale {project.scale.id}" in shown[place]
