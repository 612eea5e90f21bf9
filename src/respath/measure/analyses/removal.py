"""Loss after removing the last attention or MLP sub-layers of a trained model.

    attention[m], mlp[m] = loss without the branch of the last m sub-layers of that kind, m = 0 .. L - 1

Removed means that the sub-layer's output is zero where it enters the residual stream, so that the state passes as the stream
passes it; keys and values that later layers share are still made. Layer 1 stays. Loss: mean cross entropy in nats over the
frozen packed sequences, float32.
``*_increase_mean``: mean over m >= 1 of the loss minus the whole model's. ``attention_over_mlp``: their quotient; null unless
removing MLPs costs something.
Source: ResFormer (arXiv 2410.17897), Figure 9 (left) and Section 4.5 (progressively from the back, the first layer intact);
what removal does, and the quotient, are ours (decision module-removal).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from respath.measure.analyses.findings import Findings, mean
from respath.measure.analyses.replacing import listening
from respath.model.loss import head_cross_entropy
from respath.model.transformer import Transformer

KINDS = ("attention", "mlp")


def _silent(module, arguments, result):
    """A forward hook: output zero, what is handed on unchanged."""
    if isinstance(result, tuple):
        return torch.zeros_like(result[0]), *result[1:]
    return torch.zeros_like(result)


@contextlib.contextmanager
def removed(model: Transformer, kind: str, last: int) -> Iterator[None]:
    """Inside the block the last ``last`` sub-layers of a kind (``attention`` or ``mlp``) contribute nothing."""
    layers = model.layers[len(model.layers) - last :]
    hooks = [getattr(layer, kind).register_forward_hook(_silent) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _losses(model: Transformer, ids: Tensor) -> dict[tuple[str, int], float]:
    """Summed loss of a batch of ids (rows, context) for each kind and number of removed sub-layers.

    What comes before the first removed sub-layer is the whole model's, so each evaluation goes on from there.
    """
    before: list[tuple] = []

    def summed(hidden: Tensor) -> float:
        losses = head_cross_entropy(hidden, model.head_weight, ids[:, 1:], "none", model.softcap)
        return float(losses.double().sum())

    with listening(model, "sublayer", lambda arguments, result: before.append(arguments)):
        whole = summed(model.hidden(ids[:, :-1]))
    found = {(kind, 0): whole for kind in KINDS}
    for kind in KINDS:
        for last in range(1, len(model.layers)):
            _, state, carried, place = before[2 * (len(model.layers) - last)]
            with removed(model, kind, last):
                for k in range(2 * (len(model.layers) - last), len(before)):
                    state, carried = model.sublayer(k, state, carried, place)
            found[kind, last] = summed(model.final_norm(model.stream.close(state)))
    return found


def measure(model: Transformer, batches: Iterable[Tensor], targets: int) -> Findings:
    """Losses over batches of ids (rows, context) with ``targets`` predictions in all."""
    series = {kind: [0.0] * len(model.layers) for kind in KINDS}
    with torch.inference_mode():
        for ids in batches:
            for (kind, last), total in _losses(model, ids).items():
                series[kind][last] += total / targets
    attention, mlp = (mean(loss - losses[0] for loss in losses[1:]) for losses in series.values())
    comparable = attention is not None and mlp is not None and mlp > 0
    scalars = {
        "loss": series["attention"][0],
        "attention_increase_mean": attention,
        "mlp_increase_mean": mlp,
        "attention_over_mlp": attention / mlp if comparable else None,
    }
    reason = None if comparable else "removing MLPs does not raise the loss, so there is no quotient"
    return Findings(scalars, series, reason=reason)
