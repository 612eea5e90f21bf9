"""Blocks skipped or swapped for a while: context managers that leave every weight as it was, bit for bit.

    with skipped(model, 3): ...           block 3 (from 0) is not run; its probe says what passes
    with swapped(model, 1, 5): ...        blocks 1 and 5 have exchanged their weights; the wiring stays

Swapped weights are copied back from what was kept, not swapped once more. What passes a skipped block and what travels in a swap
is each stream's own (``respath.measure.analyses.probes``).
Source: DepthBench (arXiv 2609.32534), Sections 4.1 and 4.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.replacing import replaced
from respath.model.transformer import Transformer


def _check(model: Transformer, *blocks: int) -> None:
    """Raises ValueError for a block that the model has not."""
    for block in blocks:
        if not 0 <= block < model.spec.layers:
            raise ValueError(
                f"block {block} does not exist; the model has blocks 0 to {model.spec.layers - 1}"
            )


@contextlib.contextmanager
def skipped(model: Transformer, block: int, corrected: bool = False) -> Iterator[None]:
    """Inside the block of code the model runs without block ``block``.

    ``corrected``: without the artefact of the published way, where the stream has one (``Probe.artefact``).
    """
    _check(model, block)
    probe, original = probe_of(model), model.sublayer

    def sublayer(k, state, carried, place):
        if k // 2 != block:
            return original(k, state, carried, place)
        if k % 2:
            return state, carried
        _, after = original(k, state, carried, place)
        return probe.passed(state, block, corrected), probe.handed_on(carried, after, corrected)

    with replaced(model, "sublayer", sublayer), probe.skipping(block):
        yield


@contextlib.contextmanager
def swapped(model: Transformer, i: int, j: int) -> Iterator[None]:
    """Inside the block of code blocks ``i`` and ``j`` compute with each other's weights, each in its own place of the wiring."""
    _check(model, i, j)
    if i == j:
        raise ValueError(f"block {i} cannot be swapped with itself; name two blocks")
    probe = probe_of(model)
    pairs = [(left.detach(), right.detach()) for left, right in probe.travelling(i, j)]
    kept = [(left.clone(), right.clone()) for left, right in pairs]
    try:
        with torch.no_grad(), probe.swapping(i, j):
            for (left, right), (of_left, of_right) in zip(pairs, kept, strict=True):
                left.copy_(of_right)
                right.copy_(of_left)
            yield
    finally:
        with torch.no_grad():
            for (left, right), (of_left, of_right) in zip(pairs, kept, strict=True):
                left.copy_(of_left)
                right.copy_(of_right)
