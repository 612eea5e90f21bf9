"""Residual streams: how a sub-layer reads the state and how its output enters it, one document per file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from respath.spec.parts import StreamSpec, documents_in, kind_of

#: Every document of this folder, by its name in YAML.
STREAMS: dict[str, type[StreamSpec]] = {
    kind_of(document): document for document in documents_in(__name__, __path__, StreamSpec)
}

if TYPE_CHECKING:
    AnyStream = StreamSpec
else:
    AnyStream = Annotated[Union[tuple(STREAMS.values())], Field(discriminator="kind")]  # noqa: UP007
