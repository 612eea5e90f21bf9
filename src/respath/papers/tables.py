"""Tables of a paper as data: rows are runs, columns are metrics, printed numbers stand in a file of their own."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from respath.config.request import RunRequest, merged
from respath.errors import UserError
from respath.letters import Text
from respath.quantities import metrics
from respath.quantities.kinds import factor
from respath.quantities.quantity import Domain, Quantity
from respath.spec.document import Document


class Column(Document):
    """One column of a table: a metric of each row, or a text that the row carries."""

    id: str
    label: Text
    metric: str | None = None
    """Of the row's run, e.g. loss.mean, lm.<task>.<metric>, account.<path> (docs/metrics.md lists them all)."""
    unit: Text = ""
    """Unit in which the metric is shown and compared, e.g. M for parameters; empty: as it comes."""
    decimals: int = Field(3, ge=0)
    better: Literal["lower", "higher"] | None = None
    reported: str | None = None
    """Column of reported/<table>.yaml; its own id unless told otherwise."""
    run: RunRequest = RunRequest()
    show: Literal["value", "difference", "interval", "p"] = "value"
    """value: the metric of the row's run. difference: the same minus that of another run, mean over the seeds that both have.
    interval: the 95 % interval of that difference. p: its two-sided p-value (paired t test)."""
    minus: RunRequest | None = None
    """What is different in the other run, in rows that name none; a row whose run would be both stays empty."""

    @model_validator(mode="after")
    def _metric_exists(self):
        return _checked(self, pair=self.show != "value")


def _checked(document, pair: bool):
    """A column or row whose metric can exist, and be shown in the unit that it names."""
    if document.metric is not None:
        if problem := metrics.unknown(document.metric, pair=pair):
            raise ValueError(problem)
        try:
            factor(metrics.unit_of(document.metric), document.unit)
        except UserError as error:
            raise ValueError(f"unit: {error.lines[0]}") from None
    return document


class Only(Document):
    """Why the runs of a row are not trained at every scale."""

    scales: tuple[str, ...] = Field(min_length=1)
    because: Text


class Row(Document):
    """One row of a table: a run, or (in a configuration table) one quantity."""

    id: str
    label: Text
    group: Text | None = None
    run: RunRequest = RunRequest()
    minus: RunRequest | None = None
    """The run that columns of differences subtract, over the table's and the column's as the row's own run is."""
    only: Only | None = None
    """Scales at which the row's runs are trained; null: all. Elsewhere its measured cells are not run."""
    metric: str | None = None
    """In a configuration or domain table the row names the metric; in a table of runs it may stand for the columns'."""
    unit: Text = ""
    decimals: int | None = None
    text: dict[str, Text] = {}
    """Texts for text columns (LaTeX mathematics between dollars)."""

    @model_validator(mode="after")
    def _metric_exists(self):
        return _checked(self, pair=True)


class Table(Document):
    """One table of the paper. ``runs``: rows are runs and columns metrics; ``configuration``: the other way round;
    ``domains``: rows are the domains of the sample."""

    title: Text
    kind: Literal["runs", "configuration", "domains"] = "runs"
    section: Text
    caption: Text = ""
    row_header: Text = "Model"
    run: RunRequest = RunRequest()
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    reported: str | None = None
    """reported/<name>.yaml; null when the paper prints no such table."""
    tolerance: float = 0.0
    """Configured absolute tolerance for measured cells, in the column's unit."""
    note: Text = ""

    def request(self, row: Row, column: Column) -> RunRequest:
        """The run of a row in a column."""
        return merged(self.run, column.run, row.run)

    def quantity(self, row: Row, column: Column) -> Quantity | None:
        """What a cell is about; None for texts, and where a column of differences has no other run."""
        metric = row.metric or column.metric
        if metric is None or (self.kind == "runs" and column.metric is None):
            return None
        if self.kind == "domains":
            return Quantity(metric, Domain(row.id))
        run = self.request(row, column)
        if column.show == "value":
            return Quantity(metric, run)
        if row.minus is not None:
            return Quantity(metric, run, merged(self.run, column.run, row.minus))
        other = merged(run, column.minus) if column.minus is not None else run
        return None if other == run else Quantity(metric, run, other)


def target_names(mapping: dict[str, Any]) -> dict[str, Any]:
    """Names of Snakemake targets and of their files."""
    for name in mapping:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(
                f"{name!r} cannot name a target; use letters, digits, _ and - (the title may be anything)"
            )
    return mapping


class Tables(Document):
    """papers/<id>/tables.yaml."""

    tables: dict[str, Table]

    _targets = field_validator("tables")(target_names)
