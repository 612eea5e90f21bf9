"""One reader for every corpus: embedded sources, a local folder in the original formats, files from the hub.

A source is a ``source.json`` that lists files below a root. ``read`` turns sources into documents, one row at a time;
what it cannot use it reports as ``file:line: reason`` and counts. Nothing is dropped silently.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from respath.config.arguments import argument
from respath.data.hub import DOWNLOADS, Remote, download
from respath.data.paths import check_patterns, inside, missing_splits, splits_of
from respath.errors import UserError, did_you_mean, guard
from respath.files import read_json, sha256_file, user_path, write_json
from respath.spec.data import Corpus

#: The seven domains of SlimPajama (values of ``meta.redpajama_set_name``).
SLIMPAJAMA_DOMAINS = (
    "RedPajamaCommonCrawl",
    "RedPajamaC4",
    "RedPajamaGithub",
    "RedPajamaBook",
    "RedPajamaArXiv",
    "RedPajamaWikipedia",
    "RedPajamaStackExchange",
)
FORMATS = (".jsonl", ".jsonl.zst", ".jsonl.gz", ".parquet")
#: A row longer than this is refused, so that one broken file cannot fill the memory (a text takes up to four bytes per
#: character, several copies live at a time: 64 MiB keep the worst case below 1 GB).
MAX_ROW_BYTES = 64 << 20
#: Rows of one file that may be refused before reading stops: this many, or this share of the rows, whichever is more.
MAX_REFUSED, MAX_REFUSED_SHARE = 100, 0.01
_SHOWN = 20
#: A longer ``meta`` of a row is not kept.
META_CHARACTERS = 2000
#: Puts a document's token ids back together (``respath.data.detokenize``). Raises ValueError with the reason.
Detokenize = Callable[[Any], str]


class Document(NamedTuple):
    """A usable row: its text, its domain, ``file:line``, its other columns under ``meta``, and the corpus' own split."""

    text: str
    domain: str
    where: str
    meta: dict[str, Any]
    held_out: bool


class Broken(Exception):
    """A fault of the file: cut, damaged, changed since it was listed, or no file of rows at all."""


class Refused(Exception):
    """A fault of one row: its kind, what was found there, and the domain that it is counted under."""

    def __init__(self, kind: str, detail: str = "", domain: str | None = None):
        super().__init__(kind)
        self.kind, self.detail, self.domain = kind, detail, domain


class Refusals:
    """Counts refused rows by reason and domain, shows the first ones, and stops reading when a file has too many."""

    def __init__(
        self,
        limit: int = MAX_REFUSED,
        share: float = MAX_REFUSED_SHARE,
        show: Callable[[str], None] | None = None,
    ):
        self.limit, self.share = limit, share
        self.show = show or (lambda line: print(f"refused: {line}", file=sys.stderr))
        self.reasons: Counter[str] = Counter()
        self.by_domain: dict[str, Counter[str]] = {}
        self.lines: list[str] = []
        self._in_file: list[str] = []
        self._count = 0

    def open(self) -> None:
        """Start a file: the limit counts per file."""
        self._in_file, self._count = [], 0

    @property
    def first(self) -> str:
        """The first refusal of the file that is being read."""
        return self._in_file[0]

    def add(
        self, file: str, line: int, reason: str, detail: str = "", domain: str | None = None, rows: int = 0
    ) -> None:
        """Count one refused row; UserError with the file's first refusals once the limit is passed."""
        text = f"{file}:{line}: {reason}" + (f" ({detail})" if detail else "")
        self.reasons[reason] += 1
        if domain is not None:
            self.by_domain.setdefault(domain, Counter())[reason] += 1
        self._count += 1
        if self._count <= _SHOWN:
            self._in_file.append(text)
            self.show(text)
        if len(self.lines) < self.limit:
            self.lines.append(text)
        if self._count > max(self.limit, self.share * rows):
            raise UserError(
                [
                    f"{file}: {self._count} rows refused, more than the limit of {self.limit} per file; mend or leave out the "
                    "file, or raise --max-refused; the first ones:",
                    *self._in_file,
                ]
            )


# --- bytes and rows of one file ------------------------------------------------------------------------------------


def zst_blocks(stream) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    # Not stream_reader: at a truncated end it reports a normal end of file. Small pieces bound what one call can unfold.
    frame, started = None, False
    while block := stream.read(1 << 20):
        for start in range(0, len(block), 8192):
            piece = block[start : start + 8192]
            while piece:
                if frame is None:
                    frame, started = decompressor.decompressobj(), True
                try:
                    out = frame.decompress(piece)
                except zstandard.ZstdError as error:
                    raise Broken(f"damaged zstd data: {error}") from None
                if out:
                    yield out
                piece = b""
                if frame.eof:
                    piece, frame = frame.unused_data, None
    if frame is not None or not started:
        raise Broken("the zstd data ends too early")


def _gz_blocks(stream) -> Iterator[bytes]:
    member, started = None, False
    while piece := stream.read(1 << 16):
        while piece:
            if member is None:
                member, started = zlib.decompressobj(wbits=31), True
            try:
                out = member.decompress(piece, 1 << 22)
            except zlib.error as error:
                raise Broken(f"damaged gzip data: {error}") from None
            if out:
                yield out
            piece = member.unconsumed_tail
            if member.eof:
                piece, member = member.unused_data, None
    if member is not None or not started:
        raise Broken("the gzip data ends too early")


def _plain_blocks(stream) -> Iterator[bytes]:
    while block := stream.read(1 << 20):
        yield block


def lines(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines without their line end; None for a line longer than MAX_ROW_BYTES. Raises Broken after the last
    whole line when the blocks break off."""
    number, parts, size = 1, [], 0
    for block in blocks:
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            yield number, b"".join([*parts, piece]) if size + len(piece) <= MAX_ROW_BYTES else None
            number, parts, size = number + 1, [], 0
        size += len(pieces[-1])
        if size > MAX_ROW_BYTES:
            parts = []
        elif pieces[-1]:
            parts.append(pieces[-1])
    if size:
        yield number, b"".join(parts) if size <= MAX_ROW_BYTES else None


class _Hashed:
    """A stream that hashes what is read from it."""

    def __init__(self, stream):
        self.stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int) -> bytes:
        block = self.stream.read(size)
        self.digest.update(block)
        return block


_CHANGED = "its SHA-256 is not the one that was listed: it changed since"


def _parse(raw: bytes | None, last: bool) -> Any:
    """A line as JSON. ``last``: no line end follows, so a row that makes no sense was cut. Raises Refused, and Broken for that."""
    if raw is None:
        raise Refused(f"row longer than {MAX_ROW_BYTES >> 20} MiB")
    if not raw.strip():
        raise Refused("empty line")
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        fault = Refused("invalid UTF-8", f"byte {error.start}")
    except RecursionError:
        raise Refused("malformed JSON", "nested too deeply") from None
    except ValueError as error:  # also an integer of too many digits
        fault = Refused("malformed JSON", getattr(error, "msg", str(error)))
    if last:
        raise Broken("it ends inside a row")
    raise fault


def _json_rows(path: Path, sha256: str | None) -> Iterator[tuple[int, Callable[[], Any]]]:
    """(line, function that reads its row). A byte-order mark before the first row is no part of it. Raises Broken."""
    reader = zst_blocks if path.suffix == ".zst" else _gz_blocks if path.suffix == ".gz" else _plain_blocks
    ended = False

    def blocks(stream) -> Iterator[bytes]:
        nonlocal ended
        yield from reader(stream)
        ended = True

    with path.open("rb") as stream:
        hashed = _Hashed(stream)
        for line, raw in lines(blocks(hashed)):
            if line == 1 and raw is not None:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            yield line, functools.partial(_parse, raw, ended)
        if sha256 is not None and hashed.digest.hexdigest() != sha256:
            raise Broken(_CHANGED)


def _value(scalar) -> Any:
    """A cell as Python has it; a list of numbers as an array (hundreds of token ids a row)."""
    import pyarrow

    if scalar.is_valid and isinstance(scalar, pyarrow.ListScalar | pyarrow.LargeListScalar):
        return scalar.values.to_numpy(zero_copy_only=False)
    return scalar.as_py()


def _cells(batch, row: int, columns: Sequence[str]) -> dict[str, Any]:
    return {name: _value(batch.column(name)[row]) for name in columns}


@contextlib.contextmanager
def _reading_parquet() -> Iterator[None]:
    """What the library says about damaged bytes becomes Broken; a disk's errors and used-up memory stay what they are."""
    try:
        yield
    except (MemoryError, UserError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        said = str(error).strip() or type(error).__name__
        raise Broken(f"damaged parquet data: {said.splitlines()[0][:200]}") from None


def _parquet_rows(
    path: Path, fields: Sequence[str], sha256: str | None
) -> Iterator[tuple[int, Callable[[], Any]]]:
    """(row, function that reads its wanted columns). Raises Broken, and UserError for a column that is missing or there twice."""
    import pyarrow.parquet

    if sha256 is not None and sha256_file(path) != sha256:
        raise Broken(_CHANGED)
    with _reading_parquet():
        file = pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    with file:
        with _reading_parquet():
            names = file.schema_arrow.names
        columns = list(dict.fromkeys(field.split(".")[0] for field in fields))
        for column in columns:
            if column not in names:
                raise UserError(
                    f"{path}: no column {column!r}{did_you_mean(column, names)}; set text_field / domain_field of the corpus"
                )
            if names.count(column) > 1:
                raise Broken(f"{names.count(column)} columns are called {column!r}")
        number = 0
        with _reading_parquet():
            batches = file.iter_batches(batch_size=64, columns=columns)
        while True:
            with _reading_parquet():
                batch = next(batches, None)
            if batch is None:
                return
            for i in range(batch.num_rows):
                number += 1
                yield number, functools.partial(_cells, batch, i, columns)


def dig(row: Any, field: str) -> Any:
    """The value at a dotted field, through structs and through text that holds JSON; None when absent."""
    for key in field.split("."):
        if isinstance(row, str):
            try:
                row = json.loads(row)
            except ValueError:
                return None
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


def read_file(
    path: Path,
    *,
    shown: str,
    corpus: Corpus,
    domains: Sequence[str],
    default_domain: str | None,
    refusals: Refusals,
    other: Counter[str],
    held_out: bool = False,
    detokenize: Detokenize | None = None,
    sha256: str | None = None,
    again: str = "put a whole copy in its place, or leave it out",
) -> Iterator[Document]:
    """Documents of one file whose domain is wanted. ``other`` counts good rows of known domains that are not.

    ``detokenize`` is needed where the corpus holds token ids (``token_field``). ``sha256``: what the file's bytes must have,
    checked while they are read. ``again``: what a user does about a broken file.

    Raises UserError for a broken file (cut, damaged, changed, or without one usable row), when more rows are refused than
    ``refusals`` allows, and for an unknown kind of file.
    """
    if not shown.endswith(FORMATS):
        raise UserError(f"{shown}: unknown kind of file; known: {', '.join(FORMATS)}")
    if corpus.token_field and detokenize is None:
        raise UserError(
            f"corpus {corpus.name}: holds token ids, which only the sample stage puts back together"
        )
    text_field = corpus.token_field or corpus.text_field
    only = domains[0] if corpus.domain_field is None and len(domains) == 1 else None
    default = default_domain or only
    if corpus.domain_field is None and default is None:
        raise UserError(f"corpus {corpus.name}: several domains are wanted, but domain_field names no column")
    if path.suffix == ".parquet":
        fields = [text_field] + ([corpus.domain_field] if corpus.domain_field else [])
        rows = _parquet_rows(path, fields, sha256)
    else:
        rows = _json_rows(path, sha256)
    known = {*domains, *SLIMPAJAMA_DOMAINS, *([default] if default else [])}
    refusals.open()
    number = usable = 0
    try:
        for number, row in rows:
            try:
                text, domain, meta = _usable(
                    row(), corpus.domain_field, text_field, default, known, detokenize
                )
            except Refused as fault:
                refusals.add(shown, number, fault.kind, fault.detail, fault.domain or default_domain, number)
                continue
            except (Broken, UserError, MemoryError):
                raise
            except Exception as error:  # whatever a row holds, it ends no stage
                what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                refusals.add(shown, number, "unreadable row", what, default_domain, number)
                continue
            usable += 1
            if domain in domains:
                yield Document(text, domain, f"{shown}:{number}", meta, held_out)
            else:
                other[domain] += 1
        if not usable:
            raise Broken("it holds no usable row" + (f", the first: {refusals.first}" if number else ""))
    except Broken as fault:
        raise UserError(f"{path}: {fault} (rows read so far: {number:,}); {again}") from None


def _usable(
    row: Any,
    domain_field: str | None,
    text_field: str,
    default: str | None,
    known: set[str],
    detokenize: Detokenize | None,
) -> tuple[str, str, dict[str, Any]]:
    """(text, domain, meta) of a row. Raises Refused."""
    if not isinstance(row, dict):
        raise Refused("not a JSON object", type(row).__name__)
    domain = dig(row, domain_field) if domain_field else None
    if domain is None:
        domain = default
    if domain is None:
        raise Refused("no domain", f"{domain_field} is missing")
    if not isinstance(domain, str):
        raise Refused("unknown domain", f"{domain_field} is a {type(domain).__name__}")
    if domain not in known:
        shown = domain[:80]
        raise Refused("unknown domain", f"{shown!r}{did_you_mean(shown, sorted(known))}")
    text = dig(row, text_field)
    if detokenize is not None and text is not None:
        try:
            text = detokenize(text)
        except ValueError as error:
            raise Refused("bad token ids", str(error), domain) from None
    if not isinstance(text, str):
        what = "missing" if text is None else f"a {type(text).__name__}"
        raise Refused("no text", f"{text_field} is {what}", domain)
    if not text.strip():
        raise Refused("empty text", "", domain)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Refused("invalid Unicode", f"lone surrogate at character {error.start}", domain) from None
    return text, domain, _meta(row, text_field.split(".")[0])


def _meta(row: dict[str, Any], text_root: str) -> dict[str, Any]:
    """The row's ``meta`` as an object (some re-uploads store it as JSON text); without one, its other columns.

    Empty where it is longer than ``META_CHARACTERS`` or cannot be written as JSON: it is a note, and no reason to lose a text.
    """
    meta = row.get("meta")
    try:
        if isinstance(meta, str):
            try:
                meta = json.loads(meta)
            except ValueError:
                meta = {"meta": meta}
        if not isinstance(meta, dict):
            meta = {key: value for key, value in row.items() if key != text_root}
        short = len(str(meta)) <= META_CHARACTERS and json.dumps(meta, sort_keys=True, default=str)
    except (RecursionError, TypeError, ValueError):
        return {}
    return meta if short else {}


# --- sources -------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """A listed source: where its files lie, their list, and the domain of rows that name none."""

    path: Path
    content: dict[str, Any]
    root: Path

    @property
    def name(self) -> str:
        """``corpus/source``, as shown in messages."""
        return f"{self.content.get('corpus')}/{self.content.get('source')}"

    def again(self, path: str) -> str:
        """How a user gets a broken file whole: from where it came."""
        run = "and run the same command again"
        if self.content["source"] not in ("local", "hub"):
            return f"delete {self.path} {run}: it is fetched anew"
        if self.content.get("revision"):
            return f"delete it and {self.path} {run}: it is fetched anew"
        return f"put a whole copy in its place or take it out of {self.root}, delete {self.path} {run}"


def load_source(path: str | Path) -> Source:
    """Read and check a ``source.json``. UserError names the file and the key."""
    path = Path(path)
    content = read_json(path)
    if (
        not isinstance(content, dict)
        or content.get("kind") != "source"
        or not isinstance(content.get("files"), list)
    ):
        raise UserError(
            f"{path}: not a source list (kind: source, files: [...]); delete it and run the same command again"
        )
    root = Path(content.get("root") or path.parent)
    for file in content["files"]:
        full = inside(root, str(file.get("path", "")))
        try:
            size = full.stat().st_size
        except FileNotFoundError:
            raise UserError(
                f"{full}: listed in {path} but missing; delete {path} and run the same command again"
            ) from None
        if size != file.get("bytes"):
            raise UserError(
                f"{full}: {size} bytes, but {path} says {file.get('bytes')}; delete {path} and run the same command again"
            )
        if not re.fullmatch(r"[0-9a-f]{64}", str(file.get("sha256"))):
            raise UserError(
                f"{path}: lists {full} without its SHA-256; delete {path} and run the same command again"
            )
    return Source(path, content, root)


def has_own_validation(sources: Iterable[Source]) -> bool:
    """Whether the corpus brings validation files of its own."""
    return any(file.get("split") == "validation" for source in sources for file in source.content["files"])


class File(NamedTuple):
    """One file of a source: the split that the corpus gives it is ``held_out``."""

    source: Source
    path: str
    held_out: bool
    sha256: str

    def documents(self, **how: Any) -> Iterator[Document]:
        """Its wanted documents (``read_file``)."""
        content = self.source.content
        return read_file(
            inside(self.source.root, self.path),
            shown=f"{content['source']}/{self.path}",
            default_domain=content.get("domain"),
            held_out=self.held_out,
            sha256=self.sha256,
            again=self.source.again(self.path),
            **how,
        )


def files_in_order(sources: Iterable[Source]) -> list[File]:
    """Validation files first, then by source name and path, whatever the order of ``sources``."""
    files = [
        File(s, f["path"], f.get("split") == "validation", f["sha256"])
        for s in sources
        for f in s.content["files"]
    ]
    return sorted(files, key=lambda file: (not file.held_out, file.source.name, file.path))


def read(
    sources: Iterable[Source], corpus: Corpus, domains: Sequence[str], refusals: Refusals, other: Counter[str]
) -> Iterator[Document]:
    """All wanted documents of all sources, in the order of ``files_in_order``. Memory: one row at a time."""
    for file in files_in_order(sources):
        yield from file.documents(corpus=corpus, domains=domains, refusals=refusals, other=other)


# --- listing a local folder or a hub repository --------------------------------------------------------------------


def names_below(root: Path) -> tuple[list[str], dict[str, str]]:
    """Relative names of the files of rows below a folder; and what is not looked at, {name: reason}.

    Hidden folders (downloads under way, a hub's notes) and linked ones (they can lead anywhere, also in a circle) are not entered.
    """
    names: list[str] = []
    left_out: dict[str, str] = {}

    def name_of(path: str | Path) -> str:
        return os.fsencode(Path(path).relative_to(root).as_posix()).decode("utf-8", "backslashreplace")

    def unreadable(error: OSError) -> None:
        left_out[name_of(error.filename)] = f"a folder that cannot be read ({error.strerror})"

    for folder, folders, files in os.walk(root, onerror=unreadable):
        for name in folders:
            if name.startswith("."):
                left_out[name_of(Path(folder, name))] = "a hidden folder"
            elif Path(folder, name).is_symlink():
                left_out[name_of(Path(folder, name))] = (
                    f"a linked folder; name the folder that it leads to, {os.readlink(Path(folder, name))}, or put the files here"
                )
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in files:
            path = Path(folder, name)
            if not name.endswith(FORMATS):
                continue
            if not _is_utf8(path.relative_to(root).as_posix()):
                left_out[name_of(path)] = "a name that is not UTF-8"
            else:
                names.append(path.relative_to(root).as_posix())
    return sorted(names), dict(sorted(left_out.items()))


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def list_folder(
    corpus: Corpus, root: Path, known: Mapping[str, Remote] | None = None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Files of each split below ``root``, and what is left out, {name: reason}.

    ``known``: only these files, whose hashes were checked when they came. UserError when a split has no file.
    """
    check_patterns(corpus)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; set `locations: {{{corpus.name}: FOLDER}}` in config.yaml")
    names, left_out = names_below(root) if known is None else (sorted(known), {})
    chosen, marked = splits_of(names, corpus)
    for split, patterns in missing_splits(corpus, chosen):
        shown = ", ".join(names[:5]) or f"none that ends in {', '.join(FORMATS)}"
        shown += "".join(f"; left out: {name}, {reason}" for name, reason in list(left_out.items())[:5])
        raise UserError(
            f"corpus {corpus.name}: no {split} file below {root} matches {', '.join(patterns)}; files there: {shown}"
        )
    left_out |= dict.fromkeys(marked, "its name marks it as held out")
    files = []
    for name, split in chosen.items():
        path = inside(root, name)
        sha256 = (known[name].sha256 if known else None) or sha256_file(path)
        files.append({"path": name, "bytes": path.stat().st_size, "split": split, "sha256": sha256})
    return files, left_out


def has_copy(corpus: Corpus, folder: Path) -> bool:
    """Whether a folder holds files of a hub corpus under the repository's own names, for every split."""
    if not folder.is_dir():
        return False
    chosen, _ = splits_of(names_below(folder)[0], corpus)
    return bool(chosen) and not missing_splits(corpus, chosen)


def list_corpus(corpus: Corpus, location: Path, instead: Sequence[str] = ()) -> dict[str, Any]:
    """The content of ``source.json`` for a local or hub corpus.

    ``location``: the folder; of a hub corpus a folder with its files under their own names (then the hub is not asked), or
    where downloads go. ``instead``: corpora that an unreachable hub's message names.
    """
    commit, known = None, None
    if corpus.kind == "hub":
        if has_copy(corpus, location):
            root = location
            print(f"corpus {corpus.name}: files found in {location}; the hub is not asked", file=sys.stderr)
        else:
            root, commit, known = download(corpus, location, tuple(instead))
    elif corpus.kind == "local":
        root = location
    else:
        raise UserError(f"corpus {corpus.name}: embedded sources are fetched by respath.data.fetch")
    files, left_out = list_folder(corpus, root, known)
    for name, reason in left_out.items():
        print(f"left out: {name} ({reason})", file=sys.stderr)
    return {
        "schema": 1,
        "kind": "source",
        "source": corpus.kind,
        "corpus": corpus.name,
        "domain": None,
        "root": str(root.resolve()),
        "repository": corpus.repository,
        # None: a copy of a repository's files that the user has; the hashes say which.
        "revision": commit,
        "files": files,
        "left_out": left_out,
        # Known only once the rows are read: the sample counts them.
        "documents": None,
        "bytes": None,
        "refused": {},
    }


@guard
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m respath.data.documents", description="List a local or hub corpus."
    )
    parser.add_argument("--corpus", required=True, help="the corpus spec as JSON or @FILE")
    parser.add_argument(
        "--location",
        default="",
        help="the folder (local), or a folder with the repository's files or for its downloads (hub)",
    )
    parser.add_argument("--instead", nargs="*", default=[], help="corpora to name when the hub refuses")
    parser.add_argument("--out", required=True, type=Path, help="source.json to write")
    parser.add_argument("--debug", action="store_true")
    arguments = parser.parse_args(argv)
    corpus = argument(Corpus, arguments.corpus, "--corpus")
    if corpus.kind == "local" and not arguments.location:
        raise UserError(
            f"corpus {corpus.name}: its folder is not set; set `locations: {{{corpus.name}: FOLDER}}` in config.yaml"
        )
    location = user_path(arguments.location or DOWNLOADS, f"config.yaml: locations: {corpus.name}")
    content = list_corpus(corpus, location, arguments.instead)
    write_json(arguments.out, content)
    total = sum(file["bytes"] for file in content["files"])
    print(f"{len(content['files'])} files, {total / 1e6:.1f} MB -> {arguments.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
