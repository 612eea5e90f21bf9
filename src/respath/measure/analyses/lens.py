"""Logit lens: what the final norm and the head say of the state between any two blocks.

    p_l = softmax(W norm(r_l)),  l = 0 .. L        r_l: what the next reader would read of state l, r_L the model's own end
    kl[l]        = mean over tokens of KL(p_L || p_l), in nats; kl[L] is 0
    exit_loss[l] = mean cross entropy of p_l against the next token, in nats
    top5[l]      = mean over tokens of |top5(p_l) and top5(p_L)| / 5

r_l is the state itself, HC's sum or mHC's mean of streams, the next reader's mix of AttnRes (at every l). ``final_loss``: the
model's loss. ``rises``: how many blocks raise the divergence; ``largest_rise``: by how much at most (0 for a lens that falls
all the way). Log-softmax in float32 or better, sums in float64.
Sample: at most 32 packed rows of at most 512 tokens, as in the authors' script.
Source: DepthBench (arXiv 2609.32534), Section 4.2 and Figure 8; exit loss and overlap are the authors' script's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from respath.measure.analyses.findings import Findings
from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.walk import walk
from respath.model.transformer import Transformer

SEQUENCES, TOKENS = 32, 512
TOP = 5
#: Logits held at once.
LOGITS = 1 << 22


def _log_probabilities(model: Transformer, states: Tensor) -> Tensor:
    """(tokens, width) -> (tokens, vocab), float32 or better."""
    logits = model.logits(model.final_norm(states))
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def measure(model: Transformer, batches: Sequence[Tensor]) -> Findings:
    """The lens over batches of ids (rows, tokens)."""
    probe, layers = probe_of(model), model.spec.layers
    sums = torch.zeros(3, layers + 1, dtype=torch.float64)
    tokens, step = 0, max(1, LOGITS // model.spec.vocab_size)
    for ids in batches:
        seen = walk(model, ids[:, :-1])
        readouts = [probe.readout(state, n).flatten(0, 1) for n, state in enumerate(seen.states)]
        targets = ids[:, 1:].flatten()
        tokens += len(targets)
        for start in range(0, len(targets), step):
            rows = slice(start, start + step)
            final = _log_probabilities(model, readouts[-1][rows])
            top = final.topk(TOP, dim=-1).indices
            for n, readout in enumerate(readouts):
                found = _log_probabilities(model, readout[rows])
                shared = (found.topk(TOP, dim=-1).indices[..., None] == top[..., None, :]).any(-1)
                numbers = (
                    (final.exp() * (final - found)).double().sum(),
                    -found.gather(-1, targets[rows, None]).double().sum(),
                    shared.double().sum() / TOP,
                )
                sums[:, n] += torch.stack(numbers).cpu()
    kl, loss, top5 = (row.tolist() for row in sums / tokens)
    rises = [later - earlier for earlier, later in itertools.pairwise(kl)]
    scalars = {
        "final_loss": loss[-1],
        "rises": sum(rise > 0 for rise in rises),
        "largest_rise": max(0.0, *rises),
    }
    return Findings(scalars, {"kl": kl, "exit_loss": loss, "top5": top5})
