"""What the accuracy on ARC-Easy does when a single block is skipped.

    change[l] = accuracy without block l - accuracy          shares; below 0: the block helps

Accuracy: lm-eval's own ``acc_norm`` of ``arc_easy``, zero-shot, on a fixed sample of its items (``--limit``). The rule of a skip is the
published one, as in ``pruning``, whose sign is the other way round. ``whole``: the model's accuracy; ``first``, ``last``,
``mean``, ``late_mean``: changes of the outer blocks, of all, and of the late ones. A small model's accuracy is chance (0.25), and
on n items a change below 1 / sqrt(n) says nothing.
Source: DepthBench (arXiv 2609.32534), Section 4.2 and Figure 8 (left); task and metric as in the authors' script.
"""

from __future__ import annotations

from collections.abc import Callable

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.interventions import skipped
from respath.measure.analyses.late import first_late
from respath.model.transformer import Transformer

TASK = "arc_easy"


def measure(model: Transformer, accuracy: Callable[[], float] | str) -> Findings:
    """Changes of ``accuracy()``, a share that is measured on the model as it is when called; a text says why there is none."""
    if isinstance(accuracy, str):
        return Findings(reason=accuracy)
    whole, change = accuracy(), []
    for block in range(model.spec.layers):
        with skipped(model, block):
            change.append(accuracy() - whole)
    late = change[first_late(model.spec.layers) :]
    scalars = {
        "whole": whole,
        "first": change[0],
        "last": change[-1],
        "mean": mean(change),
        "late_mean": mean(late),
    }
    return Findings(scalars, {"change": change})
