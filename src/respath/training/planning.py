"""How a run uses its machine, decided once before its first step and kept for all its sessions: micro-batch, compile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from respath.errors import UserError
from respath.files import read_json, write_json
from respath.spec.run import RunSpec
from respath.training.objective import GradientStep
from respath.training.runtime import Runtime
from respath.training.world import World

#: A run that eager mode finishes in this time is not worth a compilation (1 to 3 minutes on two CPU cores).
WORTH_COMPILING_SECONDS = 180.0
#: Compiled steps must be this much shorter: below it, timing noise would decide.
WORTH_COMPILING_RATIO = 0.93
#: Floating-point operations per second that the slowest machine we expect reaches; only used to skip measuring.
_SLOWEST = {"cpu": 1e10, "cuda": 2e12}


@dataclass(frozen=True)
class Plan:
    """Decisions that change results by rounding only, and that a resumed run must share to stay bit-identical."""

    micro_batch: int
    compile: bool
    #: Why compile is what it is, with the measured seconds.
    compile_reason: str
    #: What the decisions were made for; another machine decides anew.
    device: str
    world: int


class StoredPlan:
    """``runtime.json`` in the checkpoint folder."""

    def __init__(self, folder: Path):
        self.path = Path(folder) / "runtime.json"

    def read(self) -> Plan | None:
        """The plan of an earlier session; None when there is none or it cannot be read."""
        try:
            return plan_from(read_json(self.path)["plan"])
        except (UserError, OSError, KeyError, TypeError):
            return None

    def write(self, plan: Plan) -> None:
        """Keep a plan for later sessions."""
        write_json(self.path, {"schema": 1, "kind": "runtime", "plan": asdict(plan)})


def plan_from(content: Any) -> Plan | None:
    """The plan that ``asdict`` took apart, or None."""
    try:
        return Plan(**content)
    except TypeError:
        return None


def device_name(device: torch.device) -> str:
    """``cpu``, or the GPU's product name."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def automatic_micro_batch(
    spec: RunSpec,
    rows: int,
    device: torch.device,
    parameter_bytes: int,
    checkpoint_activations: bool = False,
) -> int:
    """Sequences per forward pass: the largest divisor of ``rows`` whose activations fit the cache (CPU) or memory (GPU).

    A pure function of the run and the machine's size, never of what happens to be free.
    """
    model, context = spec.model, spec.recipe.context
    # Kept for backward per token: about 16 width-sized and 4 ffn-sized tensors per layer (the head keeps no logits).
    size = 4 if spec.recipe.precision == "fp32" else 2
    per_layer = 16 * model.width + 4 * model.ffn_width
    if checkpoint_activations:
        # What enters each sub-layer, and one layer at a time in full.
        per_token = (model.layers * 2 * model.width + per_layer) * size
    else:
        per_token = model.layers * per_layer * size
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        budget = 0.6 * (total - 5 * parameter_bytes)
    else:
        budget = CPU_MICRO_BATCH_BYTES
    wanted = max(1, int(budget / (per_token * context)))
    return max(n for n in range(1, rows + 1) if rows % n == 0 and n <= max(1, min(wanted, rows)))


#: Activations of one micro-batch on a CPU.
CPU_MICRO_BATCH_BYTES = 256e6


def _seconds(action: Callable[[], Any], device: torch.device) -> float:
    begun = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def decide_compile(
    spec: RunSpec,
    objective: nn.Module,
    world: World,
    micro_batch: int,
    ids: Tensor,
    say: Callable[[str], None],
) -> tuple[bool, str]:
    """Whether torch.compile pays within this run, by timing gradients that are thrown away (weights stay untouched).

    ``ids``: this rank's rows of the first step. Returns the decision and its reason.
    """
    parameters = sum(p.numel() for p in objective.parameters())
    if (
        6 * parameters * spec.recipe.tokens / world.size / _SLOWEST[world.device.type]
        < WORTH_COMPILING_SECONDS
    ):
        return False, "short run: compiling cannot pay"
    part = ids[:micro_batch]
    pieces = spec.recipe.steps * ids.shape[0] / part.shape[0]
    alone = World(0, 1, world.device)

    def measure(compiled: bool) -> tuple[float, float]:
        step = GradientStep(objective, alone, micro_batch, compiled)
        first = _seconds(lambda: step(part), world.device)
        steady = min(_seconds(lambda: step(part), world.device) for _ in range(3))
        objective.zero_grad(set_to_none=True)
        return first, steady

    _, eager = measure(False)
    if eager * pieces < WORTH_COMPILING_SECONDS:
        decision, reason = False, f"short run: about {eager * pieces:.0f} s without compiling"
    else:
        say(f"trying torch.compile: the run would take about {eager * pieces / 60:.0f} minutes without it")
        try:
            first, compiled = measure(True)
        except Exception as error:
            torch.compiler.reset()
            decision, reason = False, f"torch.compile failed here ({type(error).__name__})"
        else:
            decision = compiled < WORTH_COMPILING_RATIO * eager and first + compiled * pieces < eager * pieces
            reason = f"measured {compiled:.3g} s compiled, {eager:.3g} s eager, {first:.0f} s to compile"
    # One rank's clock decides for all.
    return bool(world.sum([float(decision and world.leads)])[0]), reason


def make_plan(
    spec: RunSpec,
    runtime: Runtime,
    objective: nn.Module,
    world: World,
    rows: int,
    ids: Callable[[], Tensor],
    earlier: Plan | None,
    say: Callable[[str], None],
) -> Plan:
    """The plan for this session: explicit settings first, then an earlier session's decisions, then new ones."""
    device = device_name(world.device)
    if earlier is not None and (earlier.device, earlier.world) != (device, world.size):
        earlier = None
    micro = runtime.micro_batch
    if micro == "auto":
        parameter_bytes = sum(p.numel() * p.element_size() for p in objective.parameters())
        micro = (
            earlier.micro_batch
            if earlier
            else automatic_micro_batch(
                spec, rows, world.device, parameter_bytes, runtime.checkpoint_activations
            )
        )
    micro = min(micro, rows)
    if runtime.compile != "auto":
        return Plan(micro, runtime.compile == "on", "as asked", device, world.size)
    if earlier is not None:
        return Plan(micro, earlier.compile, earlier.compile_reason, device, world.size)
    compiled, reason = decide_compile(spec, objective, world, micro, ids(), say)
    return Plan(micro, compiled, reason, device, world.size)
