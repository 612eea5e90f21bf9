"""How lines look in every figure: one style, dashes and markers that differ without colour, a head and a foot."""

from __future__ import annotations

import colorsys
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

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


def wrapped(text: str, width: int = _FOOT_LETTERS) -> str:
    """Text in lines of at most so many letters."""
    lines, line = [], ""
    for word in text.split():
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
    figure.text(0.008, 1 - 0.047 / height, head, fontsize=8, va="top", style="italic", **look)
    if foot:
        # Labels are data: a dollar in one is a dollar.
        figure.text(0.008, 0.037 / height, wrapped(foot), fontsize=7, va="bottom", parse_math=False, **look)
