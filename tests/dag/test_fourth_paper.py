"""A fourth paper is one folder: the toy of the tests beside the others has targets, plans and tables, and disturbs no test."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys

import pytest

from respath.papers import needs
from respath.papers.check import open_papers
from tests.golden.toy import EXPECTED
from tests.golden.toy import ROOT as TOY
from tests.project_copy import ROOT, ProjectCopy, clean_environment

#: Settings of a user who works on something else.
OTHER_SETTINGS = """\
scale: paper
papers: [bov]
seeds: [7, 8]
missing: allow
items: wheel
checkpoints: elsewhere
runtime: {threads: 2, engine: deepspeed}
"""


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> ProjectCopy:
    """The project with one more folder and every setting at its default."""
    copy = ProjectCopy(tmp_path_factory.mktemp("four"))
    shutil.copytree(TOY / "papers/toy", copy.path / "papers/toy")
    (copy.path / "config.yaml").write_text("")
    return copy


def test_its_tables_and_figures_are_targets_without_a_setting(four):
    resolver = open_papers(four.path)
    assert {"resformer", "toy"} <= set(resolver.chosen)
    listed = four.snakemake("--list-target-rules").stdout
    for artifact in resolver.artifacts("toy"):
        assert f"{artifact.target} ({artifact.definition.title}" in listed


def test_a_trained_table_of_it_is_planned(four):
    resolver = open_papers(four.path)
    runs = needs.of_artifact(resolver, resolver.artifact("toy_table1")).trained
    assert four.planned("toy_table1")["train"] == len(runs) == 3


def test_a_derived_table_of_it_is_made(four):
    done = four.snakemake("--cores", "1", "toy_table3")
    assert done.returncode == 0, done.stdout + done.stderr

    def cells(path):
        with path.open(newline="") as stream:
            return [(row["row"], row["column"], row["ours"], row["status"]) for row in csv.DictReader(stream)]

    made = cells(four.path / "reports/out/smoke/toy/table3.csv")
    assert made == cells(EXPECTED / "smoke/table3.csv") and len(made) == 8


@pytest.mark.slow
def test_the_tests_of_papers_pass_with_a_fourth_paper_and_with_other_settings(tmp_path):
    for part in (
        "src",
        "tests",
        "papers",
        "scales",
        "workflow",
        "docs",
        "reports/templates",
        "reports/reference",
        "profiles",
        "envs",
    ):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("Snakefile", "pyproject.toml"):
        shutil.copy(ROOT / part, tmp_path / part)
    shutil.copytree(TOY / "papers/toy", tmp_path / "papers/toy")
    (tmp_path / "config.yaml").write_text(OTHER_SETTINGS)
    names = (
        "papers",
        "papers_check",
        "claims_resolve",
        "resformer_tables",
        "seeds_of_runs",
        "architectures_page",
        "user_errors",
        "plan",
        "export",
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(f"tests/unit/test_{name}.py" for name in names),
        ],
        cwd=tmp_path,
        env={
            **clean_environment(),
            "PYTHONPATH": str(tmp_path / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
