"""The trainer computes the recipe: schedule, groups, clipping, precision; its ends and refusals are the documented ones."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from respath.config.runtime import Runtime
from respath.data.loader import Loader
from respath.errors import RETRY, UserError
from respath.files import sha256_file
from respath.fingerprint import training_code
from respath.model import build_model, parameter_roles
from respath.model.loss import next_token_loss
from respath.spec.recipe import Recipe, learning_rate
from respath.spec.run import run_hash
from respath.training import loop, steps
from respath.training.history import CURVE_POINTS, History
from respath.training.lease import LEASE_HELD, Lease
from respath.training.objective import GradientStep, LossScale, make_objective
from respath.training.optimizer import make_optimizer, set_schedule
from respath.training.planning import automatic_micro_batch
from respath.training.results import weights_path
from respath.training.runtime import read_runtime, refuse_engine
from respath.training.world import World
from tests.unit.training_runs import Run, start_ranks, tiny_spec

ALONE = World(0, 1, torch.device("cpu"))
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("one_thread")


def recipe(**changes) -> Recipe:
    base = {
        "steps": 100,
        "warmup_steps": 10,
        "peak_lr": 6e-4,
        "final_lr": 6e-5,
        "batch_sequences": 8,
        "context": 32,
    }
    return Recipe(**{**base, **changes})


# --- schedule and groups ---


def test_the_papers_schedule_rises_from_1e7_peaks_after_the_warm_up_and_ends_at_a_tenth():
    paper = recipe(steps=10_000, warmup_steps=120)
    assert learning_rate(paper, 0) == 1e-7
    assert learning_rate(paper, 60) == pytest.approx((1e-7 + 6e-4) / 2)
    assert learning_rate(paper, 120) == 6e-4
    assert learning_rate(paper, (120 + 9_999) // 2) == pytest.approx(3.3e-4, rel=1e-3)
    assert learning_rate(paper, 9_999) == pytest.approx(6e-5)


def test_every_step_is_trained_at_the_schedules_value(tokens, tmp_path):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data, steps=5), manifest)
    assert run.here() == 0
    rows = [json.loads(line) for line in run.history.splitlines()]
    assert [row["lr"] for row in rows] == [learning_rate(run.spec.recipe, step) for step in range(5)]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["tokens"] for row in rows] == [256, 512, 768, 1024, 1280]


def groups_by_parameter(model, chosen: Recipe) -> dict[str, dict]:
    optimizer = make_optimizer(dict(model.named_parameters()), parameter_roles(model), chosen)
    assert (
        optimizer.defaults["fused"]
        and optimizer.defaults["betas"] == (0.9, 0.95)
        and optimizer.defaults["eps"] == 1e-8
    )
    found = {}
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            assert model.get_parameter(name) is parameter and name not in found
            found[name] = group
    return found


def test_matrices_embedding_and_head_decay_norms_and_coefficients_do_not(tokens):
    model = build_model(tiny_spec(tokens[1]).model)
    groups = groups_by_parameter(model, recipe())
    assert set(groups) == {name for name, _ in model.named_parameters()}
    decay = {name: group["weight_decay"] for name, group in groups.items()}
    coefficients = {name for name in decay if name.startswith("values.")}
    norms = {name for name in decay if "norm" in name}
    assert coefficients and norms
    for name in decay:
        assert decay[name] == (0.0 if name in coefficients | norms else 0.1), name
    assert decay["embedding.weight"] == decay["head.weight"] == 0.1


def test_coefficients_have_their_own_rate_and_decay_and_patterns_multiply(tokens):
    model = build_model(tiny_spec(tokens[1]).model)
    chosen = recipe(
        coefficient_lr_multiplier=50.0,
        coefficient_weight_decay=0.1,
        lr_multipliers={"layers.0.*": 0.5, "*.mlp.*": 4.0},
    )
    for name, group in groups_by_parameter(model, chosen).items():
        factor = 50.0 if name.startswith("values.") else 1.0
        factor *= 0.5 if name.startswith("layers.0.") else 1.0
        factor *= 4.0 if ".mlp." in name else 1.0
        assert group["factor"] == factor, name
        if name.startswith("values."):
            assert group["weight_decay"] == 0.1


def test_norms_decay_where_the_recipe_says_so(tokens):
    groups = groups_by_parameter(build_model(tiny_spec(tokens[1]).model), recipe(norm_weight_decay=0.05))
    decays = {name: group["weight_decay"] for name, group in groups.items()}
    norms = {name for name in decays if "norm" in name}
    assert norms and all((decays[name] == 0.05) == (name in norms) for name in decays)


def test_a_pattern_that_matches_no_parameter_is_refused(tokens):
    model = build_model(tiny_spec(tokens[1]).model)
    with pytest.raises(UserError, match=r"recipe.lr_multipliers: 'layer.0.\*' matches no parameter"):
        groups_by_parameter(model, recipe(lr_multipliers={"layer.0.*": 2.0}))


def coefficient_values(run: Run) -> torch.Tensor:
    from safetensors.torch import load_file

    weights = load_file(run.checkpoints / "final" / "model.safetensors")
    return torch.cat([weights[name].flatten() for name in sorted(weights) if name.startswith("values.")])


def test_the_coefficients_multiplier_scales_the_step_that_they_take(tokens, tmp_path):
    manifest, data = tokens
    moved = {}
    for factor in (1.0, 20.0):
        spec = tiny_spec(data, steps=1, warmup_steps=0, coefficient_lr_multiplier=factor)
        run = Run(tmp_path / str(factor), spec, manifest)
        assert run.here() == 0
        moved[factor] = coefficient_values(run) - 0.5
    # Adam's first step is lr times the gradient's sign.
    assert torch.allclose(moved[1.0].abs(), torch.full_like(moved[1.0], 3e-3), rtol=1e-3)
    assert torch.allclose(moved[20.0], 20 * moved[1.0], rtol=1e-3)


def test_one_step_is_adamw_on_the_clipped_gradient_of_the_loaders_batch(tokens, tmp_path):
    """Against a direct evaluation: autograd on the whole batch, clipping and AdamW written out."""
    manifest, data = tokens
    spec = tiny_spec(data, steps=1, warmup_steps=0, grad_clip=0.05)
    run = Run(tmp_path, spec, manifest)
    assert run.here(micro_batch=2) == 0
    model = build_model(spec.model, seed=spec.seed)
    loader = Loader(manifest, context=32, batch_sequences=8, seed=spec.seed, weights=data.weights)
    loss = next_token_loss(model, torch.from_numpy(loader.batch(0, 0, 1)))
    loss.backward()
    loss = loss.detach()
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))
    row = json.loads(run.history)
    assert row["loss"] == pytest.approx(float(loss), rel=1e-5) and row["grad_norm"] == pytest.approx(
        norm, rel=1e-4
    )
    assert norm > 0.05
    from safetensors.torch import load_file

    trained = load_file(run.checkpoints / "final" / "model.safetensors")
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.double() * 0.05 / norm
        decay = 0.0 if roles[name] in ("norm", "coefficient") else 0.1
        expected = parameter.double() * (1 - 3e-3 * decay) - 3e-3 * gradient / (gradient.abs() + 1e-8)
        # Where the gradient is as small as Adam's epsilon, rounding decides about the step.
        sure = gradient.abs() > 1e-6
        assert sure.any()
        assert torch.allclose(trained[name].double()[sure], expected[sure], atol=2e-5), name


# --- batch, precision, learning ---


def test_the_gradient_does_not_depend_on_the_micro_batch(tokens):
    spec = tiny_spec(tokens[1])
    ids = torch.from_numpy(
        Loader(tokens[0], context=32, batch_sequences=8, seed=1, weights=tokens[1].weights).batch(0, 0, 1)
    )
    gradients = {}
    for micro in (1, 3, 8):
        model = build_model(spec.model, seed=1)
        loss = GradientStep(make_objective(model, "fp32"), ALONE, micro, compiled=False)(ids)
        gradients[micro] = [float(loss), *(p.grad for p in model.parameters())]
    for micro in (1, 3):
        assert gradients[micro][0] == pytest.approx(gradients[8][0], rel=1e-6)
        for ours, whole in zip(gradients[micro][1:], gradients[8][1:], strict=True):
            assert torch.allclose(ours, whole, atol=1e-6, rtol=1e-4)


def test_training_curves_agree_between_micro_batches(tokens, tmp_path):
    manifest, data = tokens
    losses = {}
    for micro in (2, 8):
        run = Run(tmp_path / str(micro), tiny_spec(data), manifest)
        assert run.here(micro_batch=micro) == 0
        losses[micro] = run.result["curve"]["loss"]
    # Order of sums alone: 1e-6 was measured.
    assert losses[2] == pytest.approx(losses[8], abs=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16_all", "bf16_params"])
def test_the_loss_falls_on_real_text_in_every_precision(tokens, tmp_path, precision):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data, steps=60, peak_lr=1e-2, precision=precision), manifest)
    assert run.here() == 0
    losses = run.result["curve"]["loss"]
    assert losses[0] == pytest.approx(math.log(512), abs=0.1)
    # Measured falls are 1.10 to 1.16 over two instruction sets; in bf16 alone they differ by 0.05, as the rate is high.
    assert run.result["loss"]["final"] < losses[0] - 0.5
    assert run.result["loss"]["final"] == pytest.approx(sum(losses[-6:]) / 6)


def test_bf16_compute_keeps_fp32_masters_and_bf16_params_only_fp32_coefficients(tokens, tmp_path):
    from safetensors.torch import load_file

    manifest, data = tokens
    for precision, expected in (("bf16", torch.float32), ("bf16_params", torch.bfloat16)):
        run = Run(tmp_path / precision, tiny_spec(data, steps=4, precision=precision), manifest)
        assert run.here() == 0
        for name, tensor in load_file(weights_path(run.out)).items():
            assert tensor.dtype == (torch.float32 if name.startswith("values.") else expected), name


def test_fp16_on_a_cpu_is_refused_in_one_line(tokens, tmp_path, capfd):
    manifest, data = tokens
    assert Run(tmp_path, tiny_spec(data, precision="fp16"), manifest).here() == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and said.startswith("error: recipe.precision: fp16 needs a GPU")


def test_a_scaled_gradient_is_the_gradient_after_unscaling(tokens):
    """The fp16 path's loss scaling, in fp32, where it must change nothing."""
    model = build_model(tiny_spec(tokens[1]).model, seed=1)
    ids = torch.randint(0, 512, (4, 32), generator=torch.Generator().manual_seed(1))
    step = GradientStep(make_objective(model, "fp32"), ALONE, 2, compiled=False)
    loss = step(ids)
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    assert step(ids, LossScale.FIRST) == loss
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad / LossScale.FIRST, gradient)


def test_a_run_under_a_loss_scale_is_the_run_without_one(tokens, tmp_path, monkeypatch):
    """A scale is a power of two: in fp32 it rounds nothing, and an overflow costs its step and half the scale."""
    manifest, data = tokens
    spec = tiny_spec(data, steps=12)
    plain = Run(tmp_path / "plain", spec, manifest)
    assert plain.here() == 0
    made = LossScale.__init__
    monkeypatch.setattr(LossScale, "__init__", lambda self, enabled: made(self, True))
    scaled = Run(tmp_path / "scaled", spec, manifest)
    assert scaled.here(checkpoint_steps=6) == 0
    assert scaled.weights == plain.weights
    state = json.loads((scaled.checkpoints / "step-00000006" / "state.json").read_text())
    assert state["loss_scale"] == {"value": LossScale.FIRST, "good_steps": 6}
    monkeypatch.setattr(LossScale, "FIRST", 2.0**130)
    overflowed = Run(tmp_path / "overflowed", spec, manifest)
    assert overflowed.here(checkpoint_steps=6) == 0
    norms = [json.loads(line)["grad_norm"] for line in overflowed.history.splitlines()]
    assert norms[0] is None and 0 < norms.count(None) < len(norms)
    assert overflowed.result["status"] == "finished" and overflowed.weights != plain.weights


def test_the_loss_scale_halves_at_an_overflow_doubles_after_a_thousand_good_steps_and_blames_the_run_at_one():
    scale = LossScale(True)
    assert scale.update(math.inf) and scale.value == LossScale.FIRST / 2
    assert not any(scale.update(1.0) for _ in range(999)) and scale.value == LossScale.FIRST / 2
    assert not scale.update(1.0) and scale.value == LossScale.FIRST
    again = LossScale(True)
    again.load(scale.state())
    assert again.state() == scale.state() == {"value": LossScale.FIRST, "good_steps": 1000}
    scale.value = 2.0
    assert scale.update(math.nan) and scale.value == 1.0
    assert not scale.update(math.nan) and scale.value == 1.0
    off = LossScale(False)
    assert not off.update(math.nan) and off.value == 1.0


@pytest.fixture(scope="module")
def single(tokens, tmp_path_factory):
    """A run by one process."""
    run = Run(tmp_path_factory.mktemp("single"), tiny_spec(tokens[1]), tokens[0])
    assert run.here() == 0
    return run


def assert_same_curve(run: Run, single: Run) -> None:
    """Equal up to what fp32 rounding does in 24 steps: 2e-3 nats."""
    assert run.result["curve"]["loss"] == pytest.approx(single.result["curve"]["loss"], abs=2e-3)
    assert run.result["provenance"]["processes"] == 2
    assert run.history.count("\n") == 24


def test_two_processes_train_the_curve_of_one(tokens, tmp_path, single):
    run = Run(tmp_path, tiny_spec(tokens[1]), tokens[0])
    ranks = start_ranks([(run, {"micro_batch": 2, "checkpoint_steps": 10})])
    assert [rank.wait() for rank in ranks] == [0, 0]
    assert_same_curve(run, single)
    assert "destroy_process_group" not in ranks[0].said
    assert ranks[0].said.count("finished 24 steps") == 1 and "finished" not in ranks[1].said


def test_a_signal_to_one_of_two_processes_stops_both_at_one_checkpoint(tokens, tmp_path, single):
    run = Run(tmp_path, tiny_spec(tokens[1]), tokens[0])
    ranks = start_ranks([(run, {"micro_batch": 2})], step_seconds=0.05)
    ranks[1].until(lambda: (run.checkpoints / "history.jsonl").exists() and run.history.count("\n") >= 5)
    ranks[1].signal(signal.SIGTERM)
    assert [rank.wait() for rank in ranks] == [RETRY, RETRY]
    assert len(list(run.checkpoints.glob("step-*"))) == 1
    assert [rank.wait() for rank in start_ranks([(run, {"micro_batch": 2})])] == [0, 0]
    assert_same_curve(run, single)


def test_two_processes_leave_when_another_trainer_is_at_work(tokens, tmp_path):
    run = Run(tmp_path, tiny_spec(tokens[1]), tokens[0])
    with Lease(run.checkpoints):
        assert [rank.wait() for rank in start_ranks([(run, {})])] == [LEASE_HELD, LEASE_HELD]


@pytest.mark.slow
def test_torchrun_trains_the_curve_of_one(tokens, tmp_path, single):
    run = Run(tmp_path, tiny_spec(tokens[1]), tokens[0])
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "respath.training", *run.arguments(micro_batch=2, checkpoint_steps=10)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert_same_curve(run, single)


def test_a_batch_that_ranks_cannot_share_is_refused(tokens):
    from respath.training.objective import rows_per_rank

    with pytest.raises(UserError, match="8 sequences cannot be shared by 3 processes"):
        rows_per_rank(recipe(), World(0, 3, torch.device("cpu")))


def test_the_automatic_micro_batch_divides_the_rows_and_shrinks_with_the_model(tokens):
    spec = tiny_spec(tokens[1])
    assert automatic_micro_batch(spec, 12, torch.device("cpu"), 0) == 12
    large = tiny_spec(
        tokens[1],
        model={"layers": 16, "width": 768, "heads": 12, "kv_heads": 12, "ffn_width": 2688},
        context=2048,
    )
    assert automatic_micro_batch(large, 12, torch.device("cpu"), 0) == 1


# --- results ---


def test_divergence_is_a_result_with_its_reason_and_no_weights(tokens, tmp_path, capfd):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data, steps=60, peak_lr=1e4, warmup_steps=0, final_lr=1.0), manifest)
    assert run.here() == 0
    result = run.result
    assert result["status"] == "diverged" and result["weights"] is None and result["steps"] < 60
    assert result["reason"].startswith(f"step {result['steps'] + 1}: ")
    assert run.history.count("\n") == result["steps"] + 1
    json.loads(run.out.read_text(), parse_constant=pytest.fail)
    assert run.here() == 0
    assert "already diverged" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("lr", "reason"),
    [(1e39, "has 16,384 values that are not finite"), (1e19, "the validation loss is not finite")],
    ids=["weights", "their score"],
)
def test_what_the_last_update_broke_is_divergence(tokens, tmp_path, lr, reason):
    manifest, data = tokens
    # A rate that takes a whole run's steps at once: the loss and the gradient of the one step are still those of the start.
    spec = tiny_spec(data, steps=1, peak_lr=lr, warmup_steps=0, final_lr=lr)
    run = Run(tmp_path, spec, manifest, validation={"points": 1, "share": 1.0})
    assert run.here() == 0
    result = run.result
    assert (result["status"], result["weights"], result["steps"]) == ("diverged", None, 1)
    assert result["reason"].startswith("after the last step: ") and result["reason"].endswith(reason)
    assert not (run.checkpoints / "final" / "model.safetensors").exists()
    assert run.here() == 0


@pytest.mark.parametrize(
    ("loss", "norm", "mean", "full", "reason"),
    [
        (3.0, 1.0, 3.0, True, None),
        (float("nan"), 1.0, 3.0, True, "the loss is nan"),
        (float("inf"), 1.0, 3.0, True, "the loss is inf"),
        (3.0, float("inf"), 3.0, True, "the gradient norm is inf"),
        (30.0, 1.0, 19.0, True, "the mean loss of the last window, 19.00, is above 18.71"),
        (30.0, 1.0, 19.0, False, None),
        (30.0, 1.0, 18.0, True, None),
    ],
)
def test_a_run_diverges_when_it_is_not_finite_or_three_times_as_bad_as_guessing(
    loss, norm, mean, full, reason
):
    found = steps.divergence(loss, norm, mean, full, vocab_size=512)
    assert found is None if reason is None else found.startswith(reason)


def test_train_json_holds_the_contract_and_no_absolute_path(tokens, tmp_path):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    assert run.here() == 0
    result = run.result
    assert (result["schema"], result["kind"], result["run"], result["status"]) == (
        1,
        "train",
        "tiny",
        "finished",
    )
    assert result["reason"] is None and result["steps"] == 24 and result["tokens"] == 24 * 256
    assert result["manifest_sha256"] == sha256_file(manifest)
    assert result["weights"]["path"] == "../../checkpoints/tiny/final/model.safetensors"
    assert weights_path(run.out).read_bytes() == run.weights
    assert result["weights"]["sha256"] == sha256_file(weights_path(run.out))
    assert result["cost"]["sessions"] == 1 and result["cost"]["tokens_per_second"] > 0
    origin = result["provenance"]
    assert {
        "commit",
        "dirty",
        "code",
        "versions",
        "platform",
        "processor",
        "threads",
        "device",
    } <= set(origin)
    code = training_code(run.spec, "torch")
    assert origin["code"] == code
    assert [(session["engine"], session["code"]) for session in origin["sessions"]] == [("torch", code)]
    assert origin["precision"] == "fp32" and origin["compile"]["used"] is False
    text = run.out.read_text()
    for absolute in (str(tmp_path), str(manifest.parent), str(ROOT), str(Path.home())):
        assert absolute not in text
    assert (run.checkpoints / "train.log").read_text().count("finished 24 steps") == 1


def test_final_weights_load_into_the_model(tokens, tmp_path):
    from safetensors.torch import load_file

    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    assert run.here() == 0
    model = build_model(run.spec.model)
    missing, unexpected = model.load_state_dict(load_file(weights_path(run.out)), strict=False)
    assert not missing and not unexpected


def test_tied_embeddings_are_saved_once(tokens, tmp_path):
    from safetensors.torch import load_file

    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data, steps=4, model={"tie_embeddings": True}), manifest)
    assert run.here(checkpoint_steps=2) == 0
    assert "head.weight" not in load_file(weights_path(run.out))


def test_a_result_of_another_run_in_the_same_place_is_refused(tokens, tmp_path, capfd):
    manifest, data = tokens
    assert Run(tmp_path, tiny_spec(data, steps=4), manifest).here() == 0
    capfd.readouterr()
    assert Run(tmp_path, tiny_spec(data, steps=5), manifest).here() == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "the result of another run (tiny)" in said


def test_a_curve_has_at_most_512_points_that_are_window_means(tmp_path):
    history = History(tmp_path / "history.jsonl", steps=1300, tokens_per_step=10)
    history.restore([(float(k), 0.1 * k, 1.0) for k in range(1300)])
    curve = history.curve()
    assert len(curve["loss"]) == math.ceil(1300 / 3) <= CURVE_POINTS
    assert (
        curve["loss"][0] == 1.0
        and curve["step"][0] == 3
        and curve["tokens"][0] == 30
        and curve["lr"][0] == 0.2
    )
    assert curve["loss"][-1] == 1299.0 and curve["step"][-1] == 1300
    assert history.window == 100 and history.window_mean() == 1249.5


# --- disk and rights ---


def full_disk(monkeypatch, matching: str, times: int = 1_000):
    """Saving tensors below a path with ``matching`` in it fails as on a full disk, so many times."""
    from respath.training import checkpoint

    save, left = checkpoint.save_tensors, iter(range(times))

    def saving(path, tensors, metadata=None):
        if matching in str(path) and next(left, None) is not None:
            raise OSError(28, "No space left on device", str(path))
        return save(path, tensors, metadata)

    monkeypatch.setattr(checkpoint, "save_tensors", saving)


def test_a_disk_that_is_full_for_a_while_costs_a_warning_not_the_run(tokens, tmp_path, monkeypatch, capfd):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    full_disk(monkeypatch, "step-00000010.part/optimizer")
    assert run.here(checkpoint_steps=5) == 0
    said = capfd.readouterr().err
    assert (
        said.count("warning: no checkpoint at step 10") == 1
        and "step-00000010.part/optimizer.safetensors: no space" in said
    )
    assert sorted(path.name for path in run.checkpoints.glob("step-*")) == ["step-00000015", "step-00000020"]
    assert not list(run.checkpoints.glob(".step-*"))


def test_final_weights_that_do_not_fit_end_in_one_line_and_the_checkpoint_stays(
    tokens, tmp_path, monkeypatch, capfd
):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    full_disk(monkeypatch, "final/", times=1)
    assert run.here(checkpoint_steps=10) == 2
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "no space left" in errors[0] and "step 20" in errors[0]
    assert not run.out.exists() and not list((run.checkpoints / "final").iterdir())
    assert run.here() == 0
    assert run.result["cost"]["sessions"] == 2


def test_a_real_full_disk_is_survived(tokens, tmp_path, capfd):
    """On a file system of 1.4 MB, where the second checkpoint does not fit beside the first."""
    manifest, data = tokens
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1400k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    try:
        run = Run(small, tiny_spec(data), manifest)
        assert run.here(checkpoint_steps=5, keep=1) == 0
        said = capfd.readouterr().err
        assert "need up to" in said and said.count("no space left on the device") >= 1
        assert [path.name for path in run.checkpoints.glob("step-*")] == ["step-00000005"]
        assert run.history.count("\n") == 24
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_too_little_space_for_the_weights_is_said_before_the_first_step(tokens, tmp_path, monkeypatch, capfd):
    import shutil

    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(loop.shutil, "disk_usage", lambda folder: usage._replace(free=1000))
    assert run.here() == 2
    assert "the final weights alone need" in capfd.readouterr().err
    assert run.history == ""


def test_a_folder_without_rights_is_said_in_one_line(tokens, tmp_path, capfd):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    manifest, data = tokens
    (tmp_path / "checkpoints").mkdir(mode=0o500)
    assert Run(tmp_path, tiny_spec(data), manifest).here() == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "permission denied" in said


# --- command line ---


def test_unknown_runtime_keys_are_refused_with_the_nearest_known_one():
    with pytest.raises(UserError, match=r"--runtime: thread: unknown key \(did you mean 'threads'\?\)"):
        read_runtime('{"thread": 2}')


def test_an_engine_that_is_not_installed_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="engine: deepspeed needs the extra deepspeed") as raised:
        read_runtime('{"engine": "deepspeed"}')
    assert len(raised.value.lines) == 1


def test_what_zero_cannot_do_is_refused_in_a_line_each():
    zero, ours = Runtime(engine="deepspeed"), Runtime()
    for precision in ("bf16", "fp32", "fp16", "bf16_all"):
        refuse_engine(zero, recipe(precision=precision))
    parameters = recipe(precision="bf16_params")
    refuse_engine(ours, parameters)
    with pytest.raises(UserError, match="always keeps fp32 master weights") as raised:
        refuse_engine(zero, parameters)
    assert len(raised.value.lines) == 1


@pytest.mark.parametrize(
    "text", ['{"threads": 0}', '{"micro_batch": 0}', '{"keep": 0}', '{"compile": "maybe"}', "{"]
)
def test_runtime_values_out_of_range_are_refused(text):
    with pytest.raises(UserError, match="--runtime"):
        read_runtime(text)


def test_runtime_and_spec_can_come_from_files(tmp_path):
    (tmp_path / "runtime.json").write_text('{"keep": 5}')
    assert read_runtime(f"@{tmp_path / 'runtime.json'}").keep == 5
    with pytest.raises(UserError, match="no such file"):
        read_runtime(f"@{tmp_path / 'missing.json'}")


def test_help_explains_stopping_files_runtime_keys_and_exit_codes(capsys):
    from respath.training.command import main

    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    # What a queue is asked for is no business of the trainer's.
    own = set(Runtime.model_fields) - {"gpu", "finish_hours", "time_margin", "longest_minutes"}
    for word in ("75", "69", "DONE", "kill -9", "history.jsonl", *sorted(own)):
        assert word in said, word


def test_a_missing_manifest_is_one_line(tokens, tmp_path, capfd):
    run = Run(tmp_path, tiny_spec(tokens[1]), tmp_path / "nowhere.json")
    assert run.here() == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "nowhere.json" in said


def test_the_first_imports_of_the_command_line_do_not_load_torch():
    code = "import sys, respath.training.command, respath.training.clean; assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_clean_deletes_checkpoints_of_finished_runs_only(tokens, tmp_path, capfd):
    from respath.training.clean import main as clean

    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    assert run.here(checkpoint_steps=10) == 0
    unfinished = run.checkpoints.with_name("unfinished") / "step-00000001"
    unfinished.mkdir(parents=True)
    places = ["--checkpoints", str(tmp_path / "checkpoints"), "--runs", str(tmp_path / "runs")]
    assert clean(places) == 0
    assert not list(run.checkpoints.glob("step-*")) and run.weights and run.history and unfinished.is_dir()
    assert "freed" in capfd.readouterr().err
    assert run.here() == 0


def test_the_run_hash_of_a_checkpoint_is_the_specs(tokens, tmp_path):
    manifest, data = tokens
    run = Run(tmp_path, tiny_spec(data), manifest)
    assert run.here(checkpoint_steps=20) == 0
    done = json.loads((run.checkpoints / "step-00000020" / "DONE").read_text())
    assert done["spec"] == run_hash(run.spec) and done["step"] == 20
    assert set(done["files"]) == {
        "model.safetensors",
        "optimizer.safetensors",
        "history.safetensors",
        "state.json",
    }


def test_the_schedule_is_multiplied_by_each_groups_factor(tokens):
    model = build_model(tiny_spec(tokens[1]).model)
    chosen = recipe(coefficient_lr_multiplier=10.0)
    optimizer = make_optimizer(dict(model.named_parameters()), parameter_roles(model), chosen)
    lr = set_schedule(optimizer, chosen, 10)
    assert lr == learning_rate(chosen, 10) == chosen.peak_lr
    rates = {group["role"]: group["lr"] for group in optimizer.param_groups}
    assert rates.pop("coefficient") == pytest.approx(10 * lr) and set(rates.values()) == {lr}
