"""Block attention residuals: each sub-layer reads a softmax mix, per token, of the embedding and of block sums.

v_0 is the embedding, f_j the raw output of sub-layer j. Blocks of ``length`` b sub-layers: block c sums f_j for j in
[c b, (c + 1) b). Sub-layer k >= 1 reads

    e_i = <w_k, g_k * v_i / rms(v_i)>     over the embedding, the finished block sums, the open block's running sum
    z   = sum_i softmax(e)_i v_i          no 1 / sqrt(width); softmax in fp32
    x   = norm_k(z)

A sub-layer with k mod b = 0 reads first, with the sum just finished as its newest source, and then opens a block, so sub-layer k
has 1 + ceil(k / b) sources. Special layers: sub-layer 0 has no query and reads norm_0(embedding); the head has its own query
and key norm over all sources, before the final norm. With b = 1 this is Full AttnRes.

State: (sources, scores, open): finished sources, (batch, time, width) each; for each of them its scores at all later
readers; the running sum of the open block, or None.
Queries are parameters, so a finished source's scores at all later readers are one matrix product, made when it is finished:
it is read once for scores and once per mix, as a separate tensor, and nothing is stacked.
Parameters: ``queries`` and ``key_gains`` (2 L, width), row k - 1 for sub-layer k, the last row for the head: 4 L width.
Initialisation: queries 0 (the mix starts as the mean of its sources, which the norm makes equal to Pre-LN's sum), gains 1.
Roles: queries routing (fp32, decay as matrices: the authors decay all but HC's static terms), gains as norms.
Source: AttnRes (Kimi, 2026); DepthBench (arXiv 2609.32534), Sec. 2 and Appendix A.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from respath.model.routing import normed_linear, weighted_sum
from respath.model.streams.pre_ln import PreLN
from respath.spec.model import ModelSpec
from respath.spec.streams.block_attnres import BlockAttnResSpec


class Sources(NamedTuple):
    """What later sub-layers can read. ``scores[i][j]``: (batch, time), of source i at reader ``first_readers[i]`` + j."""

    finished: tuple[Tensor, ...]
    scores: tuple[tuple[Tensor, ...], ...]
    first_readers: tuple[int, ...]
    open: Tensor | None = None


class BlockAttnRes(PreLN):
    """A learned mix over depth in place of the sum."""

    document = BlockAttnResSpec

    role = {"queries": "routing", "key_gains": "norm"}

    def __init__(self, spec: ModelSpec, length: int | None = None):
        super().__init__(spec)
        self.length, self.head = length or spec.stream.length, 2 * spec.layers
        self.eps = spec.norm_eps
        self.queries = nn.Parameter(torch.empty(self.head, spec.width))
        self.key_gains = nn.Parameter(torch.empty(self.head, spec.width))

    def score(self, source: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        """Scores (batch, time) of a source at the readers ``first``..``last`` (the head is reader 2 L)."""
        queries = self.queries[first - 1 : last] * self.key_gains[first - 1 : last]
        return normed_linear(source, queries, self.eps).unbind(-1)

    def finish(self, state: Sources, source: Tensor, reader: int) -> Sources:
        """A further source for ``reader`` and all later ones."""
        return Sources(
            (*state.finished, source),
            (*state.scores, self.score(source, reader, self.head)),
            (*state.first_readers, reader),
        )

    def weights(self, state: Sources, reader: int) -> Tensor:
        """Softmax weights (batch, time, sources) of a reader, newest source last; fp32 or wider."""
        pairs = zip(state.scores, state.first_readers, strict=True)
        scores = [of_source[reader - first] for of_source, first in pairs]
        if state.open is not None:
            scores += self.score(state.open, reader, reader)
        return torch.stack(scores, dim=-1).softmax(-1)

    def sources(self, state: Sources) -> tuple[Tensor, ...]:
        """The tensors that the next reader mixes."""
        return state.finished if state.open is None else (*state.finished, state.open)

    def mixed(self, state: Sources, reader: int) -> Tensor:
        """What a reader sees before its norm (batch, time, width)."""
        return weighted_sum(self.sources(state), self.weights(state, reader))

    def open(self, embedded: Tensor) -> Sources:
        """The embedding is the first source."""
        return self.finish(Sources((), (), ()), embedded, 1)

    def read(self, state: Sources, k: int, norm: nn.Module) -> tuple[Tensor, Sources]:
        """The norm of the mix; of the embedding for the first sub-layer."""
        return norm(state.finished[0] if k == 0 else self.mixed(state, k)), state

    def write(self, state: Sources, k: int, y: Tensor, norm: nn.Module) -> Sources:
        """The output enters the open block; the block's last output finishes it."""
        total = y if state.open is None else state.open + y
        if (k + 1) % self.length == 0:
            return self.finish(state, total, k + 1)
        return state._replace(open=total)

    def close(self, state: Sources) -> Tensor:
        """The head's mix."""
        return self.mixed(state, self.head)

    def initial(self, draw) -> dict[str, Tensor]:
        """All sources weigh the same."""
        return {"queries": torch.zeros(self.queries.shape), "key_gains": torch.ones(self.key_gains.shape)}
