"""From a figure's definition and whatever results exist to what it shows, panel by panel."""

from __future__ import annotations

import string

from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.reporting.panels import along, layers, sizes, sweeps, training
from respath.reporting.panels.data import Drawn, Shown
from respath.reporting.panels.reader import Reader
from respath.results.reader import Results

#: Kind of panel -> what reads it.
READERS = {
    "sweep": sweeps.sweep,
    "bars": sweeps.bars,
    "layers": layers.layers,
    "along": along.along,
    "matrix": layers.matrix,
    "positions": layers.positions,
    "ranks": layers.ranks,
    "checkpoints": layers.checkpoints,
    "difference": training.difference,
    "crossing": training.crossing,
    "tokens": training.tokens,
    "sizes": sizes.sizes,
}


def shown(project: Resolver, results: Results, artifact: Artifact) -> Shown:
    """The panels of a figure with their values; what is missing is named in the notes."""
    reader = Reader(project, results, artifact)
    panels = []
    for letter, panel in zip(string.ascii_uppercase, artifact.definition.panels, strict=False):
        reader.panel = letter
        excluded = needs.excluded(project, panel)
        read = READERS[panel.kind](reader, letter, panel) if excluded is None else None
        panels.append(read or Drawn(letter, panel, empty=excluded))
    return Shown(artifact.target, tuple(panels), reader.notes(), project.scale.comparable)
