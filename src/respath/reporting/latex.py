"""LaTeX: everything that comes from data is escaped, and siunitx columns are sized to what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import jinja2

from respath.errors import UserError
from respath.letters import check_formula, formula, latex, split_formulas
from respath.papers.resolve import Resolver
from respath.reporting.layout import Block, Head, Layout, Shown, plain_cell

#: Millimetres.
_TEXT_WIDTH = 174


def tex(value: object) -> str:
    """Any text as LaTeX that prints it, straight quotes curved; what LaTeX has no letter for as its code point."""
    return latex(re.sub(r'(^|[\s(])"', r"\1“", str(value)).replace('"', "”"))


def tex_math(text: str) -> str:
    """Like ``tex``, with formulas between dollars: for texts of a paper's files. What is no formula is printed as it stands."""
    parts = []
    for part, is_formula in split_formulas(text):
        try:
            if is_formula:
                check_formula(part)
            parts.append(f"${formula(part)}$" if is_formula else tex(part))
        except ValueError:
            parts.append(tex(f"${part}$"))
    return "".join(parts)


def templates_of(project: Resolver) -> Path:
    """The folder of templates: the project's own, else that of the checkout that this package runs from."""
    for root in (project.root, Path(__file__).resolve().parents[3]):
        if (root / "reports" / "templates").is_dir():
            return root / "reports" / "templates"
    raise UserError(f"{project.root}/reports/templates: no such folder; restore it from the repository")


def environment(project: Resolver) -> jinja2.Environment:
    r"""Jinja2 with ``\VAR{}``, ``\BLOCK{}`` and ``\#{}``, which LaTeX editors read as commands. Undefined names are errors."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_of(project)),
        block_start_string=r"\BLOCK{",
        block_end_string="}",
        variable_start_string=r"\VAR{",
        variable_end_string="}",
        comment_start_string=r"\#{",
        comment_end_string="}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # HTML's rules would be wrong here: every value passes the tex filter
        undefined=jinja2.StrictUndefined,
    )
    env.filters["tex"] = tex
    env.filters["tex_math"] = tex_math
    return env


# --- tables --------------------------------------------------------------------------------------------------------


def _digits(items: Iterable[str]) -> tuple[int, int, bool]:
    """Most digits before the point, most behind it, and is there a sign?"""
    before = behind = 0
    signed = False
    for text in items:
        match = re.fullmatch(r"([+-]?)(\d+)(?:\.(\d+))?", text)
        if match:
            signed |= bool(match[1])
            before, behind = max(before, len(match[2])), max(behind, len(match[3] or ""))
    return max(1, before), behind, signed


def column_type(head: Head, cells: Sequence[Shown], mixed: bool) -> str:
    """LaTeX column for these cells. ``mixed`` columns hold quantities of different kinds, so no point is aligned."""
    if head.kind != "number":
        return "l"
    if mixed:
        return "r"
    before, behind, signed = _digits(cell.text for cell in cells if cell.is_number)
    return f"S[table-format={'+' if signed else ''}{before}.{behind}]"


def cell_tex(cell: Shown, *, mixed: bool, in_numbers: bool = True) -> str:
    """One cell as LaTeX; words in number columns (``in_numbers``) stand in braces, which siunitx centres."""
    if cell.kind == "blank" or not cell.text:
        return ""
    if cell.kind in ("label", "text"):
        return tex_math(cell.text)
    if not cell.is_number:
        word = "--" if cell.text == "–" else tex(plain_cell(cell))
        return word if mixed or not in_numbers else f"{{{word}}}"
    if mixed:
        return rf"\num{{{cell.text}}}"
    return rf"\bfseries {cell.text}" if cell.bold else cell.text


def head_rows(heads: Sequence[Head]) -> tuple[str, str, str]:
    """Upper row of heads (groups), its partial rules, and the lower row; the first two are empty without groups."""
    upper, rules = [], []
    index = 0
    while index < len(heads):
        group = heads[index].group
        span = index + 1
        while group and span < len(heads) and heads[span].group == group:
            span += 1
        if group:
            upper.append(rf"\multicolumn{{{span - index}}}{{c}}{{{tex_math(group)}}}")
            rules.append(rf"\cmidrule(lr){{{index + 1}-{span}}}")
        else:
            upper.append("")
        index = span
    lower = [tex_math(head.text) if head.kind != "number" else f"{{{tex_math(head.text)}}}" for head in heads]
    return (" & ".join(upper), " ".join(rules), " & ".join(lower)) if rules else ("", "", " & ".join(lower))


def tabular(layout: Layout, blocks: Sequence[Block], mixed: bool) -> dict[str, object]:
    """What the table template needs: column types, head rows, and lines (rules between blocks, rows)."""
    rows = [row for block in blocks for row in block.rows]
    types = [
        column_type(head, [row[index] for row in rows], mixed) for index, head in enumerate(layout.heads)
    ]
    upper, rules, lower = head_rows(layout.heads)
    lines = []
    for number, block in enumerate(blocks):
        if block.title:
            if number:
                lines.append(r"\addlinespace")
            lines.append(
                rf"\multicolumn{{{len(layout.heads)}}}{{@{{}}l}}{{\textit{{{tex_math(block.title)}}}}} \\"
            )
        elif number:
            lines.append(r"\addlinespace")
        for row in block.rows:
            cells = zip(row, layout.heads, strict=True)
            parts = [cell_tex(cell, mixed=mixed, in_numbers=head.kind == "number") for cell, head in cells]
            lines.append(" & ".join(parts) + r" \\")
    fontsize, tabcolsep = _font(layout.heads, rows)
    # Sums with limits are taller than a line.
    tall = any("\\sum" in cell.text for row in rows for cell in row if cell.kind == "text")
    return {
        "types": types,
        "upper": upper,
        "rules": rules,
        "lower": lower,
        "lines": lines,
        "fontsize": fontsize,
        "tabcolsep": tabcolsep,
        "tall": tall,
    }


def _length(cell: Shown) -> int:
    """Characters that a cell shows, about: commands and scripts' marks take no room."""
    return len(re.sub(r"\\[A-Za-z]+|[{}$^_\\]", "", cell.text))


def _font(heads: Sequence[Head], rows: Sequence[Sequence[Shown]]) -> tuple[str, str]:
    """Largest font and column gap at which the table fits the text width of paper.tex (174 mm), by its longest cells."""
    characters = sum(
        max([len(head.text), *(_length(row[index]) for row in rows)]) for index, head in enumerate(heads)
    )
    for size, per_character, gap in (
        (r"\small", 1.6, 6),
        (r"\footnotesize", 1.42, 5),
        (r"\scriptsize", 1.24, 4),
    ):
        if characters * per_character + 2 * gap * 0.353 * (len(heads) - 1) <= _TEXT_WIDTH:
            return size, f"{gap}pt"
    return r"\scriptsize", "2.5pt"
