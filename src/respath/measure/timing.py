"""Times of two models in turn, in one process: ratios that other work on the machine falls out of.

Where in memory a model happens to lie changes its step by several per cent for as long as it lives (docs/log.md): callers
build their models anew for each round and take medians over rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping

import torch

from respath.model import build_model
from respath.model.loss import TrainingLoss
from respath.model.precision import LowPrecision
from respath.spec.model import ModelSpec

Step = Callable[[torch.Tensor], float]


def finished(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(call: Callable[[], object], device: str) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a call."""
    finished(device)
    wall, used = time.perf_counter(), time.process_time()
    call()
    finished(device)
    return time.perf_counter() - wall, time.process_time() - used


def medians(rows: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    """The median of each column."""
    return tuple(map(statistics.median, zip(*rows, strict=True)))


def take_turns(
    baseline: Callable[[], object],
    others: Mapping[str, Callable[[], object]],
    repetitions: int,
    device: str,
) -> dict[str, tuple[float, float, float]]:
    """Median wall seconds of each, and median ratios of wall and CPU time over the baseline's turns around it.

    Each is called once beforehand.
    """
    for call in (baseline, *others.values()):
        call()
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in others}
    for _ in range(repetitions):
        before = timed(baseline, device)
        taken = {name: timed(call, device) for name, call in others.items()}
        after = timed(baseline, device)
        for name, (wall, used) in taken.items():
            rows[name].append((wall, 2 * wall / (before[0] + after[0]), 2 * used / (before[1] + after[1])))
    return {name: medians(turns) for name, turns in rows.items()}


def optimizer_of(module: torch.nn.Module) -> torch.optim.Optimizer:
    """Fused AdamW over all parameters."""
    return torch.optim.AdamW(module.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def training_step(spec: ModelSpec, precision: str, compiled: bool, device: str) -> Step:
    """A step of a new model: loss, backward pass, AdamW. ``precision``: fp32, or bf16 on fp32 weights."""
    module = TrainingLoss(build_model(spec, device=device))
    step_module = LowPrecision(module) if precision == "bf16" else module
    step_module = torch.compile(step_module) if compiled else step_module
    optimizer = optimizer_of(module)

    def step(ids: torch.Tensor) -> float:
        loss = step_module(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


class Decoder:
    """A new model with a filled cache; each call decodes ``tokens``, one at a time, for every row.

    ``batch`` rows of ``context`` random tokens, and room for ``calls`` calls. ``prefill`` reads the prompt again, into another cache.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        batch: int,
        context: int,
        tokens: int,
        calls: int,
        dtype: torch.dtype,
        device: str,
    ):
        self.model = build_model(spec, device=device, dtype=dtype).eval()
        self.tokens, self.batch, self.context = tokens, batch, context
        self.cache = self.model.new_cache(batch, context + calls * tokens)
        drawn = torch.Generator().manual_seed(0)
        self.prompt = torch.randint(spec.vocab_size, (batch, context), generator=drawn).to(device)
        self.last = self.prompt[:, -1:]
        with torch.inference_mode():
            self.model.hidden(self.prompt, cache=self.cache)

    @torch.inference_mode()
    def __call__(self) -> None:
        for _ in range(self.tokens):
            self.last = self.model(self.last, cache=self.cache)[:, -1:].argmax(-1)

    @torch.inference_mode()
    def prefill(self) -> None:
        """States of the whole prompt, and the logits of its last position."""
        cache = self.model.new_cache(self.batch, self.context)
        self.model.logits(self.model.hidden(self.prompt, cache=cache)[:, -1:])
