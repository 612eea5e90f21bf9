"""``respath diff`` and ``respath why``: a table cell by cell, kept results, two folders side by side, and why a run is trained."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from respath.cli import main
from respath.comparison.__main__ import main as comparison
from respath.comparison.diff import compare, exit_code, markdown
from respath.files import read_json, write_json
from respath.papers import needs
from respath.papers.check import open_papers
from respath.results.reader import Results
from tests.golden.synthetic_results import write_results
from tests.golden.toy import ROOT, run_id, toy_loss, toy_project


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of the toy project, in which the command works."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT, folder)
    (folder / "config.yaml").write_text("papers: [toy]\n")
    monkeypatch.setenv("RESPATH_ROOT", str(folder))
    monkeypatch.chdir(folder)
    return folder


def said(monkeypatch, capsys, *arguments, code=0) -> str:
    monkeypatch.setattr(sys, "argv", ["respath", *arguments])
    assert main() == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def project(root, scale="paper"):
    return open_papers(root, {"papers": ["toy"], "scale": scale})


def results(root, folder, **changes):
    write_results(project(root), root / folder, **{"loss_of": toy_loss, **changes})


def rows(text: str) -> dict[str, list[str]]:
    """First word of each line -> the words behind it."""
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}


def test_a_table_is_shown_cell_by_cell_with_what_is_printed_and_the_differences(root, monkeypatch, capsys):
    results(root, "results")
    found = rows(said(monkeypatch, capsys, "diff", "toy_table1", "--scale", "paper"))
    grid = compare(project(root), Results(project(root)), ["toy_table1"])
    cells = {(c["row"], c["column"]): c for c in grid["papers"]["toy"]["tables"]["table1"]["cells"]}
    cell = cells["mix", "loss"]
    assert found["row"][:4] == ["column", "printed", "ours", "ours"]
    assert found["mix"][:4] == [
        "loss",
        f"{cell['printed']:.3f}",
        f"{cell['ours']:.3f}",
        f"{cell['delta']:+.3f}",
    ]
    assert found["mix"][4:6] == [f"{cell['gain']:+.3f}", f"({cell['printed_gain']:+.3f})"]
    assert cell["status"] in " ".join(found["mix"])


def test_where_nothing_ran_a_cell_says_why_and_the_check_has_neither_passed_nor_failed(
    root, monkeypatch, capsys
):
    text = said(monkeypatch, capsys, "diff", "toy_table1", "--scale", "paper", "--check", code=2)
    assert "not run [1]" in text and "[1] not trained" in text
    document = compare(project(root), Results(project(root)), ["toy_table1"])
    assert document["check"]["passed"] is None and exit_code(document) == 2
    options = ["--project-root", str(root), "--scale", "paper", "--target", "toy_table1"]
    assert comparison(options) == 0 and comparison([*options, "--check"]) == 2
    text = capsys.readouterr().out
    assert "nothing to check yet: no run has ended" in text
    assert "passed" not in text and "failures" not in text and "Nothing to check yet" in markdown(document)


def test_one_run_that_ended_or_one_exact_cell_that_is_off_is_enough_to_fail_a_check(root):
    assert compare(project(root), Results(project(root)))["check"]["passed"] is False
    first = run_id(toy_project("paper"), "S", "base")
    results(root, "results", skip=set(needs.all_runs(project(root))) - {first})
    assert compare(project(root), Results(project(root)), ["toy_table1"])["check"]["passed"] is False


def test_kept_results_are_shown_with_reference_and_their_absence_is_one_line(root, monkeypatch, capsys):
    text = said(monkeypatch, capsys, "diff", "toy_table1", "--scale", "paper", "--reference", code=2)
    assert (
        text.startswith("error: ") and "no results are kept at scale paper" in text and text.count("\n") == 1
    )
    results(root, "elsewhere")
    from respath.reference.__main__ import main as reference

    options = ["--project-root", str(root), "--scale", "paper", "--results", str(root / "elsewhere")]
    assert reference(["collect", *options]) == 0
    capsys.readouterr()
    shown = said(monkeypatch, capsys, "diff", "toy_table1", "--scale", "paper", "--reference")
    assert "not run" not in shown and rows(shown)["base"][0] == "loss"


def test_two_folders_name_the_runs_whose_code_differs_and_exactly_the_cells_that_differ(
    root, monkeypatch, capsys
):
    results(root, "before")
    results(root, "after")
    same = said(monkeypatch, capsys, "diff", "before", "after", "--scale", "paper")
    assert re.fullmatch(r"Scale paper: 0 of \d+ runs and 0 of \d+ cells of tables differ.\n", same)
    run = run_id(project(root), "S", "mix")
    loss, train = (root / f"after/{name}" for name in (f"evals/{run}/loss.json", f"runs/{run}/train.json"))
    content = read_json(loss)
    write_json(loss, content | {"mean_loss": content["mean_loss"] + 0.25})
    code = {"model": "a" * 64, "training": "b" * 64, "shared": "c" * 64}
    for folder, change in (("before", {}), ("after", {"model": "d" * 64})):
        path = root / folder / f"runs/{run}/train.json"
        record = read_json(path)
        record["provenance"] = {**record.get("provenance", {}), "code": code | change}
        write_json(path, record)
    document = json.loads(said(monkeypatch, capsys, "diff", "before", "after", "--scale", "paper", "--json"))
    assert [one["left"] for one in document["runs"]] == [run] == [one["right"] for one in document["runs"]]
    assert document["runs"][0]["differences"] == ["code (model aaaaaaaa, right dddddddd)"]
    differing = {(c["target"], c["row"]) for c in document["cells"]}
    assert differing and all("mix" in row for _, row in differing)
    first = next(c for c in document["cells"] if c["target"] == "toy_table1")
    assert first["delta"] == pytest.approx(0.25 / 3) and first["why"] == document["runs"][0]["differences"]
    text = said(monkeypatch, capsys, "diff", "before", "after", "--scale", "paper")
    assert f"{run}:\n  code (model aaaaaaaa, right dddddddd)" in text and "+0.0833" in text
    assert train.exists()


def test_two_clones_are_read_as_their_own_papers_ask_and_name_the_field_of_the_spec(
    root, tmp_path, monkeypatch, capsys
):
    clone = tmp_path / "clone"
    shutil.copytree(root, clone)
    paper = clone / "papers/toy/paper.yaml"
    paper.write_text(paper.read_text().replace("peak_lr: 6e-4", "peak_lr: 3e-4"))
    results(root, "results")
    write_results(
        open_papers(clone, {"papers": ["toy"], "scale": "paper"}), clone / "results", loss_of=toy_loss
    )
    text = said(monkeypatch, capsys, "diff", str(root), str(clone), "--scale", "paper")
    ids = [run_id(open_papers(at, {"papers": ["toy"], "scale": "paper"}), "S", "mix") for at in (root, clone)]
    assert ids[0] != ids[1] and f"{ids[0]} -> {ids[1]}:\n  recipe.peak_lr: 0.0006 -> 0.0003" in text


def test_a_folder_that_holds_no_results_is_refused_in_one_line(root, monkeypatch, capsys):
    results(root, "before")
    text = said(monkeypatch, capsys, "diff", "before", "papers", code=2)
    assert "holds none of runs, evals" in text and text.count("\n") == 1
    text = said(monkeypatch, capsys, "diff", "before", "toy_table1", code=2)
    assert "toy_table1: no such folder" in text and text.count("\n") == 1


def test_why_names_what_asks_for_a_run_and_the_field_in_which_it_differs_from_the_nearest_one(
    root, monkeypatch, capsys
):
    ids = {name: run_id(project(root), "S", name, seed) for name, seed in (("base", 1), ("mix", 1))}
    text = said(monkeypatch, capsys, "why", ids["base"], "--scale", "paper")
    assert "asked for by toy_table1" in text and "no run of this checkout has ended yet" in text
    other_seed = run_id(project(root), "S", "base", 2)
    results(root, "results", skip=set(needs.all_runs(project(root))) - {ids["mix"], other_seed})
    text = said(monkeypatch, capsys, "why", ids["base"], "--scale", "paper")
    assert (
        f"the nearest of 2 runs that have ended is {other_seed}, from which it differs in\n  seed: 2 -> 1"
        in text
    )
    text = said(monkeypatch, capsys, "why", other_seed, "--scale", "paper")
    assert "not trained again" in text and "the nearest" not in text
    (root / f"checkpoints/{ids['base']}/step-00000003").mkdir(parents=True)
    assert "goes on from step 3 of" in said(monkeypatch, capsys, "why", ids["base"], "--scale", "paper")
    assert "is the beginning of" in said(monkeypatch, capsys, "why", "toy-S-base", "--scale", "paper", code=2)
