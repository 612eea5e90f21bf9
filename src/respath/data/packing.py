"""Documents to rows by best fit: each row begins with the beginning of a document and is filled to its last token.

As nanochat's loader of March 2026 (``tokenizing_distributed_data_loader_with_state_bos_bestfit``): of a buffer of documents the
largest that fits into the rest of the row is taken; when none fits, the shortest is cropped to the rest, and what exceeds it is
dropped. Of equals the earliest is taken. Two things differ. Rows are packed once, when a shard is tokenized, so they are the same
for every number of ranks and begin anywhere at no cost. The buffer is filled up after every document, not 128 at a time.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np

from respath.spec.data import BestFit


@dataclasses.dataclass
class Packed:
    """What became of the documents that rows were packed from, so far. Beginnings of documents count as tokens."""

    documents: int = 0
    """Documents whose beginning stands in a row."""
    cropped: int = 0
    """Documents, or parts of long ones, that were cropped to fill a row."""
    longer_than_a_row: int = 0
    tokens: int = 0
    dropped_tokens: int = 0
    """Tokens that cropping dropped, and those of a last row that nothing was left to fill."""

    @property
    def dropped_share(self) -> float:
        """Dropped over all tokens of what was packed."""
        total = self.tokens + self.dropped_tokens
        return self.dropped_tokens / total if total else 0.0

    def describe(self) -> dict[str, float]:
        """For the shard's record."""
        return {
            "cropped": self.cropped,
            "longer_than_a_row": self.longer_than_a_row,
            "dropped_tokens": self.dropped_tokens,
            "dropped_share": round(self.dropped_share, 6),
        }


def best_fit(documents: Iterable[np.ndarray], packing: BestFit, count: Packed) -> Iterator[list[np.ndarray]]:
    """Rows, each a list of documents (token ids, their beginning first) of ``packing.row_tokens`` tokens together.

    ``count`` is kept up as rows are taken. A last row that cannot be filled is dropped.
    """
    row = packing.row_tokens
    coming = enumerate(_parts(documents, packing, count))
    #: (length, -order) of each waiting document, sorted; whether it is the beginning of one, and its ids.
    waiting: list[tuple[int, int]] = []
    ids_of: dict[int, tuple[bool, np.ndarray]] = {}
    while True:
        placed: list[np.ndarray] = []
        rest, lost, begun = row, 0, 0
        while rest:
            while len(waiting) < packing.buffer_documents and (following := next(coming, None)):
                order, document = following
                bisect.insort(waiting, (len(document[1]), -order))
                ids_of[-order] = document
            if not waiting:
                count.dropped_tokens += sum(map(len, placed))
                return
            place = bisect.bisect_right(waiting, (rest, math.inf)) - 1
            if place < 0:
                place = bisect.bisect_right(waiting, (waiting[0][0], math.inf)) - 1
            length, order = waiting.pop(place)
            begins, ids = ids_of.pop(order)
            placed.append(ids[:rest])
            begun += begins
            # Only the last one of a row can be too long.
            lost = max(0, length - rest)
            rest -= min(length, rest)
        count.documents += begun
        count.tokens += row
        count.dropped_tokens += lost
        count.cropped += lost > 0
        yield placed


def _parts(
    documents: Iterable[np.ndarray], packing: BestFit, count: Packed
) -> Iterator[tuple[bool, np.ndarray]]:
    """(whether it is a document's beginning, ids) of documents or parts of them; each begins with the document's first token."""
    row = packing.row_tokens
    for ids in documents:
        count.longer_than_a_row += len(ids) > row
        if packing.long_documents == "crop" or len(ids) <= row:
            yield True, ids
            continue
        for start in range(1, len(ids), row - 1):
            yield start == 1, np.concatenate([ids[:1], ids[start : start + row - 1]])
