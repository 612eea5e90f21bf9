"""The frozen sequences that analyses read: packed rows, and rows that begin where a document begins."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from respath.data.loader import document_starts, keyed_subset, streams, validation_rows
from respath.data.manifest import load_manifest


def document_rows(manifest: Path, context: int, sequences: int) -> dict[str, np.ndarray]:
    """Validation sequences of each domain that begin with a document and do not overlap, int64 (rows, context).

    So many of them in the order of a keyed permutation: fewer are the first ones of more.
    """
    content = load_manifest(manifest)
    found = {}
    for domain in content["splits"]["validation"]:
        rows: list[np.ndarray] = []
        for tokens in streams(manifest, content, "validation", domain):
            free = 0
            for begin in document_starts(tokens, content):
                if begin >= free and begin + context <= len(tokens):
                    rows.append(tokens[begin : begin + context])
                    free = begin + context
        chosen = keyed_subset(len(rows), sequences, "document starts", domain)
        found[domain] = np.array([rows[i] for i in chosen], np.int64).reshape(len(chosen), context)
    return found


class Inputs(NamedTuple):
    """Token ids by domain, int64 (rows, context): a keyed subset of the validation split, the same for every model.

    ``packed``: as training cuts them. ``starts``: each begins with the first token of a document and runs on into the
    next ones where that is short; a domain of few, long documents has fewer of them. ``end``: the token that ends a document.
    """

    packed: dict[str, np.ndarray]
    starts: dict[str, np.ndarray]
    end: int | None = None

    @classmethod
    def read(cls, manifest: Path, context: int, sequences: int) -> Inputs:
        """At most ``sequences`` rows per domain. Raises UserError for a domain without one whole row."""
        end = load_manifest(manifest)["tokenizer"]["eos_id"]
        return cls(
            validation_rows(manifest, context, sequences), document_rows(manifest, context, sequences), end
        )

    def window(self, sequences: int, tokens: int) -> np.ndarray:
        """At most ``sequences`` packed rows, of their first ``tokens`` tokens: the domains' first rows, then their second ones."""
        domains = [self.packed[domain] for domain in sorted(self.packed)]
        longest = max(map(len, domains))
        ordered = [rows[i] for i in range(longest) for rows in domains if i < len(rows)]
        return np.stack(ordered[:sequences])[:, :tokens]

    def describe(self) -> dict[str, Any]:
        """For the result: domains, number of sequences of either kind, hashes of their ids."""
        return {
            "domains": sorted(self.packed),
            "context": next(iter(self.packed.values())).shape[1],
            "sequences": sum(map(len, self.packed.values())),
            "sha256": _digest(self.packed),
            "document_starts": {
                "sequences": sum(map(len, self.starts.values())),
                "sha256": _digest(self.starts),
            },
        }


def _digest(rows: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for domain in sorted(rows):
        digest.update(f"{domain}\0{rows[domain].shape}\0".encode())
        digest.update(np.ascontiguousarray(rows[domain], dtype="<i8").tobytes())
    return digest.hexdigest()
