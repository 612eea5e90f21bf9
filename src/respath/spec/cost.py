"""What a model costs, in closed form: parameters, FLOPs of a forward pass, and the key-value cache.

FLOPs are matrix products and attention, two per multiply-add. Norms, softmax, activations, rotary embedding, gathers (embedding,
value tables) and sums of whole values or states with one scalar each are left out. Sums over streams or over depth whose weights
depend on the token are in, as DepthBench counts them (arXiv 2609.32534, Appendix D).
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, Literal

from respath.spec.layout import Layout, layout, windows
from respath.spec.model import ModelSpec

#: Components that PyTorch's counter does not see: the model adds these up term by term instead of as a matrix product.
SUMMED = ("depth_mix",)
#: The convention for caches: a cached number is bf16, a token id int32.
BYTES_PER_ELEMENT, BYTES_PER_ID = 2, 4

Keeps = Literal["full", "window"]


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Counts. ``backbone`` leaves out embedding, head and final norm; ``live`` takes part in the forward pass.
    ``with_replaced`` has the value projections too that a variant does without, as published checkpoints keep them.

    ``embedding`` includes learned positions. ``by_group`` sums to ``total``.
    """

    total: int
    backbone: int
    embedding: int
    head: int
    live: int
    with_replaced: int
    by_group: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Flops:
    """``forward`` is per sequence, ``training_per_token`` three times the forward per token with all logits, ``saved_per_token`` what
    of the baseline's is saved.

    The components sum to ``forward``, but for a name that says it is the paper's count.
    """

    forward: int
    training_per_token: int
    saved_per_token: float
    extra_over_baseline: int
    by_component: dict[str, int]


@dataclasses.dataclass(frozen=True)
class KvCache:
    """``bytes`` are those of bf16 numbers (two each) for the whole batch at full context, token ids (four) included.

    ``elements_per_token`` counts keys and values alone; the ratio is of bytes and not rounded.
    """

    elements_per_token: int | float
    bytes: int
    ratio_to_baseline: float


@dataclasses.dataclass(frozen=True)
class Saved:
    """Share of the baseline's cache that a model saves in numbers kept, net of its token tables; below 0 where these weigh more.

    Of keys and values together (``of_cache``), or of the values alone; where every layer keeps every token, and
    (``..._windows``) where a layer keeps no more than its window. Token ids are left out, as Bank of Values, eq. (6), does;
    sequences at a time share the tables.
    """

    of_cache: float
    of_values: float
    of_cache_windows: float
    of_values_windows: float


@dataclasses.dataclass(frozen=True)
class Account:
    """What a model costs. ``ref`` is None for a bare spec."""

    ref: str | None
    shape: dict[str, Any]
    parameters: Parameters
    flops: Flops
    kv_cache: KvCache
    saved: Saved

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and numbers, as ``respath account --json`` prints them."""
        return dataclasses.asdict(self)


# --- parameters ----------------------------------------------------------------------------------------------------


def _outside_parts(spec: ModelSpec, places: Layout) -> dict[str, int]:
    """Embedding, attention, MLP, norms and head."""
    d, kv, frame = spec.width, spec.kv_width, spec.backbone_spec
    biases = frame.bias * (spec.ffn_width + d)
    return {
        "embedding": spec.vocab_size * d,
        "query": spec.layers * spec.projection_size(d),
        "key": len(places.key_layers) * spec.projection_size(kv),
        "value": len(places.value_projections) * spec.projection_size(kv),
        "output": spec.layers * spec.projection_size(d),
        "mlp": spec.layers * (frame.mlp_matrices * d * spec.ffn_width + biases),
        "norms": (2 * spec.layers + 1) * d if frame.norm_vectors else 0,
        "coefficients": 0,
        "head": 0 if spec.tie_embeddings else spec.vocab_size * d,
    }


def count_parameters(spec: ModelSpec) -> Parameters:
    """Parameters of a spec, as the module stores them: a projection that a variant replaces does not exist."""
    places = layout(spec)
    groups = _outside_parts(spec, places)
    for part in (spec.backbone_spec, spec.values, spec.stream):
        for group, count in part.parameters(spec).items():
            groups[group] = groups.get(group, 0) + count
    unused = spec.values.unused(spec) + spec.stream.unused(spec)
    if spec.attention_residual is not None:
        unused += spec.attention_residual.unused(spec)
    total = sum(groups.values())
    embedding, head = groups["embedding"] + groups.get("positions", 0), groups["head"]
    final_norm = spec.backbone_spec.norm_vectors * spec.width
    return Parameters(
        total=total,
        backbone=total - embedding - head - final_norm,
        embedding=embedding,
        head=head,
        live=total - unused,
        with_replaced=total
        + (spec.layers - len(places.value_projections)) * spec.projection_size(spec.kv_width),
        by_group=groups,
    )


def weights_of_matrices(spec: ModelSpec) -> int:
    """Weights of the layers' matrices and of the head: the N of nanochat's rules and of its tokens per parameter."""
    groups = _outside_parts(spec, layout(spec))
    return sum(groups[name] for name in ("query", "key", "value", "output", "mlp", "head"))


# --- FLOPs ---------------------------------------------------------------------------------------------------------


def pairs(context: int, window: int | None, attention: str) -> int:
    """Twice the pairs of tokens that one layer's attention compares.

    ``full``: context times window, as Bank of Values counts. ``causal``: the part of it at or below the diagonal without the
    diagonal's half, T^2 / 2 where the window holds everything, as DepthBench counts.
    """
    seen = context if window is None else min(window, context)
    return 2 * context * seen - (seen * seen if attention == "causal" else 0)


def forward_flops(spec: ModelSpec, context: int, logits: str, attention: str) -> dict[str, int]:
    """FLOPs of one sequence by component; their sum is the forward pass.

    ``logits``: ``all`` positions or only the ``last``. ``attention``: ``causal`` counts T^2 / 2 pairs of tokens, ``full`` T^2 (what
    PyTorch's flop counter counts); a layer with a window of w earlier tokens counts w of them for every token.
    """
    places = layout(spec)
    t, d, kv = context, spec.width, spec.kv_width
    by_layer = [pairs(context, window, attention) for window in windows(spec)]
    # Two products (scores, weighted values) of two FLOPs per multiply-add: 4 d per pair of tokens.
    compared = sum(by_layer) + sum(by_layer[n] for n in (*places.joint, *places.rematched))
    components = {
        "query": 2 * t * d * d * spec.layers,
        "key": 2 * t * d * kv * len(places.key_layers),
        "value": 2 * t * d * kv * (len(places.value_projections) + len(places.embedded_too)),
        "output": 2 * t * d * d * spec.layers,
        "attention": 2 * d * compared,
        "mlp": 2 * t * spec.backbone_spec.mlp_matrices * d * spec.ffn_width * spec.layers,
        "head": 2 * (t if logits == "all" else 1) * d * spec.vocab_size,
    }
    return {**components, **spec.values.flops(spec, t), **spec.stream.flops(spec, t)}


def training_flops_per_token(spec: ModelSpec, context: int, attention: str) -> int:
    """Three times the forward per token, with all logits (a backward pass is two forwards)."""
    return 3 * sum(forward_flops(spec, context, "all", attention).values()) // context


# --- key-value cache -----------------------------------------------------------------------------------------------


def _rows(spec: ModelSpec, context: int, cache: Keeps) -> tuple[int, int, int]:
    """Rows of keys and of values over all layers, and ids, that a sequence of ``context`` tokens needs.

    ``full`` keeps every token in every layer, as nanochat's cache does. ``window`` keeps no more than the longest window of the
    layers that read a tensor: V_1 that a long layer reuses is kept whole, whatever layer 1 sees itself.
    """
    places = layout(spec)
    seen = [context if w is None or cache == "full" else min(w, context) for w in windows(spec)]
    key_readers: dict[int, list[int]] = {}
    value_readers: dict[int, list[int]] = {}
    for n in range(spec.layers):
        key_readers.setdefault(places.key_source[n], []).append(n)
        value_readers.setdefault(places.value_source[n], []).append(n)
        if n in places.joint or n in places.rematched:
            key_readers[places.key_source[0]].append(n)
        if n in places.joint:
            value_readers[places.value_source[0]].append(n)
    keys = sum(max(seen[n] for n in key_readers[layer]) for layer in places.key_layers)
    values = sum(max(seen[n] for n in value_readers[layer]) for layer in places.value_layers)
    return keys, values, max((seen[n] for n in places.looked_up), default=0)


def elements_per_token(spec: ModelSpec, context: int = 1, cache: Keeps = "full") -> int | float:
    """Keys and values kept, in numbers, per token of a sequence of ``context`` tokens.

    One key and one value vector for each layer that is read again; token ids are not counted here. A whole number unless a
    window is shorter than the context.
    """
    keys, values, _ = _rows(spec, context, cache)
    elements = Fraction((keys + values) * spec.kv_width, context)
    return int(elements) if elements.denominator == 1 else float(elements)


def cache_bytes(
    spec: ModelSpec,
    context: int,
    batch: int = 1,
    bytes_per_element: int = BYTES_PER_ELEMENT,
    cache: Keeps = "full",
) -> int:
    """Bytes of a full cache: keys and values, and token ids in int32 where values are found again by id."""
    keys, values, ids = _rows(spec, context, cache)
    return batch * ((keys + values) * spec.kv_width * bytes_per_element + ids * BYTES_PER_ID)


def saved(spec: ModelSpec, baseline: ModelSpec, context: int, batch: int = 1) -> Saved:
    """What a model saves of its baseline's cache at ``context`` tokens and ``batch`` sequences, net of its token tables."""
    tables = spec.values.parameters(spec).get("tables", 0)
    found: dict[str, float] = {}
    caches: tuple[tuple[str, Keeps], ...] = (("", "full"), ("_windows", "window"))
    for suffix, cache in caches:
        keys, values, _ = (batch * rows * baseline.kv_width for rows in _rows(baseline, context, cache))
        kept_keys, kept_values, _ = _rows(spec, context, cache)
        kept = batch * (kept_keys + kept_values) * spec.kv_width
        net = keys + values - kept - tables
        found |= {f"of_cache{suffix}": net / (keys + values), f"of_values{suffix}": net / values}
    return Saved(**found)


# --- all of it -----------------------------------------------------------------------------------------------------


def account_of(
    spec: ModelSpec,
    baseline: ModelSpec,
    *,
    context: int,
    logits: str,
    attention: str,
    batch: int = 1,
    cache: Keeps = "full",
    training_context: int,
    training_attention: str,
    ref: str | None = None,
) -> Account:
    """Account of a spec beside its baseline's. FLOPs are per sequence, whatever ``batch`` is."""
    names = ("layers", "width", "heads", "kv_heads", "head_dim", "ffn_width", "vocab_size")
    conventions = {"context": context, "batch": batch, "logits": logits, "attention": attention}
    components = forward_flops(spec, context, logits, attention)
    forward = sum(components.values())
    training, plain_training = (
        training_flops_per_token(one, training_context, training_attention) for one in (spec, baseline)
    )
    held, plainly = (cache_bytes(one, context, batch, cache=cache) for one in (spec, baseline))
    return Account(
        ref=ref,
        shape={name: getattr(spec, name) for name in names} | conventions,
        parameters=count_parameters(spec),
        flops=Flops(
            forward=forward,
            training_per_token=training,
            saved_per_token=1 - training / plain_training,
            extra_over_baseline=forward - sum(forward_flops(baseline, context, logits, attention).values()),
            by_component={**components, **spec.stream.as_printed(spec, context)},
        ),
        kv_cache=KvCache(
            elements_per_token=elements_per_token(spec, context, cache),
            bytes=held,
            ratio_to_baseline=float(Fraction(held, plainly)),
        ),
        saved=saved(spec, baseline, context, batch),
    )
