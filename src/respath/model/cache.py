"""The key-value cache: exactly the tensors that a variant reads again, each stored once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from respath.spec.layout import layout
from respath.spec.model import ModelSpec


class Slots(NamedTuple):
    """Where a chunk's tokens go: row b's token t at column ``offsets[b] + t`` for t < ``lengths[b]``.

    ``rows``, ``times``, ``columns`` list the stored tokens one by one; None when all rows are alike and a
    slice does it. ``end`` is the number of columns in use afterwards.
    """

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    end: int
    rows: Tensor | None = None
    times: Tensor | None = None
    columns: Tensor | None = None


class Cache:
    """Keys and values of the layers that later tokens read, (batch, max_time, kv_heads, head_dim) each.

    A layer that shares another's keys or values stores none; mixed values are stored after mixing, so that
    decoding costs what the plain Transformer costs. Layers whose values are rows of a token table store no
    values: the ids of all tokens are kept once, ``ids`` (batch, max_time) int32. ``lengths``: tokens per row.
    """

    def __init__(
        self, spec: ModelSpec, batch: int, max_time: int, *, device=None, dtype: torch.dtype | None = None
    ):
        places = layout(spec)
        shape = (batch, max_time, spec.kv_heads, spec.head_dim)
        # Zeros, not empty: a padded query of an empty row attends over column 0, which must not hold NaN.
        self.keys = {n: torch.zeros(shape, device=device, dtype=dtype) for n in places.key_layers}
        self.values = {n: torch.zeros(shape, device=device, dtype=dtype) for n in places.value_layers}
        #: Token ids, once for all layers whose values are found again by id.
        self.ids = torch.zeros(shape[:2], device=device, dtype=torch.int32) if places.keeps_ids else None
        #: The last token's normed embedding per row, (batch, width), for smear.
        self.previous = None
        if spec.backbone == "nanochat" and spec.smear:
            self.previous = torch.zeros((batch, spec.width), device=device, dtype=dtype)
        self.spec, self.batch, self.max_time = spec, batch, max_time
        self.lengths: tuple[int, ...] = (0,) * batch

    @property
    def nbytes(self) -> int:
        """Bytes of what grows with ``max_time``, at its full size (not smear's one embedding per row)."""
        stored = sum(tensor.nbytes for store in (self.keys, self.values) for tensor in store.values())
        return stored if self.ids is None else stored + self.ids.nbytes

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return next(iter(self.keys.values())).device

    def slots(self, batch: int, time: int, lengths: Sequence[int] | Tensor | None) -> Slots:
        """Places for a chunk (batch, time) of which row b's first ``lengths[b]`` tokens count (all when None).

        Raises ValueError when the batch differs, a length is outside 0..time, or a row would grow past
        ``max_time``.
        """
        if batch != self.batch:
            raise ValueError(f"the cache has {self.batch} rows, the chunk {batch}")
        if lengths is None:
            new = (time,) * batch
        else:
            new = tuple(int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths))
            if len(new) != batch or not all(0 <= n <= time for n in new):
                raise ValueError(
                    f"lengths needs one number of 0..{time} for each of {batch} rows, got {list(new)}"
                )
        ends = [held + added for held, added in zip(self.lengths, new, strict=True)]
        if max(ends, default=0) > self.max_time:
            raise ValueError(
                f"the cache holds {self.max_time} tokens per row; this chunk would make it {max(ends)}"
            )
        slots = Slots(self.lengths, new, max(ends, default=0))
        if len(set(self.lengths)) == 1 and all(n == time for n in new):
            return slots
        rows = [row for row, added in enumerate(new) for _ in range(added)]
        times = [t for added in new for t in range(added)]
        columns = [self.lengths[row] + t for row, t in zip(rows, times, strict=True)]
        return slots._replace(
            **{
                name: torch.tensor(places, dtype=torch.int64, device=self.device)
                for name, places in (("rows", rows), ("times", times), ("columns", columns))
            }
        )

    def append(self, store: dict[int, Tensor], n: int, new: Tensor, slots: Slots) -> Tensor:
        """Put a chunk (batch, time, kv_heads, head_dim) of layer ``n`` in place; all columns so far as a view."""
        return self._put(store[n], new, slots)

    def append_ids(self, ids: Tensor, slots: Slots) -> Tensor:
        """Put a chunk's token ids (batch, time) in place; all columns so far, (batch, keys) int32."""
        return self._put(self.ids, ids, slots)

    @staticmethod
    def _put(held: Tensor, new: Tensor, slots: Slots) -> Tensor:
        if slots.rows is None:
            start = slots.offsets[0]
            held[:, start : start + new.shape[1]] = new
        else:
            held[slots.rows, slots.columns] = new[slots.rows, slots.times].to(held.dtype)
        return held[:, : slots.end]

    def keep_previous(self, e: Tensor, slots: Slots) -> None:
        """Remember each row's last token of a chunk (batch, time, width); a row without tokens keeps its own."""
        if slots.rows is None:
            self.previous.copy_(e[:, -1])
        else:
            lengths = torch.tensor(slots.lengths, device=e.device)
            last = e[torch.arange(self.batch, device=e.device), (lengths - 1).clamp(min=0)]
            self.previous = torch.where(lengths[:, None] > 0, last.to(self.previous.dtype), self.previous)

    def rows(self, rows: Sequence[int], max_time: int | None = None) -> Cache:
        """A copy whose row i holds what row ``rows[i]`` holds, for ``max_time`` tokens (as here unless told).

        One prefill fans out to many continuations this way. Raises ValueError when a row would not fit.
        """
        held, longest = self.keys[min(self.keys)], max((self.lengths[row] for row in rows), default=0)
        copy = Cache(self.spec, len(rows), max_time or self.max_time, device=held.device, dtype=held.dtype)
        if longest > copy.max_time:
            raise ValueError(f"a row holds {longest} tokens, more than the {copy.max_time} of the new cache")
        chosen = torch.tensor(rows, dtype=torch.int64, device=held.device)
        pairs = [(copy.keys[n], kept) for n, kept in self.keys.items()]
        pairs += [(copy.values[n], kept) for n, kept in self.values.items()]
        pairs += [] if self.ids is None else [(copy.ids, self.ids)]
        for new, kept in pairs:
            new[:, :longest] = kept[chosen, :longest]
        if self.previous is not None:
            copy.previous = self.previous[chosen]
        copy.lengths = tuple(self.lengths[row] for row in rows)
        return copy

    def advance(self, slots: Slots) -> None:
        """Count the chunk in, once every layer has stored it."""
        self.lengths = tuple(held + added for held, added in zip(self.lengths, slots.lengths, strict=True))
