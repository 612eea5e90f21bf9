"""What runs that have not ended would cost, measured from those that have."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable

from respath.papers.resolve import Resolver, Run
from respath.results.reader import Results


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Seconds that a run would take on the machine of ``like``, the kind of runs that it was measured from."""

    run: str
    seconds: float
    like: str


def estimates(project: Resolver, results: Results, runs: Iterable[Run]) -> list[Estimate]:
    """One estimate per run without a result; none where no run has recorded its cost.

    Seconds per token (median) of the finished runs of the same size and length, times the run's tokens; where there are
    none, seconds per training FLOP of all finished runs times its FLOPs.
    """
    runs = list(runs)
    alike: dict[tuple[str, int], list[float]] = {}
    per_flop: list[float] = []
    for run in runs:
        record = results.train(run.id)
        seconds = ((record or {}).get("cost") or {}).get("seconds")
        if record is not None and record["status"] == "finished" and seconds:
            tokens = record["tokens"]
            alike.setdefault((run.size, run.context), []).append(seconds / tokens)
            per_flop.append(seconds / (tokens * _flops_per_token(project, run)))
    found = []
    for run in runs if per_flop else ():
        if results.train(run.id) is not None:
            continue
        tokens, same = run.spec.recipe.tokens, alike.get((run.size, run.context))
        if same:
            like = f"{len(same)} run{'s' * (len(same) > 1)} of size {run.size} at length {run.context:,}"
            found.append(Estimate(run.id, statistics.median(same) * tokens, like))
        else:
            flops = tokens * _flops_per_token(project, run)
            like = f"FLOPs of {len(per_flop)} other run{'s' * (len(per_flop) > 1)}"
            found.append(Estimate(run.id, statistics.median(per_flop) * flops, like))
    return found


def _flops_per_token(project: Resolver, run: Run) -> int:
    from respath.spec.cost import training_flops_per_token

    attention = project.folder(run.paper).paper.accounting.attention
    return training_flops_per_token(run.spec.model, run.spec.recipe.context, attention)


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.4 h``, ``5.2 days``: two digits are what such an estimate carries."""
    for unit, size in (("days", 172_800), ("h", 5_400), ("min", 90)):
        if seconds >= size:
            value = seconds / {"days": 86_400, "h": 3_600, "min": 60}[unit]
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.0f} s"
