"""A variant called ``a_b&c%$(x)``: it is a name everywhere, in shells, LaTeX, HTML and figures, and never a command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from respath.comparison.report import Report
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.resolve import Resolver
from respath.reporting import figure, page, table
from respath.results.reader import Results
from respath.spec.data import tokens_id
from tests.project_copy import ProjectCopy

ODD = "a_b&c%$(x)"
VARIANT = f"""
  "{ODD}":
    title: "{ODD}"
    label: "{ODD}"
    model: {{values: {{kind: mix, layers: all, coefficients: {{source: 3.25, own: 1.0}}}}}}
"""
TABLE = f"""
  odd:
    title: "{ODD}"
    section: "0"
    caption: "{ODD}"
    run: {{size: 82M, variant: "{ODD}"}}
    rows:
      - {{id: odd, label: "{ODD}", group: "{ODD}"}}
    columns:
      - {{id: loss, label: "{ODD}", metric: loss.mean, decimals: 3}}
"""
FIGURE = f"""
  oddcurves:
    kind: panels
    title: "{ODD}"
    section: "0"
    caption: "{ODD}"
    run: {{size: 82M}}
    panels:
      - kind: tokens
        title: "{ODD}"
        variants: [transformer, "{ODD}"]
        baseline: transformer
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> ProjectCopy:
    copy = ProjectCopy(tmp_path_factory.mktemp("odd"))
    for name, text in (("variants", VARIANT), ("tables", TABLE), ("figures", FIGURE)):
        with (copy.path / f"papers/resformer/{name}.yaml").open("a") as stream:
            stream.write(text)
    return copy


@pytest.fixture(scope="module")
def project(copy) -> Resolver:
    return open_papers(copy.path, {"missing": "allow"})


def test_it_renders_as_text_in_latex_markdown_csv_and_html(copy, project, monkeypatch):
    results = Results(project)
    _, texts = table.render(Report(project, results, "resformer"), project.artifact("resformer_odd"))
    tex, md, csv = (
        next(text for name, text in texts.items() if name.endswith(e)) for e in ("tex", "md", "csv")
    )
    assert r"a\_b\&c\%\$(x)" in tex and ODD not in tex
    assert ODD in md and ODD in csv
    monkeypatch.setattr(
        figure,
        "render",
        lambda *arguments: {
            "svg": b"",
            "json": b'{"caption": {"finding": "", "marks": "", "missing": ""}, "alt": ""}',
        },
    )
    html = page.page(project, results, "resformer", copy.path)
    assert "a_b&amp;c%$(x)" in html and ODD not in html


def test_it_is_a_label_in_a_figure(project):
    files = figure.render(project, Results(project), project.artifact("resformer_oddcurves"))
    assert files["svg"].startswith(b"<svg") and files["pdf"].startswith(b"%PDF")


@pytest.mark.slow
def test_no_shell_runs_it(copy, tmp_path):
    project = open_papers(copy.path, {})
    (run,) = list(needs.of_artifact(project, project.artifact("resformer_odd")).trained.values())
    assert ODD in run.id
    planned = copy.planned("resformer_odd")
    assert planned["train"] == 1 and planned["table"] == 1
    # A program named x, first on the path, that leaves a trace; every stage replaced by `true`, its arguments kept.
    marker, program = tmp_path / "ran", tmp_path / "bin" / "x"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    for path in (copy.path / "workflow/rules").glob("*.smk"):
        text = path.read_text().replace('"exec python -m ', '"python -m ')
        path.write_text(text.replace('"python -m ', '"touch {output:q}; true '))
    manifest = copy.path / "results/tokens" / tokens_id(run.spec.data) / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    target = f"results/evals/{run.id}/loss.json"
    done = copy.snakemake(
        "-p", "--cores", "1", target, env={"PATH": os.pathsep.join([str(program.parent), os.environ["PATH"]])}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (copy.path / target).exists() and (copy.path / "results/runs" / run.id / "train.json").exists()
    assert f"'results/runs/{run.id}/train.json'" in done.stdout + done.stderr
    assert not marker.exists()
    assert not [path for path in Path(copy.path).iterdir() if path.name in ("x", "ran")]
