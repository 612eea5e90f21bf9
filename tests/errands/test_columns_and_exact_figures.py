"""An interval, a p-value, or a figure of an exact quantity over contexts is one YAML file."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from scipy.stats import ttest_1samp

from respath.accounting import account as account_of
from respath.comparison.report import Report
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.figures import Panels
from respath.papers.library import Artifact
from respath.reporting.figure import render, scale_line
from respath.reporting.panels.build import shown
from respath.reporting.table import render as render_table
from respath.results.reader import Results
from tests.errands import apply
from tests.golden.synthetic_results import write_results
from tests.golden.toy import ROOT as TOY
from tests.golden.toy import account, toy_loss


def changed(folder, patch, scale="paper"):
    """The toy project with a patch applied, and the files that the patch touches."""
    shutil.copytree(TOY, folder, dirs_exist_ok=True)
    touched = apply(folder, patch)
    return open_papers(folder, {"papers": ["toy"], "scale": scale}), touched


def test_an_interval_and_a_p_value_of_a_paired_difference_are_one_yaml(tmp_path):
    project, touched = changed(tmp_path / "toy", "paired_columns")
    assert touched == ["papers/toy/tables.yaml"]
    write_results(project, tmp_path / "results", loss_of=toy_loss)
    report = Report(project, Results(project, tmp_path / "results"), "toy")
    grid, texts = render_table(report, project.artifact("toy_table1"))
    losses = {row: grid.cells[row, "loss"].per_seed for row in ("base", "mix")}
    differences = [losses["mix"][seed] - losses["base"][seed] for seed in (1, 2, 3)]
    expected = ttest_1samp(differences, 0.0)
    low, high = expected.confidence_interval(0.95)
    cell, p = grid.cells["mix", "range"], grid.cells["mix", "p"]
    assert (cell.low, cell.high) == pytest.approx((low, high)) and cell.per_seed == pytest.approx(
        dict(zip((1, 2, 3), differences, strict=True))
    )
    assert p.ours == pytest.approx(expected.pvalue, rel=1e-9)
    # The baseline's own row has no other run.
    assert grid.cells["base", "range"].kind == "text" and grid.cells["base", "p"].kind == "text"
    row = next(line for line in texts["md"].splitlines() if line.startswith("| Mix"))
    assert f"[{low:+.3f}, {high:+.3f}]".replace("-", "−") in row and f"{expected.pvalue:.4f}" in row
    (written,) = [
        line
        for line in csv.DictReader(io.StringIO(texts["csv"]))
        if (line["row"], line["column"]) == ("mix", "range")
    ]
    assert written["show"] == "interval" and float(written["low"]) == cell.low


def test_one_seed_has_neither(tmp_path):
    project, _ = changed(tmp_path / "toy", "paired_columns", "smoke")
    write_results(project, tmp_path / "results", loss_of=toy_loss)
    report = Report(project, Results(project, tmp_path / "results"), "toy")
    grid, texts = render_table(report, project.artifact("toy_table1"))
    for column in ("range", "p"):
        cell = grid.cells["mix", column]
        assert (cell.ours, cell.status, cell.reason) == (None, "not run", "one seed has no interval")
    assert all(texts.values())


def test_kv_bytes_over_contexts_are_one_yaml_and_need_no_result(tmp_path):
    project, touched = changed(tmp_path / "toy", "exact_over_contexts", "smoke")
    assert touched == ["papers/toy/figures.yaml"]
    artifact = project.artifact("toy_fig3")
    wanted = needs.of_artifact(project, artifact)
    assert wanted.paths() == [] and wanted.trained == {}
    results = Results(project, tmp_path / "nothing")
    panel = shown(project, results, artifact).panel("A")
    for line, variant in zip(panel.of("ours"), ("base", "odd"), strict=True):
        model = project.at("paper").paper("toy").model("S", variant)
        assert [(mark.x, mark.value) for mark in line.marks] == [
            (context, account_of(model, context=context).kv_cache.bytes) for context in (64, 128, 4096)
        ]
        assert all(mark.difference is None for mark in line.marks)
    files = render(project, results, artifact)
    assert set(files) == {"csv", "json", "svg", "pdf"} and len(files["csv"].splitlines()) == 7
    assert scale_line(project, artifact) == "Scale smoke: nothing here is trained; shapes are the paper's own"


def test_points_stand_where_a_metric_of_their_shape_puts_them(tmp_path):
    project = open_papers(TOY, {"papers": ["toy"], "scale": "paper"})
    write_results(project, tmp_path, loss_of=toy_loss)
    panel = {
        "kind": "sweep",
        "title": "Loss by parameters",
        "x": {"label": "parameters", "scale": "log"},
        "at": "account.parameters.total",
        "run": {"variant": "base"},
        "lines": [{"points": [{"run": {"size": size}} for size in "LSM"]}],
    }
    document = {"kind": "panels", "title": "A figure", "section": "1", "panels": [panel]}
    artifact = Artifact("toy", "fig9", Panels.model_validate_json(json.dumps(document)))
    results = Results(project, tmp_path)
    drawn = shown(project, results, artifact).panel("A").of("ours")[0].marks
    assert [mark.x for mark in drawn] == [account(results, size, "base") for size in "SML"]
    assert [len(mark.seeds) for mark in drawn] == [3, 3, 3]
    for wrong, said in (({"at": "loss.mean"}, "is measured"), ({"at": None}, "takes its place from `x`")):
        document = {"kind": "panels", "title": "A figure", "section": "1", "panels": [{**panel, **wrong}]}
        with pytest.raises(ValueError, match=said):
            Panels.model_validate_json(json.dumps(document))
