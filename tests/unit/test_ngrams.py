"""The floor under losses: Witten and Bell's n-grams of a run's own tokens, against a brute-force count."""

import collections
import json
import math

import numpy as np
import pytest

from respath.data.loader import Loader, validation_rows
from respath.measure import ngrams
from respath.measure.ngrams import NGrams, main, training_rows
from respath.spec.run import spec_text
from tests.unit.training_runs import tiny_spec

VOCABULARY = 5


def brute_force(rows, history, token):
    """p(token | history) by counting in the rows, in Python."""
    if history is None:
        return 1 / VOCABULARY
    follows = collections.Counter()
    for row in rows:
        for end in range(1, len(row)):
            begin = end - len(history)
            if begin >= 0 and tuple(row[begin:end]) == history:
                follows[row[end]] += 1
    lower = brute_force(rows, history[1:] if history else None, token)
    total, kinds = sum(follows.values()), len(follows)
    return (follows[token] + kinds * lower) / (total + kinds) if total else lower


@pytest.fixture(scope="module")
def toy():
    """Rows to fit and rows to score; the last token of the vocabulary is never seen."""
    generator = np.random.default_rng(4)
    return generator.integers(0, 4, size=(12, 7)), generator.integers(0, VOCABULARY, size=(6, 7))


@pytest.fixture(scope="module")
def model(toy):
    fitted, _ = toy
    return NGrams(VOCABULARY, [fitted[:5], fitted[5:]])


def test_losses_are_those_of_a_brute_force_count(toy, model):
    fitted, scored = toy
    fitted = [tuple(map(int, row)) for row in fitted]
    for length, losses in enumerate(model.losses(scored), start=1):
        assert losses.shape == (6, 6)
        for row, of_row in zip(scored.tolist(), losses, strict=True):
            for target in range(1, 7):
                history = tuple(row[max(0, target - length + 1) : target])
                expected = -math.log(brute_force(fitted, history, row[target]))
                assert of_row[target - 1] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("row", [[0, 1], [2, 3], [4, 4], [4, 1]])
def test_probabilities_of_all_next_tokens_sum_to_one(model, row):
    rows = np.array([[*row, token] for token in range(VOCABULARY)])
    for losses in model.losses(rows):
        assert np.exp(-losses[:, -1]).sum() == pytest.approx(1.0)


def test_how_rows_are_cut_into_blocks_changes_nothing(toy, model):
    fitted, scored = toy
    for whole, parts in zip(NGrams(VOCABULARY, [fitted]).losses(scored), model.losses(scored), strict=True):
        assert (whole == parts).all()


def test_exactly_the_batches_of_the_run_are_counted(tokens, monkeypatch):
    manifest, data = tokens
    spec = tiny_spec(data, seed=3, steps=5)
    monkeypatch.setattr(ngrams, "_TOKENS", 2 * spec.recipe.tokens_per_step)
    blocks = list(training_rows(spec, manifest))
    assert len(blocks) == 3
    loader = Loader(manifest, context=32, batch_sequences=8, seed=3, weights=data.weights)
    assert (np.concatenate(blocks) == np.concatenate([loader.batch(step) for step in range(5)])).all()


def test_the_command_scores_the_rows_of_the_runs_own_losses(tokens, tmp_path):
    manifest, data = tokens
    spec = tiny_spec(data)
    out = tmp_path / "a-run" / "ngrams.json"
    given = ["--spec", spec_text(spec), "--tokens", str(manifest), "--sequences", "4", "--out", str(out)]
    assert main(given) == 0
    found = json.loads(out.read_text())
    assert (found["run"], found["status"], found["train_tokens"]) == ("a-run", "done", 24 * 8 * 32)
    model = NGrams(512, training_rows(spec, manifest))
    for domain, rows in validation_rows(manifest, 32, 4).items():
        losses = dict(zip(ngrams.ORDERS, model.losses(rows), strict=True))
        for order, entry in found["orders"].items():
            assert entry["domains"][domain]["loss"] == losses[order].mean()
            assert entry["domains"][domain]["tokens"] == rows[:, 1:].size
            sums = entry["domains"][domain]["documents"].values()
            assert sum(size for _, size in sums) == rows[:, 1:].size
            assert sum(total for total, _ in sums) == pytest.approx(losses[order].sum())
    means = [found["orders"][order]["mean_loss"] for order in ngrams.ORDERS]
    # Real text, and more than the uniform distribution knows of it.
    assert math.log(512) > means[0] > means[1] > means[2] > 2


def test_too_many_tokens_are_refused_before_anything_is_counted(tokens, tmp_path, capfd):
    manifest, data = tokens
    spec = tiny_spec(data, steps=1_000_000)
    out = tmp_path / "ngrams.json"
    given = ["--spec", spec_text(spec), "--tokens", str(manifest), "--sequences", "4", "--out", str(out)]
    assert main(given) == 2 and not out.exists()
    assert "256,000,000 tokens" in capfd.readouterr().err
