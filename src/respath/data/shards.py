"""The shards of a sample: one file of documents per domain, split and number, its hash on record in sample.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from respath.data.documents import Broken, lines, zst_blocks
from respath.data.paths import inside
from respath.errors import UserError
from respath.files import sha256_file

SPLITS = ("train", "validation")


class Hashing:
    """A stream that hashes what passes through it."""

    def __init__(self, stream):
        self.stream, self.digest, self.bytes = stream, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.bytes += len(data)
        return self.stream.write(data)


def shard_path(sample_json: Path, content: dict[str, Any], domain: str, split: str, shard: int) -> Path:
    """The file of one sample shard, its hash checked. UserError when it is missing or differs."""
    try:
        entry = content["domains"][domain]["splits"][split]["shards"][shard]
    except (KeyError, IndexError):
        raise UserError(
            f"{sample_json}: has no {split} shard {shard} of domain {domain}; delete it and sample again"
        ) from None
    path = inside(sample_json.parent, entry["path"])
    if not path.exists() or sha256_file(path) != entry["sha256"]:
        raise UserError(
            f"{path}: missing or not as {sample_json} says; delete {sample_json} and sample again"
        )
    return path


def rows(path: Path) -> Iterator[bytes]:
    """Rows of one sample shard (``.jsonl.zst``) as they stand there, streamed. Raises UserError when the file is damaged."""
    with path.open("rb") as stream:
        try:
            for _, line in lines(zst_blocks(stream)):
                yield line
        except Broken as error:
            raise _damaged(path, error) from None


def texts(path: Path) -> Iterator[str]:
    """Texts of one sample shard, streamed. Raises UserError when the file is damaged."""
    try:
        for row in rows(path):
            yield json.loads(row)["text"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path}: damaged ({error}); delete the sample.json beside it and sample again")
