"""The names that readers of papers used before ``respath.papers``; it goes when nothing imports it any more."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from respath.config.request import merged
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import Artifact, PaperFolder, find_root
from respath.papers.resolve import BYTES_PER_TOKEN, Resolver, Run

__all__ = ["BYTES_PER_TOKEN", "Artifact", "PaperFolder", "Project", "Run", "find_root"]


class Project(Resolver):
    """A ``Resolver`` under its former names."""

    def __init__(self, root: Path, config: Mapping[str, Any] | None = None):
        self.__dict__ = open_papers(root, config).__dict__
        self._needs: dict[str, needs.Needs] = {}

    @classmethod
    def find(cls, start: str | Path | None = None) -> Project:
        return _cached_project(find_root(start))

    @property
    def config(self):
        return self.settings

    @property
    def scales(self):
        return self.library.scales

    @property
    def corpora(self):
        return self.library.corpora

    @property
    def known(self):
        return self.library.known

    @property
    def folders(self):
        return {folder.id: folder for folder in super().folders()}

    def artifacts(self, paper=None):
        return [a for f in self.folders.values() if paper in (None, f.id) for a in f.artifacts()]

    def folder(self, paper):
        return self.library.folder(paper)

    def parse_ref(self, ref):
        return self.library.parse_ref(ref)

    def runs_of(self, paper, request):
        return self.runs(paper, request)

    def _at(self, scale=None):
        return self.at(scale) if scale else self

    def scale_of(self, paper, scale=None):
        at = self._at(scale)
        return at.scale, at.paper(paper).changes

    def model_of(self, paper, size, variant, scale=None):
        return self._at(scale).paper(paper).model(size, variant)

    def model_spec(self, ref, scale="paper"):
        return self.model_of(*self.parse_ref(ref), scale)

    def accounting_defaults(self, paper):
        return self.folder(paper).paper.accounting

    def resolve(self, paper, request, seed, scale=None):
        return self._at(scale).paper(paper).run(request, seed)

    def recipe_of(self, paper, overrides, context=None, scale=None, *, size=None, variant=None):
        return self._at(scale).paper(paper).recipe(overrides, context, size=size, variant=variant)

    def data_of(self, paper, scale=None):
        return self._at(scale).paper(paper).data

    def evaluation_of(self, paper, scale=None):
        return self._at(scale).paper(paper).evaluation

    def request(self, *layers):
        return merged(*layers)

    def excluded(self, row):
        return needs.excluded(self, row)

    def common_context_of(self, run):
        return self._at(run.scale).paper(run.paper).common_context(run)

    def launch_of(self, paper, run):
        return self._at(run.scale).paper(paper).launch(run)

    def view_of(self, run):
        return run.view

    def quantities(self, artifact):
        return needs.quantities(self, artifact)

    def needs_of(self, artifact):
        if artifact.target not in self._needs:
            self._needs[artifact.target] = needs.needs_of(self, artifact.paper, self.quantities(artifact))
        return self._needs[artifact.target]

    def trained_runs(self, artifact):
        return list(self.needs_of(artifact).trained.values())

    def kinds_of(self, artifact):
        return self.needs_of(artifact).kinds

    def analyses_of(self, artifact):
        return self.needs_of(artifact).analyses

    def arrays_of(self, artifact):
        return self.needs_of(artifact).arrays

    def untrained_of(self, artifact):
        return self.needs_of(artifact).untrained

    def checkpoints_of(self, artifact):
        return self.needs_of(artifact).checkpoints

    def all_runs(self):
        return needs.all_runs(self)

    def data_sets(self):
        return needs.data_sets(self)


@functools.cache
def _cached_project(root: Path) -> Project:
    return Project(root)
