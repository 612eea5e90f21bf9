"""The little LaTeX mathematics of table texts as HTML, so that a page needs no script and no font."""

from __future__ import annotations

from html import escape

from markupsafe import Markup

from respath.letters import COMMANDS, TOKEN, UPRIGHT, split_formulas

_RELATIONS = set("=≤≥∈")


def text_html(text: str) -> Markup:
    """Text with $mathematics$ as HTML; without balanced dollars as it stands. Everything else is escaped."""
    parts = split_formulas(text.replace("--", "–"))
    return Markup("".join(math_html(part) if is_formula else escape(part) for part, is_formula in parts))


def math_html(source: str) -> Markup:
    """One formula: letters italic, sub- and superscripts, common symbols; an unknown command shows its name."""
    tokens = [match.groups() for match in TOKEN.finditer(source)]
    html, rest = _sequence(tokens, 0)
    while rest < len(tokens):  # a stray closing brace
        more, rest = _sequence(tokens, rest + 1)
        html += more
    return Markup(f'<span class="math">{html}</span>')


def _sequence(tokens: list[tuple], start: int, upright: bool = False) -> tuple[str, int]:
    """HTML up to the closing brace that ends this group; the index of that brace or the end."""
    html, index = "", start
    while index < len(tokens) and tokens[index][1] != "}":
        piece, index = _atom(tokens, index, upright)
        html += piece
    return html, index


def _atom(tokens: list[tuple], index: int, upright: bool = False) -> tuple[str, int]:
    command, mark, letters, other = tokens[index]
    index += 1
    if mark == "{":
        html, index = _sequence(tokens, index, upright)
        return html, index + 1
    if mark in ("_", "^") and index < len(tokens):
        tag = "sub" if mark == "_" else "sup"
        # A script takes one character, or a group.
        if tokens[index][2] and len(tokens[index][2]) > 1:
            first, tail = tokens[index][2][0], tokens[index][2][1:]
            tokens[index] = (None, None, tail, None)
            return f"<{tag}><i>{first}</i></{tag}>", index
        if tokens[index][1] == "}":
            return "", index
        html, index = _atom(tokens, index, upright)
        html = f"<{tag}>{html}</{tag}>"
        if index < len(tokens) and tokens[index][1] in ("_", "^") and tokens[index][1] != mark:
            # Limits of a sum stand over one another.
            other, index = _atom(tokens, index, upright)
            return f'<span class="limits">{other + html if mark == "_" else html + other}</span>', index
        return html, index
    if mark == "'":
        return "′", index
    if mark:
        return escape(mark), index
    if command in UPRIGHT and index < len(tokens):
        return _atom(tokens, index, upright=True)
    if command:
        symbol = escape(COMMANDS.get(command, f"\\{command}"))
        return (f" {symbol} " if symbol in _RELATIONS or symbol == "×" else symbol), index
    if letters:
        return (escape(letters) if upright else f"<i>{escape(letters)}</i>"), index
    return (
        f" {other} "
        if other in "=+"
        else " − "
        if other == "-" and index > 1 and not tokens[index - 2][1]
        else "−"
        if other == "-"
        else ""
        if other == " "
        else escape(other)
    ), index
