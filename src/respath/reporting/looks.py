"""How figures look: colours that stay apart for every reader, one per model of a paper, dashes and markers, sizes of type."""

from __future__ import annotations

import bisect
import contextlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib.style
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextPath

from respath.letters import as_letters, check_formula, scripts, small_letters, split_formulas
from respath.quantities.verdicts import (
    CONTRADICTED,
    NO_EFFECT,
    NOT_JUDGED,
    NOT_RUN,
    SUPPORTED,
    TOO_FEW,
    UNDECIDED,
)
from respath.reporting.panels.data import COLOURED

STYLE = Path(__file__).with_name("respath.mplstyle")

#: Lines on white: the baseline first. Under three colour deficiencies the smallest difference is 16 (CIEDE2000).
PALETTE = ("#222222", "#1C62D4", "#B0401A", "#0FA07C", "#6D2F6B", "#C48300")
#: The same models on a dark page; the smallest difference is 18.
ON_DARK = ("#E6E7E5", "#3962F2", "#C83D09", "#32AE8D", "#CBA0D6", "#FF8D10")
#: Everything beyond six lines, and lines that only stand behind others.
GREY, BEHIND = "#767676", "#C9CDD1"
INK, SOFT, HAIR = PALETTE[0], "#5F6368", "#D9DCDF"
FOR, AGAINST = "#1C5FB8", "#B23A12"
#: Pages, and what is open: light and dark.
PAGE, DARK = "#FFFFFF", "#15181A"
#: Light letters and middles of heat maps, which no page may change.
WHITE = "#FEFEFE"
#: Colour on white -> name of the variable that a page may set, and the colour on a dark page.
VARIABLES = {
    **{c: (f"line-{k}", dark) for k, (c, dark) in enumerate(zip(PALETTE, ON_DARK, strict=True))},
    GREY: ("line-grey", "#9AA0A6"),
    BEHIND: ("line-behind", "#4A5156"),
    SOFT: ("soft", "#A4A9AD"),
    HAIR: ("hair", "#343A3E"),
    FOR: ("for", "#8FBCF5"),
    AGAINST: ("against", "#F2926B"),
    PAGE: ("page", DARK),
}

DASHES = (
    (0, ()),
    (0, (5, 1.5)),
    (0, (1.2, 1.2)),
    (0, (4, 1.2, 1.2, 1.2)),
    (0, (8, 2)),
    (0, (4, 1.2, 1.2, 1.2, 1.2, 1.2)),
)
MARKERS = "osD^vP"

#: Verdict -> colour, mark before its word, marker of its dot.
VERDICT_LOOKS = {
    SUPPORTED: (FOR, "✓", "o"),
    CONTRADICTED: (AGAINST, "×", "s"),
    NO_EFFECT: (SOFT, "=", "o"),
    UNDECIDED: (SOFT, "┼", "o"),
    TOO_FEW: (SOFT, "●○○", "o"),
    NOT_RUN: (SOFT, "○", "o"),
    NOT_JUDGED: (SOFT, "–", "o"),
}

#: Inches, and points: nothing is smaller than SMALL.
WIDTH, NORMAL, SMALL = 7.0, 9.0, 8.0


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The figure style on top of matplotlib's own defaults: a user's matplotlibrc changes nothing."""
    with matplotlib.style.context(STYLE, after_reset=True):
        yield


def line_looks(slots_of: Mapping[str, int]) -> dict[str, dict]:
    """Colour, dashes and marker of lines by id, from their models' slots. Lines of one model share its colour, not its dashes."""
    found: dict[str, dict] = {}
    used: set[int] = set()
    for name, slot in slots_of.items():
        place = slot % COLOURED
        if place in used:
            place = next((one for one in range(COLOURED) if one not in used), place)
        used.add(place)
        colour = PALETTE[slot] if slot < COLOURED else GREY
        found[name] = {"color": colour, "linestyle": DASHES[place], "marker": MARKERS[place]}
    return found


# --- text ------------------------------------------------------------------------------------------------------------

#: What mathtext calls otherwise than LaTeX.
_MATHTEXT = {r"\textup": r"\mathrm", r"\le": r"\leq", r"\ge": r"\geq", r"\dots": r"\ldots"}


def drawn(text: str) -> str:
    """Text for matplotlib: letters that can be copied wherever Unicode has them, mathtext where a formula needs more."""
    parts: list[tuple[str, bool]] = []
    for part, is_formula in split_formulas(text):
        try:
            if is_formula:
                check_formula(part)
                if (letters := as_letters(part)) is not None:
                    parts.append((letters, False))
                    continue
                spaced = re.sub(
                    r"\\text(\{[^{}]*\})", lambda found: r"\mathrm" + found[1].replace(" ", r"\ "), part
                )
                known = re.sub(r"\\[A-Za-z]+", lambda found: _MATHTEXT.get(found[0], found[0]), spaced)
                parts.append((f"${known}$", True))
                continue
        except ValueError:
            part = f"${part}$"
        for piece, script in scripts(part):
            small = small_letters(piece, script)
            if small is not None:
                parts.append((small, False))
                continue
            quoted = piece.replace("$", r"\$")
            parts.append((f"${script}{{\\mathregular{{{quoted}}}}}$", True))
    if any(formula for _, formula in parts):
        # Mathtext has one font, and sets all of a text that holds a formula.
        parts = [(part if formula else "".join(map(_glyph, part)), formula) for part, formula in parts]
    return "".join(part if formula else part.replace("$", r"\$") for part, formula in parts)


def _glyph(char: str) -> str:
    """A character as the font of the style has it: whole, as a letter and its marks, or its code point."""
    if char.isspace():
        return char
    font = get_font(findfont("DejaVu Sans"))
    for form in (char, unicodedata.normalize("NFD", char)):
        if all(font.get_char_index(ord(part)) for part in form):
            return form
    return f"<U+{ord(char):04X}>"


def _words(text: str) -> list[str]:
    """What no line break may part: formulas stay whole."""
    return re.findall(r"(?:\$[^$]*\$|\S)+" if text.count("$") % 2 == 0 else r"\S+", text)


def width_of(text: str, size: float = SMALL) -> float:
    """Inches that the longest line of a text takes at a font size in points."""
    lines = (drawn(line) or " " for line in text.split("\n"))
    return (
        max(TextPath((0, 0), line, size=size, prop=FontProperties()).get_extents().x1 for line in lines) / 72
    )


def fitted(text: str, inches: float, size: float = SMALL) -> str:
    """Text in lines of at most so many inches at a font size; a word that is longer is broken."""
    if width_of(text, size) <= inches:
        return text
    lines, line = [], ""
    for word in _words(text):
        if width_of(joined := f"{line} {word}".strip(), size) <= inches:
            line = joined
            continue
        if line:
            lines.append(line)
        while width_of(word, size) > inches and len(word) > 1 and "$" not in word:
            # The first length that is too wide, less one.
            lengths = range(2, len(word))
            end = 1 + bisect.bisect_left(lengths, True, key=lambda n: width_of(word[:n], size) > inches)
            lines.append(word[:end])
            word = word[end:]
        line = word
    return "\n".join([*lines, line])


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near ``wanted``, at least ``gap`` apart and within low..high, in the same order: for labels of lines.

    With too many labels for the room the gap shrinks to what fits.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(1, len(wanted) - 1)) if len(wanted) > 1 else gap
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Pool neighbours that are too close around their common mean (as in isotonic regression).
    pools: list[tuple[float, list[int]]] = []
    for rank, index in enumerate(order):
        pools.append((wanted[index] - rank * gap, [index]))
        while len(pools) > 1 and pools[-1][0] < pools[-2][0]:
            (b, right), (a, left) = pools.pop(), pools.pop()
            pools.append(((a * len(left) + b * len(right)) / (len(left) + len(right)), left + right))
    placed = [0.0] * len(wanted)
    rank = 0
    top = high - (len(wanted) - 1) * gap
    for base, members in pools:
        for index in members:
            placed[index] = min(max(base, low), top) + rank * gap
            rank += 1
    return placed
