"""The Transformer of every variant: a residual stream, a value path, and alternating attention and MLP sub-layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from respath.model.attention import Attention, Carried, Place
from respath.model.backbones import backbone
from respath.model.cache import Cache
from respath.model.kernels import Visibility
from respath.model.layers import capped, linear
from respath.model.origin import Origin
from respath.model.recompute import recomputed
from respath.model.rope import rotations
from respath.model.streams import build_stream, sublayer_norm
from respath.model.values import build_values
from respath.spec.layout import layout
from respath.spec.model import ModelSpec


class Layer(nn.Module):
    """Parameters of one layer: two sub-layers and their norms. Who calls them, and on what, the stream decides."""

    def __init__(self, spec: ModelSpec, n: int):
        super().__init__()
        self.attention_norm = sublayer_norm(spec)
        self.attention = Attention(spec, n)
        self.mlp_norm = sublayer_norm(spec)
        self.mlp = backbone(spec).mlp()


class Transformer(nn.Module):
    """A decoder-only language model, as its spec says.

    Nothing is kept on modules between calls: state, value path and cache are arguments and results.

    Attributes set by whoever runs the model: ``kernel`` (``respath.model.kernels.KERNELS``) and
    ``checkpoint_activations`` (recompute each sub-layer in the backward pass).
    """

    def __init__(self, spec: ModelSpec):
        super().__init__()
        self.spec = spec
        self.kernel = "auto"
        self.checkpoint_activations = False
        make = backbone(spec)
        self.softcap, self.enters_normed = make.softcap, make.enters_normed
        places = layout(spec)
        self.keeps_ids, self.projects_embedding = (
            places.keeps_ids,
            bool(places.embedded or places.embedded_too),
        )
        self.embedding = make.embedding()
        self.entry = make.entry()
        self.layers = nn.ModuleList(Layer(spec, n) for n in range(spec.layers))
        self.stream = build_stream(spec)
        self.values = build_values(spec)
        self.final_norm = make.norm()
        self.head = None if spec.tie_embeddings else make.head()

    def forward(
        self, ids: Tensor, cache: Cache | None = None, lengths: Sequence[int] | Tensor | None = None
    ) -> Tensor:
        """ids (batch, time) int64 -> logits (batch, time, vocab), compute dtype (fp32 at least if capped).

        With ``cache``, ids continue what the cache holds. ``lengths``: row b's first ``lengths[b]`` ids count
        (ids are padded on the right, 0 leaves a row as it is); logits beyond them mean nothing. Raises
        ValueError past the cache's ``max_time``.
        """
        return self.logits(self.hidden(ids, cache, lengths))

    def logits(self, hidden: Tensor) -> Tensor:
        """The head on normed final states. (..., width) -> (..., vocab)."""
        logits = linear(hidden, self.head_weight)
        return logits if self.softcap is None else capped(logits, self.softcap)

    def hidden(
        self, ids: Tensor, cache: Cache | None = None, lengths: Sequence[int] | Tensor | None = None
    ) -> Tensor:
        """The normed final state (batch, time, width) that the head multiplies; arguments as in ``forward``."""
        embedded = self.embedding(ids)
        place = self.place(embedded, cache, lengths)
        if self.entry is not None:
            embedded = self.entry(embedded, place)
        state = self.stream.open(embedded)
        carried = Carried(self.values.open(self.origin(ids, embedded, place)), {}, {})
        for k in range(2 * self.spec.layers):
            state, carried = self.run(self.sublayer, k, state, carried, place)
        if cache is not None:
            cache.advance(place.slots)
        return self.final_norm(self.stream.close(state))

    def sublayer(self, k: int, state, carried: Carried, place: Place):
        """Sub-layer ``k``: even numbers are attention, odd ones MLPs."""
        layer = self.layers[k // 2]
        norm = layer.attention_norm if k % 2 == 0 else layer.mlp_norm
        x, state = self.stream.read(state, k, norm)
        if k % 2 == 0:
            y, carried = layer.attention(x, self.values, carried, place)
        else:
            y = layer.mlp(x)
        carried = self.stream.carry(carried, k, x)
        return self.stream.write(state, k, y, norm), carried

    def origin(self, ids: Tensor, embedded: Tensor, place: Place) -> Origin:
        """What the value path may take from before the first layer.

        The embedding is normed without a gain: one x_0 for all layers.
        """
        history, near, x0 = ids, ids, None
        if self.keeps_ids and place.cache is not None:
            history = place.cache.append_ids(ids, place.slots)
            near = place.near.within(history)
        if self.projects_embedding:
            x0 = embedded
            if not self.enters_normed:
                x0 = F.rms_norm(embedded, embedded.shape[-1:], eps=self.spec.norm_eps)
        return Origin(ids, history, near, x0)

    def run(self, function, *arguments):
        """Call, or call now and again in the backward pass instead of keeping activations."""
        if self.checkpoint_activations and torch.is_grad_enabled():
            return recomputed(self, function, *arguments)
        return function(*arguments)

    def place(self, embedded: Tensor, cache: Cache | None, lengths: Sequence[int] | Tensor | None) -> Place:
        """Positions, rotations, visibility and cache slots of one call."""
        (batch, time, _), device = embedded.shape, embedded.device
        slots, short = None, self.spec.windows and self.spec.windows.short
        if cache is None:
            if lengths is not None:
                raise ValueError(
                    "lengths needs a cache; without one, padding on the right changes no earlier logits"
                )
            positions, end = torch.arange(time, device=device), time
            seen = near = Visibility(square=True, aligned=True, mask=None)
        else:
            slots = cache.slots(batch, time, lengths)
            alike, end = slots.rows is None, slots.end
            offsets = slots.offsets[0] if alike else torch.tensor(slots.offsets, device=device)[:, None]
            positions = offsets + torch.arange(time, device=device)
            square = alike and end == time
            mask = None
            if not square and not (alike and time == 1):
                mask = torch.arange(end, device=device) <= positions[..., None]
                mask = mask if alike else mask[:, None]
            seen = near = Visibility(square=square, aligned=alike, mask=mask)
        if short is not None and end > short + 1:
            near = seen._replace(window=short)
            if not seen.square:
                first = max(0, min(slots.offsets) - short)
                mask = seen.mask
                if mask is not None:
                    # A padded query may stand beyond the last key: without one its softmax is NaN.
                    earliest = (positions[..., None] - short).clamp(max=end - 1)
                    reach = torch.arange(first, end, device=device) >= earliest
                    mask = mask[..., first:] & (reach if seen.aligned else reach[:, None])
                near = near._replace(mask=mask, first=first)
        cos, sin = rotations(positions, self.spec.head_dim, self.spec.rope_theta, embedded.dtype)
        return Place(positions, end, cos, sin, seen, near, self.kernel, cache, slots)

    @property
    def head_weight(self) -> Tensor:
        """(vocab, width)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def new_cache(self, batch: int, max_time: int, dtype: torch.dtype | None = None) -> Cache:
        """An empty cache for ``batch`` rows of at most ``max_time`` tokens, in the parameters' dtype unless told."""
        weight = self.embedding.weight
        return Cache(self.spec, batch, max_time, device=weight.device, dtype=dtype or weight.dtype)
