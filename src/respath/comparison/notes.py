"""What a scale's own recipe hides: paragraphs of papers/<id>/scales/<scale>.yaml, and what follows from its learning rates."""

from __future__ import annotations

from respath.papers.resolve import Resolver
from respath.papers.scales import MOST_COEFFICIENT_LR
from respath.spec.recipe import Recipe, summed_learning_rate


def scale_notes(project: Resolver, paper: str) -> list[str]:
    """The notes of the chosen scale on a paper, first where its coefficients learn more slowly than it asks for."""
    changes = project.paper(paper).changes
    ours, papers = project.paper(paper).recipe({}), project.at("paper").paper(paper).recipe({})
    capped = _capped(ours, papers) if changes.recipe.coefficient_lr == "matched" else []
    return [*capped, *(" ".join(note.split()) for note in changes.notes)]


def _capped(ours: Recipe, papers: Recipe) -> list[str]:
    """What a reader must know where matching the paper's summed rate would take more than the largest factor."""
    summed, wanted = summed_learning_rate(ours), summed_learning_rate(papers)
    if wanted / summed <= MOST_COEFFICIENT_LR:
        return []
    return [
        f"Learned coefficients move less here than in the paper. Under Adam a scalar moves by no more than the sum of its "
        f"learning rates, {wanted:.3g} in the paper. For the same sum in {ours.steps:,} steps their rate would have to be "
        f"{wanted / summed:.3g} times that of the matrices, and such steps are unstable: it is {MOST_COEFFICIENT_LR:g} times, "
        f"the most that any scale may ask for, and sums to {summed * MOST_COEFFICIENT_LR:.3g}."
    ]
