"""A training or a measurement that would mix two states of the code is refused, or goes on as accepted and says so everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from respath.comparison.code import code_warnings, mixed
from respath.files import read_json
from respath.papers.resolve import Run as Listed
from tests.errands import TreeCopy
from tests.unit.corpus import tiny_tokens
from tests.unit.training_runs import Run, tiny_spec

MIX = "model/values/mix.py"
#: Kills the trainer without a word at step 12; a checkpoint was made at step 10.
KILLED = """
import os, sys
from respath.training import command, loop
advance = loop.Training.advance
def until_twelve(self):
    if self.step == 12:
        os._exit(9)
    return advance(self)
loop.Training.advance = until_twelve
sys.exit(command.main(sys.argv[1:]))
"""


class Tree(TreeCopy):
    """A copy of the sources whose trainer and measurements are run, and whose equation can be edited."""

    def edit(self, old: str, new: str, path: str = MIX) -> None:
        """Replace text that is there once."""
        file = self.path / "src/respath" / path
        assert file.read_text().count(old) == 1
        file.write_text(file.read_text().replace(old, new))

    def call(self, *arguments: str) -> tuple[int, str]:
        """Exit code and standard error of ``python ARGUMENTS``."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.path / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.path, env=environment, capture_output=True, text=True
        )
        return done.returncode, done.stderr

    def train(self, run: Run, *more: str, killed: bool = False) -> tuple[int, str]:
        """Train on, with a checkpoint every ten steps."""
        how = ("-c", KILLED) if killed else ("-m", "respath.training")
        return self.call(*how, *run.arguments(checkpoint_steps=10), *more)

    def loss(self, run: Run, *more: str) -> tuple[int, str]:
        """Measure the final weights."""
        places = (
            "--train",
            str(run.out),
            "--tokens",
            str(run.manifest),
            "--checkpoints",
            str(run.checkpoints),
        )
        out = ("--out", str(run.folder / "loss.json"), "--sequences", "4", "--device", "cpu")
        return self.call("-m", "respath.measure.loss", *places, *out, *more)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """What was said, in order, by trainings and measurements around edits of the sources; and the run."""
    folder = tmp_path_factory.mktemp("no-mix")
    manifest, data = tiny_tokens(folder / "data")
    tree = Tree(folder / "tree", "src")
    run, said = Run(folder, tiny_spec(data), manifest), {}
    said["killed"] = tree.train(run, killed=True)
    tree.edit(
        "        weights, source = carried\n", "        weights, source = carried  # of layers before\n"
    )
    tree.edit("STREAM_EPS = 1e-8", "STREAM_EPS = 1e-7", "model/streams/hc.py")
    said["a comment and another stream"] = tree.train(run, killed=True)
    tree.edit("combine([source, own]", "combine([own, source]")
    said["another equation"] = tree.train(run)
    said["steps"] = sorted(path.name for path in run.checkpoints.glob("step-*"))
    said["accepted"] = tree.train(run, "--accept-code")
    said["log"] = (run.checkpoints / "train.log").read_text()
    said["measured"] = tree.loss(run)
    said["clean"] = read_json(folder / "loss.json")
    tree.edit("combine([own, source]", "combine([source, own]")
    said["measured by the first equation"] = tree.loss(run)
    said["measured as accepted"] = tree.loss(run, "--accept-code")
    said["mixed"] = read_json(folder / "loss.json")
    return run, said


def test_a_training_goes_on_after_edits_that_change_none_of_its_numbers(story):
    _, said = story
    assert said["killed"][0] == 9
    code, error = said["a comment and another stream"]
    assert code == 9 and "going on from the checkpoint at step 10 of 24" in error


def test_a_training_does_not_go_on_from_steps_of_other_code(story):
    _, said = story
    code, error = said["another equation"]
    assert code == 2 and len(error.splitlines()) == 1
    assert "steps 1 to 10 were computed by other code (model " in error and "--accept-code" in error
    assert said["steps"] == ["step-00000010"]


def test_what_is_accepted_is_in_the_log_and_in_the_result(story):
    run, said = story
    code, error = said["accepted"]
    assert code == 0 and "going on with today's code, as accepted" in error
    assert "steps 1 to 10 were computed by other code" in said["log"]
    sessions = run.result["provenance"]["sessions"]
    codes = [session["code"] for session in sessions]
    assert [session["last_step"] for session in sessions] == [10, 24]
    assert codes[0]["model"] != codes[1]["model"] and codes[0]["shared"] == codes[1]["shared"]
    assert sessions[1]["accepted"].startswith("other code (model ") and "accepted" not in sessions[0]
    assert run.result["provenance"]["code"] == codes[1]


def test_weights_are_not_measured_as_another_model_than_was_trained(story):
    run, said = story
    assert said["measured"][0] == 0
    model = run.result["provenance"]["code"]["model"]
    assert said["clean"]["code"]["weights"] == said["clean"]["code"]["model"] == model
    assert said["clean"]["code"]["accepted"] is False
    code, error = said["measured by the first equation"]
    assert code == 2 and len(error.splitlines()) == 1
    assert "its weights were trained as model code" in error and "--accept-code" in error
    code, error = said["measured as accepted"]
    assert code == 0 and "as accepted" in error
    assert said["mixed"]["code"]["accepted"] is True and said["mixed"]["code"]["weights"] == model
    assert said["mixed"]["mean_loss"] != said["clean"]["mean_loss"]


def test_a_table_of_such_runs_says_so(story):
    run, said = story
    listed = Listed("tiny", run.spec, "toy", "S", "mix", 32, 1, "smoke")

    class Found:
        of_run = staticmethod(lambda kind, name: said["mixed"] if kind == "loss" else None)

    assert mixed(run.result)
    assert code_warnings(Found, [listed], {"tiny": run.result}) == [
        "1 runs (tiny) went on from steps that other code had computed (accepted)",
        "1 runs (tiny) were measured with other model code than trained them (accepted)",
    ]


def test_weights_of_earlier_code_are_measured_and_the_result_says_that_nothing_is_known(story, tmp_path):
    from respath.fingerprint import measured_by
    from respath.measure.weights import refuse_other_code

    run, _ = story
    earlier = json.loads(run.out.read_text())
    del earlier["provenance"]["code"]
    earlier["provenance"]["sources_sha256"] = "a" * 64
    refuse_other_code(earlier, run.spec, run.out, accept=False)
    code = measured_by(earlier, run.spec.model, "respath.measure.loss")
    assert (code["weights"], code["accepted"]) == ("earlier code", False)
