"""No plan skips: whatever was interrupted, corrected or forced before, what was asked for and is missing is planned."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from respath.papers.check import open_papers
from respath.spec.data import sample_id, tokens_id
from tests.project_copy import ProjectCopy, clean_environment

#: What lies between the sample and Table 12, once the sample has been drawn again.
BEHIND_THE_SAMPLE = {"tokenizer": 1, "tokenize": 14, "manifest": 1, "table": 1, "resformer_table12": 1}


class Waiting:
    """Snakemake at work in a copy of its own, in a rule that writes its output and then takes its time."""

    def __init__(self, copy: ProjectCopy, target: str, output: str, seconds: float):
        rules = copy.path / "workflow/rules/data.smk"
        ended = copy.path / "ended"
        rules.write_text(
            rules.read_text().replace(
                "touch {output:q}; true respath.data.sample",
                f"touch {{output:q}}; sleep {seconds}; touch {ended}; true respath.data.sample",
            )
        )
        self.ended = ended
        self.process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "1", target],
            cwd=copy.path,
            env=clean_environment(),
            start_new_session=True,
            # What a shell starts in the background ignores Ctrl-C, and so would everything behind it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(copy.path / output)


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


@pytest.fixture
def copy(tmp_path) -> ProjectCopy:
    (tmp_path / "project").mkdir()
    copy = ProjectCopy(tmp_path / "project")
    copy.stub()
    return copy


def sample_of(copy: ProjectCopy) -> str:
    return f"results/samples/{sample_id(open_papers(copy.path).paper('resformer').data.sample)}/sample.json"


def manifest_of(copy: ProjectCopy) -> str:
    return f"results/tokens/{tokens_id(open_papers(copy.path).paper('resformer').data)}/manifest.json"


def test_after_ctrl_c_in_the_sample_all_of_the_table_is_planned(copy):
    # Longer than any machine needs to deliver the signal: the stage must not end by itself first.
    waiting = Waiting(copy, "resformer_table12", sample_of(copy), seconds=120)
    # Ctrl-C goes to all processes of the terminal.
    os.killpg(waiting.process.pid, signal.SIGINT)
    waiting.process.wait(60)
    planned = copy.planned("resformer_table12")
    assert planned.pop("sample") == 1 and planned == BEHIND_THE_SAMPLE


def test_after_the_death_of_snakemake_alone_all_of_the_table_is_planned(copy):
    waiting = Waiting(copy, "resformer_table12", sample_of(copy), seconds=3)
    waiting.process.kill()
    waiting.process.wait(60)
    wait_for(waiting.ended)
    assert copy.snakemake("--unlock").returncode == 0
    planned = copy.planned("resformer_table12")
    assert planned.pop("sample") == 1 and planned == BEHIND_THE_SAMPLE


def test_a_corrected_location_is_listed_and_everything_behind_it_made(copy, tmp_path):
    for name in ("wrong", "right"):
        (tmp_path / name).mkdir()
    copy.edit("config.yaml", "corpus: null", "corpus: slimpajama-local")
    copy.edit("config.yaml", "locations: {}", f'locations: {{slimpajama-local: "{tmp_path}/wrong"}}')
    copy.make(sample_of(copy))
    copy.edit("config.yaml", f"{tmp_path}/wrong", f"{tmp_path}/right")
    planned = copy.planned("resformer_table12")
    assert planned.pop("index_corpus") == planned.pop("sample") == 1 and planned.pop("scan") >= 1
    assert planned == BEHIND_THE_SAMPLE


def test_other_items_do_not_hide_a_missing_evaluation(copy):
    copy.make("resformer_downstream3")
    missing = next(copy.path.glob("results/evals/*/lm.json"))
    missing.unlink()
    copy.edit("config.yaml", "\nitems: auto", "\nitems: wheel")
    planned = copy.planned("resformer_downstream3")
    assert planned == {"eval_items": 1, "evaluate_lm": 1, "table": 1, "resformer_downstream3": 1}


def written(path: Path, document: dict) -> None:
    """Fill a file that a stubbed job left empty, with its time as it was."""
    times = path.stat()
    path.write_text(json.dumps(document))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_other_items_are_evaluated_again_and_equal_ones_that_were_collected_again_are_not(copy):
    copy.make("resformer_downstream3")
    items = copy.path / "results/eval_items/resformer/items.json"
    listed = {"arc_easy": {"status": "done", "sha256": "a"}, "piqa": {"status": "done", "sha256": "b"}}
    results = sorted(copy.path.glob("results/evals/*/lm.json"))
    tasks = {name: {"status": "done", "items_sha256": entry["sha256"]} for name, entry in listed.items()}
    for path in results:
        written(path, {"status": "done", "tasks": tasks})
    items.write_text(json.dumps({"tasks": listed}))
    assert copy.planned("resformer_downstream3") == {}
    listed["piqa"]["sha256"] = "c"
    items.write_text(json.dumps({"tasks": listed}))
    planned = copy.planned("resformer_downstream3")
    assert planned == {"evaluate_lm": len(results), "table": 1, "resformer_downstream3": 1} and results


def test_what_an_evaluation_reads_comes_back_before_it_is_made_again(copy):
    copy.make("resformer_downstream3")
    evaluated = next(copy.path.glob("results/evals/*/lm.json"))
    (copy.path / "results/runs" / evaluated.parent.name / "train.json").unlink()
    next(copy.path.glob("results/eval_items/*/items.json")).unlink()
    (copy.path / "reports/out/smoke/resformer/downstream3.csv").unlink()
    planned = copy.planned("resformer_downstream3")
    assert planned["train"] == planned["eval_items"] == planned["evaluate_lm"] == 1


@pytest.mark.parametrize("made", ["sample", "manifest", "table"])
def test_a_forced_sample_remakes_the_table_and_all_between(copy, made):
    copy.make({"sample": sample_of, "manifest": manifest_of}.get(made, lambda _: "resformer_table12")(copy))
    planned = copy.planned("-R", "sample", "--", "resformer_table12")
    assert planned.pop("sample") == 1 and planned == BEHIND_THE_SAMPLE


def test_no_rule_hides_a_job_behind_an_ancient_file(copy):
    for rules in (copy.path / "workflow/rules").glob("*.smk"):
        code = re.sub(r'""".*?"""', "", rules.read_text(), flags=re.DOTALL)
        assert "ancient(" not in code, rules


def test_data_made_again_repeat_no_training_and_no_evaluation(copy):
    copy.make("resformer_table3", "resformer_table12")
    (copy.path / manifest_of(copy)).unlink()
    (copy.path / "reports/out/smoke/resformer/table12.csv").unlink()
    planned = copy.planned("resformer_table3", "resformer_table12", "-R", "sample")
    assert not {"train", "evaluate_loss", "evaluate_lm", "analyze"} & set(planned), planned
    assert planned["manifest"] == 1


def test_an_invocation_fails_when_a_file_that_was_asked_for_is_missing_at_the_end(copy):
    rules = copy.path / "workflow/rules/report.smk"
    text = rules.read_text()
    lost = "reports/out/smoke/resformer/table13.md"
    rules.write_text(text.replace("true respath.reporting.page", f"rm {lost}; true respath.reporting.page"))
    done = copy.snakemake(
        lost, "reports/out/smoke/resformer/index.html", "--config", "papers=[resformer]", "missing=allow"
    )
    assert done.returncode != 0 and f"asked for and not there: {lost} (1 in all)" in done.stderr
    assert "printed cells match" not in done.stdout + done.stderr


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_nothing_behind_fetch_downloads(copy, tmp_path, scale):
    copy.make("fetch", "--config", f"scale={scale}")
    planned = copy.planned("all", "--config", f"scale={scale}", "missing=error")
    assert planned["sample"] >= 1 and planned["train"] > 10
    assert not {"fetch_source", "index_corpus", "eval_items"} & set(planned), planned
    # A tokenizer that is trained has the sample behind it; a published one was fetched.
    assert planned.get("tokenizer", 0) == (1 if scale == "smoke" else 0)
