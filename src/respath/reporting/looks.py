"""How lines look in every figure: one style, dashes and markers that differ without colour, a head and a foot."""

from __future__ import annotations

import bisect
import colorsys
import contextlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextPath

from respath.letters import check_formula, scripts, split_formulas

STYLE = Path(__file__).with_name("respath.mplstyle")

#: Dashes that differ without colour, in the order of variants.yaml; the baseline is first and solid.
DASHES = (
    (0, ()),
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (4, 1.2, 1, 1.2)),
    (0, (8, 2)),
    (0, (4, 1.2, 1, 1.2, 1, 1.2)),
    (0, (2.2, 1.2)),
    (0, (8, 1.5, 2, 1.5)),
    (0, (1, 2.2)),
    (0, (10, 1.2, 1, 1.2)),
)
MARKERS = "osD^vPX<>*"

#: Inches.
WIDTH = 7.2
#: Luma above which a line is too pale.
_BRIGHTEST = 0.62
#: Letters of the foot in one line.
_FOOT_LETTERS = 150


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The figure style on top of matplotlib's own defaults: a user's matplotlibrc changes nothing."""
    with matplotlib.style.context(STYLE, after_reset=True):
        yield


def dash_indices(ranks: Sequence[int]) -> list[int]:
    """Which dashes and marker each line gets: by its place in variants.yaml, moved on where two would be alike."""
    used: set[int] = set()
    chosen = []
    for rank in ranks:
        index = rank % len(DASHES)
        while index in used and len(used) < len(DASHES):
            index = (index + 1) % len(DASHES)
        used.add(index)
        chosen.append(index)
    return chosen


def legible(colour: str) -> tuple[float, float, float]:
    """A colour, darkened until a thin line of it stands out from white."""
    red, green, blue = to_rgb(colour)
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    while 0.2126 * red + 0.7152 * green + 0.0722 * blue > _BRIGHTEST:
        lightness *= 0.96
        red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return red, green, blue


#: What mathtext calls otherwise than LaTeX.
_MATHTEXT = {r"\textup": r"\mathrm", r"\le": r"\leq", r"\ge": r"\geq", r"\dots": r"\ldots"}


def drawn(text: str) -> str:
    """Text for matplotlib: what stands between dollars and Unicode's sub- and superscripts as mathtext, all else as it is."""
    parts: list[tuple[str, bool]] = []
    for part, is_formula in split_formulas(text):
        try:
            if is_formula:
                check_formula(part)
                spaced = re.sub(
                    r"\\text(\{[^{}]*\})", lambda found: r"\mathrm" + found[1].replace(" ", r"\ "), part
                )
                known = re.sub(r"\\[A-Za-z]+", lambda found: _MATHTEXT.get(found[0], found[0]), spaced)
                parts.append((f"${known}$", True))
                continue
        except ValueError:
            part = f"${part}$"
        for piece, script in scripts(part):
            plain = piece.replace("$", r"\$")
            parts.append((f"${script}{{\\mathregular{{{plain}}}}}$" if script else plain, bool(script)))
    if any(formula for _, formula in parts):
        # Mathtext has one font, and sets all of a text that holds a formula.
        parts = [(part if formula else "".join(map(_of_stix, part)), formula) for part, formula in parts]
    return "".join(part for part, _ in parts)


def _of_stix(char: str) -> str:
    """A character as the first font of the style has it: whole, as a letter and its marks, or its code point."""
    if char.isspace():
        return char
    font = get_font(findfont("STIXGeneral"))
    for form in (char, unicodedata.normalize("NFD", char)):
        if all(font.get_char_index(ord(part)) for part in form):
            return form
    return f"<U+{ord(char):04X}>"


def _words(text: str) -> list[str]:
    """What no line break may part: formulas stay whole."""
    return re.findall(r"(?:\$[^$]*\$|\S)+" if text.count("$") % 2 == 0 else r"\S+", text)


def width_of(text: str, size: float) -> float:
    """Inches that the longest line of a text takes at a font size in points."""
    lines = (drawn(line) or " " for line in text.split("\n"))
    return (
        max(TextPath((0, 0), line, size=size, prop=FontProperties()).get_extents().x1 for line in lines) / 72
    )


def fitted(text: str, inches: float, size: float) -> str:
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


def wrapped(text: str, width: int = _FOOT_LETTERS) -> str:
    """Text in lines of at most so many letters; a formula is not broken."""
    lines, line = [], ""
    for word in _words(text):
        if line and len(line) + len(word) + 1 > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def head_and_foot(figure: Figure, head: str, foot: str) -> None:
    """Scale and seeds above the panels, and what is not drawn below them."""
    height = figure.get_size_inches()[1]
    look = {"color": "#555555", "ha": "left"}
    figure.text(0.008, 1 - 0.047 / height, drawn(head), fontsize=8, va="top", style="italic", **look)
    if foot:
        figure.text(0.008, 0.037 / height, drawn(wrapped(foot)), fontsize=7, va="bottom", **look)
