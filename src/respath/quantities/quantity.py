"""A quantity, and one reading of it (planning imports this: no numpy)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from respath.config.request import RunRequest
from respath.errors import UserError

State = Literal["measured", "diverged", "not run"]

#: Per stratum (a domain, a task) and document or item: the metric's total there, and the tokens or items that it is a total of.
Items = Mapping[str, Mapping[str, tuple[float, float]]]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights from elsewhere, by the name that the user gives them."""

    name: str


@dataclasses.dataclass(frozen=True)
class Domain:
    """One domain of the text that a paper's runs are trained on."""

    name: str


Subject = RunRequest | Checkpoint | Domain


def as_run(metric: str, subject: Subject | None) -> RunRequest:
    """The subject as a run. Raises UserError where it is none."""
    if isinstance(subject, RunRequest):
        return subject
    raise UserError(
        f"{metric} is a metric of runs, not of {'nothing' if subject is None else type(subject).__name__.lower()}"
    )


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A metric of a subject.

    ``against``: another run. What it is subtracted from is the subject, seed by seed; metrics that compare two runs by themselves
    (ratios, savings) say what they do with it. ``along``: changes of both sides that the metric goes along (the sizes of a fit).
    ``own_scale``: a quantity of a model's shape is taken from the paper's own shape; true: from the chosen scale's.
    """

    metric: str
    subject: Subject
    against: RunRequest | None = None
    along: tuple[RunRequest, ...] = ()
    own_scale: bool = False

    @property
    def run(self) -> RunRequest:
        """The subject as a run. Raises UserError where it is none."""
        return as_run(self.metric, self.subject)

    @property
    def other(self) -> RunRequest:
        """The run compared with. Raises UserError where there is none."""
        return as_run(self.metric, self.against)

    def of(self, **changes: Any) -> Quantity:
        """The same with other fields."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Reading:
    """One number of one subject at one seed, or why there is none.

    ``value``: a number, text or truth value; a list, mapping or array for curves and series. ``stderr``: over the evaluated items.
    ``items``: what each document or item adds to the value, where the result file records it (for bootstraps).
    """

    value: Any = None
    stderr: float | None = None
    state: State = "measured"
    reason: str = ""
    items: Items | None = None

    @property
    def number(self) -> float | None:
        """The value where it is a number."""
        return self.value if self.state == "measured" and is_number(self.value) else None

    def times(self, factor: float) -> Reading:
        """In another unit. A factor of one leaves integers integers: bytes and parameters are exact."""
        if factor == 1 or not is_number(self.value):
            return self
        stderr = None if self.stderr is None else self.stderr * abs(factor)
        items = self.items and {
            stratum: {id: (total * factor, size) for id, (total, size) in documents.items()}
            for stratum, documents in self.items.items()
        }
        return dataclasses.replace(self, value=self.value * factor, stderr=stderr, items=items)

    def minus(self, other: Reading) -> Reading:
        """The difference. Both sides read the same items, so their errors over items do not add up."""
        for reading in (self, other):
            if reading.state != "measured":
                return reading
        if not (is_number(self.value) and is_number(other.value)):
            return missing("no numbers to subtract")
        remarks = "; ".join(dict.fromkeys(filter(None, (self.reason, other.reason))))
        return Reading(self.value - other.value, reason=remarks)


def missing(reason: str) -> Reading:
    """A value that is not there (yet)."""
    return Reading(state="not run", reason=reason)


def is_number(value: Any) -> bool:
    """Is this a number, and not true or false?"""
    return isinstance(value, int | float) and not isinstance(value, bool)
