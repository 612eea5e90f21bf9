"""Validation loss: definitions on known cases, agreement with a direct computation, and refusals."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.measure import loss
from respath.measure.weights import load_trained
from tests.unit.corpus import short_rows, tiny_tokens
from tests.unit.finished_run import finished_run, scale_weights

CONTEXT = 32


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_tokens(tmp_path_factory.mktemp("tokens"), vocab_size=300, validation_tokens=400)


@pytest.fixture
def trained(store, tmp_path):
    """(train.json, manifest, checkpoint folder, model)."""
    return finished_run(tmp_path, *store, context=CONTEXT)


def test_loss_is_the_token_mean_with_its_error_over_documents():
    losses = np.array([[1.0, 2.0], [3.0, 6.0], [2.0, 1.0]])
    ones = np.ones((3, 2), dtype=np.int64)
    # As many tokens in each document: the mean of the documents' means, with the spread of these.
    entry = loss.summarise(losses, ones, np.array([[0, 0], [1, 1], [2, 2]]))
    assert entry["loss"] == pytest.approx(2.5)
    means = np.array([1.5, 4.5, 1.5])
    assert entry["stderr"] == pytest.approx(math.sqrt(((means - 2.5) ** 2).sum() / 2 / 3))
    assert (entry["tokens"], entry["sequences"], len(entry["documents"])) == (6, 3, 3)
    # A document that runs over rows is one cluster; number 2 was not scored.
    entry = loss.summarise(losses, ones, np.array([[0, 1], [1, 1], [1, 3]]))
    assert entry["documents"] == {"0": [1.0, 1], "1": [13.0, 4], "3": [1.0, 1]}
    residuals = np.array([1.0 - 2.5, 13.0 - 10.0, 1.0 - 2.5])
    assert entry["stderr"] == pytest.approx(math.sqrt(3 / 2 * (residuals**2).sum()) / 6)
    assert entry["loss"] == pytest.approx(2.5)


def test_the_error_over_documents_is_that_of_drawing_documents_again():
    """A bootstrap over documents, four thousand times, agrees within its own error."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 40, 60)
    documents = np.repeat(np.arange(60), lengths)[: 60 * 15].reshape(60, 15)
    losses = rng.normal(3, 0.5, documents.shape) + rng.normal(0, 0.8, 60)[documents]
    entry = loss.summarise(losses, np.ones(losses.shape, int), documents)
    sums, tokens = np.array(list(entry["documents"].values())).T
    draws = rng.integers(0, len(sums), (4000, len(sums)))
    means = sums[draws].sum(axis=1) / tokens[draws].sum(axis=1)
    assert entry["stderr"] == pytest.approx(means.std(), rel=0.1)
    over_tokens = losses.std() / math.sqrt(losses.size)
    assert entry["stderr"] > 2 * over_tokens, "tokens of a document are no independent draws"


def test_bits_per_byte_counts_text_only_and_true_bytes():
    # Two targets of 3 and 1 bytes at 2 bits each, and an end of document whose 10 bits stand for no text.
    losses = np.log(2) * np.array([[2.0, 2.0, 10.0]])
    entry = loss.summarise(losses, np.array([[3, 1, 0]]), np.array([[0, 0, 0]]))
    assert entry["bits_per_byte"] == pytest.approx(1.0)
    assert entry["bytes"] == 4
    assert entry["loss"] == pytest.approx(14 / 3 * math.log(2))


def test_pooled_bits_per_byte_weigh_domains_by_their_text():
    # 8 bits over 4 bytes and 3 bits over 12: pooled 11/16, the mean over domains (2 + 1/4) / 2.
    nats, none = math.log(2), np.zeros((1, 2), int)
    sizes = {"a": np.array([[4, 0]]), "b": np.array([[8, 4]])}
    losses = {"a": nats * np.array([[8.0, 50.0]]), "b": nats * np.array([[1.0, 2.0]])}
    domains = {
        d: loss.summarise(losses[d], sizes[d], none) | loss.text_sums(losses[d], sizes[d], 2 * sizes[d], none)
        for d in sizes
    }
    assert loss.pooled(domains) == pytest.approx(11 / 16)
    assert loss.pooled(domains, "bytes_legacy") == pytest.approx(11 / 32)
    assert loss.unweighted_mean(domains, "bits_per_byte") == pytest.approx((2 + 1 / 4) / 2)
    # The end of a document adds to neither side, of a document by itself too.
    assert domains["a"]["text_of_documents"] == {"0": [pytest.approx(8 * nats), 4, 8]}
    assert loss.pooled({"c": {"text_nats": 0.0, "bytes": 0}}) is None


def test_bits_per_byte_of_real_text_are_total_nats_over_total_bytes(trained):
    from respath.data.loader import validation_rows
    from respath.data.tokenizer import load

    train, manifest, checkpoints, model = trained
    result = loss.evaluate(train, manifest, checkpoints, sequences=4)
    tokenizer = load(manifest.parent / read_json(manifest)["tokenizer"]["path"])
    bits = size = 0
    for rows in validation_rows(manifest, CONTEXT, 4).values():
        ids = torch.from_numpy(rows)
        with torch.no_grad():
            nats = torch.nn.functional.cross_entropy(model(ids)[:, :-1].mT, ids[:, 1:], reduction="none")
        bits += float(nats[ids[:, 1:] != 0].double().sum()) / math.log(2)
        size += sum(len(tokenizer.decode(row[1:].tolist()).encode()) for row in rows)
    assert result["bits_per_byte"] == pytest.approx(bits / size, rel=1e-6)
    # Domains differ, so pooling is another number than their mean. Each byte of this vocabulary's few curly quotes counts thrice.
    assert result["bits_per_byte"] != pytest.approx(result["mean_bits_per_byte"], rel=1e-4)
    assert 0.99 * result["bits_per_byte"] < result["bits_per_byte_legacy"] < result["bits_per_byte"]
    sums = [of for entry in result["domains"].values() for of in entry["text_of_documents"].values()]
    assert sum(s[1] for s in sums) == sum(entry["bytes"] for entry in result["domains"].values()) == size
    assert sum(s[0] for s in sums) / math.log(2) / size == pytest.approx(result["bits_per_byte"], rel=1e-7)


@pytest.fixture
def of_short_documents(tmp_path):
    domains = ("RedPajamaBook", "RedPajamaGithub")
    made = tiny_tokens(tmp_path / "store", vocab_size=300, domains=domains, rows=short_rows(domains))
    return finished_run(tmp_path, *made, context=CONTEXT)


def test_documents_one_by_one_are_scored_as_if_alone_and_padding_is_no_target(of_short_documents):
    train, manifest, checkpoints, model = of_short_documents
    result = loss.evaluate(train, manifest, checkpoints, sequences=None, padded=True)
    assert result["mean_loss"] == loss.evaluate(train, manifest, checkpoints, sequences=None)["mean_loss"]
    assert set(result["padded"]["domains"]) == set(result["domains"])
    values = []
    for domain, entry in result["padded"]["domains"].items():
        shard = read_json(manifest)["splits"]["validation"][domain]
        tokens = np.fromfile(manifest.parent / shard["shards"][0]["path"], "<u2").astype(np.int64)
        ends = [-1, *np.flatnonzero(tokens == 0), *([len(tokens) - 1] if tokens[-1] else [])]
        nats = []
        for before, end in itertools.pairwise(ends):
            ids = torch.from_numpy(tokens[before + 1 : end + 1][:CONTEXT])[None]
            with torch.no_grad():
                alone = torch.nn.functional.cross_entropy(
                    model(ids)[0, :-1], ids[0, 1:], reduction="none"
                ).double()
            nats.append(alone.numpy())
        # Some documents are shorter than a row, some longer.
        assert {len(part) < CONTEXT - 1 for part in nats} == {True, False}
        assert entry["tokens"] == sum(map(len, nats)) and entry["sequences"] == len(ends) - 1
        assert entry["loss"] == pytest.approx(np.concatenate(nats).mean(), rel=1e-6)
        assert [s for s, _ in entry["documents"].values()] == pytest.approx(
            [part.sum() for part in nats], rel=1e-5
        )
        values.append(entry["loss"])
    assert result["padded"]["mean_loss"] == pytest.approx(sum(values) / len(values))


def test_fewer_padded_documents_are_a_part_of_more(of_short_documents):
    _, manifest, _, _ = of_short_documents
    few, all_of = (loss.padded_documents(manifest, CONTEXT, limit) for limit in (1, None))
    for domain, (ids, lengths, numbers) in few.items():
        assert len(ids) == 1 and np.array_equal(ids[0], all_of[domain][0][0])
        assert numbers[0] == all_of[domain][2][0] and (ids[0, lengths[0] :] == 0).all()


def test_one_document_has_no_error_estimate():
    assert loss.summarise(np.ones((2, 4)), np.ones((2, 4), int), np.zeros((2, 4), int))["stderr"] is None


def test_the_mean_over_domains_counts_each_domain_once():
    domains = {"big": {"loss": 1.0, "tokens": 1000}, "small": {"loss": 3.0, "tokens": 10}}
    assert loss.unweighted_mean(domains, "loss") == pytest.approx(2.0)


def test_losses_equal_a_direct_computation_from_tokens_and_logits(trained):
    from respath.data.loader import validation_rows

    train, manifest, checkpoints, model = trained
    result = loss.evaluate(train, manifest, checkpoints, sequences=3)
    assert set(result["domains"]) == set(read_json(manifest)["splits"]["validation"])
    for domain, rows in validation_rows(manifest, CONTEXT, 3).items():
        ids = torch.from_numpy(rows)
        with torch.no_grad():
            log_probabilities = model(ids).log_softmax(-1)
        wanted = -log_probabilities[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
        entry = result["domains"][domain]
        assert entry["loss"] == pytest.approx(float(wanted.mean()), rel=1e-5)
        assert entry["tokens"] == len(rows) * (CONTEXT - 1)
        sums, sizes = zip(*entry["documents"].values(), strict=True)
        assert sum(sizes) == entry["tokens"]
        assert sum(sums) / entry["tokens"] == pytest.approx(entry["loss"], rel=1e-7)
        assert entry["sequences_of"] >= entry["sequences"] == 3
    values = [entry["loss"] for entry in result["domains"].values()]
    assert result["mean_loss"] == pytest.approx(sum(values) / len(values))
    assert result["status"] == "done" and result["run"] == "a-run"


def test_bytes_are_those_of_the_text_that_the_targets_spell(trained):
    from respath.data.loader import validation_rows
    from respath.data.tokenizer import load

    train, manifest, checkpoints, _ = trained
    tokenizer = load(manifest.parent / read_json(manifest)["tokenizer"]["path"])
    result = loss.evaluate(train, manifest, checkpoints, sequences=1)
    for domain, rows in validation_rows(manifest, CONTEXT, 1).items():
        # ASCII text: characters are bytes, and the decoder drops ends of documents.
        text = tokenizer.decode(rows[0, 1:].tolist())
        assert text.isascii() and result["domains"][domain]["bytes"] == len(text)


def test_another_context_scores_rows_of_that_length(trained):
    train, manifest, checkpoints, _ = trained
    result = loss.evaluate(train, manifest, checkpoints, sequences=2, context=16)
    assert result["context"] == 16
    assert all(entry["tokens"] == entry["sequences"] * 15 for entry in result["domains"].values())


def test_batches_do_not_change_losses(trained, monkeypatch):
    *_, model = trained
    rows = np.random.default_rng(0).integers(0, 300, size=(5, CONTEXT))
    at_once = loss.token_losses(model, rows)
    monkeypatch.setitem(loss.TOKENS, "cpu", CONTEXT)
    np.testing.assert_allclose(loss.token_losses(model, rows), at_once, rtol=1e-5)


def test_a_diverged_run_has_a_result_without_losses(trained):
    train, manifest, checkpoints, _ = trained
    write_json(train, {**read_json(train), "status": "diverged", "weights": None})
    result = loss.evaluate(train, manifest, checkpoints, sequences=1)
    assert result["status"] == "diverged" and result["domains"] == {} and result["mean_loss"] is None


def test_finite_weights_whose_loss_is_not_finite_are_a_diverged_run(trained):
    train, manifest, checkpoints, _ = trained
    scale_weights(train, checkpoints, 1e20)
    result = loss.evaluate(train, manifest, checkpoints, sequences=1)
    assert (result["status"], result["domains"], result["mean_loss"]) == ("diverged", {}, None)
    assert result["reason"].startswith("the validation loss on ") and result["reason"].endswith(
        "is not finite"
    )
    assert result["weights_sha256"] == read_json(train)["weights"]["sha256"]


def test_the_command_writes_a_byte_stable_result(trained, tmp_path):
    train, manifest, checkpoints, _ = trained
    written = []
    for name in ("a.json", "b.json"):
        arguments = ["--train", train, "--tokens", manifest, "--checkpoints", checkpoints, "--sequences", 2]
        assert loss.main([*map(str, arguments), "--device", "cpu", "--out", str(tmp_path / name)]) == 0
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    assert json.loads(written[0])["kind"] == "loss"


def test_missing_weights_are_one_line_with_the_remedy(trained, capsys, tmp_path):
    train, manifest, checkpoints, _ = trained
    (checkpoints / "final" / "model.safetensors").unlink()
    arguments = [
        "--train",
        train,
        "--tokens",
        manifest,
        "--checkpoints",
        checkpoints,
        "--sequences",
        1,
        "--out",
        tmp_path / "x",
    ]
    assert loss.main([*map(str, arguments), "--device", "cpu"]) == 2
    line = capsys.readouterr().err.strip()
    assert line.count("\n") == 0 and "are missing" in line and "run the same command" in line


def test_weights_that_are_not_the_recorded_ones_are_refused(trained):
    train, _, checkpoints, model = trained
    from safetensors.torch import save_file

    state = model.state_dict()
    state["final_norm.weight"] = state["final_norm.weight"] * 2
    save_file(state, checkpoints / "final" / "model.safetensors")
    with pytest.raises(UserError, match="differs from"):
        load_trained(train, checkpoints)


def test_weights_that_do_not_fit_the_spec_are_refused(trained):
    train, _, checkpoints, model = trained
    from safetensors.torch import save_file

    path = checkpoints / "final" / "model.safetensors"
    state = dict(model.state_dict())
    state.pop("final_norm.weight")
    save_file(state, path)
    record = read_json(train)
    write_json(train, {**record, "weights": {**record["weights"], "sha256": sha256_file(path)}})
    with pytest.raises(UserError, match=r"does not fit the spec.*final_norm"):
        load_trained(train, checkpoints)


def test_another_manifest_than_the_one_trained_on_is_refused(trained):
    train, manifest, checkpoints, _ = trained
    write_json(train, {**read_json(train), "manifest_sha256": "0" * 64})
    with pytest.raises(UserError, match="is not the manifest"):
        loss.evaluate(train, manifest, checkpoints, sequences=1)


def test_a_file_that_is_no_training_result_is_refused(trained, tmp_path):
    _, manifest, checkpoints, _ = trained
    write_json(tmp_path / "other.json", {"kind": "loss"})
    with pytest.raises(UserError, match="not the result of a training"):
        loss.evaluate(tmp_path / "other.json", manifest, checkpoints, sequences=1)


def test_a_second_length_is_scored_beside_the_own_one(trained, tmp_path):
    train, manifest, checkpoints, _ = trained
    arguments = ["--train", train, "--tokens", manifest, "--checkpoints", checkpoints, "--sequences", 2]
    arguments += ["--common-context", 16, "--device", "cpu", "--out", tmp_path / "loss.json"]
    assert loss.main(list(map(str, arguments))) == 0
    both = read_json(tmp_path / "loss.json")
    own, short = (loss.evaluate(train, manifest, checkpoints, 2, context) for context in (None, 16))
    assert (both["mean_loss"], both["context"]) == (own["mean_loss"], CONTEXT)
    assert both["common"] == {
        key: short[key]
        for key in (
            "context",
            "domains",
            "mean_loss",
            "mean_bits_per_byte",
            "bits_per_byte",
            "bits_per_byte_legacy",
        )
    }
