"""Every variant of every paper, as a small model."""

from __future__ import annotations

from respath.config.project import Project
from respath.errors import UserError
from respath.spec.model import ModelSpec

PROJECT = Project.find()
#: (paper, variant)
REFS = [(paper, variant) for paper in PROJECT.known for variant in PROJECT.folder(paper).variants]


def small_spec(paper: str, variant: str) -> ModelSpec:
    """The variant at scale smoke, in the first size that fits it."""
    for size in PROJECT.folder(paper).paper.sizes:
        try:
            return PROJECT.model_of(paper, size, variant, "smoke")
        except UserError:
            continue
    raise AssertionError(f"{paper}/{variant} fits no size")
