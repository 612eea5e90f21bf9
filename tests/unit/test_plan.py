"""Plans: what is to do, what it costs, what that rests on; FLOPs are the accounting's, measured rates are used."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from respath.accounting import account
from respath.accounting import plan as planning
from respath.accounting.data_cost import TOKEN_BYTES, data_cost, extrapolated, rates
from respath.cli import _data_table, _targets_table, amount, main
from respath.errors import UserError
from respath.files import write_json
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.resolve import Resolver
from respath.spec.data import Data, tokens_id
from tests.golden.toy import ROOT

GIGABYTE = 10**9
HUB = """
  far:
    name: far
    kind: hub
    repository: some/data
    revision: main
    train_files: ["*.jsonl"]
    download_bytes: 6_000_000_000
"""


@pytest.fixture
def root(tmp_path):
    """A copy of the toy project, with a hub corpus besides."""
    shutil.copytree(ROOT, tmp_path / "project")
    with (tmp_path / "project/papers/corpora.yaml").open("a") as stream:
        stream.write(HUB)
    return tmp_path / "project"


def toy(root, scale="paper", **chosen) -> Resolver:
    return open_papers(root, {"papers": ["toy"], "scale": scale, **chosen})


def planned(project, *targets, **machine):
    chosen = [project.artifact(target) for target in targets] or project.artifacts()
    return planning.plan(project, chosen, planning.assumptions(project, "paper", **machine))


def test_flops_are_those_of_the_accounting_and_hours_follow_from_them(root):
    project = toy(root)
    result = planned(project, "toy_table1", device="h100", mfu=0.5)
    runs = list(needs.of_artifact(project, project.artifact("toy_table1")).trained.values())
    expected = sum(
        account(
            run.spec.model, context=run.spec.recipe.context, logits="all", attention="causal"
        ).flops.training_per_token
        * run.spec.recipe.tokens
        for run in runs
    )
    row = result["targets"][0]
    assert row["flops"] == expected > 0 and row["runs"] == len(runs) == result["total"]["runs"]
    assert row["tokens"] == sum(run.spec.recipe.tokens for run in runs)
    assert row["wall_hours"] == pytest.approx(expected / (989e12 * 2 * 0.5) / 3600)
    assert row["device_hours"] == pytest.approx(2 * row["wall_hours"])


def test_the_share_of_the_peak_is_assumed_by_size_said_to_be_assumed_and_replaced_by_mfu(root):
    assert [planning.assumed_mfu(round(size)) for size in (1e6, 82e6, 468e6, 2e9)] == [0.30, 0.30, 0.45, 0.45]
    assert 0.37 < planning.assumed_mfu(196_000_000) < 0.38
    machine = planning.assumptions(toy(root), "paper", "a100")
    assert machine.flops_per_second(468_000_000) == pytest.approx(312e12 * machine.devices * 0.45)
    said = "\n".join(planning.assumption_lines(planned(toy(root), "toy_table1", device="a100")))
    assert "MFU 0.30 at 82M parameters and 0.45 at 468M parameters (assumptions until measured" in said
    assert "assumption" not in "\n".join(
        planning.assumption_lines(planned(toy(root), "toy_table1", device="a100", mfu=0.5))
    )


def test_runs_stores_and_downloads_that_targets_share_count_once_in_the_total(root):
    project = toy(root)
    result = planned(project)
    ids = {
        run.id
        for artifact in project.artifacts()
        for run in needs.of_artifact(project, artifact).trained.values()
    }
    assert result["total"]["runs"] == len(ids) < sum(row["runs"] for row in result["targets"])
    (cost,) = result["data"].values()
    disks = [row["disk"] for row in result["targets"] if row["runs"]]
    assert max(disks) <= result["total"]["disk"] < sum(disks)
    assert result["token_store_bytes"] == {next(iter(result["data"])): cost["store_bytes"]}
    free = next(row for row in result["targets"] if row["target"] == "toy_table3")
    assert (free["runs"], free["disk"], free["download"]) == (0, 0, 0), "a configuration table costs nothing"


def test_a_finished_run_is_done_and_costs_no_more(root):
    project = toy(root)
    before = planned(project)["total"]
    run = next(iter(needs.of_artifact(project, project.artifact("toy_table1")).trained.values()))
    write_json(root / "results" / "runs" / run.id / "train.json", {"cost": {"seconds": 1}})
    after = planned(project)["total"]
    assert (before["done"], after["done"]) == (0, 1) and after["runs"] == before["runs"]
    assert before["tokens"] - after["tokens"] == run.spec.recipe.tokens
    assert after["disk"] == before["disk"], "disk counts everything"


def far(root) -> tuple[Resolver, Data]:
    """The toy on the hub corpus."""
    project = toy(root, corpus="far")
    return project, project.paper("toy").data


def test_downloads_count_what_is_not_here_yet(root):
    project, data = far(root)
    assert data_cost(project, data).download == 6 * GIGABYTE + 2_700_000
    part = root / ".cache/respath/hub/some--data" / ("c" * 40) / ".a.jsonl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    assert data_cost(project, data).download == 6 * GIGABYTE + 2_700_000 - 1000
    write_json(root / "results/corpus/far/files/source.json", {})
    (root / "results/tokenizers/neox").mkdir(parents=True)
    assert data_cost(project, data).download == 0


def test_a_users_copy_of_a_repositorys_files_costs_no_download(root, tmp_path):
    far(root)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/a.jsonl").write_text("")
    project = toy(root, corpus="far", locations={"far": str(tmp_path / "copy")})
    assert data_cost(project, project.paper("toy").data).download == 2_700_000


def test_without_measurements_hours_are_unknown_and_said_to_be(root):
    project, data = far(root)
    cost = data_cost(project, data)
    assert (cost.scan_hours, cost.merge_hours, cost.tokenize_hours, cost.memory_mb) == (None,) * 4
    assert cost.text_bytes == round(cost.tokens * TOKEN_BYTES)
    assert "no rates measured here" in "\n".join(planning.assumption_lines(planned(project)))


NUMBERS = {
    "machine": {"cpu": "Some CPU"},
    "rates": {
        **{"scan_mb_per_s": 20.0, "merge_mb_per_s": 40.0, "tokenize_mb_per_s": 2.0},
        **{"scan_peak_rss_mb": 400.0, "merge_peak_rss_mb": 100.0, "tokenize_peak_rss_mb": 262.0},
    },
}


def test_measured_rates_are_extrapolated_linearly_and_memory_not_at_all(root):
    project, data = far(root)
    write_json(root / "benchmarks/numbers.json", NUMBERS)
    small, large = (extrapolated(project, data, tokens) for tokens in planning.AMOUNTS)
    assert (small.tokens, large.tokens) == (20 * GIGABYTE, 100 * GIGABYTE)
    assert small.tokenize_hours == pytest.approx(20e9 * TOKEN_BYTES / 2e6 / 3600)
    for name in ("scan_hours", "tokenize_hours", "store_bytes", "text_bytes", "download"):
        assert getattr(large, name) == pytest.approx(5 * getattr(small, name))
    assert small.store_bytes == 40 * GIGABYTE and small.memory_mb == large.memory_mb == 400.0
    assert "Some CPU" in small.rests_on and "tokenizing 2.0 MB/s" in small.rests_on


def test_finished_shards_of_the_store_give_the_rate_and_short_ones_do_not(root):
    project, data = far(root)
    write_json(root / "benchmarks/numbers.json", NUMBERS)
    store = tokens_id(data)

    def shard(number: int, tokens: int, size: int, seconds: float) -> None:
        timed = root / f"benchmarks/tokenize/{store}/train-Prose-{number:03d}.jsonl"
        timed.parent.mkdir(parents=True, exist_ok=True)
        timed.write_text(json.dumps({"s": seconds, "max_rss": 500.0}) + "\n")
        write_json(
            root / f"results/tokens/{store}/train/Prose.{number:03d}.json", {"tokens": tokens, "bytes": size}
        )

    shard(0, 1000, 3000, 5.0)
    assert rates(project, data).tokenize == 2.0 and rates(project, data).token_bytes == 3.0
    shard(1, 2_000_000, 8_000_000, 1.0)
    shard(2, 2_000_000, 8_000_000, 3.0)
    (root / f"benchmarks/tokenize/{store}/train-Prose-003.jsonl").write_text("cut")
    known = rates(project, data)
    assert known.tokenize == pytest.approx(4.0) and known.memory_mb == 500.0
    assert "2 finished shards" in known.rests_on
    write_json(root / f"results/tokens/{store}/manifest.json", {})
    done = data_cost(project, data)
    assert (done.scan_hours, done.tokenize_hours, done.download) == (0.0, 0.0, 0)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ({"device": "a10"}, "--gpu: 'a10' is not known"),
        ({"mfu": 1.5}, "--mfu: 1.5"),
        ({"mfu": 0.0}, "--mfu: 0.0"),
    ],
)
def test_a_machine_that_there_is_not_is_refused(root, machine, expected):
    with pytest.raises(UserError, match=expected):
        planned(toy(root), "toy_table1", **machine)


def test_the_command_prints_targets_data_and_assumptions(root, capsys, monkeypatch):
    monkeypatch.setenv("RESPATH_ROOT", str(root))
    (root / "config.yaml").write_text("papers: [toy]\n")
    write_json(root / "benchmarks/numbers.json", NUMBERS)
    monkeypatch.setattr(sys, "argv", ["respath", "plan", "--scale", "paper", "--gpu", "h200", "--mfu", "0.3"])
    assert main() == 0
    said = capsys.readouterr().out
    for word in (
        "download",
        "toy_table1",
        "total",
        "2 x h200",
        "MFU 0.3",
        "extrapolated",
        "100 B",
        "core",
        "evaluation left out",
    ):
        assert word in said
    monkeypatch.setattr(sys, "argv", ["respath", "plan", "--scale", "paper", "--json"])
    assert main() == 0
    result = json.loads(capsys.readouterr().out)
    assert {"targets", "total", "data", "extrapolation", "assumptions"} <= set(result)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_plan_fits_eighty_columns(width):
    """And a wide terminal shows more. Numbers are never cut."""
    project = open_papers(Path(__file__).parents[2], {"scale": "paper", "papers": ["resformer"]})
    result = planning.plan(project, project.artifacts(), planning.assumptions(project, "paper"))
    console = Console(width=width, record=True, file=io.StringIO())
    for table in (_targets_table(result, width), _data_table(result, width)):
        console.print(table)
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text and "..." not in text
    total = result["total"]
    assert f"{amount(total['flops'])} " in text and f"{amount(total['disk'], 'B')} " in text
    assert ("device time" in text) == (width >= 110)
