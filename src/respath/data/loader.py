"""Which token rows a training step sees: a pure function of manifest, weights, seed and step.

Nothing is replayed and nothing is stored: the batch of step one million costs what the batch of step zero costs, and it is
the same whether one rank or eight ask for it.

Order of sequences (our low-discrepancy form of the mixture in ResFormer, Table 12, which the authors draw at random): the
weights are whole numbers over a block of sequences (50/20/10/5/5/5/5 % = 10+4+2+1+1+1+1 of 20), each block holds exactly
these counts in an order that a keyed permutation of (seed, block) gives. The j-th sequence of a domain is row
``permutation(seed, domain, j // rows)[j % rows]``, so a domain is gone through once before a row comes again.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from respath.data.manifest import FULL_CHECK_BYTES, inside_store, load_manifest, store_bytes
from respath.data.runs_of_words import mix
from respath.data.tokenizer import token_byte_lengths
from respath.documents import check
from respath.errors import UserError
from respath.files import sha256_file
from respath.spec.data import Data

__all__ = [
    *(
        "Loader",
        "Rows",
        "Validation",
        "block_counts",
        "document_starts",
        "keyed_subset",
        "permute",
        "row_bytes",
    ),
    *("streams", "token_byte_lengths", "validation", "validation_rows"),
]

#: Longest block of sequences over which weights are rounded to whole numbers.
MAX_BLOCK = 1000
_U64 = np.uint64
_GOLDEN = 0x9E3779B97F4A7C15


def _key(*parts: object) -> int:
    """64-bit key of a tuple, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def permute(index: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Position of each ``index`` (0 .. size-1) in the permutation of ``size`` that its key names.

    A Feistel network over the smallest even number of bits that holds ``size``; what falls outside walks on (cycle walking,
    Black and Rogaway 2002), so for each key the result is a bijection on 0 .. size-1. Shapes: index and keys (n,) -> (n,).
    """
    if size == 1:
        return np.zeros_like(index, dtype=np.int64)
    half = _U64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (_U64(1) << half) - _U64(1)

    def network(x: np.ndarray, key: np.ndarray) -> np.ndarray:
        left, right = x >> half, x & mask
        for turn in range(1, 7):
            salt = _U64(turn * _GOLDEN & 0xFFFFFFFFFFFFFFFF)
            left, right = right, left ^ (mix((right ^ key) + salt) & mask)
        return left << half | right

    out = network(index.astype(_U64), keys)
    outside = np.flatnonzero(out >= size)
    while outside.size:
        out[outside] = network(out[outside], keys[outside])
        outside = outside[out[outside] >= size]
    return out.astype(np.int64)


def keyed_subset(size: int, limit: int | None, *name: str) -> np.ndarray:
    """At most ``limit`` of ``size`` numbers in the order of the permutation that the name keys; ``None``: all. int64 (n,).

    The same for every seed, and of two limits the smaller gives the first ones of the larger.
    """
    count = size if limit is None else min(size, limit)
    return permute(np.arange(count), size, np.full(count, _key(*name), _U64))


def block_counts(weights: Mapping[str, float]) -> dict[str, int]:
    """Sequences of each domain in one block: exact where the weights are whole parts of at most MAX_BLOCK, otherwise
    rounded by largest remainder over MAX_BLOCK (each domain at least once)."""
    if not weights or any(not (value > 0 and math.isfinite(value)) for value in weights.values()):
        raise UserError(f"domain weights must be positive numbers, got {dict(weights)}")
    total = math.fsum(weights.values())
    # Sorted, so that the order of a mapping never changes the order of the data.
    shares = {domain: weights[domain] / total for domain in sorted(weights)}
    for block in range(len(shares), MAX_BLOCK + 1):
        counts = {domain: round(share * block) for domain, share in shares.items()}
        exact = all(
            counts[domain] > 0 and abs(shares[domain] * block - counts[domain]) < 1e-9 for domain in shares
        )
        if exact and sum(counts.values()) == block:
            return counts
    counts = {domain: max(1, math.floor(share * MAX_BLOCK)) for domain, share in shares.items()}
    rest = sorted(
        shares,
        key=lambda domain: (math.floor(shares[domain] * MAX_BLOCK) - shares[domain] * MAX_BLOCK, domain),
    )
    for domain in rest[: max(0, MAX_BLOCK - sum(counts.values()))]:
        counts[domain] += 1
    return counts


def _again(shard: Path, manifest: Path) -> str:
    """How a shard is made anew: its .json and the manifest stand for it, and equal bytes cost no run that is finished."""
    return f"delete {shard.with_suffix('.json')} and {manifest} and run the same command again"


def streams(manifest: Path, content: dict[str, Any], split: str, domain: str) -> list[np.ndarray]:
    """Token ids of each shard of one domain and split, (tokens,) each, checked against the manifest. UserError where they differ."""
    dtype = np.dtype(content["dtype"]).newbyteorder("<")
    small = store_bytes(content) <= FULL_CHECK_BYTES
    found = []
    for shard in content["splits"][split][domain]["shards"]:
        path = inside_store(manifest, shard["path"])
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise UserError(f"{path}: missing; {_again(path, manifest)}") from None
        if size != shard["tokens"] * dtype.itemsize:
            raise UserError(
                f"{path}: {size} bytes, but {manifest} says {shard['tokens'] * dtype.itemsize}; {_again(path, manifest)}"
            )
        if small and shard.get("sha256") and sha256_file(path) != shard["sha256"]:
            raise UserError(f"{path}: its SHA-256 differs from {manifest}; {_again(path, manifest)}")
        if size:
            found.append(np.memmap(path, dtype=dtype, mode="r"))
    return found


def document_starts(tokens: np.ndarray, content: dict[str, Any]) -> np.ndarray:
    """Places in a shard's stream (tokens,) at which a document, or a part of one, begins: int64 (documents,).

    Documents are told by the one token that no text is encoded as: it begins them in a packed store, and ends them in another.
    """
    marks = np.flatnonzero(tokens == content["tokenizer"]["eos_id"])
    if "packing" in content:
        return marks
    return np.array([0, *(marks[marks < len(tokens) - 1] + 1)])


class Rows:
    """The non-overlapping rows of ``context`` tokens in the shards of one domain and split; a shard's rest is left over.

    Of a packed store's rows, the first ``context`` tokens. Raises UserError where they are longer than those, and without one row.
    """

    def __init__(self, manifest: Path, content: dict[str, Any], split: str, domain: str, context: int):
        entry = content["splits"][split][domain]
        self.context = context
        #: Tokens from the beginning of a row to that of the next.
        self.stride = content["packing"]["row_tokens"] if "packing" in content else context
        if context > self.stride:
            raise UserError(
                f"{manifest}: packing.row_tokens: rows are packed to {self.stride} tokens, {context} are asked for; ask for at most "
                f"{self.stride}, or pack longer rows"
            )
        self.packed = "packing" in content
        self.end = content["tokenizer"]["eos_id"]
        self.views = []
        for tokens in streams(manifest, content, split, domain):
            if rows := len(tokens) // self.stride:
                self.views.append(tokens[: rows * self.stride].reshape(rows, self.stride))
        self.starts = np.cumsum([0, *(len(view) for view in self.views)])
        self.count = int(self.starts[-1])
        if not self.count:
            raise UserError(
                f"{manifest}: splits.{split}.{domain}: {entry['tokens']:,} tokens make no row of {context}; raise {split}_tokens of "
                "the data (papers/*/scales/*.yaml), or use a corpus that has more of this domain"
            )

    def take(self, rows: np.ndarray, out: np.ndarray, places: np.ndarray) -> None:
        """Copy rows (n,) of the domain into ``out[places]``."""
        shard = np.searchsorted(self.starts, rows, side="right") - 1
        for k, view in enumerate(self.views):
            mine = np.flatnonzero(shard == k) if len(self.views) > 1 else slice(None)
            out[places[mine]] = view[rows[mine] - self.starts[k], : self.context]

    def documents(self, chosen: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Number of the document that each token belongs to: of rows ``chosen`` (n,) with ids (n, context) -> int32 (n, context).

        Documents are told by their marks (``document_starts``): no text is encoded as that token.
        """
        marks = [
            np.flatnonzero(view.reshape(-1) == self.end) + start * self.stride
            for view, start in zip(self.views, self.starts, strict=False)
        ]
        is_mark = rows == self.end
        first = np.searchsorted(np.concatenate(marks), chosen * self.stride)
        # A beginning belongs to the document that it opens, an end to the one that it closes.
        inside = np.cumsum(is_mark, axis=1) - (1 if self.packed else is_mark)
        return (first[:, None] + inside).astype(np.int32)


class Loader:
    """Batches of token rows.

    ``context``: tokens per row. ``batch_sequences``: rows of one step over all ranks and micro-batches. ``seed``: order of
    rows, the same for every model trained with it. ``weights``: share of each domain, by default the quotas of the data
    spec. Raises UserError for a store that does not fit its manifest and for a domain without one whole row.
    """

    def __init__(
        self,
        manifest_path: str | Path,
        *,
        context: int,
        batch_sequences: int,
        seed: int,
        weights: Mapping[str, float] | None = None,
    ):
        self.path = Path(manifest_path)
        self.manifest = load_manifest(self.path)
        self.context, self.batch_sequences, self.seed = context, batch_sequences, seed
        if weights is None:
            weights = check(Data, self.manifest["spec"], self.path, ["spec"]).train_tokens
        missing = sorted(set(weights) - set(self.manifest["splits"]["train"]))
        if missing:
            raise UserError(f"{self.path}: has no domains {missing}; they are in the weights")
        self.counts = block_counts(weights)
        self.domains = tuple(self.counts)
        self.block = sum(self.counts.values())
        self.rows = {d: Rows(self.path, self.manifest, "train", d, context) for d in self.domains}
        self._domain_of_item = np.repeat(np.arange(len(self.domains)), list(self.counts.values()))
        firsts = np.cumsum([0, *self.counts.values()])[:-1]
        self._place_of_item = np.arange(self.block) - firsts[self._domain_of_item]

    def schedule(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Of ``count`` global sequences from number ``first`` on: (domain index, row of the domain), each (count,)."""
        numbers = np.arange(first, first + count, dtype=np.int64)
        blocks, inverse = np.unique(numbers // self.block, return_inverse=True)
        salt = _U64(_key("blocks", self.seed))
        marks = mix(
            mix(blocks.astype(_U64) + salt)[:, None]
            + _U64(_GOLDEN) * np.arange(1, self.block + 1, dtype=_U64)
        )
        item = np.argsort(marks, axis=1, kind="stable")[inverse, numbers % self.block]
        domain = self._domain_of_item[item]
        row = np.empty(count, dtype=np.int64)
        for d, name in enumerate(self.domains):
            mine = np.flatnonzero(domain == d)
            draw = numbers[mine] // self.block * self.counts[name] + self._place_of_item[item[mine]]
            size = self.rows[name].count
            epoch = (draw // size).astype(_U64)
            row[mine] = permute(
                draw % size, size, mix(epoch * _U64(_GOLDEN) + _U64(_key("rows", self.seed, name)))
            )
        return domain, row

    def batch(
        self, step: int, rank: int = 0, world: int = 1, micro: tuple[int, int] | None = None
    ) -> np.ndarray:
        """Token rows of a step, int64 (rows, context), ready for ``torch.from_numpy``.

        ``rank`` of ``world`` gets its equal, contiguous part of the step's ``batch_sequences`` rows; ``micro=(i, n)`` the
        i-th of ``n`` equal parts of that. Raises UserError when the rows cannot be divided evenly.
        """
        part, parts = micro or (0, 1)
        if self.batch_sequences % (world * parts):
            raise UserError(
                f"batch_sequences {self.batch_sequences} cannot be divided by {world} ranks x {parts} micro-batches"
            )
        if not (step >= 0 and 0 <= rank < world and 0 <= part < parts):
            raise ValueError(f"step {step}, rank {rank} of {world}, micro-batch {part} of {parts}")
        count = self.batch_sequences // (world * parts)
        domain, row = self.schedule(step * self.batch_sequences + (rank * parts + part) * count, count)
        out = np.empty((count, self.context), dtype=np.int64)
        for d, name in enumerate(self.domains):
            mine = np.flatnonzero(domain == d)
            if mine.size:
                self.rows[name].take(row[mine], out, mine)
        return out

    def epochs(self, steps: int) -> dict[str, float]:
        """How many times each domain's rows are gone through in ``steps`` steps."""
        blocks = steps * self.batch_sequences / self.block
        return {name: blocks * self.counts[name] / self.rows[name].count for name in self.domains}


class Validation(NamedTuple):
    """Validation rows of one domain: frozen, the same for every model and seed.

    ``rows``: token ids, int64 (rows, context). ``documents``: the document that each token belongs to, numbered over the split,
    int32 (rows, context); the token that marks a document belongs to it. ``of``: rows that the split has.
    """

    rows: np.ndarray
    documents: np.ndarray
    of: int


def validation(
    manifest_path: str | Path, context: int, sequences_per_domain: int | None = None
) -> dict[str, Validation]:
    """Validation rows of each domain, packed, with their documents. ``None``: all of the split.

    Otherwise so many rows of a keyed permutation of the whole split (all, where it has fewer): a random sample over its
    documents, of which none is more than a sixteenth, or an eighth (``respath.data.tokenize.most_of_one``). Fewer rows are the first ones of
    more rows. Raises UserError for a domain without one whole row.
    """
    path = Path(manifest_path)
    content = load_manifest(path)
    result = {}
    for domain in content["splits"]["validation"]:
        rows = Rows(path, content, "validation", domain, context)
        chosen = keyed_subset(rows.count, sequences_per_domain, "validation rows", domain)
        out = np.empty((len(chosen), context), dtype=np.int64)
        rows.take(chosen, out, np.arange(len(chosen)))
        result[domain] = Validation(out, rows.documents(chosen, out), rows.count)
    return result


def validation_rows(
    manifest_path: str | Path, context: int, sequences_per_domain: int | None = None
) -> dict[str, np.ndarray]:
    """The rows of ``validation`` alone: int64 (rows, context) by domain."""
    return {d: v.rows for d, v in validation(manifest_path, context, sequences_per_domain).items()}


def row_bytes(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """UTF-8 bytes of the text that each row's targets (all tokens but the first) stand for: (rows, context) -> (rows,).

    ``lengths``: ``token_byte_lengths(tokenizer.json)``. Ends of documents count 0 bytes, so the sum over a document is its
    size (after NFC for GPT-NeoX, whose tokenizer normalises).
    """
    return lengths[rows[:, 1:]].sum(axis=1)


@functools.cache
def _tokenizer_lengths(path: Path) -> np.ndarray:
    return token_byte_lengths(path)


def store_byte_lengths(manifest_path: str | Path) -> np.ndarray:
    """``token_byte_lengths`` of the tokenizer that a token store was made with. UserError when it is another one."""
    path = Path(manifest_path)
    entry = load_manifest(path)["tokenizer"]
    tokenizer = (path.parent / entry["path"]).resolve()
    if not tokenizer.is_file() or sha256_file(tokenizer) != entry["sha256"]:
        raise UserError(
            f"{tokenizer}: missing or not the tokenizer of {path}; delete {tokenizer} and {path} and run the same command again"
        )
    return _tokenizer_lengths(tokenizer)
