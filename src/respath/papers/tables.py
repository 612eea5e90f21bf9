"""Tables of a paper as data: rows are runs, columns are metrics, printed numbers stand in a file of their own."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator

from respath.analysis.catalogue import unknown_metric
from respath.config.request import RunRequest
from respath.letters import Text
from respath.spec.document import Document

METRIC = re.compile(r"^(loss|lm|train|analysis|account|kv|spec|launch|sample)\.[A-Za-z0-9_.-]+$")


class Column(Document):
    """One column of a table: a metric of each row, or a text that the row carries."""

    id: str
    label: Text
    metric: str | None = None
    """loss.mean, loss.<domain>, lm.<task>.<metric>, train.<field>, analysis.<module>.<scalar>, account.<path>, kv.<field>,
    spec.<path>, launch.<field>"""
    factor: float = 1.0
    """Multiplied onto the metric before it is shown and compared, e.g. 100 for per cent."""
    unit: Text = ""
    decimals: int = Field(3, ge=0)
    better: Literal["lower", "higher"] | None = None
    reported: str | None = None
    """Column of reported/<table>.yaml; its own id unless told otherwise."""
    run: RunRequest = RunRequest()
    difference: bool = False
    """The metric of the row's run minus that of its ``minus`` run, paired over seeds; empty in rows without one."""

    @field_validator("metric")
    @classmethod
    def _known_prefix(cls, value):
        if value is not None and not METRIC.match(value):
            raise ValueError(
                f"{value!r} is no metric; it starts with loss. lm. train. analysis. account. kv. spec. launch. or sample."
            )
        if value is not None and value.startswith("analysis.") and (problem := unknown_metric(value)):
            raise ValueError(problem)
        return value


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
    """In a configuration or domain table the row names the metric."""
    factor: float = 1.0
    unit: Text = ""
    decimals: int | None = None
    text: dict[str, Text] = {}
    """Texts for text columns (LaTeX mathematics between dollars)."""

    _metric = field_validator("metric")(Column._known_prefix.__func__)


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
