"""Which characters a paper's texts may hold, and formulas between dollars: what LaTeX, matplotlib and HTML can all print.

Sources: encodings T1 and TS1 of LaTeX's inputenc (t1enc.dfu, ts1enc.dfu), Unicode's decompositions, amsmath.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Annotated

from pydantic import AfterValidator

#: ASCII that LaTeX reads as commands, and signs with a better form in running text.
_TEXT = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after \\ a bracket or a star would be read as an argument of the line break
    "*": "{*}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "ʼ": "'",
    "‐": "-",
    "‑": "-",
    "‒": "--",
    "–": "--",
    "—": "---",
    "―": "---",
    "…": r"\ldots{}",
    "\u00a0": "~",
    "\u00ad": r"\-",
    "\u2002": r"\enspace{}",
    "\u2003": r"\quad{}",
    "\u2009": r"\,",
    "\u200a": r"\,",
    "\u202f": r"\,",
    "\u200b": "",
    "\u200c": "",
    "\u200d": "",
    "\ufeff": "",
    "⁄": "/",
    # Latin letters that T1 lacks, drawn: a bar through H, h, T and t; kra is a small capital.
    "Ħ": r"\makebox[0pt][l]{\hspace{.1em}\raisebox{.5ex}{--}}H",
    "ħ": r"\makebox[0pt][l]{\raisebox{.72ex}{-}}h",
    "Ŧ": r"\makebox[0pt][l]{\hspace{.11em}\raisebox{.1ex}{--}}T",
    "ŧ": r"\makebox[0pt][l]{\hspace{.02em}-}t",
    "ĸ": r"\textsc{k}",
}  # fmt: skip

#: Signs that are mathematics to LaTeX, in running text as in formulas.
_MATHEMATICS = {
    "−": "-", "±": r"\pm", "∓": r"\mp", "×": r"\times", "÷": r"\div", "·": r"\cdot", "⋅": r"\cdot", "∘": r"\circ", "∗": r"\ast",
    "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "∼": r"\sim", "≁": r"\not\sim", "≡": r"\equiv", "≪": r"\ll",
    "≫": r"\gg", "∝": r"\propto", "∞": r"\infty", "∈": r"\in", "∉": r"\notin", "∋": r"\ni", "∑": r"\sum", "∏": r"\prod",
    "∫": r"\int", "√": r"\surd", "✓": r"\surd", "✗": r"\times", "∂": r"\partial", "∇": r"\nabla", "∀": r"\forall",
    "∃": r"\exists", "∧": r"\wedge", "∨": r"\vee", "∩": r"\cap", "∪": r"\cup", "⊂": r"\subset", "⊃": r"\supset",
    "⊆": r"\subseteq", "⊇": r"\supseteq", "⊕": r"\oplus", "⊗": r"\otimes", "⊙": r"\odot", "⊥": r"\perp", "∥": r"\parallel",
    "∅": r"\emptyset", "ℓ": r"\ell", "←": r"\leftarrow", "→": r"\rightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "↔": r"\leftrightarrow", "↦": r"\mapsto", "⇐": r"\Leftarrow", "⇒": r"\Rightarrow", "⇔": r"\Leftrightarrow",
    "⟨": r"\langle", "⟩": r"\rangle", "⌈": r"\lceil", "⌉": r"\rceil", "⌊": r"\lfloor", "⌋": r"\rfloor", "⋯": r"\cdots",
    "′": r"{}^{\prime}", "″": r"{}^{\prime\prime}",
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon", "ϵ": r"\epsilon", "ζ": r"\zeta",
    "η": r"\eta", "θ": r"\theta", "ϑ": r"\vartheta", "ι": r"\iota", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "ν": r"\nu",
    "ξ": r"\xi", "ο": "o", "π": r"\pi", "ϖ": r"\varpi", "ρ": r"\rho", "ϱ": r"\varrho", "σ": r"\sigma", "ς": r"\varsigma",
    "τ": r"\tau", "υ": r"\upsilon", "φ": r"\varphi", "ϕ": r"\phi", "χ": r"\chi", "ψ": r"\psi", "ω": r"\omega",
    "Α": r"\mathrm{A}", "Β": r"\mathrm{B}", "Γ": r"\Gamma", "Δ": r"\Delta", "Ε": r"\mathrm{E}", "Ζ": r"\mathrm{Z}",
    "Η": r"\mathrm{H}", "Θ": r"\Theta", "Ι": r"\mathrm{I}", "Κ": r"\mathrm{K}", "Λ": r"\Lambda", "Μ": r"\mathrm{M}",
    "Ν": r"\mathrm{N}", "Ξ": r"\Xi", "Ο": r"\mathrm{O}", "Π": r"\Pi", "Ρ": r"\mathrm{P}", "Σ": r"\Sigma", "Τ": r"\mathrm{T}",
    "Υ": r"\Upsilon", "Φ": r"\Phi", "Χ": r"\mathrm{X}", "Ψ": r"\Psi", "Ω": r"\Omega",
}  # fmt: skip

#: What inputenc prints with T1 and TS1, besides all of U+00A1 to U+017F: punctuation, currencies and marks of its own.
_AS_THEY_ARE = set("‚„†‡•‰‱‹›※€₩₫₱№℗™℠℧℮Ω") | set(map(chr, range(0xA1, 0x180))) - set("ĦħĸŀĿŉŦŧſ")

#: Letters that are one glyph of T1, so that an accent can be set over them.
_ONE_GLYPH = set(string.ascii_letters) | set(map(chr, range(0xC0, 0x100)))
_ONE_GLYPH |= set("ĂăĄąĆćČčĎďĚěĘęĞğĹĺĽľŁłŃńŇňŐőŔŕŘřŚśŠšŞşŤťŢţŰűŮůŸŹźŽžŻż")

#: Combining marks as commands of LaTeX.
_ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0304": r"\=", "\u0306": r"\u", "\u0307": r"\.",
    "\u0308": r"\"", "\u030a": r"\r", "\u030b": r"\H", "\u030c": r"\v", "\u0323": r"\d", "\u0326": r"\textcommabelow",
    "\u0327": r"\c", "\u0328": r"\k", "\u0331": r"\b",
}  # fmt: skip
#: The same over Greek letters.
_MATH_ACCENTS = {
    "\u0300": "grave", "\u0301": "acute", "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0306": "breve",
    "\u0307": "dot", "\u0308": "ddot", "\u030a": "mathring", "\u030c": "check",
}  # fmt: skip


def latex(text: str) -> str:
    """Text as LaTeX that prints it (pdfLaTeX with T1, textcomp and amsmath); ``<U+4E2D>`` for what it has no letter for.

    Composed and decomposed letters print alike; ligatures, wide letters and fractions print as their parts.
    """
    pieces: list[str] = []
    for cluster in re.findall(f".[{''.join(_ACCENTS)}]*", unicodedata.normalize("NFC", text), re.DOTALL):
        marked = _marked(unicodedata.normalize("NFD", cluster)) if len(cluster) > 1 else None
        pieces += [marked] if marked else map(_latex_or_code, cluster)
    return "".join(pieces)


def _latex_or_code(char: str) -> str:
    written = _latex(char)
    return rf"\textless{{}}U+{ord(char):04X}\textgreater{{}}" if written is None else written


def _latex(char: str) -> str | None:
    """One character as LaTeX; None where it has no letter for it."""
    if char in _TEXT:
        return _TEXT[char]
    if char in _MATHEMATICS and char != "·":
        return f"${_MATHEMATICS[char]}$"
    if char.isspace():
        return " "
    if char in _AS_THEY_ARE or (char.isascii() and char.isprintable()):
        return char
    kind, _, parts = unicodedata.decomposition(char).rpartition("> ")
    if not kind and parts:
        return _marked(unicodedata.normalize("NFD", char))
    codes = parts.split()
    inner = [letter for code in codes if (letter := _latex(chr(int(code, 16)))) is not None]
    if not codes or len(inner) < len(codes) or kind in ("<circle", "<square"):
        return None
    command = {"<sub": r"\textsubscript", "<super": r"\textsuperscript"}.get(kind)
    return f"{command}{{{''.join(inner)}}}" if command else "".join(inner)


def _marked(decomposed: str) -> str | None:
    """A letter under and over its marks; None where LaTeX cannot stack them.

    LaTeX sets an accent over one character of the font, and anything over a mark from below.
    """
    letter, marks = decomposed[0], list(decomposed[1:])
    if not marks:
        return _latex(letter)
    if not set(marks) <= set(_ACCENTS):
        return None
    if letter in _MATHEMATICS:
        accent = _MATH_ACCENTS.get(marks[0]) if len(marks) == 1 else None
        return f"$\\{accent}{{{_MATHEMATICS[letter]}}}$" if accent else None
    above = [mark for mark in marks if unicodedata.combining(mark) == 230]
    if above and (composed := unicodedata.normalize("NFC", letter + above[0])) in _ONE_GLYPH:
        letter = composed
        marks.remove(above.pop(0))
    written = _latex(letter)
    if written is None or len(above) > 1 or (above and written not in _ONE_GLYPH):
        return None
    for mark in [*above, *(mark for mark in marks if mark not in above)]:
        # Over i and j an accent takes the place of the dot.
        dotless = rf"\{written}" if written in ("i", "j") and mark in above else written
        written = f"{_ACCENTS[mark]}{{{dotless}}}"
    return written


def scripts(text: str) -> list[tuple[str, str]]:
    """Text in parts, each with ``_``, ``^`` or nothing: Unicode's small letters as the letters that they lower and raise.

    Ligatures and wide letters become their parts; what LaTeX has no letter for its code point, so that outputs agree.
    """
    parts: list[tuple[str, str]] = []
    for char in unicodedata.normalize("NFC", text):
        kind, _, parts_of_it = unicodedata.decomposition(char).partition("> ")
        script = {"<sub": "_", "<super": "^"}.get(kind, "")
        kind = kind if script or (parts_of_it and char not in _AS_THEY_ARE) else ""
        if _latex(char) is None and char not in _ACCENTS:
            char = f"<U+{ord(char):04X}>"
        elif char.isspace():
            char = char if char in "\n\u00a0" else " "
        elif kind:
            char = unicodedata.normalize("NFKC", char)
        elif char in _TEXT and not _TEXT[char]:
            char = ""
        if parts and parts[-1][1] == script:
            parts[-1] = (parts[-1][0] + char, script)
        else:
            parts.append((char, script))
    return parts


# --- formulas --------------------------------------------------------------------------------------------------------

#: Commands of formulas, with what HTML shows for them.
COMMANDS = {
    "times": "×",
    "le": "≤",
    "leq": "≤",
    "ge": "≥",
    "geq": "≥",
    "sum": "∑",
    "lambda": "λ",
    "alpha": "α",
    "beta": "β",
    "cdot": "·",
    "in": "∈",
    "dots": "…",
    "ldots": "…",
    ",": "\u2009",
    ";": "\u2005",
    "!": "",
}
#: Commands that set their argument upright.
UPRIGHT = {"mathrm", "text", "operatorname", "textup"}
TOKEN = re.compile(r"\\([A-Za-z]+|[,;!])|([_^{}'])|([A-Za-z]+)|(.)", re.DOTALL)


def split_formulas(text: str) -> list[tuple[str, bool]]:
    """Text in parts, each with whether it is a formula: what stands between two dollars. An odd dollar encloses nothing."""
    parts = text.split("$")
    if len(parts) % 2 == 0:
        return [(text, False)]
    return [(part, index % 2 == 1) for index, part in enumerate(parts) if part]


def plain(text: str) -> str:
    """Text for a terminal: formulas without dollars, braces and commands, ``$\\lambda_1 V_{n}$`` as ``λ_1 V_n``."""
    parts = []
    for part, is_formula in split_formulas(text):
        if is_formula:
            part = re.sub(r"\\([A-Za-z]+|[,;!])", lambda found: COMMANDS.get(found[1], ""), part)
            part = part.replace("{", "").replace("}", "")
        parts.append(part)
    return "".join(parts)


_LOW = dict(zip("0123456789+−-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))
_HIGH = dict(zip("0123456789+−-=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿ", strict=True))


def small_letters(text: str, script: str) -> str | None:
    """Text raised (``^``) or lowered (``_``) as Unicode's small letters; None where it lacks one."""
    if not script:
        return text
    table = _LOW if script == "_" else _HIGH
    return "".join(table[c] for c in text) if all(c in table for c in text) else None


def as_letters(formula: str) -> str | None:
    """A formula as letters, ``V'_n`` as V′ₙ; None where its scripts or commands have none."""
    pieces = []
    for piece in re.split(r"([_^](?:\{[^{}]*\}|.))", formula):
        script, inner = (piece[0], piece[1:]) if piece[:1] in ("_", "^") else ("", piece)
        if "{" in inner.strip("{}") or (not script and ("{" in inner or "}" in inner)):
            return None
        small = small_letters(plain(f"${inner}$"), script)
        if small is None:
            return None
        pieces.append(small.replace("'", "′").replace("-", "−"))
    return "".join(pieces)


def spelled(text: str) -> str:
    """Text for who copies or hears it: formulas as letters, ``$V'_n$`` as V′ₙ, or else as ``plain`` has them."""
    parts = split_formulas(text)
    return "".join((as_letters(part) or plain(f"${part}$")) if inner else part for part, inner in parts)


def formula(source: str) -> str:
    """A formula as LaTeX: Greek letters and signs as their commands, letters that are no mathematics as text."""
    return "".join(_in_formula(char) for char in unicodedata.normalize("NFKC", source))


def _in_formula(char: str) -> str:
    if char in _MATHEMATICS:
        command = _MATHEMATICS[char]
        return f"{command} " if command[-1].isalpha() and command != "o" else command
    return char if char.isascii() else rf"\text{{{latex(char)}}}"


def check_formula(source: str) -> None:
    """Raises ValueError for a formula that one of LaTeX, matplotlib and HTML would refuse: what is wrong, for a user."""
    _check_group([match.groups() for match in TOKEN.finditer(source)], 0, inside=False)


def _check_group(tokens: list[tuple], at: int, inside: bool) -> int:
    """Check up to the end, or (``inside`` braces) to behind the closing one; where that is."""
    scripts: set[str] = set()
    while at < len(tokens):
        command, mark, _, other = tokens[at]
        if mark == "}":
            if not inside:
                raise ValueError("a } without its {")
            return at + 1
        if mark in ("_", "^"):
            if mark in scripts:
                raise ValueError(f"two {mark} on one letter; put what belongs together into braces")
            scripts.add(mark)
            at = _check_argument(tokens, at + 1, mark)
            continue
        if mark == "'":
            if "^" in scripts:
                raise ValueError("a ' behind a ^; write the ' first")
            at += 1
            continue
        scripts = set()
        if command in UPRIGHT:
            at = _check_argument(tokens, at + 1, f"\\{command}")
        elif mark == "{":
            at = _check_group(tokens, at + 1, inside=True)
        elif command and command not in COMMANDS:
            known = ", ".join(sorted({*COMMANDS, *UPRIGHT}))
            raise ValueError(f"\\{command} is not known (known: {known})")
        elif other and other in "\\#%&~":
            raise ValueError(f"{other} cannot stand in a formula")
        else:
            at += 1
    if inside:
        raise ValueError("a { without its }")
    return at


def _check_argument(tokens: list[tuple], at: int, of: str) -> int:
    """Check the one character or group that belongs to a script or a command; where what follows begins."""
    if at == len(tokens) or tokens[at][1] in ("_", "^", "}", "'"):
        raise ValueError(f"nothing stands behind {of}")
    command, mark, letters, _ = tokens[at]
    if command in UPRIGHT:
        return _check_argument(tokens, at + 1, f"\\{command}")
    if letters and len(letters) > 1:
        tokens[at] = (None, None, letters[1:], None)
        return at
    if mark == "{":
        return _check_group(tokens, at + 1, inside=True)
    return at + _check_group(tokens[at : at + 1], 0, inside=False)


# --- texts of papers -------------------------------------------------------------------------------------------------


def problems_of(text: str) -> list[str]:
    """What keeps a text from being printed: characters and formulas, each named."""
    found = []
    for part, is_formula in split_formulas(unicodedata.normalize("NFC", text)):
        if is_formula:
            try:
                check_formula(part)
            except ValueError as error:
                found.append(f"the formula ${part}$: {error}")
        for char in dict.fromkeys(part):
            if _latex(char) is None and char not in _ACCENTS:
                plain = "".join(
                    c for c in unicodedata.normalize("NFKD", char) if c.isascii() and c.isprintable()
                )
                name = unicodedata.name(char, "a control character")
                instead = f", for instance {plain!r}" if plain else ""
                shown = repr(char) if char.isprintable() else "the character"
                found.append(
                    f"{shown} (U+{ord(char):04X}, {name}) cannot be printed; write it in Latin or Greek letters{instead}"
                )
    return found


def _printable(text: str) -> str:
    if not (text.isascii() and text.isprintable() and "$" not in text) and (problems := problems_of(text)):
        raise ValueError("; ".join(problems))
    return text


#: A text that tables, figures and pages print.
Text = Annotated[str, AfterValidator(_printable)]
