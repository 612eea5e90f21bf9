"""A subject as its paper resolves it: what computed kinds of result compute from."""

from __future__ import annotations

from typing import Any

from respath.papers.resolve import PaperAtScale, Run
from respath.quantities.quantity import Checkpoint, Domain, Subject, as_run
from respath.spec.cost import account_of, training_flops_per_token


class Resolved:
    """``respath.quantities.kinds.Resolved`` for one subject of a paper at a scale and (where it is a run) a seed."""

    def __init__(self, paper: PaperAtScale, subject: Subject, seed: int = 0):
        self._paper, self._subject, self._seed = paper, subject, seed

    @property
    def entry(self) -> str:
        """``size/variant``, or the name of a domain or checkpoint."""
        if isinstance(self._subject, Domain | Checkpoint):
            return self._subject.name
        return f"{self._subject.size}/{self._subject.variant}"

    @property
    def name(self) -> str:
        """For messages."""
        return self.entry

    def run(self) -> Run:
        """The subject as a run. Raises UserError where it names none."""
        return self._paper.run(as_run("this", self._subject), self._seed)

    @property
    def no_common(self) -> str:
        """Why the run has no loss at the paper's common length; empty when it has one."""
        common = self._paper.evaluation.common_context
        if common is None:
            return "the paper has no common length"
        return "not scored at a length beyond its training's" if self.run().context < common else ""

    def account(self) -> dict[str, Any]:
        """Parameters, FLOPs and KV bytes under the paper's conventions, at the subject's length where it names one."""
        request = as_run("account", self._subject)
        self._paper.accept(request.model_copy(update={"context": None}))
        defaults = self._paper.folder.paper.accounting
        size, variant = request.model
        model, baseline = (self._paper.model(size, name) for name in (variant, defaults.baseline))
        return account_of(
            model,
            baseline,
            context=request.context or defaults.context,
            logits=defaults.logits,
            attention=defaults.attention,
            training_attention=defaults.attention,
            training_context=request.context or defaults.training_context or defaults.context,
        ).to_json()

    def spec(self) -> dict[str, Any]:
        """The run's spec, with what papers print and specs derive."""
        run, attention = self.run(), self._paper.folder.paper.accounting.attention
        recipe = run.spec.recipe
        flops = recipe.tokens * training_flops_per_token(run.spec.model, recipe.context, attention)
        return run.view | {"recipe": run.view["recipe"] | {"training_flops": flops}}

    def launch(self) -> dict[str, Any]:
        """How the paper's machine runs a step."""
        return self._paper.launch(self.run())
