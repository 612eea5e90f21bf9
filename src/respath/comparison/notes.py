"""What a scale's own recipe hides, told with its numbers: paragraphs of scales/<id>.yaml with their placeholders filled."""

from __future__ import annotations

import string

from respath.config.project import Project
from respath.config.run import Recipe, summed_learning_rate
from respath.errors import UserError, did_you_mean


def scale_notes(project: Project, paper: str) -> list[str]:
    """The notes of the chosen scale on a paper.

    Placeholders, for the default recipe: steps, summed_lr, coefficient_summed_lr (with the coefficients' own factor), and
    the same with ``paper_`` before them at the paper's own scale. Raises UserError for any other.
    """
    _, changes = project.scale_of(paper)
    if not changes.notes:
        return []
    values = {
        **_quantities("", project.recipe_of(paper, {})),
        **_quantities("paper_", project.recipe_of(paper, {}, scale="paper")),
    }
    for note in changes.notes:
        for _, name, _, _ in string.Formatter().parse(note):
            if name is not None and name not in values:
                raise UserError(
                    f"scales/{project.scale.id}.yaml: papers.{paper}.notes: {{{name}}} is no quantity{did_you_mean(name, values)}"
                )
    return [" ".join(note.format(**values).split()) for note in changes.notes]


def _quantities(prefix: str, recipe: Recipe) -> dict[str, str]:
    summed = summed_learning_rate(recipe)
    return {
        f"{prefix}steps": f"{recipe.steps:,}",
        f"{prefix}summed_lr": f"{summed:.3g}",
        f"{prefix}coefficient_summed_lr": f"{summed * recipe.coefficient_lr_multiplier:.3g}",
    }
