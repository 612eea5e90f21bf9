"""A run that is killed, stopped or finds its files damaged ends with the weights of a run that nothing happened to."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time

import pytest
import torch

from respath.errors import RETRY
from respath.training.clean import main as clean_checkpoints
from respath.training.lease import LEASE_HELD
from respath.training.loop import Training
from tests.unit.training_runs import Run, tiny_spec

SLOW_STEP = 0.02


@pytest.fixture(scope="module")
def reference(tokens, tmp_path_factory):
    """A run that nothing happens to."""
    manifest, data = tokens
    run = Run(tmp_path_factory.mktemp("reference"), tiny_spec(data), manifest)
    assert run.start().wait() == 0
    return run


@pytest.fixture
def run(tokens, tmp_path):
    manifest, data = tokens
    return Run(tmp_path, tiny_spec(data), manifest)


def lines(run: Run) -> int:
    path = run.checkpoints / "history.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def checkpoint_steps(run: Run) -> list[int]:
    return sorted(int(path.name[5:]) for path in run.checkpoints.glob("step-*"))


def assert_like(run: Run, reference: Run) -> None:
    assert run.weights == reference.weights
    assert run.history == reference.history
    ours, theirs = run.result, reference.result
    for key in ("status", "steps", "tokens", "loss", "curve", "validation", "weights"):
        assert ours[key] == theirs[key], key


def interrupted(run: Run, at: int = 9, **runtime) -> None:
    """Leave the run with checkpoints up to about step ``at`` and no result, as kill -9 does."""
    child = run.start(step_seconds=SLOW_STEP, checkpoint_steps=3, **runtime)
    child.until(lambda: max(checkpoint_steps(run), default=0) >= at)
    child.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not run.out.exists()


@pytest.mark.parametrize("seed", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 9, 10))])
def test_killed_at_five_random_moments_a_run_ends_bit_identical(run, reference, seed):
    moments = random.Random(seed)
    for step in sorted(moments.sample(range(1, 20), 5)):
        child = run.start(step_seconds=SLOW_STEP, checkpoint_steps=2)
        child.until(lambda step=step: lines(run) >= step)
        time.sleep(moments.uniform(0, 2 * SLOW_STEP))
        child.signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    child = run.start(checkpoint_steps=2)
    assert child.wait() == 0
    assert "going on from the checkpoint at step" in child.said
    assert_like(run, reference)
    assert run.result["cost"]["sessions"] > 1


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 60, 12))])
def test_killed_at_any_write_of_a_checkpoint_a_run_ends_bit_identical(run, reference, first):
    for number in range(first, first + 12, 5):
        assert run.start(checkpoint_steps=2, die_at=number).wait() in (-signal.SIGKILL, 0)
    assert run.start(checkpoint_steps=2).wait() == 0
    assert_like(run, reference)
    assert not list(run.checkpoints.glob(".*")), "a killed writer's files are cleared away"


@pytest.mark.parametrize("first", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(14, 62, 12))])
def test_a_disk_that_is_full_at_any_write_costs_at_most_a_restart(run, reference, first):
    """Each try meets a full disk at one write; some finish all the same, the others say what to do."""
    for number in range(first, first + 12, 5):
        child = run.start(checkpoint_steps=2, full_at=number)
        code = child.wait()
        assert code in (0, 2) and "Traceback" not in child.said
        assert code == 0 or "no space left on the device" in child.said
    assert run.start(checkpoint_steps=2).wait() == 0
    assert_like(run, reference)
    assert not list(run.checkpoints.glob(".*"))


@pytest.mark.slow
def test_a_stop_signal_with_little_grace_before_the_kill_loses_at_most_the_steps_since_the_last_checkpoint(
    run, reference
):
    graces = random.Random(3)
    for step in (4, 9, 14):
        child = run.start(step_seconds=SLOW_STEP, checkpoint_steps=4)
        child.until(lambda step=step: lines(run) >= step)
        child.signal(signal.SIGTERM)
        time.sleep(graces.uniform(0, 2 * SLOW_STEP))
        child.signal(signal.SIGKILL)
        assert child.wait() in (RETRY, -signal.SIGKILL)
        assert not run.out.exists()
    assert run.start().wait() == 0
    assert_like(run, reference)


def test_a_clock_that_jumps_years_stops_nothing_and_triggers_nothing(run, reference, monkeypatch):
    """Intervals and limits are the monotonic clock's; only what people read comes from the wall clock."""
    years = iter(range(1, 1_000_000))
    monkeypatch.setattr(time, "time", lambda: 1e9 + (-1) ** next(years) * 3e8)
    assert run.here(checkpoint_minutes=60, time_limit_minutes=600) == 0
    assert_like(run, reference)
    assert not checkpoint_steps(run)
    assert 0 <= run.result["cost"]["seconds"] < 3600


def test_memory_that_is_used_up_is_one_line_and_the_same_command_goes_on(run, reference, monkeypatch, capfd):
    """The allocator's own error, of an amount that no machine has."""
    advance = Training.advance

    def greedy(self):
        if self.step == 9:
            torch.empty(2**46)
        return advance(self)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "advance", greedy)
        assert run.here(checkpoint_steps=4) == 2
    said = capfd.readouterr().err
    assert said.count("error: out of memory (asked for ") == 1 and "Traceback" not in said
    assert checkpoint_steps(run) == [4, 8] and not run.out.exists()
    assert run.here(checkpoint_steps=4) == 0
    assert "going on from the checkpoint at step 8" in capfd.readouterr().err
    assert_like(run, reference)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGUSR1))],
)
def test_a_stop_signal_keeps_the_work_and_the_same_command_goes_on(run, reference, number):
    child = run.start(step_seconds=SLOW_STEP)
    child.until(lambda: lines(run) >= 7)
    child.signal(number)
    assert child.wait() == RETRY
    assert f"{number.name}: tiny stopped with a checkpoint at step" in child.said
    assert "Traceback" not in child.said and not run.out.exists()
    assert checkpoint_steps(run)[-1] >= 7
    assert not (run.checkpoints / "lease.json").exists()
    assert run.start().wait() == 0
    assert_like(run, reference)


@pytest.mark.slow
def test_signals_upon_signals_harm_no_checkpoint(run, reference):
    child = run.start(step_seconds=SLOW_STEP)
    child.until(lambda: lines(run) >= 5)
    while child.process.is_alive():
        child.signal(signal.SIGTERM)
        time.sleep(0.002)
    assert child.wait() == RETRY
    assert run.start().wait() == 0
    assert_like(run, reference)


def test_the_time_limit_stops_like_a_signal(run, reference):
    child = run.start(step_seconds=0.2, time_limit_minutes=1.5 / 60)
    assert child.wait() == RETRY
    assert "the time limit of 0.025 minutes: tiny stopped with a checkpoint at step" in child.said
    assert run.start().wait() == 0
    assert_like(run, reference)


def truncate(folder):
    path = folder / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def flip_a_bit_in_done(folder):
    path = folder / "DONE"
    text = path.read_text()
    place = text.index('"spec": "') + len('"spec": "')
    path.write_text(text[:place] + ("0" if text[place] != "0" else "1") + text[place + 1 :])


def lose_a_file(folder):
    (folder / "history.safetensors").unlink()


def lose_done(folder):
    (folder / "DONE").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        *(
            pytest.param(f, marks=pytest.mark.slow)
            for f in (flip_a_bit, flip_a_bit_in_done, lose_a_file, lose_done)
        ),
    ],
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(run, reference, damage):
    interrupted(run)
    *_, before, newest = checkpoint_steps(run)
    damage(run.checkpoints / f"step-{newest:08d}")
    child = run.start()
    assert child.wait() == 0
    assert f"step-{newest:08d} is damaged" in child.said
    assert f"going on from the checkpoint at step {before} " in child.said
    assert_like(run, reference)


@pytest.mark.slow
def test_a_deleted_newest_checkpoint_costs_one_interval(run, reference):
    interrupted(run)
    *_, before, newest = checkpoint_steps(run)
    shutil.rmtree(run.checkpoints / f"step-{newest:08d}")
    child = run.start()
    assert child.wait() == 0
    assert f"going on from the checkpoint at step {before} " in child.said
    assert_like(run, reference)


@pytest.mark.slow
def test_without_any_whole_checkpoint_the_run_starts_anew_and_says_so(run, reference):
    interrupted(run)
    for step in checkpoint_steps(run):
        folder = run.checkpoints / f"step-{step:08d}"
        # The kill may have met an old checkpoint while it was being deleted: that one is not whole already.
        if (folder / "optimizer.safetensors").exists():
            truncate(folder)
    child = run.start(checkpoint_steps=5)
    assert child.wait() == 0
    assert "no whole checkpoint is left; starting from step 0" in child.said
    assert_like(run, reference)
    assert checkpoint_steps(run) == [15, 20], "damaged checkpoints do not count among those kept"


def test_a_lost_or_torn_history_is_rebuilt_from_the_checkpoint(run, reference):
    interrupted(run)
    path = run.checkpoints / "history.jsonl"
    path.write_text(path.read_text()[:-40] + "\n{torn")
    (run.checkpoints / "runtime.json").unlink()
    assert run.start().wait() == 0
    assert_like(run, reference)
    steps = [json.loads(line)["step"] for line in run.history.splitlines()]
    assert steps == list(range(1, 25))


def test_a_checkpoint_of_another_run_or_manifest_is_refused_naming_both(run, reference, tokens, tmp_path):
    interrupted(run)
    manifest, data = tokens
    other = Run(run.folder, tiny_spec(data, seed=2), manifest)
    child = other.start()
    assert child.wait() == 2
    assert child.said.count("\n") == 1 and "written by run" in child.said and "but this is run" in child.said
    copy = tmp_path / "store"
    shutil.copytree(manifest.parent, copy)
    content = json.loads((copy / "manifest.json").read_text())
    content["note"] = "another note"
    (copy / "manifest.json").write_text(json.dumps(content))
    child = Run(run.folder, run.spec, copy / "manifest.json").start()
    assert child.wait() == 2
    assert child.said.count("\n") == 1 and "on the token manifest" in child.said
    assert run.start().wait() == 0, "a refusal leaves the checkpoints as they were"
    assert_like(run, reference)


@pytest.mark.slow
def test_another_number_of_threads_is_said_to_end_bit_identity(run):
    interrupted(run)
    child = run.start(threads=2)
    assert child.wait() == 0
    assert (
        "threads 1 -> 2 since the checkpoint" in child.said
        and "bit-identity is no longer promised" in child.said
    )


def test_a_second_trainer_of_the_same_run_leaves_at_once_and_harms_nothing(run, reference, tmp_path):
    first = run.start(step_seconds=0.1)
    first.until(lambda: lines(run) >= 2)
    second = run.start()
    assert second.wait() == LEASE_HELD
    assert "another trainer is at work on this run (host" in second.said
    assert first.process.is_alive()
    assert first.wait() == 0
    assert_like(run, reference)


def test_a_second_trainer_waits_when_told_to_and_then_finds_the_work_done(run, reference):
    first = run.start(step_seconds=0.05)
    first.until(lambda: lines(run) >= 2)
    second = run.start(lease_wait_minutes=2)
    assert first.wait() == 0
    assert second.wait() == 0
    assert "waiting for another trainer" in second.said and "already finished" in second.said
    assert_like(run, reference)


def test_a_finished_run_is_not_trained_again(run, reference, tmp_path):
    assert run.start().wait() == 0
    before = run.out.stat().st_mtime_ns
    child = run.start()
    assert child.wait() == 0
    assert child.said == f"tiny: already finished; {run.out}\n"
    assert run.out.stat().st_mtime_ns == before


def test_a_lost_result_is_written_anew_from_the_run_s_own_folder(run, reference, tmp_path):
    """Also without the tokens, and after its checkpoints were cleaned away."""
    assert run.start(checkpoint_steps=10).wait() == 0
    result, weights = run.out.read_bytes(), run.weights
    assert (
        clean_checkpoints(["--checkpoints", str(tmp_path / "checkpoints"), "--runs", str(tmp_path / "runs")])
        == 0
    )
    shutil.rmtree(run.out.parent)
    run.manifest = tmp_path / "gone.json"
    child = run.start()
    assert child.wait() == 0 and child.said == f"tiny: already finished; {run.out}\n"
    assert run.out.read_bytes() == result and run.weights == weights


def test_a_lost_result_whose_weights_are_damaged_is_trained_from_the_newest_checkpoint(run, reference):
    assert run.start(checkpoint_steps=10).wait() == 0
    run.out.unlink()
    (run.checkpoints / "final" / "model.safetensors").write_bytes(b"damaged")
    child = run.start()
    assert child.wait() == 0
    assert "are damaged; training from the newest checkpoint" in child.said
    assert_like(run, reference)


def test_a_run_on_other_tokens_is_refused_and_what_is_printed_trains_it_anew(run, reference, tmp_path):
    other = run.manifest.parent / "other.json"
    other.write_text(json.dumps(json.loads(run.manifest.read_text()) | {"note": "made again"}))
    try:
        assert run.start().wait() == 0
        run.out.unlink()
        right, run.manifest = run.manifest, other
        child = run.start()
        assert child.wait() == 2
        assert (
            f"put those tokens back, or delete {run.checkpoints} and {run.out.parent} and run" in child.said
        )
        # The first way out.
        run.manifest = right
        assert run.start().wait() == 0
        assert_like(run, reference)
        # The second one.
        run.manifest = other
        shutil.rmtree(run.checkpoints)
        shutil.rmtree(run.out.parent)
        child = run.start()
        assert child.wait() == 0 and "finished 24 steps" in child.said
        assert run.result["manifest_sha256"] != reference.result["manifest_sha256"]
    finally:
        other.unlink()


def test_lost_final_weights_come_back_from_the_newest_checkpoint(run, reference):
    assert run.start(checkpoint_steps=10).wait() == 0
    (run.checkpoints / "final" / "model.safetensors").unlink()
    child = run.start()
    assert child.wait() == 0
    assert "are gone; training from the newest checkpoint" in child.said
    assert "going on from the checkpoint at step 20" in child.said
    assert_like(run, reference)


def test_two_uninterrupted_runs_write_the_same_bytes(run, reference):
    assert run.start(micro_batch=8).wait() == 0
    assert_like(run, reference)
