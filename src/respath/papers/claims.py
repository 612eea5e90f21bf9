"""Claims of a paper as tests that are written down before any run: which runs, which metric, which direction or size."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from respath.config.request import Overrides, RunRequest
from respath.letters import Text
from respath.papers.reported import PrintedCell
from respath.spec.document import Document

#: Metrics of a claim that come from the paper's own shapes, and the metric that a table calls them by.
EXACT = {
    "account": "account",
    "kv": "account.kv_cache",
    "parameters": "account.parameters",
    "flops": "account.flops",
    "spec": "spec",
}
#: Metrics of trained runs: whole names, or a prefix with its dot.
TRAINED = (
    "loss.",
    "lm.",
    "train.",
    "analysis.",
    "curve.early_difference",
    "curve.critical_step",
    "scaling.parameter_saving",
    "scaling.data_saving",
)

# --- the document --------------------------------------------------------------------------------------------------


class Side(Document):
    """One side of a comparison, in the paper's terms; ``sizes`` for fits over sizes."""

    size: str | None = None
    sizes: tuple[str, ...] = ()
    variant: str
    context: int | None = None
    recipe: Overrides = {}

    @model_validator(mode="after")
    def _one_or_many(self):
        if (self.size is None) == (not self.sizes):
            raise ValueError("names exactly one of `size` and `sizes`")
        return self

    def request(self, size: str | None = None) -> RunRequest:
        """The run, at ``size`` for a side with several."""
        return RunRequest(
            size=size or self.size, variant=self.variant, context=self.context, recipe=self.recipe
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

    direction: Literal["lower", "higher", "not_lower", "none"] | None = None
    min_effect: float | None = Field(None, ge=0)
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
        if given not in _FORMS:
            raise ValueError(f"the keys {sorted(given)} do not go together; docs/claims.md lists the forms")
        wants = "max_effect" if self.direction in ("not_lower", "none") else "min_effect"
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
        if self.direction == "lower":
            return -math.inf, -self.min_effect
        if self.direction == "higher":
            return self.min_effect, math.inf
        if self.direction == "not_lower":
            return -self.max_effect, math.inf
        if self.direction == "none":
            return -self.max_effect, self.max_effect
        centre = self.equals if self.equals is not None else self.difference
        return centre - self.tolerance, centre + self.tolerance


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
        return self

    @property
    def tests(self) -> tuple[Test, ...]:
        """Its comparisons, one or several."""
        if self.all_of:
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
