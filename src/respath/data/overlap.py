"""Evaluation items whose words the training sample holds: shared runs of 13 words, counted per task.

The measure of GPT-3's Appendix C: words in lower case without punctuation, runs of 13. An item is hit when one run of a text of
its own occurs in a sampled training document. A text of fewer than 13 words cannot be hit; such items are counted apart.
Memory is bounded by the items (some 20 bytes a word) however large the sample is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from respath.data.paths import inside
from respath.data.runs_of_words import WORDS, Found, runs_of_words
from respath.data.shards import shard_path, texts
from respath.errors import UserError, guard
from respath.files import read_json, sha256_file, write_json

#: Text read of each domain. Documents lie in seeded order, so the first ones are a random sample of the domain.
DOMAIN_BYTES = 64 << 20
_EXAMPLES = 5


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
                    f"{path}:{number}: not valid JSON ({error}); delete {path.with_name('items.json')} and run the same command again"
                ) from None


class Items:
    """The runs of words of all tasks' items, and which of these were seen in which domain."""

    def __init__(self, items_json: Path):
        content = read_json(items_json)
        if not isinstance(content, dict) or content.get("kind") != "eval_items":
            raise UserError(
                f"{items_json}: not a list of evaluation items; delete it and run the same command again"
            )
        self.skipped: dict[str, str] = {}
        self.counts: dict[str, dict[str, int]] = {}
        runs: list[np.ndarray] = []
        #: Task and number of every item that is long enough.
        self.owners: list[tuple[str, int]] = []
        for task, entry in sorted(content["tasks"].items()):
            if entry.get("status") != "done":
                self.skipped[task] = str(entry.get("reason", "not run"))
                continue
            path = inside(items_json.parent, str(entry["file"]))
            if not path.exists() or sha256_file(path) != entry["sha256"]:
                raise UserError(
                    f"{path}: missing or not as {items_json} says; delete {items_json} and run the same command again"
                )
            counts = {"items": 0, "long_enough": 0}
            for number, row in enumerate(_rows(path)):
                counts["items"] += 1
                found = np.concatenate([np.empty(0, np.uint64), *map(runs_of_words, texts_of(row))])
                if len(found):
                    counts["long_enough"] += 1
                    runs.append(found)
                    self.owners.append((task, number))
            self.counts[task] = counts
        self._found = Found(runs)
        self._seen: dict[str, np.ndarray] = {}

    def see(self, domain: str, text: str) -> bool:
        """Mark the items' runs that occur in a document; whether there was one."""
        seen = self._seen.setdefault(domain, self._found.nothing())
        return self._found.see(runs_of_words(text), seen)

    def hits(self) -> dict[str, dict[str, Any]]:
        """Per task: items hit, also by domain, and the numbers (never the text) of the first ones."""
        tasks = {
            task: {**counts, "hit": 0, "domains": {}, "examples": []} for task, counts in self.counts.items()
        }
        hit = np.zeros(len(self.owners), bool)
        for domain, seen in sorted(self._seen.items()):
            here = self._found.counts(seen) > 0
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
    items = Items(items_json)
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
                hit += items.see(domain, text)
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
