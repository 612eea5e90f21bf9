"""A toy paper with made-up results: the state behind the golden files and most tests of comparison and reports."""

from pathlib import Path

from respath.config.request import RunRequest
from respath.papers import needs
from respath.papers.check import open_papers
from respath.quantities.quantity import Quantity
from respath.results.reader import Results
from tests.golden.synthetic_results import write_results

ROOT = Path(__file__).resolve().parent / "project"
EXPECTED = Path(__file__).resolve().parent / "expected"

#: Mean losses at seed 1, 2 and 3. Mix is better by about what the paper prints, odd is better where the paper says worse.
LOSSES = {
    "base": (3.001, 3.004, 2.998),
    "mix": (2.951, 2.957, 2.946),
    "odd": (2.9, 2.95, 2.87),
}
BY_SIZE = {"S": 0.0, "M": -0.2, "L": -0.3}


def toy_loss(run):
    """Losses in few digits, so that no machine computes others."""
    return round(LOSSES[run.variant][run.seed - 1] + BY_SIZE[run.size], 4)


def toy_project(scale="smoke", **chosen):
    """The toy project, read afresh."""
    return open_papers(ROOT, {"papers": ["toy"], "scale": scale, **chosen})


def toy(folder, scale="smoke", chosen=None, **changes):
    """Project and results of the toy at a scale; ``changes`` go to ``write_results``."""
    project = toy_project(scale, **(chosen or {}))
    write_results(project, Path(folder), **{"loss_of": toy_loss, **changes})
    return project, Results(project, folder)


def run_id(project, size, variant, seed=1):
    """Id of a run of the toy."""
    return next(
        run.id
        for run in needs.all_runs(project).values()
        if (run.size, run.variant, run.seed) == (size, variant, seed)
    )


def reading(results, run, metric):
    """One metric of one run, as tables and claims read it."""
    request = RunRequest(size=run.size, variant=run.variant, context=run.context)
    return results.sample(run.paper, Quantity(metric, request)).by_seed[run.seed]


def account(results, size, variant, own_scale=False):
    """Parameters of a model of the toy: of the paper's own shape, or of the scale's."""
    quantity = Quantity(
        "account.parameters.total", RunRequest(size=size, variant=variant), own_scale=own_scale
    )
    return results.sample("toy", quantity).value
