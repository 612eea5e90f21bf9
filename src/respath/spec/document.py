"""The base of everything that is written down and checked: frozen, typed, with an identity that ids are made of."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """Base of every typed document: unknown keys are refused, numbers are finite and no strings, instances are frozen."""

    # Validators are built at first use: most documents are only ever checked as part of another.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    def identity(self) -> dict[str, Any]:
        """The fields that differ from their defaults: what hashes and command lines carry.

        A field added later with a default leaves the identity of existing specs as it is.
        """
        return self.model_dump(mode="json", exclude_defaults=True)


def identity(document: Document) -> dict[str, Any]:
    """See ``Document.identity``."""
    return document.identity()
