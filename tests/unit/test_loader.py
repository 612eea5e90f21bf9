"""The loader is a function of (manifest, weights, seed, step): bijective per epoch, exact per block, the same for any ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respath.data.loader import (
    Loader,
    Rows,
    block_counts,
    permute,
    row_bytes,
    store_byte_lengths,
    token_byte_lengths,
    validation,
    validation_rows,
)
from respath.data.tokenizer import load
from respath.errors import UserError
from respath.files import read_json
from tests.unit.corpus import PARTS, tiny_tokens


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Path:
    return tiny_tokens(tmp_path_factory.mktemp("tokens"), shards=2)[0]


def loader(manifest: Path, **changes) -> Loader:
    return Loader(manifest, **{"context": 32, "batch_sequences": 24, "seed": 1, **changes})


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_a_permutation_reaches_every_place_once(size, key):
    places = permute(np.arange(size), size, np.full(size, key, dtype=np.uint64))
    assert np.array_equal(np.sort(places), np.arange(size))


def test_permutations_of_other_keys_differ_and_are_not_nearly_sorted():
    index = np.arange(1000)
    first, second = (permute(index, 1000, np.full(1000, key, dtype=np.uint64)) for key in (1, 2))
    assert (first == second).mean() < 0.02 and (first == index).mean() < 0.02
    assert abs(np.corrcoef(index, first)[0, 1]) < 0.15
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15


def test_a_large_permutation_stays_in_range_without_a_table():
    size = 10**12 + 7
    index = np.arange(size - 5000, size)
    places = permute(index, size, np.full(5000, 3, dtype=np.uint64))
    assert places.min() >= 0 and places.max() < size and len(set(places.tolist())) == 5000


def test_the_papers_weights_are_exact_over_twenty_sequences():
    assert block_counts({name: part / 20 for name, part in PARTS.items()}) == PARTS
    tokens = {name: part * 10**9 for name, part in PARTS.items()}
    assert block_counts(tokens) == PARTS


@given(st.dictionaries(st.sampled_from("abcdefg"), st.floats(1e-6, 1e9), min_size=1))
def test_any_weights_are_rounded_by_less_than_one_sequence_in_a_block(weights):
    counts = block_counts(weights)
    block, total = sum(counts.values()), sum(weights.values())
    assert set(counts) == set(weights) and min(counts.values()) >= 1
    for domain, count in counts.items():
        exact = weights[domain] / total * block
        # Domains too small for one sequence get one all the same, at the others' cost.
        assert abs(count - exact) < 1 + 0.01 * block or count == 1
    if all(value / total >= 1 / 1000 for value in weights.values()):
        assert all(abs(count - weights[d] / total * block) <= 1 for d, count in counts.items())


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": float("nan")}])
def test_weights_that_are_no_shares_are_refused(weights):
    with pytest.raises(UserError, match="positive"):
        block_counts(weights)


def test_domain_counts_are_exact_in_every_block(manifest):
    source = loader(manifest)
    domain, _ = source.schedule(0, source.block * 50)
    for block in domain.reshape(50, source.block):
        assert Counter(source.domains[d] for d in block) == PARTS
    orders = {tuple(block) for block in domain.reshape(50, source.block).tolist()}
    assert len(orders) > 45


@pytest.mark.parametrize("domain", ["RedPajamaCommonCrawl", "RedPajamaBook"])
def test_every_row_of_a_domain_comes_once_per_epoch(manifest, domain):
    source = loader(manifest)
    size, number = source.rows[domain].count, source.domains.index(domain)
    blocks = 3 * size // source.counts[domain] + 1
    domains, rows = source.schedule(0, blocks * source.block)
    # Draws of an epoch may change places within a block; sort them by block, then the j-th draw is what counts.
    drawn = rows[domains == number]
    seen = Counter(drawn.tolist())
    assert len(seen) == size
    assert set(seen.values()) <= {len(drawn) // size, len(drawn) // size + 1}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([0, 1, 7, 12_345, 10**9]),
    st.sampled_from([(1, 1), (2, 1), (3, 4), (8, 3), (24, 1), (1, 24), (4, 2), (6, 2)]),
    st.integers(0, 5),
)
def test_a_step_does_not_depend_on_ranks_or_micro_batches(manifest, step, split, seed):
    world, parts = split
    source = loader(manifest, seed=seed)
    whole = source.batch(step)
    pieces = [
        source.batch(step, rank, world, (part, parts)) for rank in range(world) for part in range(parts)
    ]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert np.array_equal(loader(manifest, seed=seed).batch(step), whole)


def test_a_batch_of_another_size_goes_through_the_same_sequence(manifest):
    small, large = loader(manifest, batch_sequences=6), loader(manifest, batch_sequences=24)
    assert np.array_equal(np.concatenate([small.batch(step) for step in range(8, 12)]), large.batch(2))


def test_another_seed_gives_another_order(manifest):
    assert not np.array_equal(loader(manifest).batch(0), loader(manifest, seed=2).batch(0))


def test_rows_are_whole_pieces_of_the_shards(manifest):
    content = read_json(manifest)
    source = loader(manifest)
    batch = source.batch(3)
    domain, row = source.schedule(3 * 24, 24)
    assert batch.dtype == np.int64 and batch.shape == (24, 32)
    for tokens, d, r in zip(batch, domain, row, strict=True):
        parts = []
        for shard in content["splits"]["train"][source.domains[d]]["shards"]:
            ids = np.fromfile(manifest.parent / shard["path"], dtype=content["dtype"])
            parts.append(ids[: len(ids) // 32 * 32].reshape(-1, 32))
        assert np.array_equal(tokens, np.concatenate(parts)[r])


def test_the_order_of_weights_in_a_mapping_changes_nothing(manifest):
    turned = dict(reversed(PARTS.items()))
    assert np.array_equal(loader(manifest, weights=PARTS).batch(5), loader(manifest, weights=turned).batch(5))


def test_epochs_say_how_often_each_domain_is_gone_through(manifest):
    source = loader(manifest)
    epochs = source.epochs(100)
    domains, _ = source.schedule(0, 100 * 24)
    for number, name in enumerate(source.domains):
        assert epochs[name] == pytest.approx((domains == number).sum() / source.rows[name].count)


def test_an_uneven_division_and_an_unknown_domain_are_user_errors(manifest):
    with pytest.raises(UserError, match="24 cannot be divided by 5 ranks x 1"):
        loader(manifest).batch(0, 0, 5)
    with pytest.raises(UserError, match="has no domains"):
        loader(manifest, weights={"Nowhere": 1.0})


def test_a_domain_without_one_whole_row_is_named_with_the_remedy(manifest):
    said = r"manifest\.json: splits\.train\.\w+: [\d,]+ tokens make no row of 1000000; raise train_tokens of the data \("
    with pytest.raises(UserError, match=said):
        loader(manifest, context=1_000_000)
    with pytest.raises(UserError, match=said.replace("train", "validation")):
        validation_rows(manifest, 1_000_000)


def test_a_shard_of_the_wrong_size_is_fatal_at_the_start(tmp_path):
    path, _ = tiny_tokens(tmp_path)
    shard = next((path.parent / "train").glob("*.bin"))
    shard.write_bytes(shard.read_bytes() + b"\0\0")
    with pytest.raises(UserError, match=shard.name):
        loader(path)
    shard.unlink()
    with pytest.raises(UserError, match="missing"):
        loader(path)


# --- validation ----------------------------------------------------------------------------------------------------


def test_validation_rows_are_frozen_and_fewer_are_a_part_of_more(manifest):
    few, more = validation_rows(manifest, 32, 5), validation_rows(manifest, 32, 10)
    assert set(few) == set(PARTS)
    for domain in PARTS:
        assert few[domain].shape == (5, 32) and np.array_equal(few[domain], more[domain][:5])
    everything = validation_rows(manifest, 32)
    content = read_json(manifest)["splits"]["validation"]
    assert {d: len(rows) for d, rows in everything.items()} == {d: content[d]["tokens"] // 32 for d in PARTS}


def test_validation_rows_are_drawn_from_the_whole_split_and_not_its_first_ones(manifest):
    content = read_json(manifest)
    for domain, rows in validation_rows(manifest, 16, 12).items():
        source = Rows(manifest, content, "validation", domain, 16)
        whole = np.concatenate(source.views)
        places = [int(np.flatnonzero((whole == row).all(axis=1))[0]) for row in rows]
        assert len(set(places)) == 12 and max(places) >= source.count // 2 and places != sorted(places)
        everything = validation_rows(manifest, 16)[domain]
        assert sorted(map(tuple, everything.tolist())) == sorted(map(tuple, whole.tolist()))


def test_the_documents_of_rows_are_those_that_their_tokens_come_from(manifest):
    content = read_json(manifest)
    end = content["tokenizer"]["eos_id"]
    for context in (16, 7):
        for domain, found in validation(manifest, context).items():
            entry = content["splits"]["validation"][domain]
            ids = np.fromfile(manifest.parent / entry["shards"][0]["path"], dtype=content["dtype"])
            of_tokens = np.cumsum(np.append(0, ids[:-1] == end))
            rows = found.of
            cut = {
                (tuple(row), tuple(number))
                for row, number in zip(
                    ids[: rows * context].reshape(-1, context).tolist(),
                    of_tokens[: rows * context].reshape(-1, context).tolist(),
                    strict=True,
                )
            }
            assert found.documents.shape == found.rows.shape == (rows, context)
            assert {
                (tuple(r), tuple(d))
                for r, d in zip(found.rows.tolist(), found.documents.tolist(), strict=True)
            } == cut
            assert found.documents.max() < entry["documents"]
            few = validation(manifest, context, 5)[domain]
            assert few.of == rows and np.array_equal(few.documents, found.documents[:5])


def test_row_bytes_are_the_bytes_of_the_text_that_the_targets_spell(manifest):
    tokenizer_json = manifest.parent / read_json(manifest)["tokenizer"]["path"]
    tokenizer, lengths = load(tokenizer_json), token_byte_lengths(tokenizer_json)
    assert np.array_equal(lengths, store_byte_lengths(manifest))
    for rows in validation_rows(manifest, 64, 4).values():
        for row, count in zip(rows, row_bytes(rows, lengths), strict=True):
            text = tokenizer.decode(row[1:].tolist(), skip_special_tokens=True)
            # The first target may begin inside a character: compare where the text decodes cleanly.
            if "\ufffd" not in text:
                assert count == len(text.encode())


def test_bytes_of_all_tokens_are_the_bytes_of_the_documents(manifest):
    content = read_json(manifest)
    lengths = store_byte_lengths(manifest)
    for split in content["splits"].values():
        for entry in split.values():
            ids = np.concatenate(
                [np.fromfile(manifest.parent / s["path"], dtype=content["dtype"]) for s in entry["shards"]]
            )
            assert lengths[ids].sum() == entry["bytes"]


def test_rows_never_span_two_shards(manifest):
    content = read_json(manifest)
    rows = Rows(manifest, content, "train", "RedPajamaC4", 100)
    assert rows.count == sum(s["tokens"] // 100 for s in content["splits"]["train"]["RedPajamaC4"]["shards"])
