"""Best-fit packing: every row begins a document and is full, no token stands twice, and the rows are the same for everybody."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respath.data.loader import Loader, Rows, store_byte_lengths, validation
from respath.data.manifest import summary, verify
from respath.data.packing import Packed, best_fit
from respath.data.shards import shard_path, texts
from respath.data.tokenize import tokenize_shard
from respath.data.tokenizer import load
from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.measure.analyses.inputs import document_rows
from respath.spec.data import BestFit, Concatenate, Data, tokens_id
from respath.spec.document import identity
from tests.unit.corpus import short_rows, tiny_tokens
from tests.unit.training_runs import tiny_spec

ROW = 64
DOMAINS = ("RedPajamaBook", "RedPajamaGithub")
MARK = 0


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> tuple[Path, Data]:
    packing = BestFit(kind="best_fit", row_tokens=ROW, buffer_documents=8)
    return tiny_tokens(
        tmp_path_factory.mktemp("packed"), domains=DOMAINS, rows=short_rows(DOMAINS), packing=packing
    )


def packed(lengths: list[int], **fields) -> tuple[list[list[np.ndarray]], list[np.ndarray], Packed]:
    """Rows, documents and count of documents that share no token but their first one, which is the mark."""
    starts = np.cumsum([1, *lengths])
    documents = [np.array([MARK, *range(s, s + n)]) for s, n in zip(starts, lengths, strict=False)]
    count = Packed()
    return list(best_fit(documents, BestFit(kind="best_fit", **fields), count)), documents, count


def by_the_authors_loop(documents: list[np.ndarray], row: int, size: int) -> list[list[np.ndarray]]:
    """nanochat's loader, written as there: two scans of the buffer for every document."""
    coming, buffer, rows = list(documents), [], []
    while True:
        placed, position = [], 0
        while position < row:
            while len(buffer) < size and coming:
                buffer.append(coming.pop(0))
            if not buffer:
                return rows
            remaining = row - position
            best, best_length = -1, 0
            for i, document in enumerate(buffer):
                if len(document) <= remaining and len(document) > best_length:
                    best, best_length = i, len(document)
            if best < 0:
                best = min(range(len(buffer)), key=lambda i: len(buffer[i]))
            document = buffer.pop(best)[:remaining]
            placed.append(document)
            position += len(document)
        rows.append(placed)


LENGTHS = st.lists(st.integers(1, 30), max_size=60)
FIELDS = st.fixed_dictionaries(
    {
        "row_tokens": st.integers(2, 24),
        "buffer_documents": st.integers(1, 12),
        "long_documents": st.sampled_from(["crop", "split"]),
    }
)


@settings(max_examples=300, deadline=None)
@given(LENGTHS, FIELDS)
def test_every_row_is_full_and_begins_a_document_and_no_token_stands_twice(lengths, fields):
    rows, documents, count = packed(lengths, **fields)
    tokens = [token for row in rows for ids in row for token in ids.tolist() if token != MARK]
    assert len(set(tokens)) == len(tokens)
    for row in rows:
        assert sum(map(len, row)) == fields["row_tokens"]
        for ids in row:
            # A document or a part of it: the mark, then tokens that follow one another in one document.
            assert ids[0] == MARK and (np.diff(ids[1:]) == 1).all()
            if len(ids) > 1:
                assert any(document[1] <= ids[1] and ids[-1] <= document[-1] for document in documents)
    # The documents are finite, so all that does not stand in a row was dropped.
    assert count.tokens == len(rows) * fields["row_tokens"]
    extra = 0
    if fields["long_documents"] == "split":
        room = fields["row_tokens"] - 1
        extra = sum(-(-n // room) - 1 for n in lengths if n > room)
    assert count.tokens + count.dropped_tokens == sum(map(len, documents)) + extra
    assert count.longer_than_a_row == sum(len(ids) > fields["row_tokens"] for ids in documents)


@settings(max_examples=300, deadline=None)
@given(LENGTHS, st.integers(2, 24), st.integers(1, 12))
def test_documents_are_chosen_as_by_nanochats_loop(lengths, row, size):
    rows, documents, _ = packed(lengths, row_tokens=row, buffer_documents=size)
    assert [[ids.tolist() for ids in line] for line in rows] == [
        [ids.tolist() for ids in line] for line in by_the_authors_loop(documents, row, size)
    ]


def test_long_documents_lose_nothing_but_a_last_row_where_they_are_split():
    fields = {"row_tokens": 8, "buffer_documents": 4, "long_documents": "split"}
    rows, documents, count = packed([40, 7, 23], **fields)
    assert count.documents == 3 and count.dropped_tokens < 8
    kept = {token for row in rows for ids in row for token in ids.tolist()}
    assert len(kept) >= sum(map(len, documents)) - 8


def test_every_row_of_a_store_begins_with_the_mark_and_is_text_of_its_documents(store):
    path, _ = store
    content = verify(path, full=True)
    tokenizer = load(path.parent.parent / "tokenizer" / "tokenizer.json")
    sample = path.parent.parent / "sample" / "sample.json"
    for split in ("train", "validation"):
        for domain in DOMAINS:
            rows = Rows(path, content, split, domain, ROW)
            entry = content["splits"][split][domain]
            ids = np.concatenate(rows.views)
            assert (ids[:, 0] == MARK).all() and ids.size == entry["tokens"]
            whole = {
                tuple(tokenizer.encode(text, add_special_tokens=False).ids)
                for text in texts(shard_path(sample, read_json(sample), domain, split, 0))
            }
            by_start: dict[tuple, list] = {}
            for document in whole:
                by_start.setdefault(document[:1], []).append(document)
            for row in ids.tolist():
                marks = [i for i, token in enumerate(row) if token == MARK] + [ROW]
                for begin, end in itertools.pairwise(marks):
                    piece = tuple(row[begin + 1 : end])
                    # Of a long validation document a part is taken, which begins where it begins.
                    assert not piece or any(d[: len(piece)] == piece for d in by_start[piece[:1]])
            assert 0 < entry["packing"]["dropped_share"] < 1
            assert entry["bytes"] == store_byte_lengths(path)[ids].sum()


def test_validation_rows_are_frozen_by_their_hash(store, tmp_path):
    path, data = store
    content = read_json(path)
    folder = path.parent.parent
    for domain in DOMAINS:
        shard = content["splits"]["validation"][domain]["shards"][0]
        assert sha256_file(path.parent / shard["path"]) == shard["sha256"]
        again = tokenize_shard(
            data,
            folder / "sample" / "sample.json",
            folder / "tokenizer" / "tokenizer.json",
            "validation",
            domain,
            0,
            tmp_path / f"{domain}.00.json",
        )
        assert again["sha256"] == shard["sha256"]


def test_packed_rows_are_the_same_for_any_ranks_and_from_any_step(store):
    path, _ = store
    steps = {
        step: Loader(path, context=ROW, batch_sequences=12, seed=3).batch(step) for step in (0, 1, 7, 200)
    }
    for step, whole in steps.items():
        later = Loader(path, context=ROW, batch_sequences=12, seed=3)
        for world in (1, 2, 3, 4):
            parts = [later.batch(step, rank, world) for rank in range(world)]
            assert np.array_equal(np.concatenate(parts), whole)
        assert (whole[:, 0] == MARK).all()


def test_documents_of_packed_rows_are_told_by_their_beginnings(store):
    path, _ = store
    for domain, found in validation(path, ROW).items():
        assert ((np.diff(found.documents, axis=1) == 1) == (found.rows[:, 1:] == MARK)).all(), domain
        firsts = found.documents[:, 0].tolist()
        assert len(set(firsts)) == len(firsts)
        shorter = validation(path, ROW // 2)[domain]
        assert np.array_equal(shorter.rows, found.rows[:, : ROW // 2])
        assert np.array_equal(shorter.documents, found.documents[:, : ROW // 2])
        assert (document_rows(path, ROW, 100)[domain][:, 0] == MARK).all()


def test_rows_longer_than_the_packed_ones_are_refused(store):
    path, _ = store
    with pytest.raises(UserError) as caught:
        Loader(path, context=2 * ROW, batch_sequences=2, seed=1)
    (line,) = caught.value.lines
    assert str(path) in line and "packing.row_tokens" in line and f"at most {ROW}" in line


def test_too_little_text_for_one_row_names_the_key_and_the_remedy(store, tmp_path):
    path, data = store
    folder = path.parent.parent
    packing = BestFit(kind="best_fit", row_tokens=1_000_000)
    with pytest.raises(UserError) as caught:
        tokenize_shard(
            data.model_copy(update={"packing": packing}),
            folder / "sample" / "sample.json",
            folder / "tokenizer" / "tokenizer.json",
            "train",
            DOMAINS[0],
            0,
            tmp_path / "x.json",
        )
    (line,) = caught.value.lines
    assert "sample.json" in line and "data.packing.row_tokens" in line and "raise train_tokens" in line


def test_a_tokenizer_without_the_mark_names_its_file_and_the_remedy(store, tmp_path):
    path, data = store
    folder = path.parent.parent
    content = read_json(folder / "tokenizer" / "tokenizer.json")
    content["added_tokens"] = []
    content["model"]["vocab"]["<|start|>"] = content["model"]["vocab"].pop("<|endoftext|>")
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(UserError) as caught:
        tokenize_shard(
            data,
            folder / "sample" / "sample.json",
            tmp_path / "tokenizer.json",
            "train",
            DOMAINS[0],
            0,
            tmp_path / "x.json",
        )
    (line,) = caught.value.lines
    assert str(tmp_path / "tokenizer.json") in line and "<|endoftext|>" in line and "tokenizers:" in line


def test_documents_longer_than_a_row_are_counted_and_the_remedy_is_said(store):
    content = read_json(store[0])
    longer = sum(d["packing"]["longer_than_a_row"] for s in content["splits"].values() for d in s.values())
    assert longer > 0
    line = next(line for line in summary(content).splitlines() if "longer than a row" in line)
    assert f"{longer:,} documents" in line and "long_documents: split" in line


def test_packing_changes_the_id_of_a_store_and_concatenation_said_aloud_does_not(store):
    _, data = store
    plain = data.model_copy(update={"packing": Concatenate(kind="concatenate")})
    assert "packing" not in identity(plain) and tokens_id(plain) != tokens_id(data)


def test_a_run_whose_context_is_not_the_packed_row_is_refused(store):
    _, data = store
    with pytest.raises(ValueError, match=f"rows of {ROW} tokens, recipe.context is {ROW // 2}"):
        tiny_spec(data, context=ROW // 2)
    assert tiny_spec(data, context=ROW).data.packing == data.packing
