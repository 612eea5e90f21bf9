"""Engines and numbers of processes: one curve, checkpoints that fit all of them, and what happens when a process dies.

Tolerances are absolute, in nats, on every step's loss over 24 steps of about 6 nats. In fp32 sums in another order move it by a
millionth; with weights rounded to bf16 a millionth can decide a rounding, and then by a few thousandths.
"""

from __future__ import annotations

import functools
import json
import shutil
import signal

import pytest
import torch
import torch.distributed as dist

from respath.errors import RETRY, WRONG_USE
from respath.model import build_model
from respath.training.launch import joint_exit_code
from respath.training.lease import LEASE_HELD
from respath.training.objective import GradientStep, LossScale, make_objective
from respath.training.planning import Plan
from respath.training.world import World
from tests.unit.training_runs import MUON, Run, start_ranks, tiny_spec
from tests.unit.two_ranks import has_deepspeed

TOLERANCE = {"fp32": 2e-5, "bf16": 5e-3, "bf16_all": 5e-3, "muon": 1e-3}

ZERO = {"engine": "deepspeed"}
NANOCHAT = {
    "backbone": "nanochat",
    "windows": {"pattern": "SL", "short": 8},
    "values": {"kind": "table", "layers": [2], "learnable": True},
}

pytestmark = pytest.mark.usefixtures("one_thread")
needs_deepspeed = pytest.mark.skipif(
    not has_deepspeed(), reason="needs the extra deepspeed (pip install 'respath[deepspeed]')"
)


def specs(data) -> dict:
    return {
        "fp32": tiny_spec(data),
        "bf16": tiny_spec(data, precision="bf16"),
        "bf16_all": tiny_spec(data, precision="bf16_all"),
        "muon": tiny_spec(data, model=NANOCHAT, **MUON),
    }


def losses(run: Run) -> list[float]:
    return [json.loads(line)["loss"] for line in run.history.splitlines()]


@pytest.fixture(scope="module")
def single(tokens, tmp_path_factory) -> dict[str, Run]:
    """Each spec by one process of PyTorch."""
    folder = tmp_path_factory.mktemp("single")
    runs = {name: Run(folder / name, spec, tokens[0]) for name, spec in specs(tokens[1]).items()}
    for run in runs.values():
        assert run.here(checkpoint_steps=8, keep=9) == 0
    return runs


@pytest.fixture(scope="module")
def pair(tokens, tmp_path_factory) -> dict[tuple[str, str], Run]:
    """Each spec by two processes, all in one pair: DistributedDataParallel, and ZeRO-2 where it can.

    In bf16 both also work activations out again.
    """
    folder = tmp_path_factory.mktemp("pair")
    runs, jobs = {}, []
    for name, spec in specs(tokens[1]).items():
        for engine in ("torch", "deepspeed"):
            if engine == "deepspeed" and (name == "muon" or not has_deepspeed()):
                continue
            run = runs[engine, name] = Run(folder / f"{engine}-{name}", spec, tokens[0])
            runtime = {"engine": engine, "micro_batch": 2, "checkpoint_steps": 8, "keep": 9}
            jobs.append((run, {**runtime, "checkpoint_activations": name == "bf16"}))
    for child in start_ranks(jobs):
        assert child.wait() == 0, child.said
        assert "Traceback" not in child.said and "destroy_process_group" not in child.said
    return runs


CASES = [
    *(("torch", name) for name in TOLERANCE),
    *(pytest.param("deepspeed", name, marks=needs_deepspeed) for name in TOLERANCE if name != "muon"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "name"), CASES)
def test_two_processes_of_either_engine_accumulate_to_the_curve_of_one(single, pair, engine, name):
    run = pair[engine, name]
    assert losses(run) == pytest.approx(losses(single[name]), abs=TOLERANCE[name])
    origin = run.result["provenance"]
    assert (origin["engine"], origin["processes"], origin["micro_batch"]) == (engine, 2, 2)
    assert run.result["spec"] == single[name].result["spec"]
    if name == "fp32":
        norms = [
            [json.loads(line)["grad_norm"] for line in r.history.splitlines()] for r in (run, single[name])
        ]
        assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def copied(run: Run, folder, until: int) -> Run:
    """A copy of a run's checkpoints up to a step, without its result: an interrupted run."""
    copy = Run(folder, run.spec, run.manifest)
    for path in run.checkpoints.glob("step-*"):
        if int(path.name[5:]) <= until:
            shutil.copytree(path, copy.checkpoints / path.name)
    return copy


@pytest.mark.slow
@needs_deepspeed
def test_checkpoints_fit_every_engine_and_number_of_processes(single, pair, tmp_path):
    """ZeRO-2 on two ranks goes on alone, DDP as ZeRO-2, one process as two, each to the same curve."""
    sources = {
        "zero-2 to zero-1": (pair["deepspeed", "fp32"], ZERO),
        "one to zero-1": (single["fp32"], ZERO),
        "zero-2 to one": (pair["deepspeed", "fp32"], {}),
        "ddp to one": (pair["torch", "fp32"], {}),
    }
    moved = {name: copied(run, tmp_path / name, 16) for name, (run, _) in sources.items()}
    (child,) = start_ranks([(moved[name], sources[name][1]) for name in sources], size=1)
    assert child.wait() == 0, child.said
    assert child.said.count("going on from the checkpoint at step 16 of 24") == 4
    assert "engine deepspeed -> torch" in child.said and "processes 2 -> 1" in child.said
    for name, run in moved.items():
        assert losses(run) == pytest.approx(losses(single["fp32"]), abs=TOLERANCE["fp32"]), name


@pytest.mark.slow
@needs_deepspeed
def test_a_checkpoint_of_zero_holds_whole_tensors_as_one_process_writes_them(single, pair):
    from safetensors.torch import load_file

    ours, theirs = (
        load_file(run.checkpoints / "step-00000008" / "optimizer.safetensors")
        for run in (pair["deepspeed", "fp32"], single["fp32"])
    )
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert tensor.shape == ours[name].shape and torch.allclose(
            tensor, ours[name], rtol=1e-3, atol=1e-6
        ), name


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", pytest.param("deepspeed", marks=needs_deepspeed)])
def test_a_killed_process_ends_the_other_in_one_line_and_the_same_command_ends_bit_identical(
    pair, engine, tmp_path
):
    """The one that wrote the checkpoints is killed under DDP, the other one under ZeRO-2."""
    whole = pair[engine, "fp32"]
    run = Run(tmp_path, whole.spec, whole.manifest)
    runtime = {"engine": engine, "micro_batch": 2, "checkpoint_steps": 4}
    ranks = start_ranks([(run, runtime)], step_seconds=0.05)
    killed, left = ranks if engine == "torch" else reversed(ranks)
    killed.until(lambda: (run.checkpoints / "step-00000008" / "DONE").exists())
    killed.signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert left.wait() == RETRY
    assert "Traceback" not in left.said
    assert left.said.count("another process of this training is gone; run the same command to go on") == 1
    assert not run.out.exists()
    for child in start_ranks([(run, runtime)]):
        assert child.wait() == 0, child.said
    assert run.weights == whole.weights and run.history == whole.history


@pytest.mark.slow
def test_two_processes_go_on_from_one_process_s_checkpoint(single, tmp_path):
    places = {"fp32": {}, "muon": {}}
    if has_deepspeed():
        places["zero"] = ZERO
    names = {"fp32": "fp32", "muon": "muon", "zero": "fp32"}
    runs = {place: copied(single[names[place]], tmp_path / place, 8) for place in places}
    for child in start_ranks([(runs[place], {"micro_batch": 4, **places[place]}) for place in places]):
        assert child.wait() == 0, child.said
    for place, run in runs.items():
        assert losses(run) == pytest.approx(losses(single[names[place]]), abs=TOLERANCE[names[place]])
        assert run.result["cost"]["sessions"] == 2


@pytest.mark.slow
@needs_deepspeed
def test_zero_under_a_loss_scale_is_zero_without_one(single, tmp_path, monkeypatch):
    """The scale that fp16 needs, in fp32, where a power of two rounds nothing."""
    made = LossScale.__init__
    monkeypatch.setattr(LossScale, "__init__", lambda self, enabled: made(self, True))
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("LOCAL_RANK", "0")
    run = Run(tmp_path, single["fp32"].spec, single["fp32"].manifest)
    assert run.here(**ZERO, micro_batch=4, checkpoint_steps=20) == 0
    assert losses(run) == pytest.approx(losses(single["fp32"]), abs=TOLERANCE["fp32"])
    state = json.loads((run.checkpoints / "step-00000020" / "state.json").read_text())
    assert state["loss_scale"] == {"value": LossScale.FIRST, "good_steps": 20}


@pytest.fixture
def traced(request, monkeypatch):
    """Compilation as far as traced graphs of the forward and the backward pass, which is where engines could be in the way, or by
    the backend that a test names. Yields the compiler's counters."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    backend = getattr(request, "param", "aot_eager")
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


@pytest.mark.slow
@needs_deepspeed
@pytest.mark.parametrize(
    ("name", "traced"),
    [("fp32", "aot_eager"), ("bf16", "aot_eager"), ("fp32", "inductor")],
    indirect=["traced"],
)
def test_compiled_steps_under_zero_are_one_graph_and_follow_the_eager_curve(
    single, tmp_path, monkeypatch, traced, name
):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("LOCAL_RANK", "0")
    run = Run(tmp_path, single[name].spec, single[name].manifest)
    assert run.here(**ZERO, micro_batch=4, compile="on", checkpoint_steps=20) == 0
    assert run.result["provenance"]["compile"] == {"used": True, "reason": "as asked"}
    assert traced["stats"]["unique_graphs"] == 1 and not traced["graph_break"]
    assert losses(run) == pytest.approx(losses(single[name]), abs=TOLERANCE[name])


@pytest.mark.slow
def test_compiled_gradients_under_ddp_are_one_graph_and_the_eager_ones(tokens, traced):
    """One process in a group of its own that is told it is one of two: all that DDP wraps and counts is in place."""
    spec = tiny_spec(tokens[1])
    ids = torch.randint(512, (4, 32), generator=torch.Generator().manual_seed(3))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        found = {}
        for compiled in (False, True):
            model = build_model(spec.model, seed=1)
            step = GradientStep(make_objective(model, "fp32"), World(0, 2, torch.device("cpu")), 2, compiled)
            assert isinstance(step.module, torch.nn.parallel.DistributedDataParallel)
            loss = step(ids)
            found[compiled] = (loss, [parameter.grad for parameter in model.parameters()])
    finally:
        dist.destroy_process_group()
    assert traced["stats"]["unique_graphs"] == 1 and not traced["graph_break"]
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-6)


# --- without several processes ---


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activations_that_are_worked_out_again_change_nothing(tokens, tmp_path, precision):
    """In bf16 they are worked out again when the copies of the forward pass are no longer in place."""
    runs = {}
    spec = tiny_spec(tokens[1], steps=6, warmup_steps=1, precision=precision)
    for again in (False, True):
        runs[again] = Run(tmp_path / str(again), spec, tokens[0])
        assert runs[again].here(checkpoint_activations=again) == 0
        assert runs[again].result["provenance"]["checkpoint_activations"] is again
    assert runs[True].weights == runs[False].weights


@pytest.mark.parametrize(
    ("codes", "first", "joint"),
    [
        ({RETRY, -9}, -9, RETRY),
        ({RETRY}, RETRY, RETRY),
        ({WRONG_USE, RETRY}, RETRY, WRONG_USE),
        ({LEASE_HELD}, LEASE_HELD, LEASE_HELD),
        ({1, -15}, 1, 1),
    ],
)
def test_one_process_s_reason_is_not_hidden_by_those_that_only_lost_it(codes, first, joint):
    assert joint_exit_code(codes, first) == joint


def test_deepspeed_is_told_the_recipe_and_nothing_is_left_to_its_defaults(tokens):
    from respath.training.zero import deepspeed_config

    plan = Plan(4, False, "as asked", "cpu", 8)
    recipe = tiny_spec(tokens[1], batch_sequences=128, precision="fp16").recipe
    told = deepspeed_config(recipe, plan, rows=16, elements=1001)
    assert (told["train_micro_batch_size_per_gpu"], told["gradient_accumulation_steps"]) == (4, 4)
    assert told["gradient_clipping"] == recipe.grad_clip == 1.0
    assert told["zero_optimization"]["stage"] == 2 and told["zero_optimization"]["reduce_bucket_size"] == 1002
    # Precision is the objective's and the loss scale ours: the same on both engines, coefficients in fp32.
    assert not {"fp16", "bf16", "torch_autocast"} & told.keys()
    unclipped = recipe.model_copy(update={"grad_clip": None})
    assert deepspeed_config(unclipped, plan, 16, 1001)["gradient_clipping"] == 0.0
