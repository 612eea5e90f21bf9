"""What the loss does when a single block is skipped.

    increase[l] = loss without block l - loss          nats; above 0: the block helps

loss: mean cross entropy of the next token over the packed rows. The rule of a skip is the causal score's
(``respath.measure.analyses.interventions``); ``increase_corrected``: without the artefact of the published skip, where there is
one. ``first``, ``last``: the outer blocks'; ``late_mean``, ``late_max``: over late blocks, l >= ceil(L / 4); ``mean``: over all.
The paper shows the accuracy on ARC-Easy instead, whose sign is the other way round.
Sample: at most 16 packed rows of at most 256 tokens, as in the authors' script.
Source: DepthBench (arXiv 2609.32534), Section 4.2 and Figure 8 (left); the loss is the authors' script's other choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.interventions import skipped
from respath.measure.analyses.late import first_late
from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.walk import resumed, summed_loss, walk
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 16, 256


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """Increases over batches of ids (rows, tokens)."""
    probe, layers = probe_of(model), model.spec.layers
    targets = sum(ids[:, 1:].numel() for ids in batches)
    loss, published, corrected = 0.0, [0.0] * layers, [0.0] * layers
    for ids in batches:
        seen = walk(model, ids[:, :-1])
        loss += summed_loss(model, seen.hidden, ids[:, 1:]) / targets

        def without(block: int, corrected: bool, ids: Tensor = ids, seen=seen) -> float:
            with skipped(model, block, corrected):
                ended = model.stream.close(resumed(model, seen, block)[-1])
                return summed_loss(model, model.final_norm(ended), ids[:, 1:]) / targets

        for block in range(layers):
            published[block] += (found := without(block, False))
            corrected[block] += without(block, True) if probe.corrects(block) else found
    series = {"increase": [total - loss for total in published]}
    late = series["increase"][first_late(layers) :]
    scalars = {
        "loss": loss,
        "first": series["increase"][0],
        "last": series["increase"][-1],
        "mean": mean(series["increase"]),
        "late_mean": mean(late),
        "late_max": max(late, default=None),
    }
    if not probe.artefact:
        return Findings(
            scalars, series, reason="skipping a block leaves no artefact to correct in this stream"
        )
    return Findings(scalars, series | {"increase_corrected": [total - loss for total in corrected]})
