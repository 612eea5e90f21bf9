"""System measurements: what is timed, what is counted, and what a lack of memory does to the rest. No test reads a clock."""

from __future__ import annotations

import json

import pytest
import torch

from respath.documents import check
from respath.errors import UserError
from respath.measure import system, timing
from respath.spec.cost import cache_bytes
from respath.spec.document import identity
from respath.spec.model import ModelSpec
from tests.unit.model_cases import spec_of

PLAIN, OTHER = spec_of("transformer"), spec_of("svformer")


@pytest.fixture
def ticks(monkeypatch):
    """A clock that counts calls of models: the baseline's take one second, the other's half of one."""
    calls = []

    def timed(call, device):
        call()
        seconds = 0.5 if calls[-1] is OTHER else 1.0
        return seconds, seconds

    def noting(make):
        def made(spec, *arguments, **options):
            inner = make(spec, *arguments, **options)

            def call(*given):
                calls.append(spec)
                return inner(*given)

            return call

        return made

    monkeypatch.setattr(timing, "timed", timed)
    monkeypatch.setattr(timing, "training_step", noting(timing.training_step))
    return calls


def run(**options):
    return system.measure(OTHER, PLAIN, context=8, batch=2, precision="fp32", device="cpu", **options)


def test_a_ratio_is_the_models_time_over_the_baselines_turns_around_it(ticks):
    entry = run(rounds=2, repetitions=3)["phases"]["step"]
    assert entry["seconds"] == 0.5 and entry["ratio"] == 0.5 and entry["ratios"] == [0.5, 0.5]
    assert entry["tokens"] == 16 and entry["tokens_per_second"] == 32
    # Once beforehand and once a repetition, the baseline twice, in each of two rounds.
    assert ticks.count(OTHER) == 2 * (1 + 3) and ticks.count(PLAIN) == 2 * (1 + 6)


def test_all_phases_run_and_the_cache_is_the_real_ones(tmp_path):
    found = run(rounds=1, repetitions=1)
    assert list(found["phases"]) == ["step", "prefill", "decode"]
    assert all(entry["status"] == "done" and entry["ratio"] > 0 for entry in found["phases"].values())
    room = 8 + system.DECODED * 3
    decode = found["phases"]["decode"]
    assert decode["cache_bytes"] == 2 * cache_bytes(OTHER, room, 2), "fp32 has twice the closed form's bytes"
    assert decode["cache_ratio"] == cache_bytes(OTHER, room, 2) / cache_bytes(PLAIN, room, 2)
    assert found["device"]["kind"] == "cpu" and found["device"]["threads"] == torch.get_num_threads()
    assert decode["peak_bytes"] is None


def test_a_phase_without_memory_says_so_and_the_others_stand(monkeypatch):
    def none(*arguments, **options):
        raise torch.OutOfMemoryError("too little")

    monkeypatch.setattr(timing, "training_step", none)
    phases = run(rounds=1, repetitions=1)["phases"]
    assert phases["step"] == {"status": "out of memory"}
    assert phases["prefill"]["status"] == phases["decode"]["status"] == "done"


def test_a_model_without_enough_positions_is_refused():
    spec = check(ModelSpec, {**identity(PLAIN), "backbone": "gpt2", "max_positions": 64}, "spec")
    with pytest.raises(UserError, match="the model has 64"):
        system.measure(spec, spec, context=60, batch=1, precision="fp32", device="cpu")


def test_the_command_writes_one_result(tmp_path, capsys):
    out = tmp_path / "bench.json"
    specs = [json.dumps(spec.model_dump(mode="json")) for spec in (OTHER, PLAIN)]
    arguments = [
        "--model",
        specs[0],
        "--baseline",
        specs[1],
        "--name",
        "82M/svformer",
        "--context",
        "8",
        "--batch",
        "1",
    ]
    arguments += ["--rounds", "1", "--repetitions", "1", "--device", "cpu", "--out", str(out)]
    assert system.main(arguments) == 0
    content = json.loads(out.read_text())
    assert content["kind"] == "bench" and content["model"] == "82M/svformer"
    assert "decode: " in capsys.readouterr().out


def test_a_prompt_of_its_own_length_is_prefilled_and_a_step_keeps_the_trainings(ticks):
    phases = run(prompt=12, rounds=1, repetitions=1)["phases"]
    assert (phases["step"]["tokens"], phases["prefill"]["tokens"]) == (16, 24)
    hours = phases["prefill"]["hours_per_billion_tokens"]
    assert hours == pytest.approx(1e9 / phases["prefill"]["tokens_per_second"] / 3600)
