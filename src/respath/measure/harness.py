"""Our models as an lm-eval language model: what HFLM computes for a Transformers model, without Transformers.

Scores follow lm-eval's own rules (``TemplateLM._encode_pair``; truncation from the left; rolling windows), so that on
equal weights the numbers equal HFLM's, with two exceptions that HFLM answers with 0.0 or an error: a continuation whose last
token began in the context is scored by that token, and an empty one is 0.0 by definition. Importing this module imports
lm-eval, which takes seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows
from tqdm import tqdm

from respath.measure.weights import NotFinite

if TYPE_CHECKING:
    from respath.model.transformer import Transformer

#: Padded tokens that one forward pass may read, and logits held at once, by device: they bound the memory of a batch.
TOKENS = {"cpu": 1 << 12, "other": 1 << 15}
LOGITS = {"cpu": 1 << 21, "other": 1 << 27}


@dataclass(frozen=True)
class Piece:
    """Tokens to predict with the tokens before them.

    ``inputs``: what the model reads, at most its context. ``targets``: what its last ``len(targets)`` positions predict.
    """

    inputs: tuple[int, ...]
    targets: tuple[int, ...]

    @property
    def context(self) -> tuple[int, ...]:
        """The inputs up to the position that predicts the first target: what the choices of one question share."""
        return self.inputs[: len(self.inputs) - len(self.targets) + 1]


@dataclass
class Counts:
    """What was scored, and how often the context was too short for it."""

    requests: int = 0
    #: Requests whose context lost tokens on its left, as with HFLM.
    truncated: int = 0
    #: Continuations longer than the context, scored in rolling windows (HFLM refuses them).
    windowed: int = 0
    #: Requests where one token reaches from the context into the continuation: lm-eval's split scores the tokens after it.
    spanning: int = 0
    #: Of these, the ones without a token after it: that token is scored (HFLM scores nothing: 0.0, the best possible).
    last_token: int = 0
    #: Empty continuations, whose log-probability is 0.
    empty: int = 0
    #: Tokens that forward passes read, without padding.
    tokens_read: int = 0


def share_forwards(inputs: Sequence[tuple[int, ...]]) -> list[int]:
    """For each input the index of the one whose forward pass also serves it: an equal one, or one that it begins.

    Causal models compute equal outputs for equal beginnings, so choices of one token (yes or no) need one forward.
    """
    order = sorted(range(len(inputs)), key=inputs.__getitem__)
    leaders = list(range(len(inputs)))
    # In sorted order an input that begins others stands directly before one of them.
    for here, following in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        if inputs[following][: len(inputs[here])] == inputs[here]:
            leaders[here] = leaders[following]
    return leaders


def batches_by_size(sizes: dict[int, tuple[int, int]], budget: int) -> Iterable[list[int]]:
    """Groups of keys, longest first, whose padded size stays within ``budget`` tokens; sizes: key -> (rows, length)."""
    batch: list[int] = []
    rows = 0
    for key in sorted(sizes, key=lambda k: (-sizes[k][1], k)):
        if batch and (rows + sizes[key][0]) * sizes[batch[0]][1] > budget:
            yield batch
            batch, rows = [], 0
        batch.append(key)
        rows += sizes[key][0]
    if batch:
        yield batch


def padded(rows: Sequence[tuple[int, ...]], device: torch.device) -> torch.Tensor:
    """Token rows as (rows, longest), padded on the right, where no position of a row can see it."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return ids.to(device)


def worth_sharing(context: tuple[int, ...], group: Sequence[int], pieces: Sequence[Piece]) -> bool:
    """Whether reading the context once saves at least a third of the tokens (a second, masked forward has its price)."""
    saved = (len(group) - 1) * len(context)
    return len(group) > 1 and 3 * saved >= sum(len(pieces[index].inputs) for index in group)


class RespathLM(TemplateLM):
    """lm-eval's interface over a model of ours.

    encode, decode: text to token ids and back. context: tokens that the model may see at once (its training length).
    """

    def __init__(
        self,
        model: Transformer,
        encode: Callable[[str], list[int]],
        decode: Callable[[list[int]], str],
        eos_id: int,
        context: int,
        device: str | torch.device = "cpu",
    ):
        super().__init__()
        self.model = model.eval()
        self.context, self.eos_id = context, eos_id
        self._device = torch.device(device)
        self._decode = decode
        # The same context is encoded once per choice.
        self._encode = functools.lru_cache(maxsize=1 << 16)(lambda text: tuple(encode(text)))
        self.counts = Counts()

    @property
    def eot_token_id(self) -> int:
        """Prefix of an empty context, and end of a generation."""
        return self.eos_id

    @property
    def max_length(self) -> int:
        """Tokens of context, as HFLM calls it."""
        return self.context

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_) -> list[int]:
        """Token ids of a text; no special tokens are ever added, and text that spells one stays text."""
        return list(self._encode(string))

    # --- likelihoods -----------------------------------------------------------------------------------------------

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens before, never none, and tokens to score: none for an empty continuation, else at least one."""
        if not continuation:
            self.counts.empty += 1
            return [self.prefix_token_id], []
        # lm-eval's split: spaces at the context's end belong to what follows, and the context's length in tokens decides.
        before = context.rstrip()
        own, whole = self.tok_encode(before), self.tok_encode(context + continuation)
        if not own and whole[:1] == [self.prefix_token_id]:
            own = whole[:1]
        scored = whole[len(own) :]
        if whole[: len(own)] != own:
            self.counts.spanning += 1
        if not scored:
            self.counts.last_token += 1
            own, scored = whole[:-1], whole[-1:]
        return own or [self.prefix_token_id], scored

    def pieces(self, context: list[int], continuation: list[int]) -> list[Piece]:
        """One request as pieces: one, unless the continuation is empty or alone exceeds the context."""
        if not continuation:
            return []
        if len(continuation) > self.context:
            self.counts.windowed += 1
            windows = get_rolling_token_windows(continuation, context[-1], self.context, context_len=1)
            return [Piece(tuple(read), tuple(predicted)) for read, predicted in windows]
        if len(context) + len(continuation) > self.context + 1:
            self.counts.truncated += 1
        whole = (context + continuation)[-(self.context + 1) :]
        return [Piece(tuple(whole[:-1]), tuple(continuation))]

    @torch.inference_mode()
    def score(self, pieces: Sequence[Piece], share_contexts: bool = True) -> list[tuple[float, bool]]:
        """Summed log-probability (nats) of each piece's targets, and whether each is the most likely token.

        Softmax in float32 at least, sums in float64. ``share_contexts``: read a context that several pieces continue once
        and continue from its cache, where that saves most of the tokens; equal to the plain way but for rounding.
        """
        results: list[tuple[float, bool]] = [(0.0, True)] * len(pieces)
        served: dict[int, list[int]] = {}
        for index, leader in enumerate(share_forwards([piece.inputs for piece in pieces])):
            served.setdefault(leader, []).append(index)
        questions: dict[tuple[int, ...], list[int]] = {}
        for leader in served:
            questions.setdefault(pieces[leader].context, []).append(leader)
        shared = [
            group
            for context, group in questions.items()
            if share_contexts and worth_sharing(context, group, pieces)
        ]
        together = {leader for group in shared for leader in group}
        budget = TOKENS.get(self._device.type, TOKENS["other"])
        plain = {leader: (1, len(pieces[leader].inputs)) for leader in served if leader not in together}
        bar = tqdm(total=len(served), desc="likelihoods", disable=None)
        for batch in batches_by_size(plain, budget):
            self._score_plain(batch, pieces, served, results)
            bar.update(len(batch))
        sizes = {k: (len(group), max(len(pieces[i].inputs) for i in group)) for k, group in enumerate(shared)}
        for batch in batches_by_size(sizes, budget):
            self._score_shared([shared[k] for k in batch], pieces, served, results)
            bar.update(sum(len(shared[k]) for k in batch))
        bar.close()
        return results

    def _score_plain(self, leaders: list[int], pieces, served, results) -> None:
        """One row per leader."""
        hidden = self.model.hidden(padded([pieces[leader].inputs for leader in leaders], self._device))
        self.counts.tokens_read += sum(len(pieces[leader].inputs) for leader in leaders)
        rows, positions, owners = [], [], []
        for row, leader in enumerate(leaders):
            for index in served[leader]:
                end = len(pieces[index].inputs)
                rows += [row] * len(pieces[index].targets)
                positions += range(end - len(pieces[index].targets), end)
                owners.append(index)
        self._finish(hidden[torch.tensor(rows), torch.tensor(positions)], owners, pieces, results)

    def _score_shared(self, groups: list[list[int]], pieces, served, results) -> None:
        """One row per context, then one row per continuation on a copy of its context's cache."""
        contexts = [pieces[group[0]].context for group in groups]
        cache = self.model.new_cache(len(groups), max(map(len, contexts)))
        lengths = [len(context) for context in contexts]
        first = self.model.hidden(padded(contexts, self._device), cache=cache, lengths=lengths)
        leaders = [(row, leader) for row, group in enumerate(groups) for leader in group]
        rests = [pieces[leader].inputs[lengths[row] :] for row, leader in leaders]
        copies = cache.rows([row for row, _ in leaders], max(len(pieces[i].inputs) for _, i in leaders))
        second = self.model.hidden(
            padded(rests, self._device), cache=copies, lengths=[len(rest) for rest in rests]
        )
        self.counts.tokens_read += sum(lengths) + sum(map(len, rests))
        # Both stand in one table: the contexts' positions, then the continuations'.
        table = torch.cat([first.flatten(0, 1), second.flatten(0, 1)])
        places, owners = [], []
        for line, (row, leader) in enumerate(leaders):
            start = first.shape[0] * first.shape[1] + line * second.shape[1] - lengths[row]
            for index in served[leader]:
                end = len(pieces[index].inputs)
                for position in range(end - len(pieces[index].targets), end):
                    places.append(
                        row * first.shape[1] + position if position < lengths[row] else start + position
                    )
                owners.append(index)
        self._finish(table[torch.tensor(places, device=table.device)], owners, pieces, results)

    def _finish(self, hidden: torch.Tensor, owners: list[int], pieces, results) -> None:
        """Scores from the states (targets of all owners in order, width): only these are multiplied by the head."""
        wanted = torch.tensor(
            [token for index in owners for token in pieces[index].targets], device=hidden.device
        )
        step = max(1, LOGITS.get(self._device.type, LOGITS["other"]) // self.model.spec.vocab_size)
        values, hits = [], []
        for states, tokens in zip(hidden.split(step), wanted.split(step), strict=True):
            logits = self.model.logits(states).to(torch.promote_types(states.dtype, torch.float32))
            values.append(logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0].double())
            hits.append(logits.argmax(-1) == tokens)
        sizes = [len(pieces[index].targets) for index in owners]
        scores = torch.cat(values).cpu()
        # Any logit that is not finite makes these so.
        if not bool(scores.isfinite().all()):
            raise NotFinite("the model's scores of evaluation items are not finite")
        parts = zip(owners, scores.split(sizes), torch.cat(hits).cpu().split(sizes), strict=True)
        for index, value, hit in parts:
            results[index] = (float(value.sum()), bool(hit.all()))

    def _score_groups(self, groups: Sequence[list[Piece]]) -> list[tuple[float, bool]]:
        """Sum over the pieces of each group, all pieces of all groups batched together."""
        self.counts.requests += len(groups)
        scores = iter(self.score([piece for group in groups for piece in group]))
        results = []
        for group in groups:
            own = [next(scores) for _ in group]
            results.append((sum((value for value, _ in own), 0.0), all(greedy for _, greedy in own)))
        return results

    def loglikelihood(self, requests, disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """(log-probability of the continuation, whether greedy decoding would produce it) per (context, continuation)."""
        pairs = [request.args for request in requests]
        return self._loglikelihood_tokens([(pair, *self._encode_pair(*pair)) for pair in pairs])

    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = True, **_) -> list[tuple[float, bool]]:
        """Requests as (texts, context ids, continuation ids); the context is never empty."""
        return self._score_groups(
            [self.pieces(context, continuation) for _, context, continuation in requests]
        )

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = True) -> list[float]:
        """Log-probability of whole texts: disjoint windows of the context's length, the first after EOS, each later one
        filled up with the tokens before it."""
        groups = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(
                self.tok_encode(text), self.eos_id, self.context, context_len=1
            )
            groups.append([Piece(tuple(read), tuple(predicted)) for read, predicted in windows])
        return [value for value, _ in self._score_groups(groups)]

    # --- generation ------------------------------------------------------------------------------------------------

    def generate_until(self, requests, disable_tqdm: bool = True) -> list[str]:
        """Greedy continuations, cut before the first stop text. Nothing that is generated is ever executed."""
        return [
            self._generate(text, dict(options)) for text, options in (request.args for request in requests)
        ]

    @torch.inference_mode()
    def _generate(self, text: str, options: dict) -> str:
        if options.get("do_sample") or options.get("temperature"):
            raise ValueError("only greedy generation is supported (do_sample: false, temperature: 0)")
        stops = options.get("until") or []
        stops = [stops] if isinstance(stops, str) else list(stops)
        longest = int(options.get("max_gen_toks", 256))
        if longest >= self.context:
            longest = self.context // 2  # HFLM refuses; half the context for the question is left here
        prompt = (self.tok_encode(text) or [self.eos_id])[-(self.context - longest) :]
        cache = self.model.new_cache(1, len(prompt) + longest)
        chunk, generated = prompt, []
        while len(generated) < longest:
            logits = self.model(torch.tensor([chunk], device=self._device), cache=cache)
            token = int(logits[0, -1].argmax())
            if token == self.eos_id:
                break
            generated.append(token)
            chunk = [token]
            written = self._decode(generated)
            found = [written.find(stop) for stop in stops if stop and stop in written]
            if found:
                return written[: min(found)]
        return self._decode(generated)
