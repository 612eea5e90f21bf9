"""Evaluation items whose words the training sample holds: shared runs of 13 words, counted per task.

The measure of GPT-3's Appendix C: words in lower case without punctuation, runs of 13. An item is hit when one run of a text of
its own occurs in a sampled training document. A text of fewer than 13 words cannot be hit; such items are counted apart.
Memory is bounded by the items (some 20 bytes a word) however large the sample is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from respath.data.paths import inside
from respath.data.shards import shard_path, texts
from respath.errors import UserError, guard
from respath.files import read_json, sha256_file, write_json

WORDS = 13
#: Text read of each domain. Documents lie in seeded order, so the first ones are a random sample of the domain.
DOMAIN_BYTES = 64 << 20
_REMEMBERED = 1 << 20
_EXAMPLES = 5
_WORD = re.compile(r"\w+")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Grams:
    """64-bit hashes of runs of ``WORDS`` words; equal runs of words have equal hashes."""

    def __init__(self, seed: int):
        self._key = str(seed).encode()
        self._known: dict[str, int] = {}

    def __call__(self, text: str) -> np.ndarray:
        """Shape (words - 12,), uint64; empty for a shorter text."""
        words = _WORD.findall(text.lower())
        count = len(words) - WORDS + 1
        if count < 1:
            return np.empty(0, np.uint64)
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        for word in set(words).difference(self._known):
            digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key)
            self._known[word] = int.from_bytes(digest.digest(), "little")
        hashes = np.fromiter(map(self._known.__getitem__, words), np.uint64, len(words))
        grams = np.zeros(count, np.uint64)
        for place in range(WORDS):
            grams *= _MULTIPLIER
            grams += hashes[place : place + count]
        return grams


def texts_of(row: Any) -> Iterator[str]:
    """Every text in an item, however deep: question, passage, choices."""
    if isinstance(row, str):
        yield row
    elif isinstance(row, dict):
        for key in sorted(row):
            yield from texts_of(row[key])
    elif isinstance(row, list):
        for value in row:
            yield from texts_of(value)


def _rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UserError(
                    f"{path}:{number}: not valid JSON ({error}); collect the items again"
                ) from None


class Items:
    """The items of all tasks as sorted runs, and which of these were seen in which domain."""

    def __init__(self, items_json: Path, grams: Grams):
        content = read_json(items_json)
        if not isinstance(content, dict) or content.get("kind") != "eval_items":
            raise UserError(
                f"{items_json}: not a list of evaluation items; delete it and run the same command again"
            )
        self.skipped: dict[str, str] = {}
        self.counts: dict[str, dict[str, int]] = {}
        hashes, owners = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
        #: Task and number of every item that is long enough.
        self.owners: list[tuple[str, int]] = []
        for task, entry in sorted(content["tasks"].items()):
            if entry.get("status") != "done":
                self.skipped[task] = str(entry.get("reason", "not run"))
                continue
            path = inside(items_json.parent, str(entry["file"]))
            if not path.exists() or sha256_file(path) != entry["sha256"]:
                raise UserError(
                    f"{path}: missing or not as {items_json} says; delete {items_json} and collect the items again"
                )
            counts = {"items": 0, "long_enough": 0}
            for number, row in enumerate(_rows(path)):
                counts["items"] += 1
                found = np.unique(np.concatenate([np.empty(0, np.uint64), *map(grams, texts_of(row))]))
                if len(found):
                    counts["long_enough"] += 1
                    hashes.append(found)
                    owners.append(np.full(len(found), len(self.owners), np.uint32))
                    self.owners.append((task, number))
            self.counts[task] = counts
        self._hashes, self._place = np.unique(np.concatenate(hashes), return_inverse=True)
        self._owner = np.concatenate(owners)
        self._seen: dict[str, np.ndarray] = {}

    def see(self, domain: str, grams: np.ndarray) -> bool:
        """Mark the items' runs that occur in a document; whether there was one."""
        if not len(self._hashes) or not len(grams):
            return False
        places = np.searchsorted(self._hashes, grams)
        places[places == len(self._hashes)] = 0
        found = places[self._hashes[places] == grams]
        if domain not in self._seen:
            self._seen[domain] = np.zeros(len(self._hashes), bool)
        self._seen[domain][found] = True
        return bool(len(found))

    def hits(self) -> dict[str, dict[str, Any]]:
        """Per task: items hit, also by domain, and the numbers (never the text) of the first ones."""
        tasks = {
            task: {**counts, "hit": 0, "domains": {}, "examples": []} for task, counts in self.counts.items()
        }
        hit = np.zeros(len(self.owners), bool)
        for domain, seen in sorted(self._seen.items()):
            here = np.zeros(len(self.owners), bool)
            here[self._owner[seen[self._place]]] = True
            hit |= here
            for index in np.flatnonzero(here):
                domains = tasks[self.owners[index][0]]["domains"]
                domains[domain] = domains.get(domain, 0) + 1
        for index in np.flatnonzero(hit):
            task, number = self.owners[index]
            tasks[task]["hit"] += 1
            if len(tasks[task]["examples"]) < _EXAMPLES:
                tasks[task]["examples"].append(number)
        return tasks


def overlap(sample_json: Path, items_json: Path, domain_bytes: int = DOMAIN_BYTES) -> dict[str, Any]:
    """The report: sampled documents of each domain, items and items hit of each task. Raises UserError for damaged input."""
    sample = read_json(sample_json)
    seed = sample["spec"].get("seed", 1)
    grams = Grams(seed)
    items = Items(items_json, grams)
    sampled = {}
    for domain, entry in sorted(sample["domains"].items()):
        train = entry["splits"]["train"]
        documents = size = hit = 0
        for shard in range(len(train["shards"])):
            if size >= domain_bytes:
                break
            for text in texts(shard_path(sample_json, sample, domain, "train", shard)):
                documents += 1
                size += len(text.encode())
                hit += items.see(domain, grams(text))
                if size >= domain_bytes:
                    break
        sampled[domain] = {
            "documents": documents,
            "bytes": size,
            "hit": hit,
            "of_documents": train["documents"],
            "of_bytes": train["bytes"],
        }
    return {
        "schema": 1,
        "kind": "overlap",
        "words": WORDS,
        "seed": seed,
        "domain_bytes": domain_bytes,
        "sample_inputs": sample["inputs"],
        "items_sha256": sha256_file(items_json),
        "domains": sampled,
        "tasks": items.hits(),
        "skipped": items.skipped,
    }


def summary(content: dict[str, Any]) -> str:
    """The report as lines for a log."""
    documents = sum(domain["documents"] for domain in content["domains"].values())
    size = sum(domain["bytes"] for domain in content["domains"].values())
    lines = [f"{documents:,} training documents ({size / 1e6:,.1f} MB), runs of {content['words']} words"]
    lines.append(f"{'task':<20}{'items':>9}{'testable':>10}{'hit':>8}")
    for task, entry in content["tasks"].items():
        lines.append(f"{task:<20}{entry['items']:>9,}{entry['long_enough']:>10,}{entry['hit']:>8,}")
    lines += [f"{task:<20}no items: {reason}" for task, reason in content["skipped"].items()]
    return "\n".join(lines)


@guard
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m respath.data.overlap", description="Overlap of evaluation items with the sample."
    )
    parser.add_argument("--sample", required=True, type=Path, help="sample.json")
    parser.add_argument("--items", required=True, type=Path, help="items.json of an evaluation suite")
    parser.add_argument(
        "--domain-bytes", type=int, default=DOMAIN_BYTES, help="text read of each domain, at most"
    )
    parser.add_argument("--out", required=True, type=Path, help="the report (JSON) to write")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    arguments = parser.parse_args(argv)
    if arguments.domain_bytes < 1:
        raise UserError(f"--domain-bytes: {arguments.domain_bytes} is no number of bytes; give 1 or more")
    content = overlap(arguments.sample, arguments.items, arguments.domain_bytes)
    write_json(arguments.out, content)
    print(summary(content), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
