"""From a figure's definition and whatever results exist to what it shows, panel by panel."""

from __future__ import annotations

import dataclasses
import string

from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver
from respath.reporting.panels import layers, sizes, sweeps, training
from respath.reporting.panels.data import Drawn, Shown
from respath.reporting.panels.reader import Reader
from respath.results.reader import Results

#: Kind of panel -> what reads it.
READERS = {
    "sweep": sweeps.sweep,
    "bars": sweeps.bars,
    "layers": layers.layers,
    "along": layers.along,
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
    """The panels of a figure with their values; what is missing, and which panels are left out, is named in the notes."""
    reader = Reader(project, results, artifact)
    panels: list[Drawn] = []
    for letter, panel in zip(string.ascii_uppercase, artifact.definition.panels, strict=False):
        reader.panel = letter
        title = reader.measured_name(panel.title)
        sizes = {one for wanted in panel.wanted() if (one := reader.request(*wanted.layers).size)}
        size = reader.size(sizes.pop()) if len(sizes) == 1 and title == panel.title else ""
        excluded = needs.excluded(project, panel)
        read = (
            Drawn(letter, panel, empty=excluded) if excluded else READERS[panel.kind](reader, letter, panel)
        )
        panels.append(dataclasses.replace(read, title=title, size=size if "(" in size else ""))
    left_out = [f"{panel.letter.lower()} ({panel.empty})" for panel in panels if panel.is_empty]
    if left_out and len(panels) > 1:
        reader.remark(f"Panel{'s' * (len(left_out) > 1)} left out: {', '.join(left_out)}.")
    return Shown(artifact.target, tuple(panels), reader.notes())
