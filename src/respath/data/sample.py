"""Which documents are trained and validated on: seeded shuffle, held-out split, duplicates, byte budgets, shards.

The order of a domain is the order of a keyed hash of the text, so it depends on the seed and the text alone: not on file
names, file order or machine. Documents go into bucket files by hash prefix, each bucket is then sorted in memory, which
bounds the memory for a corpus of any size; what certainly lies beyond the byte budget is not written at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from respath.config.arguments import argument
from respath.config.model import identity
from respath.config.run import Sample
from respath.data.documents import (
    MAX_REFUSED,
    Broken,
    Document,
    Refusals,
    Source,
    has_own_validation,
    lines,
    load_source,
    read,
    zst_blocks,
)
from respath.data.options import stage_parser
from respath.errors import UserError, guard
from respath.files import atomic_open, content_hash, naming, read_json, sha256_file, write_json

SPLITS = ("train", "validation")
#: Text that one bucket holds on average: what is sorted in memory at a time.
BUCKET_BYTES = 64 << 20
#: Text waiting in memory for its bucket file.
BUFFER_BYTES = 64 << 20
_BINS = 1 << 16
_HEADER = struct.Struct(">16sBQII")
#: Unpacked bytes per byte of a compressed file; only sizes the buckets.
_UNPACKING = 5
_META_CHARACTERS = 2000


def document_id(text: str) -> bytes:
    """128-bit hash of the text: equal texts are one document."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def shuffle_key(identifier: bytes, seed: int) -> bytes:
    """Place of a document in the seeded order."""
    return hashlib.blake2b(
        identifier, digest_size=16, key=str(seed).encode(), person=b"respath-order"
    ).digest()


def split_value(identifier: bytes) -> float:
    """In [0, 1), the same for every seed, so that a held-out document stays held out: below the share = validation."""
    return int.from_bytes(
        hashlib.blake2b(identifier, digest_size=6, person=b"respath-split").digest(), "big"
    ) / (1 << 48)


class _Extreme:
    """Remembers the document of a domain with the smallest value: held out (or kept) when a split would be empty."""

    def __init__(self):
        self.value, self.key = float("inf"), b""

    def see(self, value: float, key: bytes) -> bool:
        """Whether this document is the new extreme."""
        if value < self.value:
            self.value, self.key = value, key
            return True
        return False


class _Cutoff:
    """How far into the seeded order a split can reach, given the bytes seen so far; only ever shrinks."""

    def __init__(self, budget: int | None, margin: float):
        self.budget = None if budget is None else int(budget * margin)
        self.bins = np.zeros(_BINS, dtype=np.int64)
        self.last = _BINS - 1
        self.left_out = 0
        self._pending = 0

    def admits(self, key: bytes, size: int) -> bool:
        """Count a document; whether it can still be among the budget's first bytes."""
        place = key[0] << 8 | key[1]
        if self.budget is None:
            return True
        self.bins[place] += size
        if place <= self.last:
            self._pending += size
            if self._pending > self.budget // 8:
                self.shrink()
        return place <= self.last

    def shrink(self) -> None:
        """Lower the limit to the first bin at which the budget is full."""
        self._pending = 0
        if self.budget is not None:
            full = int(np.searchsorted(np.cumsum(self.bins), self.budget))
            if full < self.last:
                self.last = full

    def keeps(self, key: bytes) -> bool:
        """Whether a written document is still inside the limit."""
        return (key[0] << 8 | key[1]) <= self.last


class _Buckets:
    """Records in files by hash prefix, appended as zstd frames; at most BUFFER_BYTES wait in memory."""

    def __init__(self, folder: Path, count: int):
        import zstandard

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.count = folder, count
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._waiting: dict[str, list[bytes]] = {}
        self._size = 0

    def _name(self, domain: int, bucket: int) -> str:
        return f"{domain}-{bucket}"

    def add(self, domain: int, key: bytes, record: bytes) -> None:
        bucket = int.from_bytes(key[:4], "big") * self.count >> 32
        self._waiting.setdefault(self._name(domain, bucket), []).append(record)
        self._size += len(record)
        if self._size > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        for name, records in self._waiting.items():
            frame = self._compressor.compress(b"".join(records))
            path = self.folder / name
            with naming(path), path.open("ab") as stream:
                stream.write(len(frame).to_bytes(8, "big") + frame)
        self._waiting, self._size = {}, 0

    def records(self, domain: int) -> Iterator[list[tuple[bytes, int, int, int, bytes]]]:
        """Bucket by bucket in hash order: (key, held out, sequence, text bytes, row), sorted."""
        import zstandard

        for bucket in range(self.count):
            path = self.folder / self._name(domain, bucket)
            if not path.exists():
                continue
            rows = []
            with path.open("rb") as stream:
                while size := stream.read(8):
                    data = zstandard.ZstdDecompressor().decompress(stream.read(int.from_bytes(size, "big")))
                    at = 0
                    while at < len(data):
                        key, held_out, sequence, text_bytes, length = _HEADER.unpack_from(data, at)
                        at += _HEADER.size
                        rows.append((key, held_out, sequence, text_bytes, data[at : at + length]))
                        at += length
            path.unlink()
            rows.sort(key=lambda row: row[:3])
            yield rows


class Hashing:
    """A stream that hashes what passes through it."""

    def __init__(self, stream):
        self.stream, self.digest, self.bytes = stream, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.bytes += len(data)
        return self.stream.write(data)


class _ShardWriter:
    """Deals the documents of one split out to its shards, one after the other; every shard is whole or absent."""

    def __init__(self, folder: Path, split: str, domain: str, shards: int):
        import zstandard

        self.paths = [f"{split}/{domain}.{k:02d}.jsonl.zst" for k in range(shards)]
        self.documents, self.bytes = [0] * shards, [0] * shards
        self._stack = contextlib.ExitStack()
        self._raw, self._packed = [], []
        for path in self.paths:
            raw = Hashing(self._stack.enter_context(atomic_open(folder / path)))
            packer = zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw, closefd=False)
            self._raw.append(raw)
            self._packed.append(packer)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0] is None:
            for packer in self._packed:
                packer.close()
        return self._stack.__exit__(*error)

    def add(self, row: bytes, text_bytes: int) -> None:
        shard = sum(self.documents) % len(self.paths)
        self._packed[shard].write(row + b"\n")
        self.documents[shard] += 1
        self.bytes[shard] += text_bytes

    def summary(self) -> dict[str, Any]:
        shards = [
            {
                "path": path,
                "sha256": raw.digest.hexdigest(),
                "file_bytes": raw.bytes,
                "documents": n,
                "bytes": size,
            }
            for path, raw, n, size in zip(self.paths, self._raw, self.documents, self.bytes, strict=True)
        ]
        return {"documents": sum(self.documents), "bytes": sum(self.bytes), "shards": shards}


def _row(document: Document) -> bytes:
    """A shard's row, in the original format, with the document's origin; it is never shown the tokenizer."""
    meta = document.meta if len(str(document.meta)) <= _META_CHARACTERS else {}
    meta = {**meta, "redpajama_set_name": document.domain, "where": document.where}
    return json.dumps(
        {"text": document.text, "meta": meta}, ensure_ascii=False, sort_keys=True, default=str
    ).encode()


def _fill(
    sample: Sample, sources: Sequence[Source], folder: Path, margin: float, max_refused: int
) -> dict[str, Any] | None:
    """One pass over the corpus and one over the buckets. None: the margin was too small (many duplicates)."""
    domains = list(sample.domains)
    number = {domain: i for i, domain in enumerate(domains)}
    refusals, other = Refusals(limit=max_refused), Counter()
    own = has_own_validation(sources)
    size = sum(
        file["bytes"] * (1 if file["path"].endswith(".jsonl") else _UNPACKING)
        for s in sources
        for file in s.content["files"]
    )
    buckets = _Buckets(folder / ".buckets", min(4096, size // BUCKET_BYTES + 1))
    budgets = {("train", d): sample.train_bytes.get(d) for d in domains}
    budgets |= {("validation", d): sample.validation_bytes for d in domains}
    cutoffs = {key: _Cutoff(budget, margin) for key, budget in budgets.items()}
    documents_in: Counter[str] = Counter()
    leaked: Counter[str] = Counter()
    lowest, highest = ({d: _Extreme() for d in domains} for _ in range(2))
    held_out_ids: set[bytes] = set()
    for sequence, document in enumerate(read(sources, sample.corpus, domains, refusals, other)):
        domain = document.domain
        documents_in[domain] += 1
        identifier = document_id(document.text)
        key = shuffle_key(identifier, sample.seed)
        extreme = False
        if own:
            held_out = document.held_out
            if held_out:
                held_out_ids.add(identifier)
            elif identifier in held_out_ids:
                leaked[domain] += 1
                continue
        else:
            value = split_value(identifier)
            held_out = value < sample.validation_share
            extreme = lowest[domain].see(value, key)
            extreme = highest[domain].see(-value, key) or extreme
        text_bytes = len(document.text.encode())
        if cutoffs["validation" if held_out else "train", domain].admits(key, text_bytes) or extreme:
            row = _row(document)
            header = _HEADER.pack(key, held_out, sequence, text_bytes, len(row))
            buckets.add(number[domain], key, header + row)
    buckets.flush()
    result: dict[str, Any] = {}
    for domain in domains:
        refused = dict(sorted(refusals.by_domain.get(domain, {}).items()))
        if not documents_in[domain]:
            raise UserError(_empty(sample, domain, "no document", refused or dict(refusals.reasons), other))
        for split in SPLITS:
            cutoffs[split, domain].shrink()
        # A small domain may have no document on one side of the hash split: move the nearest one over.
        moved = {}
        if not own and lowest[domain].value >= sample.validation_share:
            moved[lowest[domain].key] = 1
        if not own and -highest[domain].value < sample.validation_share:
            moved[highest[domain].key] = 0
        duplicates, before = leaked[domain], b""
        with (
            _ShardWriter(folder, "train", domain, sample.shards) as train,
            _ShardWriter(folder, "validation", domain, 1) as validation,
        ):
            writers = {"train": train, "validation": validation}
            taken = dict.fromkeys(SPLITS, 0)
            for rows in buckets.records(number[domain]):
                for key, held_out, _, text_bytes, row in rows:
                    if key == before:
                        duplicates += 1
                        continue
                    before = key
                    split = "validation" if moved.get(key, held_out) else "train"
                    budget = budgets[split, domain]
                    if cutoffs[split, domain].keeps(key) and (budget is None or taken[split] < budget):
                        writers[split].add(row, text_bytes)
                        taken[split] += text_bytes
            for split in SPLITS:
                cutoff = cutoffs[split, domain]
                if cutoff.last < _BINS - 1 and taken[split] < budgets[split, domain]:
                    return None
                if not sum(writers[split].documents):
                    raise UserError(_empty(sample, domain, f"no {split} document", refused, other))
        splits = {split: writer.summary() for split, writer in writers.items()}
        out = sum(split["documents"] for split in splits.values())
        result[domain] = {
            "documents_in": documents_in[domain] + sum(refused.values()),
            "refused": refused,
            "duplicates": duplicates,
            "beyond_budget": documents_in[domain] - duplicates - out,
            "splits": splits,
        }
    named = Counter()
    for counts in refusals.by_domain.values():
        named.update(counts)
    return {
        "domains": result,
        # Rows that could not be attributed to a domain.
        "refused": dict(sorted((refusals.reasons - named).items())),
        "refused_rows": refusals.lines,
        "other_domains": dict(sorted(other.items())),
    }


def _empty(sample: Sample, domain: str, what: str, refused: dict[str, int], other: Counter[str]) -> str:
    corpus = sample.corpus
    where = f"profile {corpus.profile}" if corpus.kind == "embedded" else f"{corpus.kind} corpus"
    remedy = {
        "embedded": "fetch the profile again, or use profile embedded-debian, which has more sources",
        "local": "check train_files, text_field and domain_field, and that the folder holds this domain",
        "hub": "check train_files, text_field and domain_field, or widen train_files",
    }[corpus.kind]
    seen = f"; refused: {refused}" if refused else ""
    seen += f"; domains found: {', '.join(sorted(other))}" if other else ""
    return f"domain {domain} has {what} in corpus {corpus.name} ({where}){seen}; {remedy}"


def _up_to_date(out: Path, inputs: str) -> bool:
    if not out.exists():
        return False
    try:
        old = read_json(out)
        shards = [
            shard
            for d in old["domains"].values()
            for split in d["splits"].values()
            for shard in split["shards"]
        ]
        return old["inputs"] == inputs and all(
            (out.parent / shard["path"]).stat().st_size == shard["file_bytes"] for shard in shards
        )
    except (UserError, OSError, KeyError, TypeError):
        return False


def make_sample(
    sample: Sample, sources: Sequence[str | Path], out: Path, max_refused: int = MAX_REFUSED
) -> dict[str, Any]:
    """Write ``out`` (sample.json) and its shards beside it; returns its content. Finished and unchanged: nothing to do.

    Raises UserError for damaged sources, too many refused rows, and a domain without training or validation documents.
    """
    if not sources:
        raise UserError(f"corpus {sample.corpus.name}: no sources; pass the source.json files of the corpus")
    loaded = [load_source(path) for path in sources]
    files = sorted(
        (
            s.name,
            s.content.get("domain"),
            f["path"],
            f.get("split"),
            f["bytes"],
            f.get("sha256") or f.get("quick_sha256"),
        )
        for s in loaded
        for f in s.content["files"]
    )
    inputs = content_hash([identity(sample), files], digits=64)
    if _up_to_date(out, inputs):
        print(f"{out}: up to date", file=sys.stderr)
        return read_json(out)
    out.unlink(missing_ok=True)
    margin, filled = 1.1, None
    try:
        while filled is None:
            filled = _fill(sample, loaded, out.parent, margin, max_refused)
            margin *= 3
    finally:
        shutil.rmtree(out.parent / ".buckets", ignore_errors=True)
    keys = (
        "source",
        "corpus",
        "domain",
        "licence",
        "package",
        "version",
        "repository",
        "revision",
        "archives",
    )
    content = {
        "schema": 1,
        "kind": "sample",
        "spec": identity(sample),
        "inputs": inputs,
        "own_validation": has_own_validation(loaded),
        "sources": [
            {key: s.content[key] for key in keys if s.content.get(key) is not None}
            for s in sorted(loaded, key=lambda s: s.name)
        ],
        **filled,
    }
    write_json(out, content)
    return content


def shard_path(sample_json: Path, content: dict[str, Any], domain: str, split: str, shard: int) -> Path:
    """The file of one sample shard, its hash checked. UserError when it is missing or differs."""
    try:
        entry = content["domains"][domain]["splits"][split]["shards"][shard]
    except (KeyError, IndexError):
        raise UserError(
            f"{sample_json}: has no {split} shard {shard} of domain {domain}; delete it and sample again"
        ) from None
    path = sample_json.parent / entry["path"]
    if not path.exists() or sha256_file(path) != entry["sha256"]:
        raise UserError(
            f"{path}: missing or not as {sample_json} says; delete {sample_json} and sample again"
        )
    return path


def texts(path: Path) -> Iterator[str]:
    """Texts of one sample shard (``.jsonl.zst``), streamed. Raises UserError when the file is damaged."""
    with path.open("rb") as stream:
        try:
            for _, line in lines(zst_blocks(stream)):
                yield json.loads(line)["text"]
        except (Broken, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}: damaged ({error}); delete the sample.json beside it and sample again"
            ) from None


@guard
def main(argv: Sequence[str] | None = None) -> int:
    out = "sample.json to write; shards go beside it"
    parser = stage_parser("sample", "Sample documents from a corpus.", "Sample", out, "--sources")
    parser.add_argument(
        "--max-refused", type=int, default=MAX_REFUSED, help="refused rows per file before reading stops"
    )
    arguments = parser.parse_args(argv)
    sample = argument(Sample, arguments.spec, "--spec")
    content = make_sample(sample, arguments.sources, arguments.out, arguments.max_refused)
    for domain, entry in content["domains"].items():
        train, validation = entry["splits"]["train"], entry["splits"]["validation"]
        print(
            f"{domain:24s} in {entry['documents_in']:>9,}  refused {sum(entry['refused'].values()):>6,}  duplicates "
            f"{entry['duplicates']:>7,}  train {train['documents']:>9,} docs {train['bytes'] / 1e6:>10,.1f} MB  validation "
            f"{validation['documents']:>7,} docs {validation['bytes'] / 1e6:>8,.1f} MB",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
