"""One optimizer step of many models on two CPU ranks, by DistributedDataParallel and by DeepSpeed, in one pair of processes."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from respath.model import build_model, parameter_roles
from respath.spec.model import ModelSpec
from respath.spec.recipe import AdamWSpec, Recipe
from respath.training.objective import GradientStep, make_objective
from respath.training.optimizer import make_optimizer
from respath.training.planning import Plan
from respath.training.world import World
from tests.unit.noise import with_noise
from tests.unit.training_runs import free_port

RANKS = 2
ROWS = 2  # sequences per rank
LENGTH = 40  # above the small windows, so that both kinds of layer differ

#: A large epsilon makes AdamW's step a smooth function of the gradient. With 1e-8 the first step is its sign, and an
#: entry that is zero but for rounding would move by a whole learning rate in either direction.
RECIPE = Recipe(
    steps=10,
    warmup_steps=1,
    peak_lr=1e-2,
    final_lr=1e-3,
    optimizer=AdamWSpec(kind="adamw", eps=1e-3),
    grad_clip=None,
    batch_sequences=RANKS * ROWS,
    context=LENGTH,
    precision="fp32",
)

PLAN = Plan(micro_batch=ROWS, compile=False, compile_reason="as asked", device="cpu", world=RANKS)


def has_deepspeed() -> bool:
    """Whether the optional package is installed (it is not imported: that takes seconds)."""
    return importlib.util.find_spec("deepspeed") is not None


def perturbed(spec: ModelSpec) -> torch.nn.Module:
    """A model with noise on every parameter: where output projections are zero, most gradients are too."""
    return with_noise(build_model(spec), 0.05)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    """The trainer's AdamW."""
    return make_optimizer(dict(model.named_parameters()), parameter_roles(model), RECIPE)


def plain_step(spec: ModelSpec, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Parameters after one step of a single process on all rows."""
    model = perturbed(spec)
    optimizer = optimizer_of(model)
    make_objective(model, "fp32")(ids).backward()
    optimizer.step()
    return dict(model.named_parameters())


def ddp_step(spec: ModelSpec, ids: torch.Tensor, world: World) -> tuple[torch.nn.Module, float]:
    """The model after one step through the trainer's own DDP path, and this rank's loss.

    A second gradient follows: DDP finds a parameter that took no part in the step only there.
    """
    model = perturbed(spec)
    optimizer = optimizer_of(model)
    gradient = GradientStep(make_objective(model, "fp32"), world, ROWS, compiled=False)
    loss = gradient(ids)
    optimizer.step()
    optimizer.zero_grad()
    gradient(ids)
    return model, loss.item()


def deepspeed_step(spec: ModelSpec, ids: torch.Tensor, world: World) -> tuple[torch.nn.Module, float]:
    """The model after one step through the trainer's own ZeRO-2 path, and this rank's loss."""
    from respath.training.zero import ZeroEngine

    model = perturbed(spec)
    objective, parameters = make_objective(model, "fp32"), dict(model.named_parameters())
    zero = ZeroEngine(objective, optimizer_of(model), RECIPE, world, PLAN, ROWS, parameters)
    loss, _ = zero.step(ids)
    zero.engine.destroy()  # not the process group, which the next model needs
    return model, loss


ENGINES = {"ddp": ddp_step, "deepspeed": deepspeed_step}


def report(
    engine: str, spec: ModelSpec, world: World, ids: torch.Tensor, before: dict, expected: dict
) -> dict:
    """What one engine did with one model, as JSON values. ``before``, ``expected``: parameters without and after a plain step.

    ``loss`` of this rank's rows before the step and ``after`` of all rows after it; ``gap``: the largest difference of
    a parameter from the single process's; ``unmoved``: parameters that the step left as they were.
    """
    mine = ids[world.rank * ROWS : (world.rank + 1) * ROWS]
    model, loss = ENGINES[engine](spec, mine, world)
    model.eval()
    with torch.no_grad():
        after = make_objective(model, "fp32")(ids).item()
        parameters = dict(model.named_parameters())
        gaps = {name: (parameters[name] - expected[name]).abs().max().item() for name in expected}
    return {
        "loss": loss,
        "after": after,
        "gap": max(gaps.values()),
        "farthest": max(gaps, key=gaps.get),
        "unmoved": [name for name in before if torch.equal(parameters[name], before[name])],
    }


def rank_main(rank: int, port: int, folder: str, specs: dict[str, dict], engines: list[str]) -> None:
    """One rank: every model through every engine; writes ``rank<r>.json``. An error is that model's result."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    world = World(rank, RANKS, torch.device("cpu"))
    results: dict[str, dict] = {}
    for name, fields in specs.items():
        spec = ModelSpec.model_validate_json(json.dumps(fields))
        generator = torch.Generator().manual_seed(5)
        ids = torch.randint(spec.vocab_size, (RANKS * ROWS, LENGTH), generator=generator)
        before, expected = dict(perturbed(spec).named_parameters()), plain_step(spec, ids)
        results[name] = {}
        for engine in engines:
            try:
                results[name][engine] = report(engine, spec, world, ids, before, expected)
            except (RuntimeError, ValueError, AssertionError, TypeError, KeyError, AttributeError) as error:
                results[name][engine] = {"error": f"{type(error).__name__}: {error}"}
    Path(folder, f"rank{rank}.json").write_text(json.dumps(results))
    world.close()


def run_pair(folder: Path, specs: dict[str, ModelSpec], engines: list[str], seconds: float) -> list[dict]:
    """Start both ranks and wait for them; their results. Ends both and raises TimeoutError after ``seconds``."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    fields = {name: spec.model_dump(mode="json") for name, spec in specs.items()}
    pair = torch.multiprocessing.spawn(
        rank_main, (free_port(), str(folder), fields, engines), nprocs=RANKS, join=False
    )
    end = time.monotonic() + seconds
    while not pair.join(timeout=1):
        if time.monotonic() > end:
            for process in pair.processes:
                process.kill()
            raise TimeoutError(f"two ranks took more than {seconds:.0f} s")
    return [json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in range(RANKS)]
