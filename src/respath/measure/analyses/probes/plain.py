"""The base of all probes, and probes of streams whose state is one tensor per token: Pre-LN, its norm variants, ResFormer's arms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from respath.measure.analyses.replacing import replaced
from respath.model.attention import Carried
from respath.model.transformer import Transformer


class Probe:
    """A model's residual stream as diagnostics see it. Blocks count from 0; state ``l`` stands before block l, state L after the last.

    Two kinds of state: ``geometry`` for distances and updates, ``readout`` for what the final norm decodes. Two interventions:
    ``passed`` says what a skipped block leaves, ``travelling`` what blocks exchange in a swap. The base is a stream of one
    tensor: it is its own state, and a skipped block is the identity.
    """

    #: What is an artefact of the published way to skip a block; empty where there is none and no corrected variant.
    artefact = ""
    #: Do the two ways to see a state for geometry differ (running sums inside a block, or mixes everywhere)?
    mixes_differ = False
    #: Why no scalar weights lead from a branch to a later reader; empty where they do.
    no_paths = ""

    def __init__(self, model: Transformer):
        self.model, self.stream, self.layers = model, model.stream, model.spec.layers

    # --- states

    def geometry(self, state: Any, block: int, mixes: bool = False) -> Tensor:
        """State ``block`` for geometry, (batch, time, channels)."""
        return self.stream.close(state)

    def readout(self, state: Any, block: int) -> Tensor:
        """State ``block`` as the final norm decodes it, (batch, time, width)."""
        return self.stream.close(state)

    # --- skipping a block

    def corrects(self, block: int) -> bool:
        """Does the corrected variant of a skip differ at this block?"""
        return False

    def passed(self, state: Any, block: int, corrected: bool) -> Any:
        """The state after a skipped block, from the one before it."""
        return state

    def handed_on(self, before: Carried, after: Carried, corrected: bool) -> Carried:
        """What later attention is handed by a skipped block, from what it is handed before and after a block that runs.

        Keys and values that later layers share are made all the same.
        """
        return after

    @contextlib.contextmanager
    def skipping(self, block: int) -> Iterator[None]:
        """What else is different while a block is skipped."""
        yield

    # --- swapping two blocks

    def parameters_of(self, k: int) -> dict[str, Tensor]:
        """Tensors of the stream that belong to sub-layer ``k`` and travel with its block, by a name that sub-layers share."""
        return {}

    def travelling(self, i: int, j: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of tensors that blocks i and j exchange: same name, same shape. Others are wiring and stay in place."""
        layers = [dict(self.model.layers[n].named_parameters()) for n in (i, j)]
        owned = [
            {f"{t}.{name}": tensor for t in (0, 1) for name, tensor in self.parameters_of(2 * n + t).items()}
            for n in (i, j)
        ]
        for left, right in (layers, owned):
            for name in sorted(left.keys() & right.keys()):
                if left[name].shape == right[name].shape:
                    yield left[name], right[name]

    @contextlib.contextmanager
    def swapping(self, i: int, j: int) -> Iterator[None]:
        """What else travels with two blocks' weights."""
        yield

    # --- path weights

    def path_weights(self, ids: Tensor) -> list[Tensor]:
        """Weights of the embedding and of each earlier branch in what each reader sees before its norm, per token.

        ids (batch, time) -> 2 L + 1 tensors (batch, time, k + 1) float64, the readers being sub-layer k and, last, the head.
        """
        shape = (*ids.shape, 2 * self.layers + 1)
        ones = torch.ones(shape, dtype=torch.float64, device=ids.device)
        return [ones[..., : k + 1] for k in range(2 * self.layers + 1)]


class CompleteP(Probe):
    """Branches enter multiplied by one factor for all blocks, which is wiring."""

    def path_weights(self, ids: Tensor) -> list[Tensor]:
        """The factor, of each branch."""
        found = [weights.clone() for weights in super().path_weights(ids)]
        for weights in found:
            weights[..., 1:] *= self.stream.factor
        return found


class LayerNormScaling(Probe):
    """The factor of a block's number travels with its weights, as in the authors' scripts."""

    @contextlib.contextmanager
    def swapping(self, i: int, j: int) -> Iterator[None]:
        """Block i reads with j's factor, and j with i's."""
        original, other = self.stream.read, {i: j, j: i}

        def read(state, k, norm):
            return original(state, 2 * other.get(k // 2, k // 2) + k % 2, norm)

        with replaced(self.stream, "read", read):
            yield


class SandwichLN(Probe):
    """What a branch adds is its output after the second norm, which travels with the block."""

    def parameters_of(self, k: int) -> dict[str, Tensor]:
        """The norm of the branch's output."""
        return {"output_norm": self.stream.output_norms[k].weight}


class PostNorm(Probe):
    """Streams that norm the sum."""

    no_paths = "a norm after the sum scales every channel by its own gain, so that no one weight leads from a branch to a reader"


class Keel(PostNorm):
    """Post norms travel, but the first attention has none: the other block's stays in place."""

    def parameters_of(self, k: int) -> dict[str, Tensor]:
        """The post norm."""
        return {"post_norm": self.stream.post_norms[k - 1].weight} if k else {}


class Truncated(Probe):
    """Skips that are cut."""

    no_paths = "some of its skips are cut; path weights are defined for DepthBench's streams"


class Rewritten(Probe):
    """Streams that do more to their state than add: a skipped block adds nothing, and what the stream does around it stays."""

    no_paths = "its state is combined anew between blocks; path weights are defined for DepthBench's streams"

    def passed(self, state: Any, block: int, corrected: bool) -> Any:
        """Two branches of zeros."""
        for k in (2 * block, 2 * block + 1):
            x, state = self.stream.read(state, k, torch.nn.Identity())
            state = self.stream.write(state, k, torch.zeros_like(x), torch.nn.Identity())
        return state
