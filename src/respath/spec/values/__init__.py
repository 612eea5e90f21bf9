"""Value paths: which values a layer's attention mixes, one document per file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from respath.spec.parts import ValuePathSpec, documents_in, kind_of

#: Every document of this folder, by its name in YAML.
VALUE_PATHS: dict[str, type[ValuePathSpec]] = {
    kind_of(document): document for document in documents_in(__name__, __path__, ValuePathSpec)
}

if TYPE_CHECKING:
    AnyValuePath = ValuePathSpec
else:
    AnyValuePath = Annotated[Union[tuple(VALUE_PATHS.values())], Field(discriminator="kind")]  # noqa: UP007
