"""Markup to plain text: HTML, reStructuredText, POD and wikitext, keeping what a reader would read."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

#: Marks the start of a heading in intermediate text, so that documents can be cut there; never in a final text.
HEADING = "\x01"

_DROP = {
    "script",
    "style",
    "nav",
    "header",
    "footer",
    "form",
    "button",
    "head",
    "noscript",
    "svg",
    "iframe",
    "select",
}
_VOID = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "param",
    "source",
    "track",
    "wbr",
}
_PARAGRAPH = {"p", "div", "section", "article", "main", "ul", "ol", "dl", "table", "blockquote", "figure", "pre", "aside",
              "h1", "h2", "h3", "h4", "h5", "h6", "details", "address", "body"}  # fmt: skip
_LINE = {"li", "dt", "dd", "tr", "br", "hr", "caption", "figcaption", "summary", "thead", "tbody"}


class _TextBuilder(HTMLParser):
    """Collects visible text; blocks become lines, ``pre`` keeps its layout, table cells are set apart by two spaces."""

    def __init__(self, drop_classes: frozenset[str], cut_at: frozenset[str]):
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._dropping: list[str] = []
        self._pre = 0
        self._drop_classes, self._cut_at = drop_classes, cut_at

    def handle_starttag(self, tag, attrs):
        if self._dropping:
            if tag == self._dropping[-1]:
                self._dropping.append(tag)
            return
        attributes = dict(attrs)
        classes = set((attributes.get("class") or "").split()) | {attributes.get("id") or ""}
        if tag not in _VOID and (tag in _DROP or classes & self._drop_classes):
            self._dropping.append(tag)
            return
        if tag == "pre":
            self._pre += 1
        if tag in _PARAGRAPH:
            self.out.append("\n\n")
        elif tag in _LINE:
            self.out.append("\n" if tag == "br" else "\x04")
        if tag == "li":
            self.out.append("- ")
        elif tag in ("td", "th"):
            self.out.append("\t")
        if tag in self._cut_at:
            self.out.append(HEADING + tag[1])

    def handle_startendtag(self, tag, attrs):
        if tag in _VOID:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if self._dropping:
            if tag == self._dropping[-1]:
                self._dropping.pop()
            return
        if tag == "pre":
            self._pre = max(0, self._pre - 1)
        if tag in _PARAGRAPH:
            self.out.append("\n\n")
        elif tag in _LINE:
            self.out.append("\x04")

    def handle_data(self, data):
        if self._dropping:
            return
        # A control character marks line ends inside pre, so that white space elsewhere can be folded afterwards.
        self.out.append(
            data.replace("\n", "\x02").replace(" ", "\x03") if self._pre else re.sub(r"\s+", " ", data)
        )


_INLINE = "a|abbr|b|bdi|big|cite|code|dfn|em|font|i|kbd|mark|q|s|samp|small|strong|sub|sup|tt|u|var"
_ATTRIBUTES = r"""(?:[^>"']|"[^"]*"|'[^']*')*"""


def _without_inline_tags(page: str, drop_classes: tuple[str, ...]) -> str:
    """The page without tags that change no line and hide no text: highlighted code is mostly such tags, and slow to parse."""
    names = _INLINE
    marked = "|".join(map(re.escape, drop_classes))
    if not marked or not re.search(rf"<span\b[^>]*\b(?:{marked})\b", page):
        names += "|span"
    return re.sub(rf"</?(?:{names})(?:\s{_ATTRIBUTES})?>", "", page, flags=re.I)


def html_to_text(page: str, drop_classes: tuple[str, ...] = (), cut_at: tuple[str, ...] = ()) -> str:
    """Visible text of a page. ``drop_classes``: class names or ids of navigation; ``cut_at``: heading tags to mark."""
    builder = _TextBuilder(frozenset(drop_classes), frozenset(cut_at))
    builder.feed(_without_inline_tags(page, drop_classes))
    builder.close()
    text = "".join(builder.out).replace("\xa0", " ").replace("¶", "")
    # \x04 is a line end that adds nothing to another one beside it.
    text = re.sub(r"[ \n\x04]*\x04[ \n\x04]*", lambda m: "\n" * max(1, min(2, m[0].count("\n"))), text)
    lines = []
    for line in text.split("\n"):
        line = re.sub(r"[ \t]*\t[ \t]*", "  ", re.sub(r" +", " ", line)).strip()
        lines.append(line.replace("\x02", "\n").replace("\x03", " ").rstrip())
    # A paragraph inside a list item starts on the item's own line.
    text = re.sub(r"(?m)^-\n\s*", "- ", "\n".join(lines))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


_ADORNMENT = re.compile(r"([=\-`:.'\"~^_*+#<>])\1{2,}\s*$")
_DIRECTIVE = re.compile(r"(\s*)\.\. (?:\|[^|]+\| )?([\w:+.-]+?) ?::(?: (.*))?$")
_VERBATIM = {"code-block", "code", "sourcecode", "doctest", "testcode", "testoutput", "parsed-literal", "highlight-block",
             "console", "snippet", "prompt", "plot", "ipython", "literal-block", "productionlist", "code-block:"}  # fmt: skip
_SILENT = {"index", "currentmodule", "module", "toctree", "image", "figure", "include", "raw", "contents", "highlight",
           "meta", "literalinclude", "autoclass", "autofunction", "automodule", "automethod", "autoattribute", "autosummary",
           "autodata", "autoexception", "inheritance-diagram", "graphviz", "only", "default-role", "role", "replace",
           "unicode", "date", "tabularcolumns", "sectionauthor", "moduleauthor", "container-class", "class-list", "ifconfig",
           "testsetup", "testcleanup", "py:module", "py:currentmodule", "linkcheck", "cssclass", "syntax-table", "sectnum",
           "header", "footer", "target-notes", "autoenum", "autoproperty", "sphinx_sqlalchemy", "change_log", "minigallery"}  # fmt: skip
_ADMONITIONS = {"note": "Note", "warning": "Warning", "tip": "Tip", "hint": "Hint", "important": "Important", "caution": "Caution",
                "danger": "Danger", "attention": "Attention", "seealso": "See also", "todo": "To do", "error": "Error"}  # fmt: skip
_VERSIONS = {"versionadded": "New in version", "versionchanged": "Changed in version", "deprecated": "Deprecated since version",
             "versionremoved": "Removed in version"}  # fmt: skip
_LAYOUT = {"admonition", "topic", "sidebar", "rubric", "table", "list-table", "csv-table", "container", "class", "tab", "tabs",
           "epigraph", "glossary", "centered", "hlist", "cssclass", "collapse", "dropdown", "legend", "compound", "math"}  # fmt: skip


def rst_inline(text: str, backtick_is_math: bool = False) -> str:
    """Roles, links and emphasis to plain words. ``backtick_is_math``: the default role is mathematics (Sage, SciPy)."""
    math: list[str] = []

    def keep(match: re.Match) -> str:
        math.append(match[1].strip())
        return f"\x04{len(math) - 1}\x04"

    def role(match: re.Match) -> str:
        name, body = match[1], match[2]
        # SQLAlchemy shortens module paths to a name that begins with an underscore.
        body = re.sub(r"^(~?)\.?_[a-z]+\.(?=\w)", r"\1", body)
        titled = re.match(r"(.*?)\s*<[^<>]*>$", body, re.S)
        if titled and titled[1]:
            return titled[1]
        if body.startswith("~"):
            return body[1:].rsplit(".", 1)[-1]
        return body.lstrip("!").lstrip(".") if name else body

    text = re.sub(r":math:`([^`]+)`", keep, text, flags=re.S)
    text = re.sub(r"(?<![\w`])_`([^`]+)`", r"\1", text)
    text = re.sub(
        r"``(.+?)``",
        lambda m: "\x05" + m[1].replace("*", "\x06").replace("_", "\x07") + "\x05",
        text,
        flags=re.S,
    )
    text = re.sub(r":((?:[a-zA-Z][\w+.-]*:)*[a-zA-Z][\w+.-]*):`([^`]+)`", role, text, flags=re.S)
    text = re.sub(r"`([^`<>]*?)\s*<[^<>`]*>`__?", r"\1", text, flags=re.S)
    if backtick_is_math:
        text = re.sub(r"(?<![`\w])`([^`]+)`(?![`_])", keep, text, flags=re.S)
    text = re.sub(r"`([^`\n]+)`__?", r"\1", text)
    text = re.sub(r"(?<![\w*\\])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w*])", r"\1", text, flags=re.S)
    text = re.sub(r"(?<![\w*\\])\*(?=[^\s*])([^*\n]+?)(?<=\S)\*(?![\w*])", r"\1", text)
    text = re.sub(r"\[[#*][\w-]*\]_|\|(\w[\w .-]*)\|_?", lambda m: m[1] or "", text)
    text = re.sub(r"\[([\w.+:-]+)\]_", r"[\1]", text)
    text = re.sub(r"\\([*`_|\\ ])", lambda m: "" if m[1] == " " else m[1], text)
    text = text.replace("\x05", "`").replace("\x06", "*").replace("\x07", "_")
    return re.sub("\x04(\\d+)\x04", lambda m: f"${math[int(m[1])]}$", text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _block_end(lines: list[str], start: int, indent: int) -> int:
    """Index after the block of lines indented deeper than ``indent`` that begins at ``start``."""
    end = start
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return end


def _without_options(lines: list[str]) -> list[str]:
    """A directive's body without its ``:option:`` lines and the blank lines before its text."""
    index = 0
    while index < len(lines) and (not lines[index].strip() or re.match(r"\s*:[\w-]+:", lines[index])):
        index += 1
    return lines[index:]


def rst_to_text(source: str, backtick_is_math: bool = False) -> str:
    """Readable text of a reStructuredText page; headings are marked ``HEADING`` + level.

    Directives that only steer Sphinx vanish, code and formulas stay verbatim, notes keep their words. Written for real
    documentation trees rather than for every corner of the grammar: what is not recognised stays as it is.
    """
    lines = source.expandtabs(8).replace("\r\n", "\n").split("\n")
    styles: list[str] = []
    out: list[str] = []

    def heading(style: str, title: str) -> None:
        if style not in styles:
            styles.append(style)
        out.extend(
            [
                "",
                f"{HEADING}{min(styles.index(style) + 1, 9)}{rst_inline(title.strip(), backtick_is_math)}",
                "",
            ]
        )

    paragraph: list[str] = []

    def flush() -> None:
        if paragraph:
            out.extend(rst_inline("\n".join(paragraph), backtick_is_math).split("\n"))
            paragraph.clear()

    def walk(lines: list[str]) -> None:
        at = 0
        while at < len(lines):
            line = lines[at].rstrip()
            following = lines[at + 1].rstrip() if at + 1 < len(lines) else ""
            if not line.strip():
                flush()
                out.append("")
                at += 1
                continue
            over = _ADORNMENT.match(line)
            if (
                over
                and not paragraph
                and following.strip()
                and at + 2 < len(lines)
                and lines[at + 2].rstrip() == line
            ):
                heading(over[1] * 2, following)
                at += 3
                continue
            under = _ADORNMENT.match(following) if _indent(line) == 0 else None
            if under and not over and not paragraph and len(following.strip()) >= min(4, len(line.strip())):
                heading(under[1], line)
                at += 2
                continue
            if over and _indent(line) == 0 and not paragraph and len(set(line.strip())) == 1:
                at += 1  # a transition, or the edge of a simple table
                continue
            if re.fullmatch(r"\s*(=+ +)+=+|\s*\+[-=+]+\+", line):
                flush()
                at += 1  # table rules carry no words
                continue
            directive = _DIRECTIVE.match(line)
            if directive:
                flush()
                indent, name, argument = len(directive[1]), directive[2], (directive[3] or "").strip()
                end = _block_end(lines, at + 1, indent)
                body = lines[at + 1 : end]
                pad = " " * indent
                if name in _SILENT or name.startswith("auto"):
                    pass
                elif name in _VERBATIM:
                    out.extend(["", *_without_options(body), ""])
                elif name == "math":
                    formula = [part.strip() for part in [argument, *_without_options(body)]]
                    out.extend(["", f"{pad}$$", *(pad + part for part in formula if part), f"{pad}$$", ""])
                else:
                    first = name in _ADMONITIONS and f"{_ADMONITIONS[name]}: {argument}".strip()
                    first = first or (name in _VERSIONS and f"{_VERSIONS[name]} {argument}") or argument
                    if name in ("container", "class", "list-table", "tab", "tabs") or (
                        not argument and name in _LAYOUT
                    ):
                        first = argument if name == "list-table" else ""
                    rest = _without_options(body)
                    depth = min((_indent(part) for part in rest if part.strip()), default=0)
                    rest = [pad + part[depth:] if part.strip() else "" for part in rest]
                    if first and rest and rest[0].strip() and (name in _ADMONITIONS or name in _VERSIONS):
                        rest[0] = f"{pad}{first} {rest[0].strip()}"
                    elif first:
                        out.append(pad + rst_inline(first, backtick_is_math))
                        out.append("")
                    walk(rest)
                    flush()
                    out.append("")
                at = end
                continue
            if re.match(r"\s*\.\.( |$)", line):
                flush()
                note = re.match(r"\s*\.\. (\[[#*]?[\w.+:-]*\]) (.*)", line)
                end = _block_end(lines, at + 1, _indent(line))
                if note:  # a footnote or a reference is read; a comment or a label is not
                    label = "" if note[1].startswith("[#") else note[1] + " "
                    walk([label + note[2], *(part.strip() for part in lines[at + 1 : end])])
                    flush()
                at = end
                continue
            field = not paragraph and re.match(r":[\w -]+:( |$)", line)
            if field and ("$" in line or not any(x.strip() for x in out)):
                # Page-wide fields (orphan, nosearch) before any text, and keywords of version control.
                at += 1
                continue
            literal = re.search(r"(^|[^:]|\s)::$", line)
            if literal:
                start = line[:-2].rstrip()
                if start:
                    paragraph.append(start + (":" if not start.endswith(":") else ""))
                flush()
                end = _block_end(lines, at + 1, _indent(line))
                out.extend(part.rstrip() for part in lines[at + 1 : end])
                out.append("")
                at = end
                continue
            if re.match(r"\s*>>> ", line):
                flush()
                while at < len(lines) and lines[at].strip():
                    out.append(lines[at].rstrip())
                    at += 1
                continue
            paragraph.append(line)
            at += 1
        flush()

    walk(lines)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def markdown_to_text(source: str) -> str:
    """Markdown stays as it is (that is how it is written and read) but for build directives; headings are marked."""
    out, fenced = [], False
    for line in source.replace("\r\n", "\n").split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            if re.match(r"\s*```\{(eval-rst|toctree|plot|autosummary|currentmodule|module|py:\w+)", line):
                line = "```"
        elif not fenced:
            if re.match(r"\([\w-]+\)=\s*$|<!--.*-->\s*$|\s*\[[^]]+\]:\s", line):
                continue
            line = re.sub(r"\[\s*([^\[\]]*?)\s*\]\((?!https?:)[^()]*\)", r"\1", line)
            line = re.sub(
                r"\{[\w:+-]+\}`([^`]*)`", lambda m: re.sub(r"\s*<[^<>]*>$", "", m[1]).lstrip("~"), line
            )
            title = re.match(r"(#{1,6})\s+(.*?)\s*#*$", line)
            if title:
                line = f"{HEADING}{len(title[1])}{title[2]}"
        out.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


_POD_ENTITIES = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/"}


def _pod_inline(text: str) -> str:
    text = re.sub(r"E<(\w+)>", lambda m: _POD_ENTITIES.get(m[1]) or html.unescape(f"&{m[1]};"), text)

    def plain(code: str, body: str) -> str:
        if code in "XZ":
            return ""
        if code == "L":
            titled, _, target = body.rpartition("|")
            body = titled or (
                target if "://" in target else target.replace("/", " ").replace('"', "").strip()
            )
        return body

    previous = None
    # Doubled brackets first, then single ones from the inside out.
    text = re.sub(
        r"\b([BCFILSXZ])<<+\s(.+?)\s>>+",
        lambda m: plain(m[1], m[2]).replace("<", "\x04").replace(">", "\x05"),
        text,
        flags=re.S,
    )
    while previous != text:
        previous = text
        text = re.sub(r"\b([BCFILSXZ])<([^<>]*)>", lambda m: plain(m[1], m[2]), text)
    return text.replace("\x04", "<").replace("\x05", ">")


def pod_to_text(source: str) -> str:
    """Text of Perl's Plain Old Documentation; headings are marked."""
    out = []
    hidden = False
    active = False
    for block in re.split(r"\n\s*\n", source.replace("\r\n", "\n")):
        command = re.match(r"=([a-z]\w*)\s*(.*)", block.strip("\n"), re.S)
        if command:
            name, rest = command[1], " ".join(command[2].split())
            active = name != "cut"
            if name == "begin":
                hidden = True
            elif name == "end":
                hidden = False
            elif hidden:
                pass
            elif name.startswith("head"):
                out.append(f"{HEADING}{name[4:] or 1}{_pod_inline(rest)}")
            elif name == "item" and rest:
                out.append(_pod_inline(rest if rest[0] not in "*" else "- " + rest[1:].strip()))
        elif active and not hidden and block.strip():
            out.append(block.strip("\n") if block.lstrip("\n")[0] in " \t" else _pod_inline(block.strip()))
    return "\n\n".join(out)


def wikitext_to_text(source: str) -> str:
    """Plain text of a wiki page: templates, tables, files, references and link targets go, words stay."""
    text = re.sub(r"<!--.*?-->", "", source, flags=re.S)
    text = re.sub(r"<ref\b[^>/]*/>|<ref\b[^>]*>.*?</ref\s*>", "", text, flags=re.S | re.I)
    text = re.sub(
        r"<(math|gallery|timeline|imagemap|score|syntaxhighlight|source|table)\b[^>]*>.*?</\1\s*>",
        "",
        text,
        flags=re.S | re.I,
    )
    for opening, closing in (("{{", "}}"), ("{|", "|}")):
        pattern = re.compile(
            re.escape(opening)
            + r"(?:(?!"
            + re.escape(opening)
            + "|"
            + re.escape(closing)
            + r").)*?"
            + re.escape(closing),
            re.S,
        )
        previous = None
        while previous != text:
            previous = text
            text = pattern.sub("", text)
    text = re.sub(r"\{\|.*?(\n\|\}|\Z)", "", text, flags=re.S)
    previous = None
    while previous != text:
        previous = text
        text = re.sub(
            r"\[\[(?:File|Image|Category|[a-z]{2,3}(?:-[a-z]+)*):(?:[^\[\]]|\[[^\[\]]*\])*\]\]",
            "",
            text,
            flags=re.I,
        )
        text = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", text)
    text = re.sub(r"\[(?:https?|ftp|mailto)[^\s\]]*\s*([^\]]*)\]", r"\1", text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>", "", text)
    text = html.unescape(html.unescape(text)).replace("\xa0", " ")
    text = re.sub(r"'{2,5}", "", text)
    text = re.sub(r"__[A-Z]+__", "", text)
    lines = []
    for line in text.split("\n"):
        if line.lstrip().startswith(("|", "!", "{|", "}}", "{{")):
            continue
        title = re.match(r"\s*(={2,6})\s*(.*?)\s*\1\s*$", line)
        if title:
            lines += ["", title[2], ""]
        else:
            lines.append(re.sub(r"^[*#:;]+\s*", lambda m: "- " if m[0][0] in "*#" else "", line).rstrip())
    text = re.sub(r"\(\s*[;,]?\s*\)", "", "\n".join(lines))
    text = re.sub(r" +([,.;])", r"\1", re.sub(r" {2,}", " ", text))
    # Sections that held only lists of links, and headings left without a body.
    text = re.split(
        r"\n\s*(?:References|External links|Further reading|Notes and references|Footnotes)\s*\n", text
    )[0]
    return re.sub(r"\n{3,}", "\n\n", text).strip()
