"""Every variant's training step over its own paper's baseline, and decoding of SVFormer and Bank of Values.

The baseline is the paper's, in the variant's backbone and shape. A few variants at a time take turns with it in one
process: it steps before and after them, and a ratio is the median over repetitions of the variant's time over the mean
of the two. Where in memory a model happens to lie changes its step by several per cent for as long as it lives, so all are
built anew, in another order, for every round, and the number is the median over rounds. CPU time is what the process used,
so that other work on the machine counts little. Among the variants of each turn is the baseline once more, as a control:
how far its ratio strays from one is what this machine cannot tell apart. What value paths add (a weighted sum, a gather) is
less than that, so it is also timed by itself and set against the baseline's step. Prints one JSON object.

    PYTHONPATH=src python -m benchmarks.variants --only resformer/svformer bov --rounds 3 --repetitions 3
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from respath.errors import UserError
from respath.measure.timing import Decoder, medians, take_turns, timed, training_step
from respath.model import build_model
from respath.model.layers import linears
from respath.model.origin import Origin
from respath.model.resolve import resolve_spec
from respath.papers.resolve import Resolver, papers_at
from respath.spec.cost import forward_flops
from respath.spec.model import ModelSpec

#: Width, tokens per sequence, sequences. Layers, and what the variant is, come from the paper's size at scale smoke.
SHAPES = {
    "small": {"width": 128, "context": 256, "batch": 2},
    "medium": {"width": 256, "context": 128, "batch": 2},
}
#: Head counts that every grouping of the papers divides; a vocabulary that does not hide the layers.
HEADS, VOCABULARY = 8, 1024
#: Sizes with enough layers for (nearly) every variant of their paper; a variant that needs another names it in its row.
SIZES = {"resformer": "82M", "bov": "d12", "depthbench": "400M-L24"}
#: Value paths are to cost at most this much (where they need no more matrix products than the baseline).
GOAL = 1.03
DECODED = {
    "resformer": ("svformer", "svformer-gqa4"),
    "bov": ("bov", "bov-every-layer"),
}
DECODE = {"width": 256, "context": 1024, "batch": 4}
#: Variants that share one baseline's turns.
TOGETHER = 4
#: Turns of value paths by themselves.
ALONE = 15
#: The baseline's name among them.
CONTROL = "(control)"


@dataclass(frozen=True)
class Contender:
    """A variant in one shape."""

    name: str
    size: str
    spec: ModelSpec


def resized(project: Resolver, paper: str, size: str, variant: str, width: int, context: int) -> ModelSpec:
    """The variant at scale smoke in another width; windows keep the paper's share of the context."""
    spec = project.at("smoke").paper(paper).model(size, variant)
    changed = {
        "width": width,
        "heads": HEADS,
        "kv_heads": HEADS * spec.kv_heads // spec.heads,
        "ffn_width": 8 * round(width * spec.ffn_width / spec.width / 8),
        "vocab_size": VOCABULARY,
    }
    if spec.max_positions is not None:
        changed["max_positions"] = 4 * context
    if spec.windows is not None:
        printed = project.at("paper").paper(paper).model(size, variant).windows.short
        share = printed / project.folder(paper).paper.accounting.context
        changed["windows"] = {"pattern": spec.windows.pattern, "short": round(share * context)}
    return resolve_spec(spec, overrides=changed)


def contenders(project: Resolver, paper: str, width: int, context: int) -> Iterator[Contender]:
    """Every variant of a paper in its usual size, or in the first that fits it."""
    for variant in project.folder(paper).variants:
        for size in dict.fromkeys([SIZES[paper], *project.folder(paper).paper.sizes]):
            try:
                spec = resized(project, paper, size, variant, width, context)
            except UserError:
                continue
            yield Contender(variant, size, spec)
            break
        else:
            raise UserError(f"{paper}/{variant}: fits no size at width {width} and {HEADS} heads")


def is_value_path(spec: ModelSpec) -> bool:
    """Whether the variant changes values alone."""
    return spec.stream.kind == "pre_ln" and spec.attention_residual is None and spec.values.kind != "own"


def products(spec: ModelSpec, context: int) -> int:
    """FLOPs of a sequence's forward pass."""
    return sum(forward_flops(spec, context, logits="all", attention="causal").values())


def values_alone(spec: ModelSpec, context: int, batch: int, device: str) -> Callable[[], None]:
    """One forward and backward pass of value projections and value path in all layers, without anything else.

    What a layer attends over stands in for what attention makes of it: its shape is the same where every query head has a
    value head, and attention costs the same in both.
    """
    model = build_model(spec, device=device)
    path, ids = model.values, torch.randint(VOCABULARY, (batch, context), device=device)
    x0, *states = (
        torch.randn(batch, context, spec.width, device=device).requires_grad_()
        for _ in range(spec.layers + 1)
    )
    origin = model.origin(ids, x0, None) if not model.keeps_ids else Origin(ids, ids, ids, x0)
    toward = torch.randn(batch, context, spec.kv_width, device=device)
    layers = [layer.attention for layer in model.layers]

    def once() -> None:
        remembered, ends, value, own = path.open(origin), [], None, None
        for n, (layer, x) in enumerate(zip(layers, states, strict=True)):
            if layer.value_home == n:
                own = linears(x, [layer.v_proj])[0] if layer.projects_input else None
                value, remembered = path.mix(n, own, remembered, x, layer.v_proj)
            ends.append(path.finish(n, value, own, remembered))
        torch.autograd.backward(ends, [toward] * len(ends))
        for tensor in (x0, *states, *model.parameters()):
            tensor.grad = None

    return once


def added(spec: ModelSpec, plain: ModelSpec, context: int, batch: int, device: str) -> float:
    """CPU seconds that a value path takes by itself beyond the baseline's; negative where it saves projections."""
    turns = [values_alone(each, context, batch, device) for each in (spec, plain)]
    for call in turns:
        call()
    taken = [[timed(call, device)[1] for call in turns] for _ in range(ALONE)]
    return statistics.median(path - own for path, own in taken)


def steps(project: Resolver, paper: str, shape: dict[str, int], chosen, options) -> dict[str, dict]:
    """Rows of one paper's variants in one shape, by variant."""
    context, batch, device = shape["context"], shape["batch"], options.device
    ids = torch.randint(VOCABULARY, (batch, context + 1), device=device)

    def stepper(spec: ModelSpec) -> Callable[[], object]:
        step = training_step(spec, options.precision, False, device)
        return lambda: step(ids)

    rows = {}
    by_baseline: dict[ModelSpec, list[Contender]] = {}
    for c in contenders(project, paper, shape["width"], context):
        plain = c.spec.plain()
        if chosen(paper, c.name) and c.spec != plain:
            by_baseline.setdefault(plain, []).append(c)
    for plain, group in by_baseline.items():
        for some in batched(group, TOGETHER):
            specs = {CONTROL: plain} | {c.name: c.spec for c in some}
            rounds: dict[str, list[tuple[float, ...]]] = {name: [] for name in specs}
            for _ in range(options.rounds):
                order = random.sample(sorted(specs), len(specs))
                contending = {name: stepper(specs[name]) for name in order}
                turns = take_turns(stepper(plain), contending, options.repetitions, device)
                for name, taken in turns.items():
                    rounds[name].append(taken)
            measured = {
                name: dict(zip(("seconds", "wall", "cpu"), medians(taken), strict=True))
                for name, taken in rounds.items()
            }
            for c in some:
                ratio = products(c.spec, context) / products(plain, context)
                goal = GOAL if is_value_path(c.spec) and ratio <= 1.001 else None
                control = measured[CONTROL]["cpu"]
                alone = None if goal is None else added(c.spec, plain, context, batch, device)
                rows[c.name] = {
                    **measured[c.name],
                    "added": None if alone is None else alone / measured[CONTROL]["seconds"],
                    "size": c.size,
                    "flops": ratio,
                    "goal": goal,
                    "control": control,
                }
                print(f"{paper}/{c.size}/{c.name}: {measured[c.name]}", file=sys.stderr)
    return rows


def batched(items: list, count: int) -> Iterator[list]:
    """``items`` in lists of ``count``, the last one shorter."""
    for start in range(0, len(items), count):
        yield items[start : start + count]


def decoding(project: Resolver, paper: str, chosen, options) -> dict[str, dict]:
    """Tokens per second and cache of some variants of a paper, beside the baseline's at the same positions."""
    size, shape = SIZES[paper], DECODE
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    repetitions, tokens = options.repetitions, options.tokens
    rows = {}
    for name in DECODED[paper]:
        if not chosen(paper, name):
            continue
        spec = resized(project, paper, size, name, shape["width"], shape["context"])
        plain = spec.plain()
        turns = []
        for _ in range(options.rounds):
            baseline, other = (
                Decoder(
                    each,
                    batch=shape["batch"],
                    context=shape["context"],
                    tokens=tokens,
                    calls=repetitions + 1,
                    dtype=dtype,
                    device=options.device,
                )
                for each in (plain, spec)
            )
            baseline()
            other()
            for repetition in range(repetitions):
                # Both decode the same positions; who goes first alternates.
                order = (baseline, other) if repetition % 2 == 0 else (other, baseline)
                seconds = {decoder: timed(decoder, options.device) for decoder in order}
                turns.append((*seconds[other], *seconds[baseline]))
        produced = tokens * shape["batch"]
        rows[name] = {
            "tokens_per_second": produced / statistics.median(turn[0] for turn in turns),
            "baseline_tokens_per_second": produced / statistics.median(turn[2] for turn in turns),
            "wall": statistics.median(turn[0] / turn[2] for turn in turns),
            "cpu": statistics.median(turn[1] / turn[3] for turn in turns),
            "cache_bytes": other.cache.nbytes,
            "baseline_cache_bytes": baseline.cache.nbytes,
            "size": size,
        }
        print(f"decode {paper}/{size}/{name}: {rows[name]}", file=sys.stderr)
    return rows


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help="papers, or paper/variant; all when left out")
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=3, help="how often every model is built anew")
    parser.add_argument("--repetitions", type=int, default=3, help="turns in a round")
    parser.add_argument("--tokens", type=int, default=16, help="decoded per repetition and row")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--precision", choices=("bf16", "fp32"), help="fp32 on CPU, bf16 on GPU when left out"
    )
    options = parser.parse_args()
    options.precision = options.precision or ("bf16" if options.device.startswith("cuda") else "fp32")
    project = papers_at("smoke")

    def chosen(paper: str, variant: str) -> bool:
        return not options.only or paper in options.only or f"{paper}/{variant}" in options.only

    torch.manual_seed(0)
    random.seed(0)
    start = time.perf_counter()
    report = {
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu",
        "precision": options.precision,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "repetitions": options.repetitions,
        "heads": HEADS,
        "vocabulary": VOCABULARY,
        "shapes": {name: SHAPES[name] for name in options.shapes},
        "step": {
            name: {paper: steps(project, paper, SHAPES[name], chosen, options) for paper in SIZES}
            for name in options.shapes
        },
        "decode_shape": {**DECODE, "tokens": options.tokens},
        "decode": {paper: decoding(project, paper, chosen, options) for paper in DECODED},
    }
    report["minutes"] = (time.perf_counter() - start) / 60
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
