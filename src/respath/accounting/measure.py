"""The real cache of a real model, filled by a real prefill: what the closed form must equal."""

from __future__ import annotations

from typing import Any

from respath.spec.cost import cache_bytes
from respath.spec.model import ModelSpec

#: A prefill is run when its weights and FLOPs stay below these: seconds on two cores, not minutes.
MOST_PARAMETERS, MOST_FLOPS = 200_000_000, 400e9
PREFILL_TOKENS = 64


def measured_kv(spec: ModelSpec, context: int, batch: int = 1, dtype: str = "bfloat16") -> dict[str, Any]:
    """Bytes of the cache object that decoding ``batch`` rows of ``context`` tokens needs.

    Returns ``bytes`` (sum over the allocated tensors' storage) and ``filled``: tokens per row that a prefill
    put there, 0 where the model is too large to run and the cache is measured on the meta device. Every
    layer's tensors must then hold numbers up to that token; RuntimeError otherwise.
    """
    import torch

    from respath.model import build_model
    from respath.spec.cost import count_parameters, forward_flops

    kind = getattr(torch, dtype)
    tokens = min(context, PREFILL_TOKENS)
    cost = batch * sum(forward_flops(spec, tokens, "all", "full").values())
    affordable = count_parameters(spec).total <= MOST_PARAMETERS and cost <= MOST_FLOPS
    device = "cpu" if affordable else "meta"
    model = build_model(spec, device=device).eval()
    cache = model.new_cache(batch, context, dtype=kind)
    tensors = [*cache.keys.values(), *cache.values.values()]
    ids_bytes = 0 if cache.ids is None else cache.ids.untyped_storage().nbytes()
    if affordable:
        ids = torch.arange(batch * tokens).view(batch, tokens) % spec.vocab_size
        with torch.no_grad():
            model.hidden(ids, cache=cache)
        for tensor in tensors:
            if not tensor[:, :tokens].any(dim=(2, 3)).all() or tensor[:, tokens:].any():
                raise RuntimeError(
                    "the prefill did not fill the cache's tensors up to its last token, and only so far"
                )
    return {
        "bytes": ids_bytes + sum(tensor.untyped_storage().nbytes() for tensor in tensors),
        "filled": tokens if affordable else 0,
    }


def compare_kv(spec: ModelSpec, context: int, batch: int = 1, dtype: str = "bfloat16") -> dict[str, Any]:
    """Formula beside measurement."""
    measured = measured_kv(spec, context, batch, dtype)
    return {
        "formula_bytes": cache_bytes(spec, context, batch),
        "measured_bytes": measured["bytes"],
        "filled_tokens": measured["filled"],
        "dtype": dtype,
    }
