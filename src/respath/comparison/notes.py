"""What a scale's own recipe hides, told with its numbers: paragraphs of papers/<id>/scales/<scale>.yaml with their placeholders filled."""

from __future__ import annotations

import string

from respath.errors import UserError, did_you_mean
from respath.papers.resolve import Resolver
from respath.papers.scales import MOST_COEFFICIENT_LR, Measured
from respath.quantities.rounding import signed, significant
from respath.results.reader import Results
from respath.spec.recipe import Recipe, summed_learning_rate


def scale_notes(project: Resolver, results: Results, paper: str) -> list[str]:
    """The notes of the chosen scale on a paper, first where its coefficients learn more slowly than it asks for.

    Placeholders: for the default recipe steps, summed_lr, coefficient_summed_lr (with the coefficients' own factor), and the
    same with ``paper_`` before them at the paper's own scale; and the scale's ``measured`` numbers, read from the results.
    Raises UserError for any other.
    """
    changes = project.paper(paper).changes
    ours, papers = project.paper(paper).recipe({}), project.at("paper").paper(paper).recipe({})
    capped = _capped(ours, papers) if changes.recipe.coefficient_lr == "matched" else []
    if not changes.notes:
        return capped
    values = {
        **_quantities("", ours),
        **_quantities("paper_", papers),
        **{name: measured_text(project, results, paper, one) for name, one in changes.measured.items()},
    }
    for note in changes.notes:
        for _, name, _, _ in string.Formatter().parse(note):
            if name is not None and name not in values:
                raise UserError(
                    f"papers/{paper}/scales/{project.scale.id}.yaml: notes: {{{name}}} is no quantity{did_you_mean(name, values)}"
                )
    return [*capped, *(" ".join(note.format(**values).split()) for note in changes.notes)]


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


def _quantities(prefix: str, recipe: Recipe) -> dict[str, str]:
    summed = summed_learning_rate(recipe)
    return {
        f"{prefix}steps": f"{recipe.steps:,}",
        f"{prefix}summed_lr": f"{summed:.3g}",
        f"{prefix}coefficient_summed_lr": f"{summed * recipe.coefficient_lr_multiplier:.3g}",
    }


def measured_text(project: Resolver, results: Results, paper: str, one: Measured) -> str:
    """``0.477 ± 0.004 (3 seeds)``: mean and standard error over the seeds that have the number; ``(not run)`` for none."""
    sample = results.sample(paper, one.quantity())
    if not sample.measured:
        return "(not run)"
    text = significant(sample.value, 3) if one.minus is None else signed(sample.value)
    around = "" if sample.stderr is None else f" ± {significant(sample.stderr, 2)}"
    n = len(sample.measured)
    return f"{text}{around} ({n} seed{'s' * (n > 1)})"
