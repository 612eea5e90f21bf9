"""Collect the items of a suite once, from local files, a PyPI wheel or the hub, as hashed JSONL files that lm-eval reads.

``python -m respath.measure.items --suite NAME --tasks hellaswag piqa --source auto --out results/eval_items/NAME/items.json``
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from respath.errors import UserError, guard
from respath.files import atomic_open, sha256_file, write_json
from respath.measure import rows as schemas
from respath.measure.rows import Row
from respath.measure.suites import Catalogue, Task, WheelFile, catalogue, definition, lm_eval_version

SCHEMA = 1
SOURCES = ("auto", "local", "wheel", "hub")
#: No file of the evaluation sets comes near this; a larger member of an archive is not what we pinned.
LARGEST_MEMBER = 256 * 2**20


@dataclass(frozen=True)
class Items:
    """Rows of one split with where they come from."""

    rows: list[Row]
    source: str
    split: str
    origin: str
    note: str = ""


def _checked(task: str, schema: str, pairs: Iterator[tuple[str, Row]]) -> list[Row]:
    """Convert all rows or raise: an evaluation set with rows left out would score something else."""
    good, bad = schemas.convert(schema, pairs)
    if bad:
        more = [f"... and {len(bad) - 5} more rows"] if len(bad) > 5 else []
        raise UserError([*(f"{line} (task {task})" for line in bad[:5]), *more])
    return good


# --- local files ---------------------------------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[tuple[str, Row]]:
    """Rows of a JSON-lines file, plain or gzip."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        try:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    try:
                        yield f"{path}:{number}", json.loads(line)
                    except (ValueError, RecursionError) as error:
                        raise UserError(f"{path}:{number}: not valid JSON ({error})") from None
        except (EOFError, gzip.BadGzipFile) as error:
            raise UserError(f"{path}: not a complete gzip file ({error}); copy it again") from None


def _with_labels(path: Path) -> Iterator[tuple[str, Row]]:
    """Rows of PIQA's original files, whose labels stand line by line in ``<name>-labels.lst``."""
    labels_file = path.with_name(f"{path.name.split('.')[0]}-labels.lst")
    if not labels_file.is_file():
        yield from _lines(path)
        return
    labels = labels_file.read_text(encoding="utf-8").split()
    found = list(_lines(path))
    if len(labels) != len(found):
        raise UserError(f"{labels_file}: {len(labels)} labels for {len(found)} rows of {path.name}")
    for (where, row), label in zip(found, labels, strict=True):
        yield where, {**row, "label": label}


def _read_local(path: Path, schema: str) -> Iterator[tuple[str, Row]]:
    """Rows of one file. UserError names it where it breaks off or is something else."""
    try:
        yield from _rows_of(path, schema)
    except (ValueError, zlib.error) as error:
        raise UserError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:200]}); copy it again"
        ) from None


def _rows_of(path: Path, schema: str) -> Iterator[tuple[str, Row]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        for number, row in enumerate(pyarrow.parquet.read_table(path).to_pylist(), 1):
            yield f"{path}: row {number}", row
    elif path.suffix == ".raw":
        for number, row in enumerate(schemas.wikitext_pages(path.read_text(encoding="utf-8")), 1):
            yield f"{path}: page {number}", row
    elif schema == "piqa":
        yield from _with_labels(path)
    else:
        yield from _lines(path)


def _local_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files of the first pattern that matches: one file, or the shards of one folder."""
    for pattern in patterns:
        for candidate in (pattern, f"{pattern}.gz"):
            found = sorted(path for path in folder.rglob(candidate) if path.is_file())
            if len({path.parent for path in found}) > 1:
                raise UserError(
                    f"{folder}: {found[0].relative_to(folder)} and {found[-1].relative_to(folder)} both match "
                    f"{candidate!r}; name a folder that holds one of them"
                )
            if found:
                return found
    return []


def from_local(name: str, task: Task, folder: Path) -> Items | None:
    """Items from the user's own files below ``folder``; None when no file name matches."""
    for split, sources in task.splits.items():
        files = _local_files(folder, sources.local)
        if not files:
            continue
        pairs = (pair for path in files for pair in _read_local(path, task.rows))
        note = ""
        converted = _checked(name, task.rows, pairs)
        if task.rows == "wikitext" and not any(
            "\n\n" in row["page"] or "\n \n" in row["page"] for row in converted
        ):
            note = (
                "this copy lacks the blank lines of the original file, which the hub's pages have: "
                "word_perplexity is slightly different"
            )
        origin = ", ".join(path.relative_to(folder).as_posix() for path in files)
        return Items(converted, "local", split, origin, note)
    return None


# --- the wheel -----------------------------------------------------------------------------------------------------


class Wheel:
    """Members of a wheel, read in memory: nothing is ever unpacked to a path that the archive names."""

    def __init__(self, path: Path, root: str, label: str):
        self.path, self.root, self.label = path, root, label
        self.archive = zipfile.ZipFile(path)

    def read(self, member: str) -> bytes:
        """Bytes of a member below the root. UserError when it is absent or implausibly large."""
        name = f"{self.root}/{member}"
        try:
            info = self.archive.getinfo(name)
        except KeyError:
            raise UserError(
                f"{self.path}: has no member {name}; it is not the wheel that tasks.yaml pins"
            ) from None
        if info.file_size > LARGEST_MEMBER:
            raise UserError(f"{self.path}: member {name} claims {info.file_size} bytes; refused")
        return self.archive.read(info)

    def arrow(self, folder: str) -> Iterator[tuple[str, Row]]:
        """Rows of a saved data set (Arrow stream files of one folder)."""
        import pyarrow

        prefix = f"{self.root}/{folder}/data-"
        shards = sorted(n for n in self.archive.namelist() if n.startswith(prefix) and n.endswith(".arrow"))
        for shard in shards:
            blob = self.read(shard.removeprefix(f"{self.root}/"))
            table = pyarrow.ipc.open_stream(pyarrow.BufferReader(blob)).read_all()
            for number, row in enumerate(table.to_pylist(), 1):
                yield f"{self.path.name}:{shard}: row {number}", row

    def requests(self, folder: str) -> Iterator[tuple[str, Row]]:
        """The document of every request of a file with one each."""
        member = f"{folder}/requests.jsonl.gz"
        with gzip.open(io.BytesIO(self.read(member)), "rb") as stream:
            for number, line in enumerate(stream, 1):
                yield f"{self.path.name}:{member}:{number}", json.loads(line)["doc"]

    def documents(self, folder: str) -> Iterator[tuple[str, Row]]:
        """Documents of a request file, each once (it lists one per choice, and all again without their context)."""
        member = f"{folder}/requests.jsonl.gz"
        seen = set()
        with gzip.open(io.BytesIO(self.read(member)), "rb") as stream:
            for number, line in enumerate(stream, 1):
                document = json.loads(line)["doc"]
                if document["id"] not in seen:
                    seen.add(document["id"])
                    yield f"{self.path.name}:{member}:{number}", document


def _from_documents(name: str, task: Task, split: str, source: WheelFile, wheel: Wheel) -> Items | None:
    """Convert request documents back to rows, if the same conversion reproduces every known validation row."""
    known_source = task.splits["validation"].wheel
    known = {row["id"]: row for row in _checked(name, task.rows, wheel.arrow(known_source.arrow))}
    converted = {row["id"]: row for row in _checked(name, task.rows, wheel.documents(source.like))}
    if known.keys() != converted.keys() or not all(
        schemas.same_question(known[i], converted[i]) for i in known
    ):
        return None
    rows = _checked(name, task.rows, wheel.documents(source.documents))
    note = (
        f"{split} rows converted from request documents; the same conversion reproduces all {len(known)} "
        "validation rows (choice labels are numbered anew; scores use positions only)"
    )
    return Items(rows, "wheel", split, f"{wheel.label}: {source.documents}", note)


def from_wheel(name: str, task: Task, wheel: Wheel) -> Items | None:
    """Items from the wheel; None when it does not hold this task."""
    for split, sources in task.splits.items():
        source = sources.wheel
        if source is None:
            continue
        if source.documents is not None:
            items = _from_documents(name, task, split, source, wheel)
            if items is not None:
                return items
        elif source.requests is not None:
            rows = _checked(name, task.rows, wheel.requests(source.requests))
            return Items(rows, "wheel", split, f"{wheel.label}: {source.requests}")
        else:
            rows = _checked(name, task.rows, wheel.arrow(source.arrow))
            return Items(rows, "wheel", split, f"{wheel.label}: {source.arrow}")
    return None


# --- the hub -------------------------------------------------------------------------------------------------------


def hub_is_off() -> bool:
    """Whether the user switched the hub off by its own environment variables."""
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def from_hub(name: str, task: Task) -> Items:
    """Items from the hub at the pinned revision. UserError when it cannot be reached."""
    try:
        import datasets
        import huggingface_hub
    except ImportError as error:
        raise UserError(
            f"package {error.name} is not installed; install it with `pip install datasets`"
        ) from None

    hub, split = task.hub, next(iter(task.splits))
    try:
        revision = hub.revision or huggingface_hub.HfApi().dataset_info(hub.repository).sha
        table = datasets.load_dataset(hub.repository, hub.config, split=split, revision=revision)
    except Exception as error:  # the hub's clients raise many unrelated types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"task {name}: {hub.repository} could not be read from the hub ({reason}); check the network and HF_TOKEN, "
            "or give your own files with --location"
        ) from None
    origin = f"{hub.repository}@{revision}"
    rows = _checked(
        name, task.rows, ((f"{origin}: row {number}", row) for number, row in enumerate(table, 1))
    )
    note = "" if hub.revision else "no revision is pinned for this data set; this one was current"
    return Items(rows, "hub", split, origin, note)


# --- collecting ----------------------------------------------------------------------------------------------------


class Collection:
    """Where the items of a suite are taken from, in order."""

    def __init__(
        self, source: str, location: Path | None, allow_hub: bool, cache: Path | None, known: Catalogue
    ):
        if source not in SOURCES:
            raise UserError(f"--source {source!r} is not one of {', '.join(SOURCES)}")
        if location is not None and not location.is_dir():
            raise UserError(f"--location {location}: no such folder")
        if source == "local" and location is None:
            raise UserError("--source local needs --location, the folder of your evaluation files")
        self.source, self.location, self.cache, self.known = source, location, cache, known
        self.use_hub = source == "hub" or (source == "auto" and allow_hub and not hub_is_off())
        self._wheel: Wheel | None = None

    @property
    def wheel(self) -> Wheel:
        """The pinned wheel, downloaded once and checked against its hash."""
        if self._wheel is None:
            from respath.data.archives import fetch_wheel

            pin = self.known.wheel
            path = fetch_wheel(pin.name, pin.version, pin.sha256, self.cache)
            self._wheel = Wheel(path, pin.root, f"{pin.name}=={pin.version}")
        return self._wheel

    def items(self, name: str, task: Task) -> Items | None:
        """Items of one task from the first source that has them."""
        found = None
        if self.location is not None and self.source in ("auto", "local"):
            found = from_local(name, task, self.location)
        in_wheel = any(split.wheel for split in task.splits.values())
        if found is None and in_wheel and self.source in ("auto", "wheel"):
            found = from_wheel(name, task, self.wheel)
        if found is None and self.use_hub:
            found = from_hub(name, task)
        return found

    def why_not(self, task: Task) -> str:
        """The reason recorded for a task without items."""
        files = ", ".join(pattern for split in task.splits.values() for pattern in split.local[:1])
        if self.source == "local":
            return f"no local file ({files})"
        return f"needs hub or local file ({files})"


def collect(suite: str, collection: Collection, out: Path, names: Sequence[str]) -> dict:
    """Write one JSONL file per task of ``names`` beside ``out``, then ``out`` itself, which ``suite`` names; returns its content."""
    tasks = collection.known.select(names)
    record: dict[str, dict] = {}
    for name, task in tasks.items():
        found = collection.items(name, task)
        if found is None:
            record[name] = {"status": "not run", "reason": collection.why_not(task)}
            continue
        path = out.with_name(f"{name}.jsonl")
        with atomic_open(path, "w", encoding="utf-8", newline="\n") as stream:
            for row in found.rows:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        preferred = next(iter(task.splits))
        notes = [found.note] if found.note else []
        if found.split != preferred:
            usual = "lm-eval evaluates" if task.definition else "the suite is scored"
            notes.append(f"{usual} on the {preferred} split; these are {found.split} items")
        record[name] = {
            "status": "done",
            "source": found.source,
            "origin": found.origin,
            "split": found.split,
            "items": len(found.rows),
            "licence": task.licence,
            "task_version": definition(task).get("metadata", {}).get("version"),
            "definition": task.definition,
            "file": path.name,
            "sha256": sha256_file(path),
            "notes": notes,
        }
    if not any(entry["status"] == "done" for entry in record.values()):
        raise UserError(
            f"suite {suite}: no items found for any task; use --source wheel, or --location with your files"
        )
    content = {
        "schema": SCHEMA,
        "kind": "eval_items",
        "suite": suite,
        "lm_eval_version": lm_eval_version(),
        "tasks": record,
    }
    write_json(out, content)
    return content


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.items", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", required=True, help="name of the suite: the paper that evaluates on it")
    parser.add_argument("--tasks", nargs="+", required=True, help="its tasks, by lm-eval's names")
    parser.add_argument(
        "--source", default="auto", help="auto (local, wheel, hub in this order), local, wheel or hub"
    )
    parser.add_argument("--location", default="", help="folder of your own evaluation files")
    parser.add_argument(
        "--allow-hub", action="store_true", help="auto may ask the hub for what is found nowhere else"
    )
    parser.add_argument("--cache", type=Path, help="folder of downloaded wheels (default: the project's)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    location = Path(given.location) if given.location else None
    collection = Collection(given.source, location, given.allow_hub, given.cache, catalogue())
    content = collect(given.suite, collection, given.out, given.tasks)
    for name, entry in content["tasks"].items():
        if entry["status"] == "done":
            print(f"{name}: {entry['items']} {entry['split']} items from {entry['source']}")
        else:
            print(f"{name}: not run, {entry['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
