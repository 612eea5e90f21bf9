"""Step time, MFU and peak memory: the paper's models at their own shape, every variant at a modest one, and decoding with its caches.

A step is forward, backward and AdamW, bf16 on fp32 weights, as in training. MFU: FLOPs of ``respath.accounting`` (three times the
forward pass, causal attention) per second, over the data sheet's dense bf16 peak. Clocks read only when the device has finished.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable

import torch

from benchmarks.gpu_part import Part
from benchmarks.variants import (
    SIZES,
    VOCABULARY,
    Contender,
    contenders,
    products,
    resized,
)
from respath.accounting import account
from respath.accounting.plan import PEAK_FLOPS, peak_key
from respath.measure.decoding import made
from respath.measure.timing import Decoder, timed, training_step
from respath.model import build_model
from respath.papers.resolve import Resolver, papers_at
from respath.spec.cost import cache_bytes
from respath.spec.model import ModelSpec
from tests.unit.noise import with_noise

#: ResFormer's models: the paper's form of it, and its Transformer.
MODELS = (("82M", "identity"), ("468M", "identity"), ("82M", "transformer"), ("468M", "transformer"))
#: Compiled, as far as time is left.
COMPILED = (("82M", "identity"), ("468M", "identity"))
#: The paper's sequences on each GPU: no larger micro-batch is tried.
MOST_SEQUENCES = 32
#: Share of the memory that is free at the start which a step may be expected to fill.
FULL = 0.85
#: Repetitions of a timed step: no more than this, and no longer than so many seconds.
REPETITIONS, TIMED_SECONDS = 10, 5.0
#: A compiled step may start from another loss than an eager one by this much, in nats: the mean over thousands of tokens of
#: logits that bf16 rounds by 2^-8 at most.
LOSS_LIMIT = 0.01

#: Width, tokens per sequence, sequences: every variant's step.
VARIANT_SHAPES = {
    False: {"width": 512, "context": 1024, "batch": 8},
    True: {"width": 32, "context": 32, "batch": 1},
}
VARIANT_REPETITIONS = 5

#: Whose decoding is measured.
DECODED = {
    "resformer": ("transformer", "svformer", "gqa2", "gqa8", "cla2", "svformer-gqa4"),
    "bov": ("baseline", "bov", "bov-every-layer", "v1-last-third"),
}
#: Of these, in which further ways (``respath.measure.decoding``).
DECODED_WAYS = {("bov", "bov"): ("folded", "host", "prefetch")}
DECODE_SHAPES = {
    False: {"width": 512, "context": 2048, "batch": 8},
    True: {"width": 64, "context": 64, "batch": 2},
}
DECODED_TOKENS, DECODE_CALLS = 32, 3
#: Largest difference between a decoded logit and the full forward pass's, in float64, over the largest logit.
DECODE_LIMIT = 1e-9


def random_ids(spec: ModelSpec, batch: int, context: int, device: str) -> torch.Tensor:
    """Ids for steps on ``context`` tokens: one more, as the last is a target only."""
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(spec.vocab_size, (batch, context + 1), generator=generator).to(device)


# --- the paper's models ---------------------------------------------------------------------------------------------


def chosen_batch(
    part: Part, step: Callable[[torch.Tensor], float], spec: ModelSpec, context: int, free: int
) -> tuple[int, list[dict[str, int]]]:
    """Sequences per step: doubled from one while the next step should fit into ``free`` bytes; and what each try took.

    Activations grow with the sequences, weights and moments do not: twice the batch is expected to take twice of what
    a step takes beyond them. Raises OutOfMemoryError when one sequence is too much.
    """
    if not part.cuda:
        return 2, []
    batch, tried = 1, []
    # The first step makes the optimizer's moments, which stay.
    step(random_ids(spec, batch, context, part.device))
    while True:
        ids = random_ids(spec, batch, context, part.device)
        resident = part.held()
        part.watch_memory()
        try:
            step(ids)
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
            part.free()
            return batch // 2, tried
        peak = part.peak()
        tried.append({"sequences": batch, "peak_bytes": peak})
        if 2 * batch > MOST_SEQUENCES or resident + 2 * (peak - resident) > FULL * free or part.left < 5:
            return batch, tried
        batch *= 2


def step_seconds(part: Part, step, ids: torch.Tensor) -> list[float]:
    """Seconds of steps after the first ones."""
    taken, begun = [], time.monotonic()
    while not taken or (
        len(taken) < REPETITIONS and time.monotonic() - begun < TIMED_SECONDS and part.left > 2
    ):
        taken.append(timed(lambda: step(ids), part.device)[0])
    return taken


def speed(spec: ModelSpec, context: int, batch: int, seconds: float, product: str | None) -> dict:
    """Rates that follow from the seconds of one step; ``product``: the GPU's name, None on a CPU."""
    flops = account(spec, context=context, logits="all", attention="causal").flops.training_per_token
    key = peak_key(product) if product else None
    rate = batch * context / seconds
    return {
        "seconds": seconds,
        "tokens_per_second": rate,
        "flops_per_token": flops,
        "mfu": flops * rate / PEAK_FLOPS[key] if key else None,
    }


def product_name(part: Part) -> str | None:
    """The GPU's name; None on a CPU."""
    return torch.cuda.get_device_name() if part.cuda else None


def steady(part: Part, step: Callable[[torch.Tensor], float], spec: ModelSpec, ids: torch.Tensor) -> dict:
    """Columns of a step that has been taken before."""
    # One more to settle: memory, and the algorithms of products.
    step(ids)
    part.watch_memory()
    taken = step_seconds(part, step, ids)
    batch, context = ids.shape[0], ids.shape[1] - 1
    return {
        "sequences": batch,
        "context": context,
        **speed(spec, context, batch, statistics.median(taken), product_name(part)),
        "repetitions": len(taken),
        "peak_bytes": part.peak(),
    }


def measure_eager(part: Part, name: dict, spec: ModelSpec, context: int) -> int:
    """One row: a model's step, with as many sequences as fit; returns how many."""
    free = torch.cuda.mem_get_info()[0] if part.cuda else 0
    begun = time.monotonic()
    step = training_step(spec, "bf16", False, part.device)
    built = time.monotonic() - begun
    batch, tried = chosen_batch(part, step, spec, context, free)
    ids = random_ids(spec, batch, context, part.device)
    part.row(**name, **steady(part, step, spec, ids), build_seconds=built, tried=tried)
    return batch


def measure_compiled(part: Part, name: dict, spec: ModelSpec, context: int, batch: int) -> None:
    """One row: a compiled step, the seconds to compile it, and whether it starts from the eager step's loss."""
    ids, losses = random_ids(spec, batch, context, part.device), []
    losses.append(training_step(spec, "bf16", False, part.device)(ids))
    part.free()
    torch.compiler.reset()
    step = training_step(spec, "bf16", True, part.device)
    first, _ = timed(lambda: losses.append(step(ids)), part.device)
    row = steady(part, step, spec, ids)
    difference = abs(losses[1] - losses[0])
    part.row(
        **name,
        **row,
        compile_seconds=first - row["seconds"],
        loss_difference=difference,
        ok=difference <= LOSS_LIMIT,
    )


def run_models(part: Part) -> None:
    """ResFormer's 82M and 468M at the paper's shape; compiled last, as nobody knows how long that takes."""
    project = papers_at("smoke")
    scale, context = ("smoke", 64) if part.small else ("paper", 2048)
    batches: dict[str, int] = {}
    for size, variant in MODELS:
        ref = f"resformer/{size}/{variant}"
        spec, name = (
            project.at(scale).paper("resformer").model(size, variant),
            {"model": ref, "mode": "eager"},
        )
        if not part.affords(f"{ref}, eager", 2 if part.small else 5):
            continue
        batch = part.attempt(name, lambda name=name, spec=spec: measure_eager(part, name, spec, context))
        part.free()
        if batch is not None:
            batches[ref] = batch
    if not part.cuda:
        part.skip("compiled steps", "torch.compile is measured on a GPU only (the tests compile on a CPU)")
        return
    layers, spent = 0, 0.0
    for size, variant in COMPILED:
        ref = f"resformer/{size}/{variant}"
        spec, name = (
            project.at(scale).paper("resformer").model(size, variant),
            {"model": ref, "mode": "compiled"},
        )
        # Compiling takes time in proportion to the layers.
        expected = spent * spec.layers / layers if layers else 40
        if ref not in batches or not part.affords(f"{ref}, compiled", expected):
            continue
        before = part.left
        part.attempt(
            name,
            lambda name=name, spec=spec, batch=batches[ref]: measure_compiled(
                part, name, spec, context, batch
            ),
        )
        layers, spent = spec.layers, before - part.left
        part.free()


# --- every variant --------------------------------------------------------------------------------------------------


def structure(paper: str, spec: ModelSpec) -> tuple:
    """What makes a variant another computation, without its numbers and layers."""
    residual = spec.attention_residual
    return (
        paper,
        spec.backbone,
        spec.stream.kind,
        spec.values.kind,
        spec.kv_heads,
        spec.sharing is not None,
        residual and residual.of,
    )


def one_of_each_first(
    found: Iterable[tuple[str, Contender]], alone: bool = False
) -> list[tuple[str, Contender]]:
    """Papers and variants in an order that shows every structure before a second of its kind, should time run out.

    The papers take turns. ``alone``: the first of each structure and no more.
    """
    kinds, turns = Counter(), Counter()
    ranked = []
    for paper, contender in found:
        kind = structure(paper, contender.spec)
        rank = kinds[kind]
        ranked.append((rank, turns[paper, rank], paper, contender))
        kinds[kind] += 1
        turns[paper, rank] += 1
    ranked.sort(key=lambda each: each[:2])
    return [(paper, contender) for rank, _, paper, contender in ranked if not (alone and rank)]


def measure_step(
    part: Part, spec: ModelSpec, ids: torch.Tensor, repetitions: int
) -> tuple[float, int | None]:
    """Median seconds of a step, and its peak memory with weights and moments."""
    beside = part.held()
    step = training_step(spec, "bf16", False, part.device)
    step(ids), step(ids)
    part.watch_memory()
    seconds = statistics.median(timed(lambda: step(ids), part.device)[0] for _ in range(repetitions))
    return seconds, part.peak(beside)


def run_variants(part: Part) -> None:
    """Every variant's step over its baseline's, which is measured before the first and after the last variant."""
    project = papers_at("smoke")
    shape = VARIANT_SHAPES[part.small]
    repetitions = 1 if part.small else VARIANT_REPETITIONS
    part.about = {"shape": {**shape, "vocabulary": VOCABULARY}}
    ids = torch.randint(VOCABULARY, (shape["batch"], shape["context"] + 1)).to(part.device)
    found = (
        (paper, contender)
        for paper in SIZES
        for contender in contenders(project, paper, shape["width"], shape["context"])
    )
    baselines: dict[ModelSpec, tuple[float, int | None]] = {}
    left_out: dict[str, int] = {}
    for paper, contender in one_of_each_first(found, alone=part.small):
        spec, plain = contender.spec, contender.spec.plain()
        name = {"variant": f"{paper}/{contender.size}/{contender.name}"}
        if part.left < 2:
            left_out[paper] = left_out.get(paper, 0) + 1
            continue
        part.doing = name["variant"]
        if plain not in baselines:
            measured = part.attempt(name, lambda plain=plain: measure_step(part, plain, ids, repetitions))
            part.free()
            if measured is None:
                continue
            baselines[plain] = measured
        baseline = baselines[plain]
        if spec == plain:
            seconds, peak = baseline
        else:
            measured = part.attempt(name, lambda spec=spec: measure_step(part, spec, ids, repetitions))
            part.free()
            if measured is None:
                continue
            seconds, peak = measured
        part.row(
            **name,
            seconds=seconds,
            over_baseline=seconds / baseline[0],
            peak_bytes=peak,
            peak_over_baseline=peak / baseline[1] if peak and baseline[1] else None,
            flops_over_baseline=products(spec, shape["context"]) / products(plain, shape["context"]),
        )
    for paper, count in left_out.items():
        part.skip(f"{count} variants of {paper}", "no time")
    for plain, (seconds, _) in list(baselines.items())[:1]:
        again = part.attempt(
            {"variant": "(control)"}, lambda plain=plain: measure_step(part, plain, ids, repetitions)
        )
        if again:
            part.row(variant="(control)", seconds=again[0], over_baseline=again[0] / seconds)


# --- decoding -------------------------------------------------------------------------------------------------------


def decoding_error(spec: ModelSpec, device: str, way: str) -> float:
    """Largest difference of logits, over the largest, between decoding in a way and the full forward pass, in float64.

    Half of the tokens as a prompt, some as a chunk, the rest one by one; windows are shorter than the sequence.
    """
    model = with_noise(build_model(spec, dtype=torch.float64)).to(device).eval()
    time = 48
    ids = torch.randint(spec.vocab_size, (2, time), generator=torch.Generator().manual_seed(2)).to(device)
    cache = model.new_cache(2, time)
    with torch.inference_mode():
        full = model(ids)
        made(model, way)
        cuts = [0, time // 2, time // 2 + 7, *range(time // 2 + 8, time + 1)]
        decoded = torch.cat([model(ids[:, a:b], cache=cache) for a, b in itertools.pairwise(cuts)], dim=1)
    return ((decoded - full).abs().max() / full.abs().max()).item()


def measure_decoding(part: Part, project: Resolver, paper: str, variant: str, way: str) -> None:
    """One row: tokens per second with a cache, its bytes beside the closed form, and whether its logits are right."""
    shape = DECODE_SHAPES[part.small]
    spec = resized(project, paper, SIZES[paper], variant, shape["width"], shape["context"])
    checked = resized(project, paper, SIZES[paper], variant, 64, 32)
    error = decoding_error(checked, part.device, way)
    part.free()
    tokens = 4 if part.small else DECODED_TOKENS
    dtype = torch.bfloat16 if part.cuda else torch.float32
    calls = DECODE_CALLS + 1
    decoder = Decoder(
        spec,
        batch=shape["batch"],
        context=shape["context"],
        tokens=tokens,
        calls=calls,
        dtype=dtype,
        device=part.device,
    )
    made(decoder.model, way)
    part.watch_memory()
    decoder()
    seconds = statistics.median(timed(decoder, part.device)[0] for _ in range(DECODE_CALLS))
    formula = cache_bytes(spec, decoder.cache.max_time, shape["batch"], bytes_per_element=dtype.itemsize)
    part.row(
        variant=named_way(paper, variant, way),
        peak_bytes=part.peak(),
        tokens_per_second=tokens * shape["batch"] / seconds,
        seconds_per_token=seconds / tokens,
        cache_bytes=decoder.cache.nbytes,
        formula_bytes=formula,
        logit_error=error,
        ok=decoder.cache.nbytes == formula and error <= DECODE_LIMIT,
    )


def named_way(paper: str, variant: str, way: str) -> str:
    """A model by its name, with the way in which it decodes where that is not its own."""
    return f"{paper}/{SIZES[paper]}/{variant}" + (f", {way}" if way != "device" else "")


def run_decoding(part: Part) -> None:
    """Decoding of the variants whose caches differ."""
    project, slowest = papers_at("smoke"), 0.0
    part.about = {"shape": DECODE_SHAPES[part.small], "logit_limit": DECODE_LIMIT}
    for paper, variants in DECODED.items():
        ways = [(one, way) for one in variants for way in ("device", *DECODED_WAYS.get((paper, one), ()))]
        for variant, way in ways:
            name = named_way(paper, variant, way)
            if not part.affords(f"decoding {name}", slowest):
                continue
            before = part.left
            part.attempt(
                {"variant": name},
                lambda paper=paper, variant=variant, way=way: measure_decoding(
                    part, project, paper, variant, way
                ),
                check=True,
            )
            part.free()
            slowest = max(slowest, before - part.left)
