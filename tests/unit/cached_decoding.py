"""A model read through its cache: in chunks, and in rows of unequal length."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def in_chunks(model, ids: torch.Tensor, chunks: Sequence[int]) -> torch.Tensor:
    """Logits (batch, time, vocabulary) of ids that are read so many tokens at a time; the chunks are all of them."""
    cache, parts, start = model.new_cache(len(ids), ids.shape[1] + 1), [], 0
    for length in chunks:
        parts.append(model(ids[:, start : start + length], cache=cache))
        start += length
    assert start == ids.shape[1] and set(cache.lengths) == {start}
    return torch.cat(parts, dim=1)


def in_unequal_rows(
    model, ids: torch.Tensor, calls: Sequence[tuple[Sequence[int] | None, int]]
) -> list[torch.Tensor]:
    """Logits of each row that was read, (tokens, vocabulary). ``calls``: new tokens of each row (None: all), and the padded length."""
    rows = len(ids)
    cache, held = model.new_cache(rows, ids.shape[1]), [0] * rows
    parts: list[list[torch.Tensor]] = [[] for _ in ids]
    for lengths, time in calls:
        new = lengths or [time] * rows
        chunk = torch.full((rows, time), 7)
        for row, count in enumerate(new):
            chunk[row, :count] = ids[row, held[row] : held[row] + count]
        logits = model(chunk, cache=cache, lengths=lengths)
        assert logits.shape == (rows, time, model.spec.vocab_size) and logits.isfinite().all()
        for row, count in enumerate(new):
            parts[row].append(logits[row, :count])
            held[row] += count
    assert tuple(cache.lengths) == tuple(held)
    return [torch.cat(part) for part in parts]
