"""Files that are whole or absent: atomic writes, canonical JSON, hashes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from respath.errors import UserError, did_you_mean


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """OS errors of writing and flushing carry no file name; inside this block they get ``path``, so that a user can act."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def user_path(text: str | Path, named: str | None = None) -> Path:
    """A path as a user writes it: ``~``, ``~name``, ``$NAME`` and ``${NAME}`` mean what they mean in a shell.

    ``named``: where it was written, e.g. ``config.yaml: locations: mine``, where the caller does not add it. Raises UserError,
    with that name, for a user or a variable that there is not; an empty variable counts as none, as ``$SCRATCH/data`` would
    become ``/data``.
    """
    text = str(text)
    where = f"{named}: {text}" if named else text
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise UserError(f"{where}: there is no user {path.split('/')[0][1:]!r} here; write the path out")

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not os.environ.get(name):
            raise UserError(f"{where}: ${name} is not set; set it or write the path out")
        return os.environ[name]

    return Path(re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, path))


@contextlib.contextmanager
def atomic_open(path: str | Path, mode: str = "wb", **kwargs) -> Iterator[IO]:
    """A file that appears under ``path`` only when the block ends without an error.

    Written beside its target (rename is atomic only within one file system), flushed to the disk, then renamed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with naming(path), os.fdopen(handle, mode, **kwargs) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; results are as readable as the user's umask says.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text with Unix line ends, atomically."""
    with atomic_open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON that is byte-identical for equal values: sorted keys, two spaces, final newline.

    Raises ValueError for a number that is not finite: whoever computes one says what it means.
    """
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFinite(text)
    return number


class _NotFinite(ValueError):
    """NaN, Infinity or 1e999 in a file."""


def read_json(path: str | Path) -> Any:
    """Read a JSON file; UserError names the file, the line where it breaks off, and a number in it that is not finite."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except _NotFinite as error:
        raise UserError(
            f"{path}: holds {error}, which is no result; delete it and run the same command again"
        ) from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", "?")
        raise UserError(
            f"{path}:{line}: not valid JSON ({error}); delete it and run the same command again"
        ) from None


def canonical_json(value: Any) -> str:
    """The one text that stands for a value in hashes: sorted keys, no spaces, shortest floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def flattened(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as one: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``, in the order of the leaves."""
    leaves: dict[str, Any] = {}
    for key, item in value.items():
        leaves |= flattened(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return leaves


def content_hash(value: Any, digits: int = 8) -> str:
    """First hex digits of SHA-256 over the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:digits]


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def dig(data: Any, path: str) -> tuple[Any, str]:
    """Follow a dotted path; the value, and the names known where the path broke off (empty when it did not)."""
    for part in path.split("."):
        if not isinstance(data, Mapping):
            return None, " (it ends earlier)"
        if part not in data:
            return None, did_you_mean(part, sorted(map(str, data)))
        data = data[part]
    return data, ""
