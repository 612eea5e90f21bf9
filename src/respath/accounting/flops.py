"""FLOPs of a forward pass: matrix products and attention, two per multiply-add.

Norms, softmax, activations, rotary embedding, gathers (embedding, value tables) and sums of whole values or states with one
scalar each are left out. Sums over streams or over depth whose weights depend on the token are in, as DepthBench counts them
(arXiv 2609.32534, Appendix D).
"""

from __future__ import annotations

from collections.abc import Mapping

from respath.accounting.parameters import GATE_CHANNELS
from respath.config import model as specs
from respath.config.model import ModelSpec
from respath.model.layout import layout
from respath.model.windows import windows

#: Components that PyTorch's counter does not see: the model adds these up term by term instead of as a matrix product.
SUMMED = ("depth_mix",)


def pairs(context: int, window: int | None, attention: str) -> int:
    """Twice the pairs of tokens that one layer's attention compares.

    ``full``: context times window, as Bank of Values counts. ``causal``: the part of it at or below the diagonal without the
    diagonal's half, T^2 / 2 where the window holds everything, as DepthBench counts.
    """
    seen = context if window is None else min(window, context)
    return 2 * context * seen - (seen * seen if attention == "causal" else 0)


def depth_sources(layers: int, length: int) -> int:
    """Sources that all readers of attention residuals mix: 1 + ceil(k / length) for sub-layer k, and all for the head."""
    sublayers = 2 * layers
    return sum(1 + -(-k // length) for k in range(1, sublayers + 1))


def depth_sources_as_printed(layers: int, length: int) -> int:
    """The paper's count of the same, 2 + floor(k / length): one too many wherever a block has just been finished."""
    sublayers = 2 * layers
    return sum(2 + k // length for k in range(1, sublayers)) + 1 + -(-sublayers // length)


def _stream(spec: ModelSpec, t: int) -> dict[str, int]:
    stream, d, sublayers = spec.stream, spec.width, 2 * spec.layers
    match stream:
        case specs.HyperConnections(streams=m) | specs.ManifoldHyperConnections(streams=m):
            several = isinstance(stream, specs.ManifoldHyperConnections)
            # HC projects every stream, mHC all of them joined; then one product reads and transports, one writes.
            inputs, outputs = (m * d, m * (m + 2)) if several else (d, m * (m + 2))
            mixes = 1 if not getattr(stream, "transport", True) else m + 1
            return {
                "stream_projection": 2 * t * inputs * outputs * sublayers,
                "stream_mix": 2 * t * m * mixes * d * sublayers,
                "stream_write": 2 * t * m * d * sublayers,
            }
        case specs.FullAttnRes() | specs.BlockAttnRes():
            sources = depth_sources(spec.layers, getattr(stream, "length", 1))
            return {"depth_scores": 2 * t * d * sources, "depth_mix": 2 * t * d * sources}
        case specs.MoDA():
            # Block i (from 0) reads 2 i keys and values of its own token.
            slots = spec.layers * (spec.layers - 1)
            return {
                "depth_projection": 2 * t * d * 2 * spec.kv_width * (spec.layers - 1),
                "depth_scores": 2 * t * d * slots,
                "depth_mix": 2 * t * d * slots,
            }
    return {}


def forward_flops(spec: ModelSpec, context: int, logits: str, attention: str) -> dict[str, int]:
    """FLOPs of one sequence by component; their sum is the forward pass.

    ``logits``: ``all`` positions or only the ``last``. ``attention``: ``causal`` counts T^2 / 2 pairs of tokens, ``full`` T^2 (what
    PyTorch's flop counter counts); a layer with a window of w earlier tokens counts w of them for every token.
    """
    home = layout(spec)
    t, d, kv = context, spec.width, spec.kv_width
    by_layer = [pairs(context, window, attention) for window in windows(spec)]
    # Two products (scores, weighted values) of two FLOPs per multiply-add: 4 d per pair of tokens.
    compared = sum(by_layer) + sum(by_layer[n] for n in home.joint)
    if spec.attention_residual is not None and spec.attention_residual.of == "attention":
        # The first layer's attention matrix meets each target's values in a call of its own.
        compared += sum(by_layer[layer - 1] for layer in spec.attention_residual.layers)
    components = {
        "query": 2 * t * d * d * spec.layers,
        "key": 2 * t * d * kv * len(home.key_layers),
        "value": 2 * t * d * kv * (len(home.value_projections) + len(home.embedded_too)),
        "output": 2 * t * d * d * spec.layers,
        "attention": 2 * d * compared,
        "mlp": 2 * t * (3 if spec.backbone == "llama" else 2) * d * spec.ffn_width * spec.layers,
        "head": 2 * (t if logits == "all" else 1) * d * spec.vocab_size,
    }
    if isinstance(spec.values, specs.TableValues) and spec.values.gate:
        components["gates"] = 2 * t * GATE_CHANNELS * spec.kv_heads * len(spec.values.layers)
    return components | _stream(spec, t)


def as_printed(spec: ModelSpec, context: int) -> Mapping[str, int]:
    """Counts of the paper's that differ from the code's, to stand beside it: they are in no sum."""
    if not isinstance(spec.stream, specs.BlockAttnRes):
        return {}
    return {
        "depth_by_the_papers_count": 4
        * context
        * spec.width
        * depth_sources_as_printed(spec.layers, spec.stream.length)
    }


def training_flops_per_token(spec: ModelSpec, context: int, attention: str) -> int:
    """Three times the forward per token, with all logits (a backward pass is two forwards)."""
    return 3 * sum(forward_flops(spec, context, "all", attention).values()) // context
