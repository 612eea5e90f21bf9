"""What a training measures on its way: which rows, when, at what cost, and that it leaves no trace in the weights."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_model

from respath.config.runtime import Validation
from respath.data.loader import validation_rows
from respath.model import build_model
from respath.spec.recipe import Recipe
from respath.training.validation import scheduled
from tests.unit.training_runs import Run, start_ranks, tiny_spec

#: Every fourth step, at a share that pays for three rows of each of the store's domains.
OFTEN = {"points": 6, "share": 0.5}


def recipe(steps, batch=16):
    return Recipe.model_validate({**tiny_recipe(), "steps": steps, "batch_sequences": batch})


def tiny_recipe():
    return {"warmup_steps": 1, "peak_lr": 1e-3, "final_lr": 1e-4, "context": 32, "precision": "fp32"}


@pytest.mark.parametrize("steps", [12, 50, 1000, 4000])
@pytest.mark.parametrize("plan", [{}, {"points": 7}, {"every": 50}, {"share": 0.01}, {"sequences": 3}])
def test_scoring_costs_at_most_its_share_of_the_trainings_flops(steps, plan):
    options, batch, domains = Validation(**plan), 16, 7
    at, rows = scheduled(options, recipe(steps, batch), domains)
    assert len(at) * rows * domains <= options.share * 3 * steps * batch
    assert rows <= options.sequences and len(set(at)) == len(at) and list(at) == sorted(at)
    if at:
        assert rows >= 1 and at[-1] == steps and at[0] >= 1


def test_points_are_evenly_spaced_and_the_last_is_the_end():
    at, rows = scheduled(Validation(), recipe(4000), 7)
    assert at == tuple(range(200, 4001, 200)) and rows == int(0.15 * 4000 * 16) // (20 * 7)
    assert scheduled(Validation(every=50), recipe(120), 1)[0] == (50, 100, 120)
    assert scheduled(Validation(points=0), recipe(4000), 7) == ((), 0)
    # Twelve steps of four rows pay for seven rows, one of each domain.
    assert scheduled(Validation(), recipe(12, 4), 7) == ((12,), 1)
    assert scheduled(Validation(), recipe(2, 4), 7) == ((), 0)


@pytest.fixture(scope="module")
def finished(tokens, tmp_path_factory):
    """A run that is measured often, with a checkpoint every third step."""
    manifest, data = tokens
    run = Run(tmp_path_factory.mktemp("measured"), tiny_spec(data), manifest, validation=OFTEN)
    assert run.start(checkpoint_steps=3).wait() == 0
    return run


def test_a_training_ends_with_the_same_weights_whether_it_is_measured_or_not(finished, tmp_path):
    silent = Run(tmp_path / "silent", finished.spec, finished.manifest, validation={"points": 0})
    assert silent.start().wait() == 0
    assert silent.result["validation"] is None and finished.result["validation"] is not None
    assert silent.weights == finished.weights and silent.history == finished.history


@pytest.mark.parametrize("kind", ["dropout", "bf16"])
def test_measuring_changes_no_random_state_and_no_precision(tokens, tmp_path, kind):
    manifest, data = tokens
    options = {
        "dropout": {
            "model": {"backbone": "gpt2", "max_positions": 32, "values": {"kind": "own"}, "dropout": 0.2}
        },
        "bf16": {"precision": "bf16"},
    }[kind]
    spec = tiny_spec(data, **options)
    runs = [
        Run(tmp_path / str(i), spec, manifest, validation=v) for i, v in enumerate((OFTEN, {"points": 0}))
    ]
    for run in runs:
        assert run.here() == 0
    assert runs[0].weights == runs[1].weights and runs[0].history == runs[1].history
    domains = runs[0].result["validation"]["domains"]
    # Rows are scored without dropout; bf16 rounds losses of 6 nats in their third digit.
    rounding = 1e-5 if kind == "dropout" else 0.02
    for domain, loss in final_losses(runs[0]).items():
        assert len(domains[domain]) == 6 and domains[domain][-1] == pytest.approx(loss, abs=rounding)


def final_losses(run):
    """Loss per domain of the final weights on as many rows as were scored, in float64 from the logits."""
    model = build_model(run.spec.model, seed=1).eval()
    load_model(model, run.checkpoints / "final" / "model.safetensors")
    losses = {}
    for domain, count in run.result["validation"]["rows"].items():
        rows = torch.from_numpy(validation_rows(run.manifest, 32, count)[domain])
        with torch.no_grad():
            logits = model(rows[:, :-1]).double()
        losses[domain] = -torch.log_softmax(logits, -1).gather(2, rows[:, 1:, None]).mean().item()
    return losses


def test_the_last_point_is_the_loss_of_the_final_weights_on_the_rows_that_the_hash_names(finished):
    found = finished.result["validation"]
    assert found["step"] == [4, 8, 12, 16, 20, 24] and found["tokens"] == [s * 8 * 32 for s in found["step"]]
    hashes = {}
    for domain, loss in final_losses(finished).items():
        assert found["domains"][domain][-1] == pytest.approx(loss, abs=1e-5)
        rows = validation_rows(finished.manifest, 32, found["rows"][domain])[domain]
        hashes[domain] = hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
    canonical = json.dumps(hashes, sort_keys=True, separators=(",", ":"))
    assert found["rows_sha256"] == hashlib.sha256(canonical.encode()).hexdigest()
    assert found["loss"] == pytest.approx(np.mean(list(found["domains"].values()), axis=0).tolist())
    assert found["loss"][-1] < found["loss"][0]


def test_killed_between_two_points_a_run_ends_with_the_same_history(finished, tmp_path):
    run = Run(tmp_path, finished.spec, finished.manifest, validation=OFTEN)
    for kill_after in (9, 15):
        child = run.start(step_seconds=0.02, checkpoint_steps=3)
        child.until(lambda at=kill_after: (run.checkpoints / f"step-{at:08d}").exists())
        child.signal(9)
        assert child.wait() == -9 and not run.out.exists()
    assert run.start().wait() == 0
    assert run.result["validation"] == finished.result["validation"] and run.weights == finished.weights


def test_points_on_other_rows_are_dropped_with_a_warning(finished, tmp_path):
    run = Run(tmp_path, finished.spec, finished.manifest, validation={**OFTEN, "sequences": 1})
    child = run.start(step_seconds=0.02, checkpoint_steps=3)
    child.until(lambda: (run.checkpoints / "step-00000009").exists())
    child.signal(9)
    child.wait()
    run.validation = OFTEN
    again = run.start()
    assert again.wait() == 0 and "the validation history begins anew" in again.said
    found, whole = run.result["validation"], finished.result["validation"]
    assert found["loss"] == whole["loss"][-len(found["loss"]) :] and len(found["loss"]) < 6


def test_two_processes_measure_what_one_measures(finished, tmp_path):
    run = Run(tmp_path, finished.spec, finished.manifest, validation=OFTEN)
    for child in start_ranks([(run, {})]):
        assert child.wait() == 0
    found, single = run.result["validation"], finished.result["validation"]
    assert found["rows_sha256"] == single["rows_sha256"] and found["step"] == single["step"]
    assert found["loss"] == pytest.approx(single["loss"], abs=1e-4)


def test_weights_of_named_steps_stay_and_train_json_names_them(finished, tmp_path):
    run = Run(
        tmp_path, finished.spec, finished.manifest, validation={**OFTEN, "keep_weights_at": [6, 24, 99]}
    )
    assert run.here() == 0
    kept = run.result["kept_weights"]
    assert [entry["step"] for entry in kept] == [6, 24]
    for entry in kept:
        content = (run.out.parent / entry["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    assert (run.out.parent / kept[1]["path"]).read_bytes() == run.weights
    assert run.weights == finished.weights and finished.result["kept_weights"] == []


def test_wrong_options_are_one_line(finished, tmp_path, capfd):
    run = Run(tmp_path, finished.spec, finished.manifest, validation={"keep_weights_at": [3, 2], "point": 3})
    assert run.here() == 2
    said = capfd.readouterr().err
    assert "--validation: keep_weights_at" in said and "did you mean 'points'" in said
