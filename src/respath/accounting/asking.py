"""What the job of a training asks a queue for: GPUs, memory and minutes from the run's FLOPs, tokens and parameters."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from respath.accounting.account import account
from respath.accounting.plan import CHECKPOINT_BYTES, PEAK_FLOPS, assumed_mfu
from respath.config.runtime import Runtime
from respath.errors import UserError, did_you_mean
from respath.spec.run import RunSpec

#: MB of host memory: Python, PyTorch, CUDA's context and compilation, in each process.
PROCESS_MB = 8_000
#: Minutes before the first step: imports, the first batch, compilation.
START_MINUTES = 15
#: A training without a kind of GPU: on CPUs, or as a profile says.
PLAIN_MB, PLAIN_MINUTES = 8_000, 2_880


@dataclasses.dataclass(frozen=True)
class Asked:
    """``processes`` on each machine, one per GPU; ``minutes`` of one job."""

    processes: int
    memory_mb: int
    minutes: int
    hours: float
    """Estimated of the whole training, without the margin."""


def asked(spec: RunSpec, attention: Literal["causal", "full"], runtime: Runtime) -> Asked:
    """What a training asks for on each of its machines. Raises UserError for a kind of GPU whose peak is not known."""
    if runtime.gpu is None:
        return Asked(runtime.processes, PLAIN_MB, PLAIN_MINUTES, math.nan)
    if runtime.gpu not in PEAK_FLOPS or runtime.gpu == "cpu":
        known = [name for name in PEAK_FLOPS if name != "cpu"]
        raise UserError(f"runtime.gpu: {runtime.gpu!r} is not known{did_you_mean(runtime.gpu, known)}")
    entry = account(spec.model, context=spec.recipe.context, logits="all", attention=attention)
    parameters = entry.parameters.total
    one = (
        entry.flops.training_per_token
        * spec.recipe.tokens
        / (PEAK_FLOPS[runtime.gpu] * assumed_mfu(parameters))
    )
    processes = runtime.processes if runtime.nodes > 1 else _fewest(spec, one, runtime)
    hours = one / (processes * runtime.nodes) / 3600
    return Asked(
        processes,
        # The first process holds weights and moments twice: once to write a checkpoint, once while it reads one.
        processes * PROCESS_MB + math.ceil(2 * CHECKPOINT_BYTES * parameters / 1e6),
        min(runtime.longest_minutes, START_MINUTES + math.ceil(runtime.time_margin * hours * 60)),
        hours,
    )


def _fewest(spec: RunSpec, seconds: float, runtime: Runtime) -> int:
    """GPUs that end a training of so many seconds on one in time, and share its batch; all that do share it where none suffice."""
    doubled = [2**n for n in range(runtime.processes.bit_length()) if 2**n < runtime.processes]
    sharing = [n for n in (*doubled, runtime.processes) if spec.recipe.batch_sequences % n == 0] or [1]
    return next((n for n in sharing if seconds / n <= runtime.finish_hours * 3600), sharing[-1])
