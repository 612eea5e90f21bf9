"""What a value path and a residual stream say about themselves, each in one document.

A part is added with two files of one name: its document in ``respath/spec/values`` (or ``streams``), which says the fields, what
it refuses and what it costs, and the module that computes it in ``respath/model/values`` (or ``streams``). Both are found by that
name; nothing else knows a part.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from respath.spec.document import Document
from respath.spec.layout import Layout
from respath.spec.selectors import Layers, select_layers

if TYPE_CHECKING:
    from respath.spec.model import ModelSpec


class Part(Document):
    """What every part of a model says. ``kind`` is its name in YAML."""

    plain: ClassVar[bool] = False
    """Whether this is what the plain Transformer has."""

    @classmethod
    def resolve(cls, fields: Mapping[str, Any], layers: int) -> Mapping[str, Any]:
        """The fields as people write them, for a model of ``layers`` layers, as fields of the document.

        Raises ValueError where they make no sense.
        """
        return fields

    def check(self, model: ModelSpec) -> None:
        """Raise ValueError, one sentence, for a model in which this part means nothing."""

    @abstractmethod
    def parameters(self, model: ModelSpec) -> Mapping[str, int]:
        """Numbers that the part's own module stores, by group of ``respath.spec.cost.Parameters``."""

    def flops(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """FLOPs that the part adds to the forward pass of one sequence of ``context`` tokens, by component."""
        return {}

    def unused(self, model: ModelSpec) -> int:
        """Parameters, of whatever module, that exist and change nothing because of this part."""
        return 0


class ValuePathSpec(Part):
    """Which values a layer's attention mixes."""

    kind: str

    @property
    def targets(self) -> tuple[int, ...]:
        """The layers whose values are not their own, numbered from 1."""
        return ()

    def layout(self, places: Layout) -> Layout:
        """``places`` with what this path changes: where keys and values come from, which projections exist."""
        return places

    @abstractmethod
    def starts(self) -> Mapping[str, float]:
        """Where learned coefficients start, by the name under which the module tells them; empty when none is learned."""


class TargetedValues(ValuePathSpec):
    """A value path on some of the layers."""

    layers: Layers

    first_target: ClassVar[int] = 2
    """The first layer that can be a target; 1 for what needs no earlier layer."""

    @classmethod
    def resolve(cls, fields: Mapping[str, Any], layers: int) -> Mapping[str, Any]:
        """Layer selectors become numbers, so that equal models are equal specs."""
        if "layers" not in fields:
            return fields
        return {**fields, "layers": select_layers(fields["layers"], layers, cls.first_target)}

    @property
    def targets(self) -> tuple[int, ...]:
        """The target layers."""
        return self.layers

    @property
    def indices(self) -> frozenset[int]:
        """The target layers, numbered from 0."""
        return frozenset(layer - 1 for layer in self.layers)

    def check(self, model: ModelSpec) -> None:
        """A path that takes an earlier layer's value starts at layer 2."""
        if self.layers and self.layers[0] < self.first_target:
            raise ValueError("layer 1 has no earlier value to use; start at layer 2")

    def refuse_zero(self, always: bool) -> None:
        """Raise ValueError where fixed coefficients leave nothing to attend over."""
        if always:
            raise ValueError(f"values: with these coefficients what {self.kind} attends over is always 0")

    def refuse_grouped(self, model: ModelSpec) -> None:
        """Raise ValueError where values are added to attention's output and have fewer heads."""
        if model.kv_heads != model.heads:
            raise ValueError(
                f"{self.kind} adds values to the attention output, so it needs kv_heads equal to heads"
            )

    def refuse_source(self, source: int, model: ModelSpec) -> None:
        """Raise ValueError for a source layer that does not exist or does not come before every target."""
        if not 1 <= source <= model.layers:
            raise ValueError(f"values.source {source} is not a layer of 1..{model.layers}")
        if early := [n for n in self.layers if n <= source]:
            raise ValueError(
                f"layers {early} cannot use the value of layer {source}, which is not above them"
            )


class StreamSpec(Part):
    """How a sub-layer reads the state and how its output enters it."""

    kind: str

    replaces_norms: ClassVar[bool] = False
    """Whether it has norms of its own, in the place of or beside the llama backbone's."""
    reads_depth: ClassVar[bool] = False
    """Whether attention also reads keys and values of earlier layers at the query's own token."""

    def check(self, model: ModelSpec) -> None:
        """Streams with their own norms are defined on the llama backbone."""
        if self.replaces_norms and model.backbone != "llama":
            raise ValueError(
                f"{self.kind} replaces the norms of the llama backbone; {model.backbone} has its own"
            )

    def recipe(self, model: ModelSpec) -> Mapping[str, Any]:
        """Fields of the recipe that belong to the stream; a variant's and a request's own win."""
        return {}

    def as_printed(self, model: ModelSpec, context: int) -> Mapping[str, int]:
        """Counts of its paper's that differ from the code's, to stand beside them: they are in no sum."""
        return {}


def documents_in(package: str, folders: Iterable[str], base: type[Any]) -> tuple[type[Any], ...]:
    """The documents of a package, one a file, by file name."""
    found = []
    for file in sorted(module.name for module in pkgutil.iter_modules(folders)):
        name = f"{package}.{file}"
        found += [
            kind
            for kind in vars(importlib.import_module(name)).values()
            if isinstance(kind, type)
            and issubclass(kind, base)
            and kind.__module__ == name
            and "kind" in kind.__annotations__
        ]
    return tuple(found)


def kind_of(document: type[Part]) -> str:
    """A document's name in YAML."""
    return str(get_args(document.model_fields["kind"].annotation)[0])


def module_name(document: type[Part]) -> str:
    """Name of the module that computes what a document describes: the file of the same name in ``respath.model``."""
    return document.__module__.replace("respath.spec.", "respath.model.", 1)
