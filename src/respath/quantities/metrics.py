"""Names of metrics, measured or derived: which there are, in which unit, and what a quantity is read from."""

from __future__ import annotations

from collections.abc import Iterator

from respath.errors import did_you_mean
from respath.quantities.derived import DERIVED
from respath.quantities.kinds import KINDS, Kind, Names, split
from respath.quantities.quantity import Quantity


def unknown(metric: str, names: Names | None = None, *, series: bool = False, pair: bool = True) -> str:
    """Why a metric cannot exist; empty when it can.

    ``names``: the paper's domains and tasks; None: whatever they may be. ``series``: is a curve, list or array wanted, and not a
    number? ``pair``: are two runs at hand, so that metrics that compare runs may be asked for?
    """
    if metric in DERIVED:
        if series:
            return f"{metric!r} is one number, not a series"
        return "" if pair or not DERIVED[metric].compares else f"{metric!r} compares two runs"
    group = metric.partition(".")[0]
    derived = dict.fromkeys(name.partition(".")[0] for name in DERIVED if not name.startswith(tuple(KINDS)))
    if group in derived:
        return f"{metric!r} is no metric{did_you_mean(metric, DERIVED)}"
    if group not in KINDS or "." not in metric:
        return f"{metric!r} is no metric; it starts with the kind of result{did_you_mean(group, (*KINDS, *derived))}"
    kind, name = split(metric)
    if (names is not None or kind.of in ("start", "checkpoint") or kind.name == "analysis") and (
        problem := kind.unknown(name, names or Names())
    ):
        return f"{metric!r}: {problem}"
    if series != kind.is_series(name):
        return f"{metric!r} is {'one number, not a series' if series else 'a series, not one number'}"
    return ""


def unit_of(metric: str) -> str:
    """The unit in which a metric is read."""
    if metric in DERIVED:
        return DERIVED[metric].unit
    kind, name = split(metric)
    return kind.unit(name)


def is_series(metric: str) -> bool:
    """Is a metric a curve, a list or an array, and not one number?"""
    if metric in DERIVED:
        return False
    kind, name = split(metric)
    return kind.is_series(name)


def is_exact(metric: str) -> bool:
    """Is the metric computed from the paper's own shapes and compared exactly at every scale?"""
    if metric in DERIVED:
        return False
    kind, name = split(metric)
    return kind.is_exact(name)


def compares(metric: str) -> bool:
    """Is the metric itself a comparison of two runs (a ratio, a saving), and not subtracted from another run's?"""
    return metric in DERIVED and DERIVED[metric].compares


def worst(metric: str) -> int:
    """Where a diverged run's value ranks: +1 above all others (losses), -1 below (accuracies), 0 where a metric has no better end."""
    if metric in DERIVED:
        return DERIVED[metric].worst
    kind, name = split(metric)
    return kind.worst(name)


def read_from(quantity: Quantity, baseline: str) -> Iterator[tuple[Kind, str, Quantity]]:
    """Kind, name and quantity of everything that is read for a quantity, differences and derived metrics taken apart."""
    derived = DERIVED.get(quantity.metric)
    if derived is not None:
        sides = [quantity] if derived.compares else _sides(quantity)
        for one in (one for side in sides for one in derived.inputs(side, baseline)):
            yield from read_from(one, baseline)
        return
    kind, name = split(quantity.metric)
    for side in _sides(quantity):
        yield kind, name, side


def _sides(quantity: Quantity) -> list[Quantity]:
    alone = quantity.of(against=None)
    return [alone] if quantity.against is None else [alone, alone.of(subject=quantity.against)]
