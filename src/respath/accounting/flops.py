"""FLOPs of a forward pass: matrix products and attention, two per multiply-add.

Norms, softmax, activations, rotary embedding, gathers and element-wise mixes of values or states are left
out.
"""

from __future__ import annotations

from respath.config.model import ModelSpec
from respath.model.layout import layout


def forward_flops(spec: ModelSpec, context: int, logits: str, attention: str) -> dict[str, int]:
    """FLOPs of one sequence by component; their sum is the forward pass.

    ``logits``: ``all`` positions or only the ``last``. ``attention``: ``causal`` counts T^2 / 2 pairs of
    tokens, ``full`` T^2 (what PyTorch's flop counter counts).
    """
    home = layout(spec)
    t, d, kv = context, spec.width, spec.kv_width
    # Two products (scores, weighted values) of two FLOPs per multiply-add: 4 d per pair of tokens.
    pairs_times_four = 2 * t * t if attention == "causal" else 4 * t * t
    return {
        "query": 2 * t * d * d * spec.layers,
        "key": 2 * t * d * kv * len(home.key_layers),
        "value": 2 * t * d * kv * len(home.value_layers),
        "output": 2 * t * d * d * spec.layers,
        "attention": pairs_times_four * d * spec.layers,
        "mlp": 2 * t * 3 * d * spec.ffn_width * spec.layers,
        "head": 2 * (t if logits == "all" else 1) * d * spec.vocab_size,
    }
