"""What a model costs on this device: training step, prefill, decoding, peak memory and cache, each over its baseline's.

``python -m respath.measure.system --model JSON|@FILE --baseline JSON|@FILE --context 2048 --batch 8 --out bench.json``

Model and baseline take turns in one process, and the ratios are medians over rounds for which both are built anew. A run of
this alone on the machine is the caller's business. Seconds belong to the device that is named beside them; only ratios may be set
against others, and none of this enters a verdict.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.config.arguments import json_argument
from respath.documents import check
from respath.errors import UserError, guard
from respath.files import write_json
from respath.measure.weights import chosen_device
from respath.spec.model import ModelSpec
from respath.startup import slow_imports

if TYPE_CHECKING:
    from respath.measure.timing import Decoder

SCHEMA = 1
#: Tokens that a timed call decodes for each row.
DECODED = 16
PHASES = ("step", "prefill", "decode")


def device_of(name: str) -> dict[str, Any]:
    """What the numbers were measured on: name, clock in MHz (null where it cannot be read), threads."""
    import torch

    if name.startswith("cuda"):
        try:
            clock: float | None = float(torch.cuda.clock_rate())
        except Exception:  # no NVML library or not allowed to ask: the clock is then unknown
            clock = None
        return {"kind": "cuda", "name": torch.cuda.get_device_name(name), "clock_mhz": clock, "threads": None}
    model, clocks = "CPU", []
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = (part.strip() for part in line.partition(":"))
            model = value if key == "model name" else model
            clocks += [float(value)] if key == "cpu MHz" else []
    except OSError:
        pass
    return {
        "kind": "cpu",
        "name": model,
        "clock_mhz": max(clocks, default=None),
        "threads": torch.get_num_threads(),
    }


class Subject:
    """One model in one round: made when first called for, so that a phase holds only what it needs."""

    def __init__(self, spec: ModelSpec, context: int, batch: int, precision: str, device: str, calls: int):
        self.spec, self.context, self.batch = spec, context, batch
        self.precision, self.device, self.calls = precision, device, calls

    def call(self, phase: str) -> tuple[Callable[[], object], int]:
        """What a phase times, and the tokens that it handles."""
        import torch

        from respath.measure.timing import training_step

        if phase == "step":
            step = training_step(self.spec, self.precision, False, self.device)
            drawn = torch.Generator().manual_seed(0)
            shape = (self.batch, self.context + 1)
            ids = torch.randint(self.spec.vocab_size, shape, generator=drawn).to(self.device)
            return (lambda: step(ids)), self.batch * self.context
        decoder = self.decoder()
        self.cache_bytes = decoder.cache.nbytes
        if phase == "decode":
            return decoder, self.batch * DECODED
        return decoder.prefill, self.batch * self.context

    def decoder(self) -> Decoder:
        """A new model behind a full context."""
        import torch

        from respath.measure.timing import Decoder

        return Decoder(
            self.spec,
            batch=self.batch,
            context=self.context,
            tokens=DECODED,
            calls=self.calls,
            dtype=torch.bfloat16 if self.precision == "bf16" else torch.float32,
            device=self.device,
        )


def _peak(subject: Subject, phase: str, device: str) -> int | None:
    """Most bytes that are allocated on the device during a call of a model that is alone there; null on a CPU, where nothing counts them."""
    import torch

    if not device.startswith("cuda"):
        return None
    call, _ = subject.call(phase)
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    del call
    free(device)
    return peak


def free(device: str) -> None:
    """Give back a GPU's memory of what is not used any more; elsewhere reference counts have done so."""
    import torch

    if device.startswith("cuda"):
        gc.collect()
        torch.cuda.empty_cache()


def measure_phase(
    phase: str, subjects: Callable[[int], tuple[Subject, Subject]], rounds: int, repetitions: int, device: str
) -> dict[str, Any]:
    """Seconds, tokens per second, peak bytes and ratios of one phase, or "out of memory" as its status.

    ``subjects(calls)`` makes model and baseline anew.
    """
    import torch

    from respath.measure.timing import medians, take_turns

    taken: list[tuple[float, ...]] = []
    peaks: list[int | None] = [None, None]
    tokens = 0
    cache: list[int | None] = [None, None]
    try:
        for turn in range(rounds):
            # Each is called before the turns, and once or (the baseline) twice a repetition.
            pair = subjects(2 * repetitions + 1)
            made = [one.call(phase) for one in (pair if turn % 2 == 0 else reversed(pair))]
            (own, tokens), (plain, _) = made if turn % 2 == 0 else reversed(made)
            taken.append(take_turns(plain, {"model": own}, repetitions, device)["model"])
            if turn == rounds - 1:
                cache = [getattr(one, "cache_bytes", None) for one in pair]
            del made, own, plain, pair
            free(device)
        peaks = [_peak(one, phase, device) for one in subjects(2)]
    except torch.OutOfMemoryError:
        free(device)
        return {"status": "out of memory"}
    seconds, wall, used = medians(taken)
    return {
        "status": "done",
        "seconds": seconds,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "hours_per_billion_tokens": 1e9 * seconds / tokens / 3600,
        # What the process used itself, so that other work on a CPU counts little; a GPU works while the process waits.
        "ratio": wall if device.startswith("cuda") else used,
        "ratios": [row[1] if device.startswith("cuda") else row[2] for row in taken],
        "peak_bytes": peaks[0],
        "peak_ratio": peaks[0] / peaks[1] if peaks[0] and peaks[1] else None,
        "cache_bytes": cache[0],
        "cache_ratio": cache[0] / cache[1] if cache[0] and cache[1] else None,
    }


def measure(
    model: ModelSpec,
    baseline: ModelSpec,
    *,
    context: int,
    batch: int,
    precision: str,
    device: str,
    prompt: int | None = None,
    rounds: int = 3,
    repetitions: int = 3,
) -> dict[str, Any]:
    """Content of bench.json. ``prompt``: tokens per row of prefill and decoding, ``context`` without it.

    Raises UserError for a shape that the model cannot read.
    """
    prompt = prompt or context
    longest = prompt + DECODED * (2 * repetitions + 1)
    for spec in (model, baseline):
        if spec.max_positions is not None and spec.max_positions < longest:
            raise UserError(
                f"--context {prompt}: {longest} positions are read with those decoded, the model has {spec.max_positions}"
            )

    def subjects(phase: str) -> Callable[[int], tuple[Subject, Subject]]:
        length = context if phase == "step" else prompt

        def made(calls: int) -> tuple[Subject, Subject]:
            shape = (length, batch, precision, device, calls)
            return Subject(model, *shape), Subject(baseline, *shape)

        return made

    return {
        "schema": SCHEMA,
        "kind": "bench",
        "device": device_of(device),
        "precision": precision,
        "context": context,
        "prompt": prompt,
        "batch": batch,
        "rounds": rounds,
        "repetitions": repetitions,
        "phases": {
            phase: measure_phase(phase, subjects(phase), rounds, repetitions, device) for phase in PHASES
        },
    }


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.system", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="model spec as JSON or @FILE")
    parser.add_argument("--baseline", required=True, help="the spec that ratios are over")
    parser.add_argument("--name", required=True, help="what the result calls the model")
    parser.add_argument("--context", type=int, required=True, help="tokens per row of a training step")
    parser.add_argument(
        "--prompt", type=int, help="tokens per row of prefill and decoding (default: the same)"
    )
    parser.add_argument("--batch", type=int, required=True, help="rows")
    parser.add_argument("--rounds", type=int, default=3, help="how often both are built anew")
    parser.add_argument("--repetitions", type=int, default=3, help="turns in a round")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    specs = [
        check(ModelSpec, json_argument(text, option), option)
        for text, option in ((given.model, "--model"), (given.baseline, "--baseline"))
    ]
    with slow_imports():
        import respath.model  # noqa: F401 (and torch with it)
    device = chosen_device(given.device)
    content = measure(
        *specs,
        context=given.context,
        prompt=given.prompt,
        batch=given.batch,
        precision="bf16" if device.startswith("cuda") else "fp32",
        device=device,
        rounds=given.rounds,
        repetitions=given.repetitions,
    )
    write_json(given.out, {**content, "model": given.name})
    for phase, entry in content["phases"].items():
        shown = (
            f"{entry['ratio']:.3f} of the baseline's time" if entry["status"] == "done" else entry["status"]
        )
        print(f"{phase}: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
