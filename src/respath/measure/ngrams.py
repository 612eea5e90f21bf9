"""A floor under a run's losses: n-gram models of the very tokens that it trains on, scored on the very rows that it is scored on.

``python -m respath.measure.ngrams --spec @spec.json --tokens results/tokens/ID/manifest.json --sequences 1000
--out results/evals/RUN/ngrams.json``

Unigram, bigram and trigram with the interpolation of Witten and Bell (1991; Chen and Goodman 1998, section 2.5): with c(h w)
occurrences of w after h, T(h) different tokens after h and c(h) in all,

    p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h)),    h' = h without its first token,

down to the uniform 1 / V. Nothing is tuned. Like the model, an n-gram sees no further back than its own row: the second token
of a row has one token before it, and is predicted by the bigram.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from respath.config.arguments import argument
from respath.data.loader import Loader, store_byte_lengths, validation
from respath.data.options import sequences as rows_wanted
from respath.errors import UserError, guard
from respath.files import sha256_file, write_json
from respath.measure.loss import summarise, unweighted_mean
from respath.spec.run import RunSpec

SCHEMA = 1
#: Highest order, and what the orders are called in results.
ORDERS = ("unigram", "bigram", "trigram")
#: Rows counted, and targets scored, at once.
_TOKENS = 1 << 21
#: More training tokens than this are refused: distinct trigrams would fill the memory, and at such a scale models are far below.
MOST_TOKENS = 200_000_000


class Counts:
    """Occurrences of n-grams of one length, added up block by block. An n-gram is the number of its tokens in base V."""

    def __init__(self) -> None:
        self.keys = np.empty(0, dtype=np.int64)
        self.counts = np.empty(0, dtype=np.int64)

    def add(self, grams: np.ndarray) -> None:
        """Count (n,) int64 n-grams."""
        keys, counts = np.unique(grams, return_counts=True)
        merged, where = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
        total = np.zeros(len(merged), dtype=np.int64)
        total[where[: len(self.keys)]] = self.counts
        np.add.at(total, where[len(self.keys) :], counts)
        self.keys, self.counts = merged, total

    def of(self, grams: np.ndarray) -> np.ndarray:
        """Occurrences of each of (n,) n-grams."""
        return _look_up(self.keys, self.counts, grams)


def _look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Values of sorted keys; 0 for a key that is not there."""
    if not len(keys):
        return np.zeros(len(wanted), dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def grams(rows: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """All n-grams of ``length`` that end in a target (any token but a row's first): rows (n, context) -> (n, context - start)."""
    start = max(1, length - 1)
    count = rows.shape[1] - start
    key = np.zeros((len(rows), count), dtype=np.int64)
    for offset in range(length - 1, -1, -1):
        key = key * vocab_size + rows[:, start - offset : start - offset + count]
    return key


class NGrams:
    """Interpolated n-gram models of all orders up to the trigram, fitted on rows of tokens."""

    def __init__(self, vocab_size: int, rows: Iterable[np.ndarray]):
        self.vocab_size = vocab_size
        self.counts = [Counts() for _ in ORDERS]
        for block in rows:
            for length, counts in enumerate(self.counts, start=1):
                counts.add(grams(block, length, vocab_size).ravel())
        #: Of each history: how often it was followed, and by how many different tokens.
        self.histories = [self._follow(counts) for counts in self.counts]

    def _follow(self, counts: Counts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        history, first = np.unique(counts.keys // self.vocab_size, return_index=True)
        if not len(history):
            return history, history, history
        kinds = np.diff([*first, len(counts.keys)])
        return history, np.add.reduceat(counts.counts, first), kinds

    def losses(self, rows: np.ndarray) -> list[np.ndarray]:
        """Nats of every target by order: rows (n, context) int64 -> arrays (n, context - 1) float64."""
        p = np.full((len(rows), rows.shape[1] - 1), 1 / self.vocab_size)
        result = []
        for length, (counts, (history, total, kinds)) in enumerate(
            zip(self.counts, self.histories, strict=True), start=1
        ):
            keys = grams(rows, length, self.vocab_size)
            flat, before = keys.ravel(), keys.ravel() // self.vocab_size
            reach = slice(p.shape[1] - keys.shape[1], None)
            lower = p[:, reach].ravel()
            types, seen = _look_up(history, kinds, before), _look_up(history, total, before)
            # A history that never occurred says nothing.
            mixed = (counts.of(flat) + types * lower) / np.maximum(seen + types, 1)
            p = p.copy()
            p[:, reach] = np.where(seen > 0, mixed, lower).reshape(keys.shape)
            result.append(-np.log(p))
        return result


def training_rows(spec: RunSpec, manifest: Path) -> Iterator[np.ndarray]:
    """Every row of every batch of a run, in blocks (n, context) int64."""
    recipe = spec.recipe
    loader = Loader(
        manifest,
        context=recipe.context,
        batch_sequences=recipe.batch_sequences,
        seed=spec.seed,
        weights=spec.data.weights,
    )
    block: list[np.ndarray] = []
    for step in range(recipe.steps):
        block.append(loader.batch(step))
        if len(block) * recipe.tokens_per_step >= _TOKENS or step == recipe.steps - 1:
            yield np.concatenate(block)
            block = []


def evaluate(spec: RunSpec, run: str, manifest: Path, sequences: int | None) -> dict[str, Any]:
    """Content of ngrams.json. ``sequences``: validation rows per domain at most (None: all), as for the run's own losses.

    Raises UserError for a run of more than MOST_TOKENS tokens.
    """
    recipe, vocab_size = spec.recipe, spec.model.vocab_size
    tokens = recipe.steps * recipe.tokens_per_step
    if tokens > MOST_TOKENS:
        raise UserError(
            f"--spec: {run} trains on {tokens:,} tokens; n-grams are counted up to {MOST_TOKENS:,}, as a floor for small "
            "scales; leave them out here"
        )
    model = NGrams(vocab_size, training_rows(spec, manifest))
    bytes_of = store_byte_lengths(manifest)
    orders: dict[str, Any] = {order: {"domains": {}} for order in ORDERS}
    for domain, (chosen, documents, _) in validation(manifest, recipe.context, sequences).items():
        for order, losses in zip(ORDERS, model.losses(chosen), strict=True):
            orders[order]["domains"][domain] = summarise(losses, bytes_of[chosen[:, 1:]], documents[:, 1:])
    for entry in orders.values():
        entry["mean_loss"] = unweighted_mean(entry["domains"], "loss")
    return {
        "schema": SCHEMA,
        "kind": "ngrams",
        "run": run,
        "status": "done",
        "context": recipe.context,
        "manifest_sha256": sha256_file(manifest),
        "train_tokens": tokens,
        "distinct": {order: len(counts.keys) for order, counts in zip(ORDERS, model.counts, strict=True)},
        "orders": orders,
    }


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.ngrams", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--spec", required=True, metavar="JSON|@FILE", help="the run whose tokens are counted"
    )
    parser.add_argument("--run", help="the run's name in the result (default: the name of OUT's folder)")
    parser.add_argument("--tokens", type=Path, required=True, help="manifest.json that the run trains on")
    parser.add_argument(
        "--sequences", type=rows_wanted, required=True, help="validation rows per domain at most, or `all`"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    spec = argument(RunSpec, given.spec, "--spec")
    run = given.run or given.out.resolve().parent.name
    content = evaluate(spec, run, given.tokens, given.sequences)
    write_json(given.out, content)
    for order, entry in content["orders"].items():
        print(f"{run}: {order}: mean loss {entry['mean_loss']:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
