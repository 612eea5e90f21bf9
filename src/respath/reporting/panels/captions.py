"""What is said of a figure, from its data alone: the finding, the marks, what is missing, and a text for who cannot see it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from respath.letters import spelled
from respath.quantities.rounding import fixed, significant
from respath.reporting.panels.data import COLOURED, Drawn, Estimate, Line, Mark, Shown
from respath.reporting.panels.training import EXTRAPOLATED

#: Names in one list before the others are counted.
_NAMED = 6


def axis_name(panel: Drawn) -> str:
    """What the values of a panel are."""
    label = panel.definition.y.label
    if panel.differences and panel.definition.kind != "difference":
        label = f"{label}, less {panel.against} of the same seed"
    return f"{label}; {panel.size}" if panel.size else label


def decimals_of(panel: Drawn) -> int:
    """Two digits of a usual interval's half-width (the median's); without an interval, of the largest difference."""
    found = [mark.difference for line in panel.of("ours") for mark in line.marks if mark.difference]
    halves = sorted((one.high - one.low) / 2 for one in found if one.low is not None and one.high > one.low)
    size = halves[len(halves) // 2] if halves else max((abs(one.value) for one in found), default=0.0)
    return min(5, max(0, 1 - math.floor(math.log10(size)))) if size > 0 else 3


def estimate_text(estimate: Estimate, digits: int) -> str:
    """A difference with its interval: ``−0.043 [−0.119, +0.033]``."""
    value, *ends = (
        None if number is None else fixed(number, digits, sign=True).replace("-", "−")
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return value if ends[0] is None else f"{value} [{ends[0]}, {ends[1]}]"


def words(shown: Shown, title: str, method: str, scale: str) -> dict[str, Any]:
    """Title, caption in its parts, and alternative text. ``method`` is the author's part: what is drawn, what is printed."""
    findings = [(panel, _finding(panel)) for panel in shown.filled]
    caption = {
        "finding": spelled(_by_panel(shown, findings)) or "Nothing is measured yet.",
        "marks": spelled(" ".join(_marks(shown))),
        "missing": spelled(" ".join(shown.notes)),
        "scale": scale,
    }
    alt = " ".join(f"{panel.title}: {_seen(panel)}" for panel in shown.filled)
    alt = spelled(f"{title}. {alt}" if alt else f"{title}. Nothing is drawn yet.")
    return {"title": title, "caption": caption, "method": method.strip(), "alt": alt}


def _by_panel(shown: Shown, findings: Iterable[tuple[Drawn, str]]) -> str:
    several = len(shown.panels) > 1
    return " ".join(
        f"{panel.letter.lower()}: {text}" if several else text for panel, text in findings if text
    )


def _listed(names: Sequence[str]) -> str:
    """A, B and C."""
    names = list(names)
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _number(value: float) -> str:
    return significant(value, 3).replace("-", "−")


# --- the finding -----------------------------------------------------------------------------------------------------


def _finding(panel: Drawn) -> str:
    if panel.form == "heat":
        text = _extremes([(f"row {y:g}, column {x:.3g}", value) for x, y, value in panel.grid.cells()])
    elif panel.definition.kind == "crossing":
        points = [(" ".join(mark.tick.split()), mark) for line in panel.of("ours") for mark in line.measured]
        said = [
            f"{_number(mark.value)} at {tick}{f' ({mark.note})' * bool(mark.note)}" for tick, mark in points
        ]
        text = f"The baseline is ahead for good from step {_listed(said)}." if said else ""
    elif panel.form == "bars":
        text = _extremes([(line.label, line.marks[0].value) for line in panel.of("ours") if line.measured])
    elif panel.form == "dots":
        text = _compared_rows(panel) if panel.differences else _extremes(
            [(line.label, line.marks[0].value) for line in panel.of("ours") if line.measured]
        )  # fmt: skip
    elif panel.definition.kind == "difference":
        ends = [(line.label, line.measured[-1].difference) for line in panel.of("ours") if line.measured]
        digits = decimals_of(panel)
        said = [f"{name} {estimate_text(one, digits)}" for name, one in ends if one]
        text = f"At the last common step: {'; '.join(said)}." if said else ""
    elif panel.against:
        text = _compared_lines(panel)
    else:
        text = " ".join(_course(line) for line in panel.of("ours")[:_NAMED] if line.measured)
    return " ".join(filter(None, [text, *panel.sentences]))


def _side(estimate: Estimate) -> str:
    """Which side of zero a difference is on, with its whole interval or not."""
    if estimate.low is None:
        return "one seed"
    return "lower" if estimate.high < 0 else "higher" if estimate.low > 0 else "open"


def _compared_rows(panel: Drawn) -> str:
    sides: dict[str, list[str]] = {}
    for line in panel.of("ours"):
        mark = line.marks[0]
        if mark.diverged:
            sides.setdefault("diverged", []).append(line.label)
        elif mark.difference:
            sides.setdefault(_side(mark.difference), []).append(line.label)
    parts = [
        f"{_listed(sides[side])} {'is' if len(sides[side]) == 1 else 'are'} {side} than {panel.against} with the whole interval"
        for side in ("lower", "higher")
        if side in sides
    ]
    if "open" in sides:
        parts.append(f"the interval of {_listed(sides['open'])} includes zero")
    if "one seed" in sides:
        parts.append(
            f"{_listed(sides['one seed'])} {'has' if len(sides['one seed']) == 1 else 'have'} one seed"
        )
    if "diverged" in sides:
        parts.append(f"{_listed(sides['diverged'])} diverged")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _compared_lines(panel: Drawn) -> str:
    parts = []
    for line in panel.of("ours"):
        found = [mark.difference for mark in line.measured if mark.difference]
        if not found:
            continue
        lower = sum(one.value < 0 for one in found)
        word, count = ("lower", lower) if 2 * lower >= len(found) else ("higher", len(found) - lower)
        whole = sum(_side(one) == word for one in found)
        known = sum(one.low is not None for one in found)
        sure = f", with the whole interval at {whole}" if known else ", from one seed"
        parts.append(f"{line.label} {word} than {panel.against} at {count} of {len(found)} points{sure}")
    many = len(parts) > _NAMED
    return f"{'; '.join(parts[:_NAMED])}{f'; and {len(parts) - _NAMED} more' * many}." if parts else ""


def _course(line: Line) -> str:
    """Where a line begins and ends, and its extremes where they lie between."""
    first, last = line.measured[0], line.measured[-1]
    if first is last:
        return f"{line.label}: {_number(first.value)}."
    word = "falls" if last.value < first.value else "rises"
    return f"{line.label} {word} from {_number(first.value)} to {_number(last.value)}."


def _extremes(values: Sequence[tuple[str, float]]) -> str:
    if not values:
        return ""
    (low_at, low), (high_at, high) = (pick(values, key=lambda one: one[1]) for pick in (min, max))
    return f"Largest {_number(high)} ({high_at}), smallest {_number(low)} ({low_at})."


# --- the marks -------------------------------------------------------------------------------------------------------


def _marks(shown: Shown) -> list[str]:
    """What each kind of mark that is there means, and nothing else."""
    panels = shown.filled
    marks = [mark for panel in panels for line in panel.of("ours") for mark in line.marks]
    seeds = sorted({len(mark.seeds) for mark in marks if len(mark.seeds) > 1})
    dots = [panel for panel in panels if panel.form == "dots" and panel.differences]
    lines = [panel for panel in panels if panel.form == "lines"]
    found = []
    if seeds:
        found.append(f"Filled: mean over {' or '.join(map(str, seeds))} seeds.")
    if any(mark.difference and mark.difference.low is not None for mark in marks):
        against = list(dict.fromkeys(panel.against for panel in panels if panel.against))
        what = "Bar or band" if dots and lines else "Bar" if dots else "Band or bar"
        of = f"difference from {_listed(against)}" if against else "value"
        found.append(f"{what}: 95 % interval of the {of}, paired by seed; nothing else is an error.")
    if any(
        mark.difference and len(mark.difference.by_seed) > 1
        for panel in dots
        for line in panel.of("ours")
        for mark in line.marks
    ):
        found.append("Ticks: seeds.")
    if any(len(mark.seeds) == 1 and mark.seeds != (None,) for mark in marks):
        found.append("Open: one seed, no interval.")
    if any(mark.note == EXTRAPOLATED for mark in marks):
        found.append("Triangle: extrapolated, not observed.")
    if any(
        mark.difference
        for panel in panels
        if panel.differences
        for line in panel.of("printed")
        for mark in line.marks
    ):
        found.append("Diamond: printed; compare its side of zero, not its size.")
    elif any(panel.of("printed") for panel in panels):
        found.append("Diamond: printed, where levels may be compared.")
    if any(mark.diverged for mark in marks):
        found.append("×: diverged.")
    if any(panel.of("fit") and not panel.differences for panel in lines):
        found.append("Thin curve: fit.")
    if any(panel.of("reference") for panel in lines):
        found.append("Dashed: reference.")
    if any(len(panel.of("ours")) > COLOURED for panel in lines):
        found.append("Grey: the other models.")
    return found


# --- a text for who cannot see it ------------------------------------------------------------------------------------


def _seen(panel: Drawn) -> str:
    if panel.form == "heat":
        return f"heat map of {panel.definition.value.label}. {_finding(panel)}"
    if panel.form in ("dots", "bars"):
        values = [
            (line.label, value)
            for line in panel.of("ours")
            if (value := _value(panel, line.marks[0])) is not None
        ]
        kind = f"differences from {panel.against}" if panel.differences else "values"
        below = sum(value < 0 for _, value in values)
        signs = f" {below} of {len(values)} are negative." if panel.differences and values else ""
        return f"{kind} of {len(panel.of('ours'))} runs.{signs} {_extremes(values)}"
    courses = []
    for line in panel.of("ours")[:_NAMED]:
        points = [(mark, value) for mark in line.marks if (value := _value(panel, mark)) is not None]
        if not points:
            continue
        first, last = points[0][1], points[-1][1]
        word = "falls" if last < first else "rises" if last > first else "stays"
        places = [(f"at {' '.join(mark.tick.split()) or _number(mark.x)}", value) for mark, value in points]
        courses.append(
            f"{line.label} {word} from {_number(first)} to {_number(last)}; {_lowered(_extremes(places))}"
        )
    more = len(panel.of("ours")) - _NAMED
    rest = f" {more} more lines." if more > 0 else ""
    kind = f"lines of {axis_name(panel)} against {panel.names()[0]}"
    return f"{kind}. {' '.join(courses)}{rest}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _value(panel: Drawn, mark: Mark) -> float | None:
    if panel.differences:
        return mark.difference.value if mark.difference and mark.value is not None else None
    return mark.value
