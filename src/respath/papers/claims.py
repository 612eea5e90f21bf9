"""Claims of a paper as tests that are written down before any run: which runs, which metric, which direction or size."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from respath.config.request import Overrides, RunRequest
from respath.errors import did_you_mean
from respath.files import canonical_json
from respath.letters import Text
from respath.papers.reported import PrintedCell
from respath.quantities.derived import DERIVED
from respath.quantities.quantity import Quantity
from respath.spec.document import Document

#: Primary claims that a paper may name.
MOST_PRIMARY = 6
# --- the document --------------------------------------------------------------------------------------------------


class Other(Document):
    """What differs in a run that a side subtracts from its own; the rest is the side's."""

    size: str | None = None
    variant: str | None = None
    context: int | None = None
    recipe: Overrides = {}


class Side(Document):
    """One side of a comparison, in the paper's terms; ``sizes`` for fits over sizes.

    ``minus``: the side's value is its own run's less this run's, seed by seed, so that a claim may compare differences.
    """

    size: str | None = None
    sizes: tuple[str, ...] = ()
    variant: str
    context: int | None = None
    recipe: Overrides = {}
    minus: Other | None = None
    metric: str | None = None
    """Another metric than the comparison's, in the same unit: a floor, or what a uniform model has."""

    @model_validator(mode="after")
    def _one_or_many(self):
        if (self.size is None) == (not self.sizes):
            raise ValueError("names exactly one of `size` and `sizes`")
        if self.minus and self.sizes:
            raise ValueError("subtracts a run with `minus`, so it names one `size` and not `sizes`")
        if self.minus and self.minus == Other():
            raise ValueError("`minus` names nothing that differs, so the side would be 0")
        return self

    def request(self, size: str | None = None) -> RunRequest:
        """The run, at ``size`` for a side with several."""
        return RunRequest(
            size=size or self.size, variant=self.variant, context=self.context, recipe=self.recipe
        )

    def subtracted(self) -> RunRequest | None:
        """The run that ``minus`` names."""
        if self.minus is None:
            return None
        return RunRequest(
            size=self.minus.size or self.size,
            variant=self.minus.variant or self.variant,
            context=self.minus.context or self.context,
            recipe={**self.recipe, **self.minus.recipe},
        )


#: Allowed combinations of keys in ``expect``; docs/claims.md says what each means.
_FORMS = (
    {"direction", "min_effect"},
    {"direction", "max_effect"},
    {"direction", "than"},
    {"equals", "tolerance"},
    {"difference", "tolerance"},
    {"equals", "exact"},
    {"difference", "exact"},
    {"rounds_to_million"},
)


class Expect(Document):
    """What the claim says of left minus right, or of the left value alone."""

    direction: Literal["lower", "higher", "not_lower", "not_higher", "none"] | None = None
    min_effect: float | None = Field(None, ge=0)
    margin: float | None = Field(None, gt=0)
    """With ``lower`` and ``higher``: a true difference within ± margin does not matter. Default: ``min_effect``, where it is not 0."""
    max_effect: float | None = Field(None, ge=0)
    than: float | None = None
    equals: int | float | None = None
    difference: int | float | None = None
    tolerance: float | None = Field(None, gt=0)
    exact: Literal[True] | None = None
    rounds_to_million: int | None = None

    @model_validator(mode="after")
    def _known_form(self):
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if "margin" in given and self.direction not in ("lower", "higher"):
            raise ValueError("`margin` goes with direction lower or higher")
        if given - {"margin"} not in _FORMS:
            raise ValueError(f"the keys {sorted(given)} do not go together; docs/claims.md lists the forms")
        wants = "max_effect" if self.direction in ("not_lower", "not_higher", "none") else "min_effect"
        if self.direction and wants not in given and "than" not in given:
            raise ValueError(f"direction {self.direction} goes with {wants}")
        return self

    @property
    def of_left_alone(self) -> bool:
        """Is the left value judged, and not a difference?"""
        return self.than is not None or self.equals is not None or self.rounds_to_million is not None

    def region(self) -> tuple[float, float]:
        """The open interval that the judged quantity must lie in (exact forms: see ``judge_exact_claim``)."""
        if self.than is not None:
            return (self.than, math.inf) if self.direction == "higher" else (-math.inf, self.than)
        least, most = self.min_effect or 0.0, self.max_effect or 0.0
        if self.direction == "lower":
            return -math.inf, -least
        if self.direction == "higher":
            return least, math.inf
        if self.direction == "not_lower":
            return -most, math.inf
        if self.direction == "not_higher":
            return -math.inf, most
        if self.direction == "none":
            return -most, most
        centre, tolerance = (self.equals or self.difference or 0.0), self.tolerance or 0.0
        return centre - tolerance, centre + tolerance

    @property
    def matters(self) -> float | None:
        """Differences within ± this do not matter; None where nothing says so."""
        return self.margin or self.min_effect or None


class PrintedFrom(Document):
    """Where the paper prints what is compared: a file of ``reported/`` (by its name without ending), a column of it, and the row
    of each side or of their difference."""

    reported: str
    column: str
    left: str | None = None
    right: str | None = None
    difference: str | None = None

    def places(self) -> dict[str, PrintedCell]:
        """Side (or ``difference``) -> its cell."""
        rows = {"left": self.left, "right": self.right, "difference": self.difference}
        return {
            side: PrintedCell(reported=self.reported, row=row, column=self.column)
            for side, row in rows.items()
            if row
        }


class Test(Document):
    """One comparison."""

    __test__ = False  # a document, not a test case

    metric: str
    left: Side
    right: Side | None = None
    expect: Expect
    printed_from: PrintedFrom | None = None

    @model_validator(mode="after")
    def _has_two_sides(self):
        if self.right is None and not self.expect.of_left_alone:
            raise ValueError("a difference needs `right`")
        return self

    def sides(self) -> tuple[Quantity, ...]:
        """What is compared: left and right; or one quantity that is the comparison itself (a saving, a ratio)."""
        derived = DERIVED.get(self.metric)
        if derived and derived.compares:
            along = tuple(RunRequest(size=size) for size in self.left.sizes)
            other = self.right.request() if self.right else None
            return (Quantity(self.metric, self.left.request(), other, along),)
        sides = filter(None, (self.left, self.right))
        return tuple(
            Quantity(side.metric or self.metric, side.request(), side.subtracted()) for side in sides
        )


class Alternative(Document):
    """Another functional or setting that the paper may have meant: what it changes of the claim's comparison, or all of them anew."""

    name: str
    metric: str | None = None
    left: Side | None = None
    right: Side | None = None
    expect: Expect | None = None
    all_of: tuple[Test, ...] = ()

    @model_validator(mode="after")
    def _one_form(self):
        changed = any((self.metric, self.left, self.right, self.expect))
        if changed == bool(self.all_of):
            raise ValueError("changes `metric`, `left`, `right` or `expect`, or gives `all_of` anew")
        return self

    def of(self, tests: tuple[Test, ...]) -> tuple[Test, ...]:
        """The claim's comparisons under this reading."""
        changes = {
            key: value
            for key in ("metric", "left", "right", "expect")
            if (value := getattr(self, key)) is not None
        }
        return self.all_of or tuple(test.model_copy(update=changes) for test in tests)


class Claim(Document):
    """One claim: a comparison, or ``all_of`` several."""

    id: str
    title: Text
    source: dict[Literal["table", "figure", "section"], int | str]
    """Where the paper claims it."""
    metric: str | None = None
    left: Side | None = None
    right: Side | None = None
    expect: Expect | None = None
    printed_from: PrintedFrom | None = None
    all_of: tuple[Test, ...] = ()
    judged_at: tuple[str, ...] = Field(min_length=1)
    needs_seeds: int = Field(ge=0)
    primary: bool = False
    """Named beforehand as one of the few whose verdicts are adjusted for their number; all others are exploratory."""
    ours: bool = False
    """A question of this project, which the paper does not ask."""
    as_in_paper: bool = True
    """Are functional and setting the paper's? Where they are not, nothing here contradicts it."""
    given: tuple[str, ...] = ()
    """Claims without which this one says nothing, beside the file's own ``given``: where one of them may be judged and is not
    supported, this one is not judged."""
    alternatives: tuple[Alternative, ...] = ()
    """Where the paper leaves open what it measured: no verdict stands until all of them agree with the claim as written."""
    decisions: tuple[str, ...] = ()
    note: Text = ""

    @model_validator(mode="after")
    def _one_form(self):
        single = (self.metric, self.left, self.expect)
        if self.all_of and (any(single) or self.right):
            raise ValueError("has both `all_of` and a comparison of its own; keep one")
        if not self.all_of and not all(single):
            raise ValueError("needs `metric`, `left` and `expect`, or `all_of`")
        if self.expect and self.right is None and not self.expect.of_left_alone:
            raise ValueError("a difference needs `right`")
        if self.primary and not self.needs_seeds:
            raise ValueError("is primary, but needs no seeds: what is exact needs no adjustment")
        return self

    @property
    def tests(self) -> tuple[Test, ...]:
        """Its comparisons, one or several."""
        if self.metric is None or self.left is None or self.expect is None:
            return self.all_of
        return (
            Test(
                metric=self.metric,
                left=self.left,
                right=self.right,
                expect=self.expect,
                printed_from=self.printed_from,
            ),
        )

    def readings(self) -> Iterator[tuple[str, tuple[Test, ...]]]:
        """The comparisons as written (under the empty name), then those of each alternative."""
        yield "", self.tests
        for alternative in self.alternatives:
            yield alternative.name, alternative.of(self.tests)

    @property
    def sha256(self) -> str:
        """Hash of all that a verdict depends on: not of title, source, note, decisions, nor of where the paper prints it.

        A kept result carries it, so that a claim which was changed after its result is known.
        """
        judged = self.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_JUDGED)
        return hashlib.sha256(canonical_json(_without_places(judged)).encode()).hexdigest()


#: What a verdict does not depend on.
_NOT_JUDGED = {"title", "source", "note", "decisions"}


def _without_places(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_places(value) for key, value in data.items() if key != "printed_from"}
    return [_without_places(value) for value in data] if isinstance(data, list) else data


class Claims(Document):
    """claims.yaml: how all claims of a paper are judged, and the claims."""

    variance: Literal["own", "pooled"] = "own"
    """Which interval gives the verdicts: from a comparison's own spread, or from the spread pooled over all paired differences of one
    size and metric, where that may be used."""
    given: tuple[str, ...] = ()
    """``given`` of every claim that needs seeds."""
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _distinct_and_few(self):
        ids = [claim.id for claim in self.claims]
        for name in (*self.given, *(name for claim in self.claims for name in claim.given)):
            if name not in ids:
                raise ValueError(f"given: there is no claim {name!r}{did_you_mean(name, ids)}")
        if twice := sorted({id for id in ids if ids.count(id) > 1}):
            raise ValueError(f"{', '.join(map(repr, twice))} is given twice; rename one")
        primary = [claim.id for claim in self.claims if claim.primary]
        if len(primary) > MOST_PRIMARY:
            raise ValueError(
                f"{len(primary)} claims are primary ({', '.join(primary)}), at most {MOST_PRIMARY} may be; the adjustment for "
                "their number would hide what each could show"
            )
        return self
