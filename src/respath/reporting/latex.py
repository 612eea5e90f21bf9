"""LaTeX: everything that comes from data is escaped, and siunitx columns are sized to what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import jinja2

from respath.errors import UserError
from respath.letters import check_formula, formula, latex, split_formulas
from respath.papers.resolve import Resolver
from respath.reporting.layout import Head, Layout, Shown, short_status

#: Millimetres.
_TEXT_WIDTH = 174
#: Above so many number columns "(%)" is left out of heads.
_MOST_HEADS_WITH_PER_CENT = 6


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


def column_type(head: Head, cells: Sequence[Shown], compact_errors: bool, mixed: bool) -> str:
    """LaTeX column for these cells. ``mixed`` columns hold quantities of different kinds, so no point is aligned."""
    if head.kind in ("label", "text", "status"):
        return "l"
    if mixed:
        return "r"
    numbers = [cell for cell in cells if cell.is_number]
    before, behind, signed = _digits(cell.text for cell in numbers)
    options = [f"table-format={'+' if signed else ''}{before}.{behind}"]
    errors = [cell.error for cell in numbers if cell.error]
    if errors:
        # (1) reserves one digit of the last place; larger errors need theirs.
        digits = max(len(error.replace(".", "").lstrip("0")) or 1 for error in errors)
        options = (
            [f"{options[0]}({digits})"]
            if compact_errors
            else [f"{options[0]}({digits})", "separate-uncertainty=true"]
        )
    return f"S[{','.join(options)}]"


def cell_tex(cell: Shown, *, mixed: bool, in_numbers: bool = True) -> str:
    """One cell as LaTeX; words in number columns (``in_numbers``) stand in braces, which siunitx centres."""
    if cell.kind == "blank" or not cell.text:
        return ""
    if cell.kind in ("label", "text"):
        return tex_math(cell.text)
    if cell.kind == "status" and not in_numbers:
        return tex(short_status(cell.text))
    if not cell.is_number:
        word = "--" if cell.text == "–" else tex(short_status(cell.text))
        return word if mixed else f"{{{word}}}"
    if mixed:
        return rf"\num{{{cell.text}}}"
    value = f"{cell.text} +- {cell.error}" if cell.error else cell.text
    return rf"\bfseries {value}" if cell.bold else value


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
            units = {head.unit for head in heads[index:span] if head.unit}
            unit = f" ({units.pop()})" if len(units) == 1 and "(" not in group else ""
            upper.append(rf"\multicolumn{{{span - index}}}{{c}}{{{tex_math(group + unit)}}}")
            rules.append(rf"\cmidrule(lr){{{index + 1}-{span}}}")
        else:
            upper.append("")
        index = span
    lower = []
    wide = sum(head.kind == "number" for head in heads) > _MOST_HEADS_WITH_PER_CENT
    for head in heads:
        # Many labels name their unit already; then it is not said twice. Wide tables say per cent in the caption.
        named = head.group or not head.unit or "(" in head.text or (wide and head.unit == "%")
        text = tex_math(head.text if named else f"{head.text} ({head.unit})")
        text = text.replace(r"$\Delta$ base", r"$\Delta_{\textup{base}}$")
        lower.append(text if head.kind in ("label", "text", "status") else f"{{{text}}}")
    return (" & ".join(upper), " ".join(rules), " & ".join(lower)) if rules else ("", "", " & ".join(lower))


def tabular(layout: Layout, mixed: bool) -> dict[str, object]:
    """What the table template needs: column types, head rows, and lines (rules between blocks, rows)."""
    rows = [row for block in layout.blocks for row in block.rows]
    types = [
        column_type(
            head, [row[index] for row in rows], layout.compact_errors, mixed and head.kind == "number"
        )
        for index, head in enumerate(layout.heads)
    ]
    upper, rules, lower = head_rows(layout.heads)
    lines = []
    for number, block in enumerate(layout.blocks):
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
    fontsize, tabcolsep = _font(layout)
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


def _length(cell: Shown, compact_errors: bool) -> int:
    """Characters that a cell shows, about: commands and scripts' marks take no room."""
    if cell.is_number and cell.error:
        return len(cell.text) + (4 if compact_errors else len(cell.error) + 2)
    return len(re.sub(r"\\[A-Za-z]+|[{}$^_\\]", "", short_status(cell.text)))


def _font(layout: Layout) -> tuple[str, str]:
    """Largest font and column gap at which the table fits the text width of paper.tex (174 mm), by its longest cells."""
    rows = [row for block in layout.blocks for row in block.rows]
    characters = 0.0
    for index, head in enumerate(layout.heads):
        longest = max((_length(row[index], layout.compact_errors) for row in rows), default=0)
        characters += max(longest, len(head.text) + (0 if head.group else len(head.unit) // 2))
    for size, per_character, gap in (
        (r"\small", 1.6, 6),
        (r"\footnotesize", 1.42, 5),
        (r"\scriptsize", 1.24, 4),
    ):
        if characters * per_character + 2 * gap * 0.353 * (len(layout.heads) - 1) <= _TEXT_WIDTH:
            return size, f"{gap}pt"
    return r"\scriptsize", "2.5pt"
