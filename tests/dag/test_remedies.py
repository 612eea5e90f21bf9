"""What a message says is followed literally: it ends well, and costs nothing that was finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.toy_copy import ToyCopy
from tests.dag.disturbed import named_for_deletion

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> ToyCopy:
    """Two of four trainings are done."""
    copy = ToyCopy(tmp_path_factory.mktemp("remedies"))
    copy.make(*(result_of(copy, name) for name in ("base", "mix")))
    return copy


def result_of(copy: ToyCopy, name: str) -> str:
    return f"results/runs/{copy.runs[name].id}/train.json"


def follow(copy: ToyCopy, said: str) -> list[str]:
    """Delete what is named; returns the names."""
    named = sorted(set(named_for_deletion(copy.path, said)))
    for path in named:
        shutil.rmtree(copy.path / path) if (copy.path / path).is_dir() else (copy.path / path).unlink()
    return [str(path) for path in named]


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("harm", [damage, Path.unlink], ids=["changed", "gone"])
def test_a_bad_token_shard_is_made_again_and_no_finished_run_with_it(trained, harm):
    done = {name: (trained.path / result_of(trained, name)).stat().st_mtime_ns for name in ("base", "mix")}
    target = result_of(trained, {damage: "odd", Path.unlink: "larger"}[harm])
    shard = trained.manifest.parent / "train/Prose.000.bin"
    whole, manifest = shard.read_bytes(), trained.manifest.read_bytes()
    harm(shard)
    failed = trained.snakemake(target)
    assert failed.returncode != 0
    store = trained.manifest.parent.relative_to(trained.path)
    assert follow(trained, failed.stdout + failed.stderr) == [
        f"{store}/manifest.json",
        f"{store}/train/Prose.000.json",
    ]
    trained.make(target)
    assert (shard.read_bytes(), trained.manifest.read_bytes()) == (whole, manifest)
    for name, before in done.items():
        assert (trained.path / result_of(trained, name)).stat().st_mtime_ns == before
        assert trained.planned(result_of(trained, name)) == {}


def test_a_broken_result_of_training_is_deleted_as_told_and_comes_back_untrained(trained):
    result = trained.path / result_of(trained, "base")
    before, history = result.read_bytes(), trained.steps(trained.runs["base"])
    log = trained.path / f"checkpoints/{trained.runs['base'].id}/train.log"
    sessions = log.read_text()
    result.write_bytes(before[: len(before) // 2])
    target = f"results/evals/{trained.runs['base'].id}/loss.json"
    failed = trained.snakemake(target)
    assert failed.returncode != 0
    assert follow(trained, failed.stdout + failed.stderr) == [result_of(trained, "base")]
    trained.make(target)
    assert result.read_bytes() == before
    assert trained.steps(trained.runs["base"]) == history and log.read_text() == sessions


def test_lost_weights_come_back_from_the_newest_checkpoint_as_told(trained):
    weights = trained.path / f"checkpoints/{trained.runs['mix'].id}/final/model.safetensors"
    before = weights.read_bytes()
    damage(weights)
    target = f"results/evals/{trained.runs['mix'].id}/loss.json"
    failed = trained.snakemake(target)
    assert failed.returncode != 0
    assert follow(trained, failed.stdout + failed.stderr) == [result_of(trained, "mix")]
    trained.make(target)
    assert weights.read_bytes() == before
