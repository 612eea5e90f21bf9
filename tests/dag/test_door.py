"""The main door: names that are nearly right, closing lines, reasons."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from respath.comparison.closing import closing, main, problems
from respath.errors import UserError
from respath.files import sha256_file, write_json
from respath.jobs import GROUPS, check_targets, grouped
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.resolve import Resolver, Run
from respath.reporting.page import main as page
from respath.results.reader import Results
from respath.spec.data import tokens_id
from respath.spec.document import identity
from tests.dag.disturbed import TOY, named_for_deletion
from tests.project_copy import ROOT, ProjectCopy, clean_environment, job_counts


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> ProjectCopy:
    return ProjectCopy(tmp_path_factory.mktemp("door"))


MISSING = "Missing output files: results/runs/{}/train.json; Input files updated by another job: results/tokens/t/manifest.json"
CHANGED = (
    "Params have changed since last execution: Union of exclusive params before and now across all output: before: "
    "'papers/toy/variants.yaml: base 91453e7d; papers/toy/variants.yaml: mix c711bb7f','other 00000000' now: "
    "'papers/toy/variants.yaml: base f63576ca; papers/toy/variants.yaml: mix c711bb7f','other 00000000' "
)


def test_a_plan_is_a_line_for_a_rule_and_a_reason_and_names_files_and_keys():
    jobs = [("train", MISSING.format(name)) for name in ("b", "a", "c")]
    jobs += [
        ("train", "Forced execution"),
        ("table", CHANGED),
        ("eval_items", CHANGED.split("'papers")[0] + "'auto' now: 'wheel' "),
        ("table", "Updated input files: results/evals/a/loss.json"),
        ("toy_table1", "Input files updated by another job: reports/out/smoke/toy/table1.csv"),
    ]
    assert grouped(jobs).splitlines() == [
        GROUPS,
        "train          3  missing: results/runs/a/train.json and 2 more",
        "train          1  asked for by -R or -F",
        "table          1  changed: papers/toy/variants.yaml: base",
        "eval_items     1  changed: 'auto' -> 'wheel'",
        "table          1  newer: results/evals/a/loss.json",
        "toy_table1     1  what it reads is made by the jobs above",
    ]


def test_a_dry_run_is_a_page_and_shows_each_job_only_when_asked_to(fresh):
    short, long = (
        fresh.snakemake("-n", "all", *more, "--config", "papers=[resformer]") for more in ((), ("-p",))
    )
    said = short.stderr + short.stdout
    page = said[said.index(GROUPS) :].splitlines()
    assert len(page) < 90 and all(len(line) <= 80 or " results/" in line for line in page[:-2])
    assert "rule train:" not in said and "Shell command" not in said
    assert (long.stderr + long.stdout).count("rule train:") == job_counts(said)["train"]
    counted: dict[str, int] = {}
    for words in (line.split() for line in page[1:] if line[:1].strip()):
        if len(words) > 2 and words[1].isdigit():
            counted[words[0]] = counted.get(words[0], 0) + int(words[1])
    assert counted == job_counts(said)


def planned_page(copy, *arguments) -> str:
    environment = clean_environment() | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "respath.cli", "plan", *arguments]
    done = subprocess.run(command, cwd=copy.path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_plan_of_a_target_names_its_jobs_what_is_shared_and_the_key_that_changed(tmp_path):
    (tmp_path / "project").mkdir()
    copy = ProjectCopy(tmp_path / "project")
    page = planned_page(copy, "resformer_table1")
    assert re.search(r"runs   4 at scale smoke: 0 done, 0 of them stale; \d shared with other targets", page)
    assert re.search(r"^train +4  missing:$\n +results/runs/resformer-82M-", page, re.MULTILINE)
    copy.pretend_done("resformer_table13")
    assert "No jobs: what was asked for is there." in planned_page(copy, "resformer_table13")
    copy.edit("papers/resformer/tables.yaml", "Training details for training", "Details for training")
    page = planned_page(copy, "resformer_table13")
    assert "changed: papers/resformer/tables.yaml: table13" in page


TARGETS = ("all", "diff", "smoke", "resformer_table3", "bov_table3", "resformer_fig2")
FILES = ("reports/out/smoke/resformer/table3.csv",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resformer_tabel3", "resformer_tabel3 is no target (did you mean resformer_table3?)"),
        ("table3", "table3 is no target (did you mean resformer_table3 or bov_table3?)"),
        ("mini", "mini is a scale, and the scale is now smoke: snakemake mini --config scale=mini"),
        ("train", "train makes results/{run}: ask for one such file, or for a table or figure that needs it"),
        ("moon", "moon is no target; snakemake --list-target-rules lists them"),
        (
            "reports/out/smoke/resformer/tabel3.csv",
            "reports/out/smoke/resformer/tabel3.csv is no target (did you mean reports/out/smoke/resformer/table3.csv?)",
        ),
    ],
)
def test_a_name_that_is_no_target_is_one_line_with_the_nearest_one(name, said):
    with pytest.raises(UserError) as error:
        check_targets(["diff", name], TARGETS, {"train": "results/{run}"}, FILES, "smoke", ("smoke", "mini"))
    assert error.value.lines == [said]


@pytest.mark.parametrize("name", [*TARGETS, *FILES, "results/some/file.json"])
def test_a_target_a_file_of_one_and_a_file_of_no_target_are_left_alone(name):
    check_targets([name], TARGETS, {}, FILES, "smoke", ("smoke", "mini"))


def test_snakemake_itself_says_all_wrong_names_at_once_and_nothing_about_right_ones(fresh):
    refused = fresh.snakemake("-n", "resformer_tabel3", "table13", "mini", "resformer_table13")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    lines = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert lines[:2] == [
        "error: resformer_tabel3 is no target (did you mean resformer_table3?)",
        "error: table13 is no target (did you mean resformer_table13?)",
    ]
    assert lines[2].startswith("error: mini is a scale") and len(lines) == 3
    right = fresh.snakemake("-n", "resformer_table13", "--forceall")
    assert right.returncode == 0 and "error:" not in right.stderr


def closing_of(done) -> list[str]:
    """What stands between the end of the jobs and Snakemake's own last lines."""
    text = done.stderr.rsplit("steps (100%) done", 1)[-1]
    return [
        line for line in text.splitlines() if line and not line.startswith(("Complete log", "Elapsed time"))
    ]


def test_closing_lines_are_about_what_was_asked_for_and_nothing_else(fresh):
    done = fresh.snakemake("resformer_table13")
    assert done.returncode == 0, done.stderr
    lines = closing_of(done)
    assert lines[0].startswith("resformer_table13: ")
    assert lines[0].endswith("; reports/out/smoke/resformer/table13.{csv,tex,md}")
    assert lines[1].startswith("Scale smoke: not a replication") and len(lines) == 2
    assert "index.html" not in done.stderr and "runs ended" not in done.stderr


def test_closing_lines_of_a_comparison_are_its_own(fresh):
    done = fresh.snakemake("plan")
    assert done.returncode == 0 and closing_of(done) == []


def test_a_run_on_other_tokens_fails_the_invocation_with_both_ways_out(tmp_path):
    project, run, manifest = project_with_a_run(tmp_path)
    files = ["reports/out/smoke/toy/table1.csv"]
    _, problems = closing(project, Results(project), files, terminal=False)
    assert problems == []
    manifest.write_text(manifest.read_text() + "\n")
    _, problems = closing(project, Results(project), files, terminal=False)
    assert len(problems) == 1
    assert (
        f"{manifest.relative_to(tmp_path)}: 1 of 3 runs were trained on other tokens than it lists now"
        in problems[0]
    )
    assert f"delete results/runs/{run.id} and checkpoints/{run.id} and run the same command" in problems[0]
    assert main(["--project-root", str(tmp_path), "--files", *files]) == 1


def test_an_evaluation_on_other_items_fails_the_invocation_and_names_what_to_delete(tmp_path):
    project, run, _ = project_with_a_run(tmp_path)
    wanted = needs.of_artifact(project, project.artifact("toy_table4")).trained
    assert run.id in wanted
    done = {"status": "done", "items_sha256": "a", "items": 1, "of_items": 1, "metrics": {}}
    result = {"schema": 1, "kind": "lm_eval", "run": run.id, "status": "done", "tasks": {"hellaswag": done}}
    write_json(tmp_path / f"results/evals/{run.id}/lm.json", result)
    items = {"schema": 1, "kind": "eval_items", "tasks": {"hellaswag": {"status": "done", "sha256": "a"}}}
    listed = tmp_path / "results/eval_items/toy/items.json"
    write_json(listed, items)
    artifacts = [project.artifact("toy_table4")]
    assert problems(project, Results(project), artifacts) == []
    items["tasks"]["hellaswag"]["sha256"] = "b"
    write_json(listed, items)
    assert problems(project, Results(project), artifacts) == [
        "results/eval_items/toy/items.json: 1 runs were evaluated on other items than it lists now; put those items back, or "
        f"delete results/evals/{run.id}/lm.json and run the same command to evaluate on these"
    ]
    assert named_for_deletion(tmp_path, f"error: {problems(project, Results(project), artifacts)[0]}") == [
        Path(f"results/evals/{run.id}/lm.json")
    ]


def project_with_a_run(folder: Path) -> tuple[Resolver, Run, Path]:
    """The toy project with a manifest, and one of Table 1's runs trained on it."""
    shutil.copytree(TOY, folder, dirs_exist_ok=True)
    project = open_papers(folder)
    manifest = folder / "results/tokens" / tokens_id(project.paper("toy").data) / "manifest.json"
    write_json(manifest, {"schema": 1, "kind": "tokens", "splits": {}})
    run = next(iter(needs.of_artifact(project, project.artifact("toy_table1")).trained.values()))
    record = {
        "schema": 1,
        "kind": "train",
        "run": run.id,
        "spec": identity(run.spec),
        "status": "diverged",
        "reason": "test",
    }
    record |= {"loss": {}, "curve": {}, "weights": None, "manifest_sha256": sha256_file(manifest)}
    write_json(folder / f"results/runs/{run.id}/train.json", record)
    return project, run, manifest


def test_the_demo_ends_with_its_page(tmp_path):
    (tmp_path / "project").mkdir()
    copy = ProjectCopy(tmp_path / "project")
    planned = copy.planned("demo")
    assert planned["demo_page"] == 1 and "page" not in planned
    written = copy.path / "page.html"
    options = ["--project-root", str(copy.path), "--paper", "resformer", "--only", "table13", "kv"]
    assert page([*options, "--out", str(written)]) == 0
    text = written.read_text()
    assert 'id="table13"' in text and 'id="kv"' in text and 'id="table3"' not in text


def completed(copy: ProjectCopy, line: str, script: str) -> list[str]:
    """What a shell offers for the last word of a line."""
    words = line.split(" ")
    quoted = " ".join(f'"{word}"' for word in words)
    ask = f"{script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
    done = subprocess.run(
        [
            "bash",
            "-c",
            ask + '$(complete -p "$1" | sed "s/.*-F //; s/ .*//") "$1" && printf "%s\\n" "${COMPREPLY[@]}"',
            "-",
            words[0],
        ],
        cwd=copy.path,
        env=clean_environment()
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_a_shell_completes_targets_of_snakemake_and_words_of_respath(fresh):
    source = f"source {ROOT}/workflow/completion.bash"
    assert completed(fresh, "snakemake -n resformer_table13", source) == ["resformer_table13"]
    found = completed(fresh, "snakemake resformer_table", source)
    project = open_papers(fresh.path)
    assert set(found) == {a.target for a in project.artifacts() if a.target.startswith("resformer_table")}
    assert "demo" in completed(fresh, "snakemake de", source)
    own = 'eval "$(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 respath --show-completion bash)"'
    assert completed(fresh, "respath pl", own) == ["plan"]
    assert set(completed(fresh, "respath plan resformer_table", own)) == set(found)
    assert completed(fresh, "respath diff resformer/82M/ident", own)[0] == "resformer/82M/identity"
