"""Micro-batch and compilation are decided once, by measuring, and kept: a resumed run never decides anew."""

from __future__ import annotations

import pytest
import torch

from respath.training import planning
from respath.training.planning import Plan, StoredPlan, make_plan
from respath.training.runtime import Runtime
from respath.training.world import World
from tests.unit.training_runs import Run, tiny_spec

ALONE = World(0, 1, torch.device("cpu"))


def plan(
    tokens,
    monkeypatch,
    *,
    eager: float,
    compiled: float,
    first: float,
    steps: int = 10_000,
    earlier=None,
    **runtime,
):
    """A plan for clocks that show these seconds: eager step, compiled step, first compiled step."""
    clocks = {False: [eager] * 4, True: [first] + [compiled] * 3}
    asked = []

    class Step:
        def __init__(self, objective, world, micro_batch, compile_it):
            self.compiled = compile_it
            asked.append(compile_it)

        def __call__(self, ids):
            return self.compiled

    def seconds(action, device):
        return clocks[action()].pop(0)

    monkeypatch.setattr(planning, "GradientStep", Step)
    monkeypatch.setattr(planning, "_seconds", seconds)
    monkeypatch.setattr(planning, "_SLOWEST", {"cpu": 1.0})
    spec = tiny_spec(tokens[1], steps=steps)
    ids = torch.zeros(8, 32, dtype=torch.int64)
    made = make_plan(
        spec, Runtime(**runtime), torch.nn.Linear(2, 2), ALONE, 8, lambda: ids, earlier, lambda line: None
    )
    return made, asked


def test_a_long_run_compiles_where_that_is_measured_to_pay(tokens, monkeypatch):
    made, asked = plan(tokens, monkeypatch, eager=0.1, compiled=0.05, first=60)
    assert made.compile and asked == [False, True] and "measured" in made.compile_reason


def test_a_run_of_under_three_minutes_is_not_even_tried(tokens, monkeypatch):
    made, asked = plan(tokens, monkeypatch, eager=0.1, compiled=0.01, first=1, steps=1_700)
    assert not made.compile and asked == [False] and made.compile_reason.startswith("short run")


@pytest.mark.parametrize(("compiled", "first"), [(0.099, 10), (0.2, 10), (0.05, 600)])
def test_compilation_that_is_slower_or_not_earned_back_is_dropped(tokens, monkeypatch, compiled, first):
    made, asked = plan(tokens, monkeypatch, eager=0.1, compiled=compiled, first=first)
    assert not made.compile and asked == [False, True]


def test_an_earlier_session_has_decided_for_this_one(tokens, monkeypatch):
    earlier = Plan(micro_batch=2, compile=True, compile_reason="measured", device="cpu", world=1)
    made, asked = plan(tokens, monkeypatch, eager=0.1, compiled=1, first=1, earlier=earlier)
    assert made == earlier and not asked


def test_another_machine_decides_anew_and_explicit_settings_win(tokens, monkeypatch):
    earlier = Plan(micro_batch=2, compile=True, compile_reason="measured", device="NVIDIA X", world=1)
    made, asked = plan(tokens, monkeypatch, eager=0.1, compiled=1, first=1, earlier=earlier)
    assert not made.compile and asked and made.micro_batch == 8
    made, asked = plan(
        tokens, monkeypatch, eager=0.1, compiled=1, first=1, earlier=earlier, compile="on", micro_batch=4
    )
    assert made.compile and made.micro_batch == 4 and not asked


def test_measuring_leaves_weights_and_gradients_untouched(tokens, tmp_path, monkeypatch):
    """A run that measured (and stayed eager) has the weights of one that did not."""
    manifest, data = tokens
    plain = Run(tmp_path / "plain", tiny_spec(data, steps=6), manifest)
    assert plain.here() == 0
    monkeypatch.setattr(planning, "_SLOWEST", {"cpu": 1.0})
    measured = Run(tmp_path / "measured", tiny_spec(data, steps=6), manifest)
    assert measured.here() == 0
    assert "without compiling" in measured.result["provenance"]["compile"]["reason"]
    assert measured.weights == plain.weights and measured.history == plain.history


def test_a_stored_plan_comes_back_and_a_broken_one_counts_as_none(tmp_path):
    stored = StoredPlan(tmp_path)
    assert stored.read() is None
    made = Plan(micro_batch=2, compile=False, compile_reason="as asked", device="cpu", world=1)
    stored.write(made)
    assert stored.read() == made
    for broken in ("{", "{}", '{"plan": {"micro_batch": 2}}', '{"plan": 3}'):
        stored.path.write_text(broken)
        assert stored.read() is None


@pytest.mark.slow
def test_a_compiled_run_resumes_bit_identical_and_agrees_with_eager(tokens, tmp_path):
    """Tolerance 2e-3 nats over 8 steps between compiled and eager."""
    manifest, data = tokens
    runs = {
        name: Run(tmp_path / name, tiny_spec(data, steps=8), manifest)
        for name in ("eager", "whole", "resumed")
    }
    assert runs["eager"].here() == 0
    assert runs["whole"].here(compile="on") == 0
    assert runs["resumed"].start(compile="on", checkpoint_steps=3).wait() == 0
    (runs["resumed"].checkpoints / "final" / "model.safetensors").unlink()
    child = runs["resumed"].start(compile="on")
    assert child.wait() == 0 and "going on from the checkpoint at step 6" in child.said
    assert runs["resumed"].weights == runs["whole"].weights
    assert runs["whole"].result["curve"]["loss"] == pytest.approx(
        runs["eager"].result["curve"]["loss"], abs=2e-3
    )
    assert runs["whole"].result["provenance"]["compile"]["used"] is True
