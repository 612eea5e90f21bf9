"""One reader for every corpus: embedded sources, a local folder in the original formats, files from the hub.

A source is a ``source.json`` that lists files below a root. ``read`` turns sources into documents, one row at a time;
what it cannot use it reports as ``file:line: reason`` and counts. Nothing is dropped silently.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from respath.config.arguments import argument
from respath.config.run import Corpus
from respath.data.hub import DOWNLOADS, Remote, download
from respath.data.paths import check_patterns, inside, missing_splits, splits_of
from respath.errors import UserError, did_you_mean, guard
from respath.files import read_json, sha256_file, write_json

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
#: Files up to this size are hashed whole when a folder is listed; longer ones by size, first and last MiB.
FULL_HASH_BYTES = 64 << 20
#: Rows of one file that may be refused before reading stops: this many, or this share of the rows, whichever is more.
MAX_REFUSED, MAX_REFUSED_SHARE = 100, 0.01
_SHOWN = 20
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
    """A file that ends too early or cannot be decompressed further; what came before it is good."""


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


def _json_rows(path: Path) -> Iterator[tuple[int, Any, str | None]]:
    """(line, row, None) or (line, None, reason)."""
    reader = zst_blocks if path.suffix == ".zst" else _gz_blocks if path.suffix == ".gz" else _plain_blocks
    line = 0
    with path.open("rb") as stream:
        try:
            for line, raw in lines(reader(stream)):
                if raw is None:
                    yield line, None, f"row longer than {MAX_ROW_BYTES >> 20} MiB"
                    continue
                try:
                    row = json.loads(raw.decode("utf-8"))
                except UnicodeDecodeError as error:
                    yield line, None, f"invalid UTF-8|byte {error.start}"
                except (json.JSONDecodeError, RecursionError) as error:
                    empty = not raw.strip()
                    yield (
                        line,
                        None,
                        "empty line"
                        if empty
                        else f"malformed JSON|{getattr(error, 'msg', 'nested too deeply')}",
                    )
                except ValueError as error:  # e.g. an integer of too many digits
                    yield line, None, f"malformed JSON|{error}"
                else:
                    yield line, row, None
        except Broken as error:
            yield line + 1, None, f"truncated or damaged file|{error}"


def _value(scalar) -> Any:
    """A cell as Python has it; a list of numbers as an array (hundreds of token ids a row)."""
    import pyarrow

    if scalar.is_valid and isinstance(scalar, pyarrow.ListScalar | pyarrow.LargeListScalar):
        return scalar.values.to_numpy(zero_copy_only=False)
    return scalar.as_py()


def _parquet_rows(path: Path, fields: Sequence[str], shown: str) -> Iterator[tuple[int, Any, str | None]]:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except (pyarrow.ArrowInvalid, OSError) as error:
        yield 1, None, f"truncated or damaged file|{error}"
        return
    with file:
        names = file.schema_arrow.names
        columns = list(dict.fromkeys(field.split(".")[0] for field in fields))
        missing = [column for column in columns if column not in names]
        if missing:
            raise UserError(
                f"{shown}: no column {missing[0]!r}{did_you_mean(missing[0], names)}; set text_field / domain_field of the corpus"
            )
        number = 0
        try:
            for batch in file.iter_batches(batch_size=64, columns=columns):
                for i in range(batch.num_rows):
                    number += 1
                    try:
                        yield number, {name: _value(batch.column(name)[i]) for name in columns}, None
                    except UnicodeDecodeError as error:
                        yield number, None, f"invalid UTF-8|byte {error.start}"
        except (pyarrow.ArrowException, OSError) as error:
            yield number + 1, None, f"truncated or damaged file|{error}"


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
) -> Iterator[Document]:
    """Documents of one file whose domain is wanted. ``other`` counts good rows of known domains that are not.

    ``detokenize`` is needed where the corpus holds token ids (``token_field``).

    Raises UserError when more rows are refused than ``refusals`` allows, or for an unknown kind of file.
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
        rows = _parquet_rows(path, fields, shown)
    else:
        rows = _json_rows(path)
    known = {*domains, *SLIMPAJAMA_DOMAINS, *([default] if default else [])}
    text_root = text_field.split(".")[0]
    refusals.open()
    for number, row, reason in rows:
        if reason is not None:
            kind, _, detail = reason.partition("|")
            refusals.add(shown, number, kind, detail, default_domain, number)
            continue
        if not isinstance(row, dict):
            refusals.add(shown, number, "not a JSON object", type(row).__name__, default_domain, number)
            continue
        domain = dig(row, corpus.domain_field) if corpus.domain_field else None
        if domain is None:
            domain = default
        if domain is None:
            refusals.add(shown, number, "no domain", f"{corpus.domain_field} is missing", None, number)
            continue
        if domain not in known:
            refusals.add(
                shown,
                number,
                "unknown domain",
                f"{domain!r}"[:80] + did_you_mean(domain, sorted(known)),
                None,
                number,
            )
            continue
        text = dig(row, text_field)
        if detokenize is not None and text is not None:
            try:
                text = detokenize(text)
            except ValueError as error:
                refusals.add(shown, number, "bad token ids", str(error), domain, number)
                continue
        if not isinstance(text, str):
            what = "missing" if text is None else f"a {type(text).__name__}"
            refusals.add(shown, number, "no text", f"{text_field} is {what}", domain, number)
            continue
        if not text.strip():
            refusals.add(shown, number, "empty text", "", domain, number)
            continue
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            refusals.add(
                shown, number, "invalid Unicode", f"lone surrogate at character {error.start}", domain, number
            )
            continue
        if domain not in domains:
            other[domain] += 1
            continue
        yield Document(text, domain, f"{shown}:{number}", _meta(row, text_root), held_out)


def _meta(row: dict[str, Any], text_root: str) -> dict[str, Any]:
    """The row's ``meta`` as an object (some re-uploads store it as JSON text); without one, its other columns."""
    meta = row.get("meta")
    if isinstance(meta, str):
        try:
            meta = json.loads(meta)
        except ValueError:
            meta = {"meta": meta}
    return meta if isinstance(meta, dict) else {key: value for key, value in row.items() if key != text_root}


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


def load_source(path: str | Path) -> Source:
    """Read and check a ``source.json``. UserError names the file and the key."""
    path = Path(path)
    content = read_json(path)
    if (
        not isinstance(content, dict)
        or content.get("kind") != "source"
        or not isinstance(content.get("files"), list)
    ):
        raise UserError(f"{path}: not a source list (kind: source, files: [...]); delete it and fetch again")
    root = Path(content.get("root") or path.parent)
    for file in content["files"]:
        full = inside(root, str(file.get("path", "")))
        try:
            size = full.stat().st_size
        except FileNotFoundError:
            raise UserError(f"{full}: listed in {path} but missing; delete {path} and fetch again") from None
        if size != file.get("bytes"):
            raise UserError(
                f"{full}: {size} bytes, but {path} says {file.get('bytes')}; delete {path} and fetch again"
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

    def documents(self, **how: Any) -> Iterator[Document]:
        """Its wanted documents (``read_file``)."""
        shown = f"{self.source.content['source']}/{self.path}"
        domain = self.source.content.get("domain")
        path = inside(self.source.root, self.path)
        return read_file(path, shown=shown, default_domain=domain, held_out=self.held_out, **how)


def files_in_order(sources: Iterable[Source]) -> list[File]:
    """Validation files first, then by source name and path, whatever the order of ``sources``."""
    files = [File(s, f["path"], f.get("split") == "validation") for s in sources for f in s.content["files"]]
    return sorted(files, key=lambda file: (not file.held_out, file.source.name, file.path))


def read(
    sources: Iterable[Source], corpus: Corpus, domains: Sequence[str], refusals: Refusals, other: Counter[str]
) -> Iterator[Document]:
    """All wanted documents of all sources, in the order of ``files_in_order``. Memory: one row at a time."""
    for file in files_in_order(sources):
        yield from file.documents(corpus=corpus, domains=domains, refusals=refusals, other=other)


# --- listing a local folder or a hub repository --------------------------------------------------------------------


def quick_hash(path: Path) -> str:
    """SHA-256 over size, first and last MiB: tells exchanged big files apart without reading them whole."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as stream:
        digest.update(stream.read(1 << 20))
        stream.seek(max(0, size - (1 << 20)))
        digest.update(stream.read(1 << 20))
    return digest.hexdigest()


def names_below(root: Path) -> list[str]:
    """Relative names of the readable files below a folder; hidden folders (downloads under way, a hub's notes) are skipped."""
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        names += [(Path(folder) / f).relative_to(root).as_posix() for f in files if f.endswith(FORMATS)]
    return sorted(names)


def list_folder(
    corpus: Corpus, root: Path, known: Mapping[str, Remote] | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Files of each split below ``root``, and files left out because their name marks them as held out (``splits_of``).

    ``known``: only these files, whose hashes were checked when they came. UserError when a split has no file.
    """
    check_patterns(corpus)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; set `locations: {{{corpus.name}: FOLDER}}` in config.yaml")
    names = names_below(root) if known is None else sorted(known)
    chosen, left_out = splits_of(names, corpus)
    for split, patterns in missing_splits(corpus, chosen):
        shown = ", ".join(names[:5]) or f"none that ends in {', '.join(FORMATS)}"
        raise UserError(
            f"corpus {corpus.name}: no {split} file below {root} matches {', '.join(patterns)}; files there: {shown}"
        )
    files = []
    for name, split in chosen.items():
        path = inside(root, name)
        size = path.stat().st_size
        sha256 = known[name].sha256 if known else None
        if sha256 is None and size <= FULL_HASH_BYTES:
            sha256 = sha256_file(path)
        digest = {"sha256": sha256} if sha256 else {"quick_sha256": quick_hash(path)}
        files.append({"path": name, "bytes": size, "split": split, **digest})
    return files, left_out


def has_copy(corpus: Corpus, folder: Path) -> bool:
    """Whether a folder holds files of a hub corpus under the repository's own names, for every split."""
    if not folder.is_dir():
        return False
    chosen, _ = splits_of(names_below(folder), corpus)
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
    for name in left_out:
        print(f"left out of training (its name marks it as held out): {name}", file=sys.stderr)
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
    content = list_corpus(corpus, Path(arguments.location or DOWNLOADS), arguments.instead)
    write_json(arguments.out, content)
    total = sum(file["bytes"] for file in content["files"])
    print(f"{len(content['files'])} files, {total / 1e6:.1f} MB -> {arguments.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
