"""A run in the paper's terms: what tables, figures and claims ask for, and a scale turns into a spec."""

from __future__ import annotations

from typing import Any

from respath.spec.document import Document

Overrides = dict[str, Any]


class RunRequest(Document):
    """A run in the paper's terms; a scale turns it into a spec."""

    size: str | None = None
    variant: str | None = None
    context: int | None = None
    recipe: Overrides = {}
