"""Histories as TensorBoard events, read back by TensorBoard's own reader."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from respath.errors import UserError
from respath.events import FILE, convert, histories

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None,
    reason="needs the extra tensorboard (pip install 'respath[tensorboard]')",
)


def line(step: int, **changes) -> str:
    row = {"step": step, "loss": 6.0 / step, "lr": 1e-3 * step, "grad_norm": 0.5, "tokens": 256 * step}
    return json.dumps(row | changes) + "\n"


def history(folder, run: str = "a-run", steps: int = 5):
    path = folder / run / "history.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line(step) for step in range(1, steps + 1)))
    return path


def scalars(folder) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@needs_tensorboard
def test_every_step_of_a_history_is_there_once(tmp_path):
    path = history(tmp_path)
    done = convert("a-run", path, tmp_path / "events")
    assert (done["steps"], done["status"]) == (5, "written")
    found = scalars(tmp_path / "events" / "a-run")
    assert set(found) == {"loss", "lr", "grad_norm"}
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4, 5]
    assert [value for _, value in found["loss"]] == pytest.approx(
        [6.0 / step for step in range(1, 6)], rel=1e-6
    )
    assert [value for _, value in found["lr"]] == pytest.approx(
        [1e-3 * step for step in range(1, 6)], rel=1e-6
    )


@needs_tensorboard
def test_called_again_nothing_is_written_and_a_longer_history_is_appended(tmp_path):
    path, file = history(tmp_path), tmp_path / "events" / "a-run" / FILE
    convert("a-run", path, tmp_path / "events")
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert convert("a-run", path, tmp_path / "events")["status"] == "same"
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    inode = file.stat().st_ino
    history(tmp_path, steps=8)
    assert convert("a-run", path, tmp_path / "events")["status"] == "grown"
    assert file.read_bytes().startswith(before[0]) and file.stat().st_ino == inode
    assert [step for step, _ in scalars(file.parent)["loss"]] == list(range(1, 9))


@needs_tensorboard
def test_a_run_that_went_back_to_a_checkpoint_is_written_anew(tmp_path):
    path = history(tmp_path)
    convert("a-run", path, tmp_path / "events")
    path.write_text(line(1) + line(2, loss=9.0))
    assert convert("a-run", path, tmp_path / "events")["status"] == "written"
    assert scalars(tmp_path / "events" / "a-run")["loss"] == [(1, 6.0), (2, 9.0)]


@needs_tensorboard
def test_a_running_trainers_half_line_waits_and_a_loss_that_is_not_finite_is_left_out(tmp_path):
    path = history(tmp_path, steps=2)
    with path.open("a") as stream:
        stream.write(line(3, loss=None) + line(4)[:-10])
    assert convert("a-run", path, tmp_path / "events")["steps"] == 3
    found = scalars(tmp_path / "events" / "a-run")
    assert [step for step, _ in found["loss"]] == [1, 2] and [step for step, _ in found["lr"]] == [1, 2, 3]


@needs_tensorboard
def test_the_history_that_a_training_writes_is_read(tmp_path, monkeypatch, capsys):
    """A real training, through the command."""
    from respath import cli
    from tests.project_copy import ROOT
    from tests.unit.corpus import tiny_tokens
    from tests.unit.training_runs import Run, tiny_spec

    manifest, data = tiny_tokens(tmp_path / "tokens")
    run = Run(tmp_path, tiny_spec(data, steps=4), manifest)
    assert run.here() == 0
    for part in ("papers", "scales"):
        (tmp_path / part).symlink_to(ROOT / part)
    monkeypatch.setenv("RESPATH_ROOT", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["respath", "events", "--to", str(tmp_path / "events")])
    assert cli.main() == 0
    assert "tiny: 4 steps, written" in capsys.readouterr().out
    rows = [json.loads(text) for text in run.history.splitlines()]
    assert scalars(tmp_path / "events" / "tiny")["grad_norm"] == [
        (row["step"], pytest.approx(row["grad_norm"], rel=1e-6)) for row in rows
    ]


@needs_tensorboard
def test_a_damaged_history_is_named_with_its_line(tmp_path):
    path = history(tmp_path, steps=2)
    path.write_text(line(1) + "{torn\n" + line(2))
    with pytest.raises(UserError, match=r"history\.jsonl:2: is no step of a history"):
        convert("a-run", path, tmp_path / "events")


def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(
        UserError, match=r"needs the extra tensorboard \(pip install 'respath\[tensorboard\]'\)"
    ):
        convert("a-run", history(tmp_path), tmp_path / "events")


def test_runs_without_a_history_are_all_named(tmp_path):
    history(tmp_path, "first"), history(tmp_path, "second")
    assert list(histories(tmp_path)) == ["first", "second"]
    assert list(histories(tmp_path, ["second", "second"])) == ["second"]
    with pytest.raises(UserError) as error:
        histories(tmp_path, ["frist", "first", "third"])
    assert len(error.value.lines) == 2 and "did you mean 'first'" in error.value.lines[0]
    with pytest.raises(UserError, match="no run here has a history"):
        histories(tmp_path / "nowhere")
