"""A run in the paper's terms: what tables, figures and claims ask for, and a scale turns into a spec."""

from __future__ import annotations

from typing import Any

from respath.errors import UserError
from respath.spec.document import Document

Overrides = dict[str, Any]


class RunRequest(Document):
    """A run in the paper's terms; a scale turns it into a spec."""

    size: str | None = None
    variant: str | None = None
    context: int | None = None
    recipe: Overrides = {}

    @property
    def model(self) -> tuple[str, str]:
        """Size and variant. Raises UserError where it names only one of them, or none."""
        for name, asked in (("size", self.size), ("variant", self.variant)):
            if asked is None:
                raise UserError(
                    f"names no {name}; give `run: {{{name}: ...}}` in the row, the column or the table"
                )
        return str(self.size), str(self.variant)


def merged(*layers: RunRequest) -> RunRequest:
    """One request of several; later ones win (table, then column, then row)."""
    fields: dict[str, Any] = {"recipe": {}}
    for layer in layers:
        fields["recipe"] = {**fields["recipe"], **layer.recipe}
        for key in ("size", "variant", "context"):
            if getattr(layer, key) is not None:
                fields[key] = getattr(layer, key)
    return RunRequest(**fields)
