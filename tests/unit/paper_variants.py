"""Every variant of every paper, as a small model."""

from __future__ import annotations

from respath.errors import UserError
from respath.papers.resolve import papers_at
from respath.spec.model import ModelSpec

PROJECT = papers_at("smoke")
#: (paper, variant)
REFS = [(paper, variant) for paper in PROJECT.library.known for variant in PROJECT.folder(paper).variants]


def small_spec(paper: str, variant: str) -> ModelSpec:
    """The variant at scale smoke, in the first size that fits it."""
    for size in PROJECT.folder(paper).paper.sizes:
        try:
            return PROJECT.at("smoke").paper(paper).model(size, variant)
        except UserError:
            continue
    raise AssertionError(f"{paper}/{variant} fits no size")
