"""One attention sub-layer: projections, rotary embedding, the value path, the cache, the kernel."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from respath.config.model import MoDA, ModelSpec
from respath.model.cache import Cache, Slots
from respath.model.depth_attention import attend_over_depth
from respath.model.kernels import Visibility, attend
from respath.model.layers import Linear, linears
from respath.model.layout import layout
from respath.model.rope import rotate


class Place(NamedTuple):
    """What one call of the model fixes for all layers: rotations, visibility, cache slots, kernel."""

    cos: Tensor
    sin: Tensor
    seen: Visibility
    kernel: str
    cache: Cache | None = None
    slots: Slots | None = None


class Carried(NamedTuple):
    """What travels from layer to layer beside the residual state.

    ``path`` belongs to the value path. ``keys`` and ``values`` are what a later layer attends over again, by
    the layer that projected them, each (batch, keys, kv_heads, head_dim). ``depth``: keys and values of
    earlier sub-layers at the same token, (batch, time, kv_heads, head_dim) each, for a stream whose attention
    reads them (MoDA).
    """

    path: tuple
    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    depth: tuple[tuple[Tensor, Tensor], ...] = ()


class Attention(nn.Module):
    """Multi-head (or grouped-query) causal attention; ``x`` is already normed.

    A layer that reads another layer's keys or values has no projection of its own for them.
    """

    def __init__(self, spec: ModelSpec, n: int):
        super().__init__()
        home = layout(spec)
        self.n, self.head_dim = n, spec.head_dim
        self.key_home, self.value_home = home.key_home[n], home.value_home[n]
        later = range(n + 1, spec.layers)
        self.lends_keys = any(home.key_home[m] == n for m in later)
        self.lends_values = any(home.value_home[m] == n for m in later)
        self.reads_depth = isinstance(spec.stream, MoDA)
        self.q_proj = Linear(spec.width, spec.width, spec.init_std)
        self.k_proj = Linear(spec.width, spec.kv_width, spec.init_std) if home.projects_keys(n) else None
        self.v_proj = Linear(spec.width, spec.kv_width, spec.init_std) if home.projects_values(n) else None
        self.o_proj = Linear(spec.width, spec.width, spec.init_std)

    def heads(self, x: Tensor) -> Tensor:
        """(batch, time, heads * head_dim) -> (batch, time, heads, head_dim)."""
        return x.unflatten(-1, (-1, self.head_dim))

    def forward(self, x: Tensor, path: nn.Module, carried: Carried, place: Place) -> tuple[Tensor, Carried]:
        """x (batch, time, width) -> the sub-layer's output, same shape, and what later layers are handed."""
        present = [proj for proj in (self.q_proj, self.k_proj, self.v_proj) if proj is not None]
        projected = iter(linears(x, [proj.weight for proj in present]))
        q = rotate(self.heads(next(projected)), place.cos, place.sin)
        remembered, keys, values, own = carried.path, carried.keys, carried.values, None

        if self.k_proj is not None:
            unturned = self.heads(next(projected))
            k = rotate(unturned, place.cos, place.sin)
            if place.cache is not None:
                k = place.cache.append(place.cache.keys, self.n, k, place.slots)
            keys = {**keys, self.n: k} if self.lends_keys else keys
        else:
            k = keys[self.key_home]

        if self.v_proj is not None:
            own = next(projected)
            v, remembered = path.mix(self.n, own, remembered)
            v = here = self.heads(v)
            if place.cache is not None:
                v = place.cache.append(place.cache.values, self.n, v, place.slots)
            values = {**values, self.n: v} if self.lends_values else values
        else:
            v = values[self.value_home]

        k, v, depth = k.to(q.dtype), v.to(q.dtype), carried.depth
        if self.reads_depth:
            attended = attend_over_depth(q, k, v, depth, place.seen, place.kernel).flatten(-2)
            depth = (*depth, (unturned, here))
        else:
            attended = attend(q, k, v, place.seen, place.kernel).flatten(-2)
        attended = path.finish(self.n, attended, own, remembered)
        return self.o_proj(attended), Carried(remembered, keys, values, depth)
