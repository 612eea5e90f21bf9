"""A sample: the readings of one quantity over seeds, their mean, error, interval and p-value, and differences of samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from respath.quantities.quantity import Items, Quantity, Reading, State, is_number
from respath.quantities.statistics import (
    Documents,
    Interval,
    TextError,
    mean,
    paired_documents,
    standard_error,
    t_interval,
    tail_probabilities,
    text_error,
)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Readings of one quantity by seed; what has no seeds (parameters, proportions of text) has the one key None.

    ``runs``: ids of the runs behind it, left side first. ``exact``: computed from the paper's own shapes, or a proportion that
    every scale reproduces. ``sides``: of a difference, the sample that it is taken from and the one that is subtracted.
    """

    quantity: Quantity
    by_seed: dict[int | None, Reading]
    unit: str = ""
    exact: bool = False
    runs: tuple[str, ...] = ()
    sides: tuple[Sample, Sample] | None = None

    # --- what was measured -----------------------------------------------------------------------------------------

    @property
    def measured(self) -> dict[int | None, Reading]:
        """The readings that have a value."""
        return {seed: reading for seed, reading in self.by_seed.items() if reading.state == "measured"}

    @property
    def values(self) -> dict[int | None, Any]:
        """Values by seed, of whatever type."""
        return {seed: reading.value for seed, reading in self.measured.items()}

    @property
    def numbers(self) -> dict[int | None, float]:
        """Finite numbers by seed."""
        return {s: v for s, v in self.values.items() if is_number(v) and math.isfinite(v)}

    @property
    def value(self) -> Any:
        """The mean over seeds of numbers; of anything else the first value; None where there is none."""
        if set(self.by_seed) == {None} or not self.numbers:
            return next(
                iter(self.values.values()), None
            )  # integers stay integers: bytes and parameters are exact
        return mean(list(self.numbers.values()))

    @property
    def stderr(self) -> float | None:
        """Standard error of the mean over seeds; None for fewer than two."""
        return standard_error(list(self.numbers.values()))

    @property
    def item_stderr(self) -> float | None:
        """Standard error over evaluated items, mean over seeds: seeds share the items, so more seeds do not shrink it."""
        errors = [reading.stderr for reading in self.measured.values() if reading.stderr is not None]
        return mean(errors) if errors else None

    def parts(self, weight: int = 1) -> Iterator[tuple[int, Sample]]:
        """The samples that this one is a sum of, with their coefficients: itself, or both sides of a difference."""
        if self.sides is None:
            yield weight, self
        else:
            yield from self.sides[0].parts(weight)
            yield from self.sides[1].parts(-weight)

    @property
    def text_error(self) -> TextError | None:
        """Error from the choice of text: from sums per document where results have them, else of a value its error over items.

        Raises ValueError where the sides of a difference were scored on different documents.
        """
        if documents := documents_of(list(self.parts()), self.numbers):
            return text_error(documents)
        error = self.item_stderr if self.sides is None else None
        return None if error is None else TextError(error, math.inf, {})

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean: over seeds and, where it is known, over the choice of text; None for fewer than two seeds."""
        numbers = list(self.numbers.values())
        return t_interval(numbers, text=self.text_error) if len(numbers) > 1 else None

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of the t test that the mean over seeds is 0; None for fewer than two seeds."""
        interval = self.interval
        return None if interval is None else min(1.0, 2 * min(tail_probabilities(interval, 0.0)))

    # --- what was not ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """``diverged`` where any seed did (a mean over survivors would flatter), else whether there is a value."""
        if any(reading.state == "diverged" for reading in self.by_seed.values()):
            return "diverged"
        return "measured" if self.measured else "not run"

    @property
    def reason(self) -> str:
        """What is missing or diverged, seed by seed, and why; of what is complete, nothing."""
        notes = []
        for state, word in (("diverged", "diverged"), ("not run", "missing")):
            group = {seed: r for seed, r in self.by_seed.items() if r.state == state}
            reason = "; ".join(dict.fromkeys(reading.reason for reading in group.values()))
            if group and len(group) == len(self.by_seed):
                notes.append(reason)
            elif group:
                seeds = f"seed{'s' * (len(group) > 1)} {', '.join(map(str, group))}"
                notes.append(f"{seeds} {word}: {reason}")
        return "; ".join(notes)

    # --- arithmetic ------------------------------------------------------------------------------------------------

    def minus(self, other: Sample) -> Sample:
        """The difference seed by seed, over the seeds that both have; what has no seeds pairs with every one."""
        pairs = dict(_paired(self.by_seed, other.by_seed))
        return Sample(
            self.quantity,
            {seed: left.minus(right) for seed, (left, right) in pairs.items()},
            self.unit,
            self.exact and other.exact,
            (*self.runs, *other.runs),
            (self, other),
        )

    def each(self, function: Callable[[Any], Any]) -> Sample:
        """A function of every value: one point of a curve, one cell of a matrix."""
        readings = {seed: Reading(function(value)) for seed, value in self.values.items()}
        return dataclasses.replace(self, by_seed=readings, sides=None)

    def among(self, seeds: Collection[int | None]) -> Sample:
        """The readings of some seeds."""
        return dataclasses.replace(
            self, by_seed={s: r for s, r in self.by_seed.items() if s in seeds}, sides=None
        )

    def mean_array(self) -> Any:
        """Cell by cell the mean over seeds of arrays of one shape, in double precision."""
        import numpy as np

        return np.mean(
            np.stack([np.asarray(value, dtype=np.float64) for value in self.values.values()]), axis=0
        )

    def times(self, factor: float, unit: str) -> Sample:
        """In another unit."""
        readings = {seed: reading.times(factor) for seed, reading in self.by_seed.items()}
        sides = self.sides and (self.sides[0].times(factor, unit), self.sides[1].times(factor, unit))
        return dataclasses.replace(self, by_seed=readings, unit=unit, sides=sides)


def computed(values: Mapping[int, Any], of: Quantity) -> Sample:
    """Values by seed that were computed from readings of a quantity (a smoothed curve at one step), as a sample."""
    return Sample(of, {seed: Reading(value) for seed, value in values.items()})


def documents_of(parts: Sequence[tuple[int, Sample]], seeds: Iterable[int | None]) -> dict[str, Documents]:
    """Sums per document of a sum of samples, where every one of them has them at each of these seeds; else nothing.

    Raises ValueError where they were scored on different documents.
    """
    sides: list[tuple[float, Mapping[int | None, Items]]] = []
    for weight, sample in parts:
        found = {seed: sample.by_seed[seed].items for seed in seeds}
        items = {seed: each for seed, each in found.items() if each is not None}
        if not items or len(items) < len(found):
            return {}
        sides.append((weight, items))
    return paired_documents(sides)


def _paired(
    left: Mapping[int | None, Reading], right: Mapping[int | None, Reading]
) -> Iterator[tuple[int | None, tuple[Reading, Reading]]]:
    for seed in left if set(left) != {None} else right:
        one, two = left.get(seed, left.get(None)), right.get(seed, right.get(None))
        if one is not None and two is not None:
            yield seed, (one, two)
