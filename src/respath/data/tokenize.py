"""One shard of documents to one flat file of token ids, the end-of-document id after each document; or of rows that are packed
from documents (``respath.data.packing``), the same id before each document.

The unit of work and of resuming is a shard: its ``.bin`` and ``.json`` are both whole or absent, the ``.json`` comes last. A
shard whose inputs are the same is not encoded again: a lost ``.json`` is written anew from its copy ``.kept``.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from respath.config.arguments import argument
from respath.data.options import stage_parser
from respath.data.packing import Packed, best_fit
from respath.data.sample import VALIDATION_DOCUMENTS
from respath.data.shards import Hashing, shard_path, texts
from respath.data.tokenizer import end_id, line_ends, load, token_byte_lengths
from respath.errors import UserError, did_you_mean, guard
from respath.files import atomic_open, content_hash, read_json, sha256_file, write_json
from respath.spec.data import BestFit, Data
from respath.spec.document import identity

#: Raised by one when the same inputs come to give other bytes.
FORMAT = 3
#: Text handed to the tokenizer at a time (characters). An encoding takes some 100 bytes per token while it lives.
BATCH_CHARACTERS = 1 << 20
#: Longer documents are cut into pieces, where a cut cannot change a token (``pieces``).
PIECE_CHARACTERS = 1 << 18
#: A new line after a letter or a number always starts a new pre-token of a byte-level BPE, by GPT-2's pattern and by nanochat's
#: (which leaves new lines at punctuation); so does a single space between a character that is no white space and an ASCII letter.
_NEW_LINE, _SPACE = re.compile(r"(?<=[^\W_])\n"), re.compile(r"(?<=\S) (?=[A-Za-z])")


def pieces(text: str, limit: int = PIECE_CHARACTERS) -> list[str]:
    """The text in pieces of at most ``limit`` characters whose tokens, joined, are the tokens of the whole text.

    A stretch of ``limit`` characters without a safe place (no new line, no space before a letter) is cut anyway: its text
    is still exact, one word may be split otherwise. This bounds the memory for documents of any length.
    """
    parts, start = [], 0
    while len(text) - start > limit:
        end = start + limit
        cut = None
        for safe in (_NEW_LINE, _SPACE):
            # From the back in growing windows: the last safe place of a long stretch, without scanning all of it.
            for window in (1 << 10, 1 << 14, limit):
                # The look-behind needs one character before a place; a place at ``start`` would give an empty piece.
                found = [
                    match.start() for match in safe.finditer(text, max(start + 1, end - window), end + 1)
                ]
                found = [place for place in found if start < place <= end]
                if found:
                    cut = found[-1]
                    break
            if cut is not None:
                break
        cut = end if cut is None else cut
        parts.append(text[start:cut])
        start = cut
    parts.append(text[start:])
    return parts


def _batches(documents: Iterable[str]) -> Iterator[tuple[list[str], list[int | None]]]:
    """Pieces, about BATCH_CHARACTERS at a time, and for each its document's UTF-8 bytes if it ends one, else None."""
    batch: list[str] = []
    ends: list[int | None] = []
    characters = 0
    for text in documents:
        parts = pieces(text)
        size = len(text.encode())
        for i, part in enumerate(parts):
            batch.append(part)
            ends.append(size if i == len(parts) - 1 else None)
            characters += len(part)
            if characters >= BATCH_CHARACTERS:
                yield batch, ends
                batch, ends, characters = [], [], 0
    if batch:
        yield batch, ends


def encode_documents(
    tokenizer, documents: Iterable[str], eos_id: int, dtype: np.dtype
) -> Iterator[tuple[np.ndarray, int | None]]:
    """(ids, None) for a piece inside a document, (ids with the end of the document, UTF-8 bytes) for its last piece.

    The next batch is encoded (in Rust, without the interpreter lock) while this one is unpacked.
    """
    batches = _batches(documents)
    with ThreadPoolExecutor(max_workers=1) as pool:

        def submit():
            batch = next(batches, None)
            if batch is None:
                return None
            return pool.submit(tokenizer.encode_batch_fast, batch[0], add_special_tokens=False), batch[1]

        waiting = submit()
        while waiting is not None:
            future, ends = waiting
            encodings = future.result()
            waiting = submit()
            for encoding, end in zip(encodings, ends, strict=True):
                ids = encoding.ids
                if end is not None:
                    ids.append(eos_id)
                yield np.array(ids, dtype=dtype), end


def token_dtype(vocab_size: int) -> np.dtype:
    """uint16 when every id fits, else uint32 (little-endian)."""
    return np.dtype("<u2" if vocab_size <= 65_535 else "<u4")


def shard_quota(data: Data, split: str, domain: str) -> int:
    """Tokens of a full shard (marks of documents included): the domain's quota over its shards, rounded up; to whole rows of
    packed data."""
    quota = (
        data.validation_tokens
        if split == "validation"
        else -(-data.train_tokens[domain] // data.sample.shards)
    )
    row = data.packing.row_tokens if isinstance(data.packing, BestFit) else 1
    return -(-quota // row) * row


def whole_documents(
    encoded: Iterable[tuple[np.ndarray, int | None]],
) -> Iterator[tuple[np.ndarray, int]]:
    """(ids with the end of the document, UTF-8 bytes) for each document, from the pieces of ``encode_documents``."""
    parts: list[np.ndarray] = []
    for ids, size in encoded:
        parts.append(ids)
        if size is not None:
            yield np.concatenate(parts), size
            parts = []


def most_of_one(lengths: Sequence[int], quota: int) -> int:
    """Tokens that one document may give to a validation split of ``quota`` tokens.

    A part of VALIDATION_DOCUMENTS of it; where that leaves the split short, the least that fills it, and twice that part where
    nothing does: the split stays short.
    """
    low, high = -(-quota // VALIDATION_DOCUMENTS), -(-2 * quota // VALIDATION_DOCUMENTS)
    while low < high:
        middle = (low + high) // 2
        if sum(min(length, middle) for length in lengths) >= quota:
            high = middle
        else:
            low = middle + 1
    return low


def validation_stream(
    documents: Iterable[tuple[np.ndarray, int]], quota: int, ends_line: np.ndarray
) -> Iterator[tuple[np.ndarray, int | None]]:
    """The documents of a validation split, none longer than ``most_of_one``: (ids, UTF-8 bytes; None for one that was cut).

    What is cut ends with a whole line (``ends_line``: by id, whether a token does) where one ends in its last eighth, and with
    the end of a document as every other. Holds no more documents in memory than the quota needs.
    """
    documents = iter(documents)
    read: list[tuple[np.ndarray, int]] = []
    least, filled = -(-quota // VALIDATION_DOCUMENTS), 0
    for ids, size in documents:
        read.append((ids, size))
        filled += min(len(ids), least)
        if filled >= quota:
            break
    most = most_of_one([len(ids) for ids, _ in read], quota)
    for ids, size in itertools.chain(read, documents):
        if len(ids) <= most:
            yield ids, size
            continue
        kept, end = ids[: most - 1], ids[-1:]
        late = len(kept) - len(kept) // 8
        if len(lines := np.flatnonzero(ends_line[kept[late:]])):
            kept = kept[: late + lines[-1] + 1]
        yield np.concatenate([kept, end]), None


def tokenize_shard(
    data: Data, sample_json: Path, tokenizer_json: Path, split: str, domain: str, shard: int, out: Path
) -> dict[str, Any]:
    """Write ``out`` (``<domain>.<kk>.json``) and the ``.bin`` beside it; returns the content of ``out``.

    Documents come in sample order. The last one is cut where the quota is full (``cut``): rows are cut out of the stream
    anyway, and a single book would otherwise shift the proportions of a small store. Of a long validation document a part is
    taken (``validation_stream``). Raises UserError for damaged input.
    """
    if domain not in data.train_tokens:
        raise UserError(f"--domain {domain}: not in the data spec{did_you_mean(domain, data.train_tokens)}")
    sample = read_json(sample_json)
    source = shard_path(sample_json, sample, domain, split, shard)
    quota = shard_quota(data, split, domain)
    tokenizer_sha = sha256_file(tokenizer_json)
    packing = data.packing if isinstance(data.packing, BestFit) else None
    made = [FORMAT, sha256_file(source), tokenizer_sha, split, domain, shard, quota]
    inputs = content_hash([*made, *([identity(packing)] if packing else [])], digits=64)
    # Snakemake deletes the declared .json before a job begins; its copy says what the .bin is.
    binary, copy = out.with_suffix(".bin"), out.with_suffix(".kept")
    if copy.exists() and binary.exists():
        old = read_json(copy)
        if old.get("inputs") == inputs and sha256_file(binary) == old["sha256"]:
            print(f"{out}: up to date", file=sys.stderr)
            if not out.exists() or out.read_bytes() != copy.read_bytes():
                write_json(out, old)
            return old
    out.unlink(missing_ok=True)
    copy.unlink(missing_ok=True)
    for stale in out.parent.glob(f".{binary.name}.*.part"):
        stale.unlink(missing_ok=True)
    tokenizer = load(tokenizer_json)
    dtype = token_dtype(tokenizer.get_vocab_size())
    lengths = token_byte_lengths(tokenizer_json)
    end_token = end_id(tokenizer, tokenizer_json)
    tokens = size = 0
    cut = False
    #: Tokens of each document; how many documents gave a part only.
    of_documents: list[int] = []
    parts = 0
    count = Packed()
    with atomic_open(binary) as stream, closing(texts(source)) as documents_in:
        hashing = Hashing(stream)
        stream_of_ids = whole_documents(encode_documents(tokenizer, documents_in, end_token, dtype))
        if split == "validation":
            stream_of_ids = validation_stream(stream_of_ids, quota, line_ends(tokenizer_json))
        if packing:
            # The mark goes from a document's end to its beginning.
            begun = (np.concatenate([ids[-1:], ids[:-1]]) for ids, _ in stream_of_ids)
            for row in itertools.islice(best_fit(begun, packing, count), quota // packing.row_tokens):
                ids = np.concatenate(row)
                hashing.write(ids.tobytes())
                tokens += len(ids)
                of_documents += map(len, row)
                size += int(lengths[ids].sum())
            parts = count.cropped
            if not tokens:
                raise UserError(
                    f"{sample_json}: the {split} text of {domain} fills no row of {packing.row_tokens} tokens (data.packing.row_tokens); "
                    f"raise {split}_tokens of the data, use a corpus that has more of this domain, or train at a shorter context"
                )
        for ids, end in () if packing else stream_of_ids:
            cut = len(ids) > quota - tokens
            ids = ids[: quota - tokens]
            hashing.write(ids.tobytes())
            tokens += len(ids)
            of_documents.append(len(ids))
            parts += end is None
            size += int(lengths[ids].sum()) if cut or end is None else end
            if tokens == quota:
                break
    content = {
        "schema": 1,
        "kind": "token_shard",
        "domain": domain,
        "split": split,
        "shard": shard,
        "inputs": inputs,
        "dtype": dtype.name,
        "tokens": tokens,
        "documents": count.documents if packing else len(of_documents),
        "bytes": size,
        "cut": cut,
        **({"packing": identity(packing) | count.describe()} if packing else {}),
        **({"parts": parts, "tokens_of_documents": _spread(of_documents)} if split == "validation" else {}),
        "quota_tokens": quota,
        "refused": {},
        "sha256": hashing.digest.hexdigest(),
        "tokenizer_sha256": tokenizer_sha,
    }
    write_json(copy, content)
    write_json(out, content)
    return content


def _spread(lengths: Sequence[int]) -> dict[str, float]:
    """Least, middle and most tokens of a document, and the number of equal documents that would weigh like these."""
    if not lengths:
        return {"least": 0, "median": 0, "most": 0, "effective": 0.0}
    array = np.array(lengths, np.float64)
    effective = array.sum() ** 2 / (array**2).sum()
    return {
        "least": int(array.min()),
        "median": int(np.median(array)),
        "most": int(array.max()),
        "effective": round(float(effective), 2),
    }


@guard
def main(argv: Sequence[str] | None = None) -> int:
    out = "<domain>.<kk>.json to write; .bin goes beside it"
    parser = stage_parser("tokenize", "Tokenize one shard.", "Data", out, "--sample", "--tokenizer")
    parser.add_argument("--split", required=True, choices=("train", "validation"))
    parser.add_argument("--domain", required=True)
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--threads", type=int, help="threads of the tokenizer (default: all cores)")
    arguments = parser.parse_args(argv)
    if arguments.threads:
        os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    data = argument(Data, arguments.spec, "--spec")
    content = tokenize_shard(
        data,
        arguments.sample,
        arguments.tokenizer,
        arguments.split,
        arguments.domain,
        arguments.shard,
        arguments.out,
    )
    print(
        f"{arguments.split}/{arguments.domain}.{arguments.shard:02d}: {content['documents']:,} documents, "
        f"{content['tokens']:,} tokens (quota {content['quota_tokens']:,})"
        + (f", {content['packing']['dropped_share']:.1%} dropped in packing" if "packing" in content else ""),
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
