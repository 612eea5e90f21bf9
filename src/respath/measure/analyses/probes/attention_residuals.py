"""Probe of attention residuals, Full and Block: states are mixes over depth, and what a skip leaves is a matter of bookkeeping."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from respath.measure.analyses.probes.plain import Probe
from respath.measure.analyses.replacing import listening, replaced


class AttentionResiduals(Probe):
    """State l is the raw mix of the next reader, before its norm: of block l's attention, or of the head after the last block.

    Geometry sees mixes where a block of sums begins and inside one its running sum (the authors' probe); with ``mixes`` it sees
    mixes everywhere, as readout does. State 0 is the embedding, which the first attention reads. With blocks of one sub-layer
    (Full AttnRes) both are the same.

    Skip: the newest sum passes by, nothing is added to the sources, and where the next reader begins a block (or is the head)
    it reads the newest source alone ("next-output" rule). Where sub-layers of the skipped block would have closed a sum, it stays
    open. Swap: queries and key gains of the MLP travel, and those of the block's right end, the next attention's or the
    head's, in place of its own attention's.
    """

    artefact = "the embedding stands twice among the sources when the first block is skipped"

    @property
    def mixes_differ(self) -> bool:
        """Only blocks of more than two sub-layers, or of odd length, have a block's boundary inside."""
        return any(not self.begins(2 * n) for n in range(1, self.layers))

    def begins(self, k: int) -> bool:
        """Does reader ``k`` begin a block of sums, or is it the head?"""
        return k % self.stream.length == 0 or k == self.stream.head

    def newest(self, state: Any) -> Tensor:
        """The running sum, or the sum just finished where nothing is open."""
        return self.stream.sources(state)[-1]

    def geometry(self, state: Any, block: int, mixes: bool = False) -> Tensor:
        """The mix, or the running sum."""
        if block and not mixes and not self.begins(2 * block):
            return self.newest(state)
        return self.readout(state, block)

    def readout(self, state: Any, block: int) -> Tensor:
        """The next reader's mix."""
        return self.stream.mixed(state, 2 * block) if block else state.finished[0]

    def corrects(self, block: int) -> bool:
        """The embedding is doubled by a skip of the first block alone."""
        return block == 0

    def passed(self, state: Any, block: int, corrected: bool) -> Any:
        """The newest sum is the running one after the block, or closed where the next block of sums begins."""
        if block == 0 and corrected:
            return state
        reader, newest = 2 * block + 2, self.newest(state)
        if block and state.open is None:
            state = type(state)(state.finished[:-1], state.scores[:-1], state.first_readers[:-1])
        # The head reads an open sum as it reads a finished one, but scores it anew: leave it open.
        if reader % self.stream.length == 0:
            return self.stream.finish(state._replace(open=None), newest, reader)
        return state._replace(open=newest)

    @contextlib.contextmanager
    def skipping(self, block: int) -> Iterator[None]:
        """The next-output rule."""
        reader, original = 2 * block + 2, self.stream.mixed
        if not self.begins(reader):
            yield
            return

        def mixed(state, k):
            return self.newest(state) if k == reader else original(state, k)

        with replaced(self.stream, "mixed", mixed):
            yield

    def parameters_of(self, k: int) -> dict[str, Tensor]:
        """Row k - 1 is sub-layer k's: the MLP's own; for an attention that of the reader two further on, the block's right end."""
        row = k - 1 if k % 2 else k + 1
        return {"query": self.stream.queries.detach()[row], "key_gain": self.stream.key_gains.detach()[row]}

    def weights(self, ids: Tensor) -> dict[int, Tensor]:
        """Softmax weights of each reader from 1 to 2 L over its sources, the newest last: (batch, time, sources) float64."""
        found: dict[int, Tensor] = {}

        def hear(arguments, result):
            found[arguments[1]] = result.double()

        with listening(self.stream, "weights", hear):
            self.model.hidden(ids)
        return found

    def path_weights(self, ids: Tensor) -> list[Tensor]:
        """A branch has the weight of the source that contains it."""
        of_reader, length = self.weights(ids), self.stream.length
        first = torch.ones((*ids.shape, 1), dtype=torch.float64, device=ids.device)
        found = [first]
        for k in range(1, self.stream.head + 1):
            # The embedding is source 0, block c of sums source c + 1.
            place = [0, *(1 + branch // length for branch in range(k))]
            found.append(of_reader[k][..., place])
        return found
