"""Collect the task files of CORE once, from a folder or the published archive, each with its hash.

``python -m respath.measure.core_bundle --source download|FOLDER|none --out results/core_bundle/bundle.json``. The files lie beside
``bundle.json`` in the published layout; ``respath.measure.core --bundle`` reads that folder, or any other of the same layout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from respath.data.archives import default_cache
from respath.documents import Collector
from respath.errors import UserError, guard
from respath.files import atomic_open, sha256_file, write_json, write_text
from respath.measure.core import BUNDLE_FILE, catalogue, read_task

SCHEMA = 1
#: nanochat's evaluation bundle. Its files' hashes are in core.yaml where they are known; its own is recorded at the first download.
URL = "https://karpathy-public.s3.us-west-2.amazonaws.com/eval_bundle.zip"
#: Where task files lie below a folder: at once, or as the archive has them.
ROOTS = ("", "eval_data", "eval_bundle/eval_data")
#: Seconds without a byte after which a download gives up, and the largest file that the archive may hold.
SILENCE, LARGEST_MEMBER = 60, 256 << 20


def files() -> tuple[str, ...]:
    """Names of all task files: two tasks may share one."""
    return tuple(dict.fromkeys(task.file for task in catalogue().tasks.values()))


def root_of(folder: Path) -> Path:
    """The part of a folder that holds task files. UserError where none does."""
    if not folder.is_dir():
        raise UserError(f"core_bundle: {folder}: no such folder")
    for below in ROOTS:
        if any((folder / below / name).is_file() for name in files()):
            return folder / below
    raise UserError(
        f"core_bundle: {folder}: holds no task file such as {files()[0]}; name the folder of the published bundle, or `download`"
    )


def _fetch(url: str, archive: Path) -> None:
    part = archive.with_name(f".{archive.name}.part")
    try:
        with urllib.request.urlopen(url, timeout=SILENCE) as response, part.open("wb") as stream:
            shutil.copyfileobj(response, stream)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise UserError(
            f"{url}: cannot be downloaded ({getattr(error, 'reason', error)}); check the network, put the archive at {archive}, "
            "or set core_bundle to a folder of its files"
        ) from None
    os.replace(part, archive)


def downloaded(cache: Path, url: str = URL) -> tuple[Path, str]:
    """Folder of the published archive's task files, and the archive's SHA-256, which is held to that of the first download."""
    archive = cache / "core" / url.rpartition("/")[2]
    record = archive.with_name(f"{archive.name}.sha256")
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not archive.exists():
        _fetch(url, archive)
    digest = sha256_file(archive)
    first = record.read_text(encoding="utf-8").strip() if record.exists() else digest
    if first != digest:
        raise UserError(
            f"{archive}: SHA-256 {digest} is not that of the first download ({first}); put that archive back, or delete {record} to "
            "take this one"
        )
    folder = archive.parent / digest[:12]
    try:
        with zipfile.ZipFile(archive) as opened:
            members = {info.filename: info for info in opened.infolist()}
            for name in files():
                info = members.get(f"eval_bundle/eval_data/{name}")
                target = folder / name
                if info is None or (target.is_file() and target.stat().st_size == info.file_size):
                    continue
                if info.file_size > LARGEST_MEMBER:
                    raise UserError(f"{archive}: {name} claims {info.file_size} bytes; refused")
                # Read by name and written under ours: nothing is unpacked to a path that the archive chooses.
                with atomic_open(target) as stream:
                    stream.write(opened.read(info))
    except zipfile.BadZipFile as error:
        raise UserError(
            f"{archive}: is no whole zip archive ({error}); delete it and run the same command again"
        ) from None
    write_text(record, f"{digest}\n")
    return folder, digest


def collect(source: str, out: Path, cache: Path) -> dict[str, Any]:
    """Copy the task files beside ``out`` and write it; returns its content. UserError for every bad file at once."""
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "core_bundle",
        "source": "folder",
        "archive_sha256": None,
    }
    absent = "no file in the folder that core_bundle names"
    folder: Path | None = None
    if source == "none":
        content["source"] = "none"
        absent = (
            "no task files at hand: set `core_bundle` to `download`, or to a folder of the published bundle"
        )
    elif source == "download":
        folder, content["archive_sha256"] = downloaded(cache)
        content["source"], absent = "download", "no file in the published archive"
    else:
        folder = root_of(Path(source))
    problems = Collector()
    tasks = {task.file: (name, task) for name, task in catalogue().tasks.items()}
    entries: dict[str, dict[str, Any]] = {}
    for file, (name, task) in tasks.items():
        if folder is None or not (folder / file).is_file():
            entries[file] = {"status": "not run", "reason": absent}
        elif found := problems(read_task, folder, name, task):
            entries[file] = {
                "status": "done",
                "items": len(found[0]),
                "sha256": found[1],
                "known": task.sha256 is not None,
            }
    problems.finish()
    for file, entry in entries.items():
        if entry["status"] == "done":
            with atomic_open(out.parent / file) as stream:
                stream.write((folder / file).read_bytes())
    content["files"] = entries
    write_json(out, content)
    return content


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.core_bundle", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--source", required=True, help="download, none, or the folder of the published bundle"
    )
    parser.add_argument("--cache", type=Path, help="folder of downloads (default: the project's)")
    parser.add_argument(
        "--out", type=Path, required=True, help=f"{BUNDLE_FILE} in the folder that takes the files"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    content = collect(given.source, given.out, given.cache or default_cache())
    for file, entry in content["files"].items():
        known = "" if entry.get("known") else ", of unknown hash"
        print(
            f"{file}: {entry['items']} items{known}"
            if entry["status"] == "done"
            else f"{file}: {entry['reason']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
