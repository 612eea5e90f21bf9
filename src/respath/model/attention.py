"""One attention sub-layer: projections, rotary embedding, the value path, the cache, the kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from respath.model.backbones import backbone
from respath.model.cache import Cache, Slots
from respath.model.combine import combine
from respath.model.depth_attention import attend_over_depth
from respath.model.kernels import Visibility, attend
from respath.model.layers import linears
from respath.model.rope import rotate
from respath.model.values.cross_layer import attend_jointly
from respath.spec.layout import layout, windows
from respath.spec.model import ModelSpec


class Place(NamedTuple):
    """What one call of the model fixes for all layers: positions, rotations, visibility, cache slots, kernel.

    ``positions`` (time,) or (batch, time); ``end``: one more than the last position that counts. ``near``:
    what layers with a short window see.
    """

    positions: Tensor
    end: int
    cos: Tensor
    sin: Tensor
    seen: Visibility
    near: Visibility
    kernel: str
    cache: Cache | None = None
    slots: Slots | None = None


class Carried(NamedTuple):
    """What travels from layer to layer beside the residual state.

    ``path`` belongs to the value path. ``keys`` and ``values`` are what a later layer attends over again, by
    the layer that projected them, each (batch, keys, kv_heads, head_dim). ``depth``: keys and values of
    earlier sub-layers at the same token, (batch, time, kv_heads, head_dim) each, for a stream whose attention
    reads them (MoDA). ``query`` and ``key`` are the first layer's, as far as an attention residual adds them
    to later ones: raw projections of this chunk, or for the residual of attention matrices the rotated query.
    """

    path: tuple
    keys: dict[int, Tensor]
    values: dict[int, Tensor]
    depth: tuple[tuple[Tensor, Tensor], ...] = ()
    query: Tensor | None = None
    key: Tensor | None = None


class Operands(NamedTuple):
    """What the attention of one layer works on.

    q (batch, time, heads, head_dim); k and v (batch, keys, kv_heads, head_dim), of the keys that ``seen`` speaks of.
    ``depth``: see ``Carried``. ``first``: query, key and value of the part that layer 1 has in this layer's attention
    (cross-layer attention, residual of attention matrices); None elsewhere.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    seen: Visibility
    depth: tuple[tuple[Tensor, Tensor], ...] = ()
    first: tuple[Tensor, Tensor, Tensor] | None = None


class Attention(nn.Module):
    """Multi-head (or grouped-query) causal attention; ``x`` is already normed.

    A layer that reads another layer's keys or values has no projection of its own for them.

    The attention residual (ResFormer, arXiv 2410.17897, Section 4.4 and Table 6) of a target layer n is one
    of

    * query: Q'_n = source Q_1 + own Q_n, and key likewise, on raw projections: before rotary embedding and
      QK-norm. (Without QK-norm the order makes no difference, as a rotation is linear. Keys are cached
      mixed.)
    * attention: A'_n = source A_1 + own A_n, matrices after the softmax, as two calls of the kernel:
      source Attn(Q_1, K_1, V_n) + own Attn(Q_n, K_n, V_n). It reads the first layer's cached keys and the
      chunk's own Q_1.

    Both coefficients are constants (the paper's are 0.5); nothing is detached; layer 1 is never a target.
    """

    def __init__(self, spec: ModelSpec, n: int):
        super().__init__()
        places = layout(spec)
        self.n, self.head_dim = n, spec.head_dim
        self.key_source, self.value_source = places.key_source[n], places.value_source[n]
        later = range(n + 1, spec.layers)
        residual = spec.attention_residual
        self.residual = residual if residual is not None and n + 1 in residual.layers else None
        self.begins = residual.of if residual is not None and n == 0 else None
        self.joint, joined = n in places.joint, n == 0 and bool(places.joint)
        self.lends_keys = (
            joined or self.begins == "attention" or any(places.key_source[m] == n for m in later)
        )
        self.lends_values = joined or any(places.value_source[m] == n for m in later)
        self.projects_input, self.looks_up = places.projects_input(n), n in places.looked_up
        self.reads_depth = spec.stream.reads_depth
        self.near = windows(spec)[n] is not None
        make = backbone(spec)
        self.rotary, self.gain, self.eps, self.dropout = (
            make.rotary,
            make.query_key_gain,
            spec.norm_eps,
            spec.dropout,
        )
        self.q_proj = make.projection(spec.width)
        self.k_proj = make.projection(spec.kv_width) if places.projects_keys(n) else None
        self.v_proj = make.projection(spec.kv_width) if places.projects_values(n) else None
        self.o_proj = make.output()

    def heads(self, x: Tensor) -> Tensor:
        """(batch, time, heads * head_dim) -> (batch, time, heads, head_dim)."""
        return x.unflatten(-1, (-1, self.head_dim))

    def placed(self, x: Tensor, place: Place) -> Tensor:
        """Queries or keys (batch, time, heads, head_dim), turned by position and normed as the backbone says."""
        x = rotate(x, place.cos, place.sin) if self.rotary else x
        return x if self.gain is None else self.gain * F.rms_norm(x, x.shape[-1:], None, self.eps)

    def forward(self, x: Tensor, path: nn.Module, carried: Carried, place: Place) -> tuple[Tensor, Carried]:
        """x (batch, time, width) -> the sub-layer's output, same shape, and what later layers are handed."""
        v_proj = self.v_proj if self.projects_input else None
        present = [proj for proj in (self.q_proj, self.k_proj, v_proj) if proj is not None]
        projected = iter(linears(x, present))
        remembered, keys, values, own = carried.path, carried.keys, carried.values, None
        raw, first_query, first_key = next(projected), carried.query, carried.key
        if self.begins == "query":
            first_query = raw
        q = self.placed(self.heads(self.mixed("query", raw, first_query)), place)
        if self.begins == "attention":
            first_query = q

        if self.k_proj is not None:
            raw = next(projected)
            first_key = raw if self.begins == "key" else first_key
            unturned = self.heads(self.mixed("key", raw, first_key))
            k = self.placed(unturned, place)
            if place.cache is not None:
                k = place.cache.append(place.cache.keys, self.n, k, place.slots)
            keys = {**keys, self.n: k} if self.lends_keys else keys
        else:
            k = keys[self.key_source]

        if self.value_source == self.n:
            own = next(projected) if self.projects_input else None
            v, remembered = path.mix(self.n, own, remembered, x, self.v_proj)
            v = here = self.heads(v)
            if place.cache is not None and not self.looks_up:
                v = place.cache.append(place.cache.values, self.n, v, place.slots)
            values = {**values, self.n: v} if self.lends_values else values
        else:
            v = values[self.value_source]

        seen, depth = place.near if self.near else place.seen, carried.depth
        k, v = seen.within(k).to(q.dtype), (v if self.looks_up else seen.within(v)).to(q.dtype)
        given = Operands(q, k, v, seen, depth)
        if self.joint:
            given = given._replace(
                first=(q, seen.within(keys[0]).to(q.dtype), seen.within(values[0]).to(q.dtype))
            )
        elif self.residual is not None and self.residual.of == "attention":
            given = given._replace(first=(first_query, seen.within(keys[0]).to(q.dtype), v))
        attended = self.attended(given, place.kernel).flatten(-2)
        if self.reads_depth:
            depth = (*depth, (unturned, here))
        attended = path.finish(self.n, attended, own, remembered)
        y = F.dropout(self.o_proj(attended), self.dropout, self.training)
        return y, Carried(remembered, keys, values, depth, first_query, first_key)

    def attended(self, given: Operands, kernel: str) -> Tensor:
        """Weighted values of every head, (batch, time, heads, head_dim)."""
        q, k, v, seen, depth, first = given
        dropout = self.dropout if self.training else 0.0
        if self.reads_depth:
            return attend_over_depth(q, k, v, depth, seen, kernel)
        if self.joint:
            return attend_jointly(q, ((k, v), first[1:]), seen, kernel, dropout)
        own = attend(q, k, v, seen, kernel, dropout)
        if first is None:
            return own
        return combine(
            [attend(*first, seen, kernel, dropout), own], [self.residual.source, self.residual.own]
        )

    def mixed(self, what: str, raw: Tensor, first: Tensor | None) -> Tensor:
        """A raw projection, with the first layer's added where the attention residual is of this kind."""
        if self.residual is None or self.residual.of != what:
            return raw
        return combine([first, raw], [self.residual.source, self.residual.own])
