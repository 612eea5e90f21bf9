"""What a run is: model, recipe, data and seed, frozen; equal runs have equal ids wherever they are asked for."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from respath.files import canonical_json, content_hash
from respath.spec.data import BestFit, Data
from respath.spec.document import Document, identity
from respath.spec.model import ModelSpec
from respath.spec.recipe import Recipe

#: Raised by one when the same fields come to mean another computation: every run id changes with it.
SPEC_VERSION = 2


class RunSpec(Document):
    """Everything that influences the trained weights, and nothing else (no labels, paths or resources)."""

    model: ModelSpec
    recipe: Recipe
    data: Data
    seed: int = Field(ge=0)

    @model_validator(mode="after")
    def _vocabulary_fits(self) -> Self:
        if self.data.tokenizer.vocab_size > self.model.vocab_size:
            raise ValueError(
                f"the tokenizer has {self.data.tokenizer.vocab_size} entries, the model only {self.model.vocab_size}"
            )
        return self

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        packing = self.data.packing
        if isinstance(packing, BestFit) and packing.row_tokens != self.recipe.context:
            raise ValueError(
                f"data.packing makes rows of {packing.row_tokens} tokens, recipe.context is {self.recipe.context}; make them equal, "
                "or take `packing: {kind: concatenate}`"
            )
        return self


def run_hash(spec: RunSpec) -> str:
    """Eight hex digits over the canonical JSON of the training-relevant fields."""
    return content_hash({"version": SPEC_VERSION, **identity(spec)})


def spec_text(spec: RunSpec) -> str:
    """The canonical JSON that a command line carries; ``parse_spec`` reads it back."""
    return canonical_json(identity(spec))
