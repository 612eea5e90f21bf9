"""Extractors: from the members of an archive to documents, one function per kind of source."""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import json
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator

from respath.data.archives import MAX_MEMBER_BYTES
from respath.data.markup import (
    HEADING,
    html_to_text,
    markdown_to_text,
    pod_to_text,
    rst_to_text,
    wikitext_to_text,
)

Files = dict[str, bytes]
Documents = Iterator[tuple[str, str]]


def decode(data: bytes, encoding: str = "utf-8") -> str | None:
    """Text of a member; Latin-1 when it is not UTF-8; None for binary data (NUL bytes)."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _texts(files: Files, refused: Counter) -> Documents:
    for name, data in files.items():
        text = decode(data)
        if text is None:
            refused["not text"] += 1
        else:
            yield name, text


def _unmarked(text: str) -> str:
    return re.sub(HEADING + r"\d", "", text)


def cut_at_headings(text: str, depth: int) -> list[str]:
    """Pieces that begin at headings of level 1..``depth``; deeper headings stay inside.

    A heading that is no question says little without its page ("Introduction"): the page's title is put before it.
    """
    pieces = re.split(f"(?m)^(?={HEADING}[1-{depth}])", text)
    headed = [piece for piece in pieces if piece.startswith(HEADING)]
    title = headed[0].split("\n", 1)[0][2:] if headed else ""
    named = []
    for number, piece in enumerate(headed):
        first, _, rest = piece.partition("\n")
        if number and title and not first.rstrip().endswith("?"):
            first = f"{title}: {first[2:]}"
        named.append(_unmarked(f"{first}\n{rest}").strip("\n"))
    return named


def _pages(convert: Callable[[str], str], files: Files, refused: Counter, depth: int) -> Documents:
    for name, raw in _texts(files, refused):
        text = convert(raw)
        if not depth:
            yield name, _unmarked(text)
            continue
        for number, piece in enumerate(cut_at_headings(text, depth)):
            yield f"{name}#{number}", piece


def plain(files: Files, refused: Counter, *, slice_chars: int = 0, drop_lines: str = "") -> Documents:
    """File = document. ``slice_chars``: cut a long file at blank lines into pieces of about this many characters."""
    for name, text in _texts(files, refused):
        if drop_lines:
            text = re.sub(f"(?m)^(?:{drop_lines})$\n?", "", text)
        if not slice_chars:
            yield name, text
            continue
        piece, number = "", 0
        for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
            piece += block + "\n\n"
            if len(piece) >= slice_chars:
                yield f"{name}#{number}", piece
                piece, number = "", number + 1
        yield f"{name}#{number}", piece


def code(files: Files, refused: Counter) -> Documents:
    """Source files as they are."""
    yield from _texts(files, refused)


def latex(files: Files, refused: Counter, *, english_words: int = 20) -> Documents:
    """LaTeX sources as they are; code listings and non-English files, which have few stop words, are refused."""
    for name, text in _texts(files, refused):
        words = len(re.findall(r"\b(?:the|of|and|is|to|in|that|for|with)\b", text))
        if words < english_words:
            refused["not prose"] += 1
        else:
            yield name, text


def rst(files: Files, refused: Counter, *, depth: int = 0) -> Documents:
    """reStructuredText pages, whole or cut at headings."""
    return _pages(rst_to_text, files, refused, depth)


def markdown(files: Files, refused: Counter, *, depth: int = 0) -> Documents:
    """Markdown pages, whole or cut at headings."""
    return _pages(markdown_to_text, files, refused, depth)


def rst_and_markdown(files: Files, refused: Counter) -> Documents:
    """A documentation tree that mixes both."""
    yield from rst({n: d for n, d in files.items() if not n.endswith(".md")}, refused)
    yield from markdown({n: d for n, d in files.items() if n.endswith(".md")}, refused)


def pod(files: Files, refused: Counter, *, depth: int = 0) -> Documents:
    """Perl documentation, whole or cut at headings."""
    return _pages(pod_to_text, files, refused, depth)


def pod_questions(files: Files, refused: Counter) -> Documents:
    """Perl's FAQ: only the pieces whose heading asks, without each page's name, version and authors."""
    for path, text in pod(files, refused, depth=2):
        if text.split("\n", 1)[0].rstrip().endswith("?"):
            yield path, text
        else:
            refused["no question"] += 1


_NAVIGATION = re.compile(
    r"\W*(prev(ious)?|next|up|home|contents|index|table of contents|top|edit|back|search)\W*", re.I
)


def html_pages(
    files: Files, refused: Counter, *, drop_classes: tuple = (), cut: tuple = (), frame_share: float = 0.3
) -> Documents:
    """Web pages: visible text without the site's frame and without what another page already said.

    Lines found on more than ``frame_share`` of the pages (and on three at least) are navigation; a paragraph of more than 60
    letters already seen on a shorter page is dropped (manuals ship single-page copies of themselves).
    """
    pages = [
        (name, html_to_text(raw, tuple(drop_classes), tuple(cut))) for name, raw in _texts(files, refused)
    ]
    spread = Counter(line.strip() for _, text in pages for line in set(text.split("\n")) if line.strip())
    frame = {line for line, count in spread.items() if count > max(3, len(pages) * frame_share)}
    seen: set[str] = set()
    cleaned = {}
    for name, text in sorted(pages, key=lambda page: (len(page[1]), page[0])):
        lines = [
            line for line in text.split("\n") if line.strip() not in frame and not _NAVIGATION.fullmatch(line)
        ]
        kept = []
        for block in re.split(r"\n\s*\n", "\n".join(lines)):
            key = re.sub(r"\W+", "", block)
            if len(key) > 60:
                if key in seen:
                    refused["paragraph seen on another page"] += 1
                    continue
                seen.add(key)
            if block.strip():
                kept.append(block.strip("\n"))
        cleaned[name] = "\n\n".join(kept)
    for name, _ in pages:
        if cut:
            for number, piece in enumerate(cut_at_headings(cleaned[name], 9)):
                yield f"{name}#{number}", piece
        else:
            yield name, cleaned[name]


def _without_doctests(docstring: str) -> str:
    """Prose and formulas of a docstring: interactive sessions, their outputs and the headings over them go."""
    out, in_session = [], False
    for line in docstring.split("\n"):
        if re.match(r"\s*(>>>|sage:|gap>|In \[\d)", line):
            in_session = True
        if not line.strip():
            in_session = False
        if not in_session:
            out.append(line)
    text = "\n".join(out)
    heads = (
        r"(?m)^\s*(\.\. RUBRIC:: )?(EXAMPLES?|TESTS?|Examples?|Tests?|Usage)\s*(::?|\n\s*[=\-~^]{3,})?\s*$"
    )
    return re.sub(heads, "", text)


def docstrings(
    files: Files, refused: Counter, *, math_only: bool = False, backtick_is_math: bool = False
) -> Documents:
    """Module = document: its docstring and those of its classes and functions, sessions removed.

    ``math_only``: keep modules with at least ten formulas or TeX commands.
    """
    for name, text in _texts(files, refused):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            refused["not parsable"] += 1
            continue
        parts = []
        for node in [tree, *_definitions(tree)]:
            raw = ast.get_docstring(node)
            if not raw:
                continue
            body = _unmarked(rst_to_text(_without_doctests(raw), backtick_is_math))
            title = "" if node is tree else f"{node.name}\n\n"
            if len(body) >= 80 and not title.startswith("_"):
                parts.append(title + body)
        document = "\n\n".join(parts)
        if math_only and len(re.findall(r"\$[^$\n]+\$|\$\$|\\[a-zA-Z]{2,}", document)) < 10:
            refused["no mathematics"] += 1
        else:
            yield name, document


def _definitions(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child)


def python_topics(files: Files, refused: Counter) -> Documents:
    """``pydoc_data/topics.py``: the language reference that ``help()`` prints; topic = document. Parsed, never run."""
    for name, text in _texts(files, refused):
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                for topic, body in sorted(ast.literal_eval(node.value).items()):
                    # Already rendered to text but for the underlines of its headings.
                    yield f"{name}#{topic}", re.sub(r"(?m)^([*=\-~^])\1{2,}\n", "", body)


def json_extracts(
    files: Files, refused: Counter, *, text_key: str = "extract", title_key: str = "title"
) -> Documents:
    """JSON object of articles; article = document, under its title."""
    for name, raw in _texts(files, refused):
        for key, value in sorted(json.loads(raw).items()):
            body = value.get(text_key) if isinstance(value, dict) else value
            if not isinstance(body, str):
                refused["no text"] += 1
                continue
            title = value.get(title_key, key) if isinstance(value, dict) else key
            yield f"{name}#{key}", f"{title}\n\n{body}"


def wiki_dump(files: Files, refused: Counter) -> Documents:
    """MediaWiki export (bz2 XML): article = document; redirects and pages outside the main space are refused."""
    for name, data in files.items():
        whole = bz2.BZ2Decompressor().decompress(data, MAX_MEMBER_BYTES)
        # A shortened dump ends in the middle of a page: parse what is whole.
        parser = ElementTree.XMLPullParser(["end"])
        try:
            parser.feed(whole)
        except ElementTree.ParseError:
            refused["broken XML"] += 1
        for _, element in parser.read_events():
            if element.tag.rpartition("}")[2] != "page":
                continue
            field = {child.tag.rpartition("}")[2]: (child.text or "") for child in element.iter()}
            if (
                field.get("ns", "0") != "0"
                or "redirect" in field
                or field.get("text", "").lower().startswith("#redirect")
            ):
                refused["redirect or not an article"] += 1
            else:
                yield (
                    f"{name}#{field['title']}",
                    f"{field['title']}\n\n{wikitext_to_text(field.get('text', ''))}",
                )
            element.clear()


def aws_services(files: Files, refused: Counter, *, service_chars: int = 32_000) -> Documents:
    """botocore's service models: documentation written in HTML for the service's web pages; operation = document.

    Of each service the newest model, and its operations in name order up to ``service_chars`` characters, so that no
    single service dominates.
    """
    newest: dict[str, str] = {}
    for name in files:
        newest[name.split("/")[2]] = max(name, newest.get(name.split("/")[2], ""))
    for service, name in sorted(newest.items()):
        model = json.loads(files[name])
        full_name = model["metadata"].get("serviceFullName", service)
        overview = html_to_text(model.get("documentation") or "")
        yield f"{name}#overview", f"{full_name}\n\n{overview}"
        spent = len(overview)
        shapes = model["shapes"]
        for operation, spec in sorted(model["operations"].items()):
            if spent > service_chars:
                break
            parts = [f"{full_name}: {operation}", html_to_text(spec.get("documentation", ""))]
            for direction, heading in (("input", "Request"), ("output", "Response")):
                members = shapes.get(spec.get(direction, {}).get("shape"), {}).get("members", {})
                told = [
                    (field, html_to_text(member["documentation"]))
                    for field, member in members.items()
                    if member.get("documentation")
                ]
                if told:
                    parts += [heading, *(f"{field}: {text}" for field, text in told)]
            document = "\n\n".join(part for part in parts if part)
            spent += len(document)
            yield f"{name}#{operation}", document


def pylint_messages(files: Files, refused: Counter) -> Documents:
    """pylint's message pages: the message as the question, why it is raised and the corrected code as the answer."""
    folders: dict[str, Files] = {}
    for name, data in files.items():
        path = re.match(r".*/messages/\w/([^/]+)/(.*)", name)
        if path:
            folders.setdefault(path[1], {})[path[2]] = data
    for message, parts in sorted(folders.items()):
        texts = {name: decode(data) or "" for name, data in parts.items()}

        def code_of(kind: str, texts: dict[str, str] = texts) -> str:
            found = [
                texts[n].strip("\n")
                for n in sorted(texts)
                if n.startswith(kind) and n.endswith(".py") and texts[n].strip()
            ]
            return "\n\n".join(found)

        bad, good = code_of("bad"), code_of("good")
        why = _unmarked(rst_to_text(texts.get("details.rst", "")))
        if not bad or not (good or why):
            refused["no answer"] += 1
            continue
        text = f"How do I fix the pylint warning `{message}`?\n\npylint reports {message} for this code:\n\n{bad}\n"
        text += f"\n{why}\n" if why else ""
        text += f"\nThis is the corrected code:\n\n{good}\n" if good else ""
        yield message, text


def dictd(files: Files, refused: Counter) -> Documents:
    """A dictd database: entries are separated by unindented headword lines; entry = document."""
    for name, data in files.items():
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                text = stream.read(MAX_MEMBER_BYTES).decode("utf-8", errors="replace")
        except OSError:
            refused["damaged"] += 1
            continue
        for number, entry in enumerate(re.split(r"\n(?=\S)", text)):
            if entry.startswith("00-database"):
                continue
            lines = [re.sub(r"^ {2,5}", "", line) for line in entry.split("\n")]
            lines[0] = lines[0].partition("%%%")[0]
            # Curly brackets mark cross references.
            yield f"{name}#{number}", re.sub(r"\{([^{}]*)\}", r"\1", "\n".join(lines))


EXTRACTORS: dict[str, Callable[..., Documents]] = {
    "aws_services": aws_services,
    "code": code,
    "dictd": dictd,
    "docstrings": docstrings,
    "html": html_pages,
    "json_extracts": json_extracts,
    "latex": latex,
    "markdown": markdown,
    "plain": plain,
    "pod": pod,
    "pod_questions": pod_questions,
    "pylint_messages": pylint_messages,
    "python_topics": python_topics,
    "rst": rst,
    "rst_and_markdown": rst_and_markdown,
    "wiki_dump": wiki_dump,
}
