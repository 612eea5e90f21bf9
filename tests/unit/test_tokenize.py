"""Token shards: exact ids, whole or absent, the same bytes after any interruption."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respath.data import tokenize as module
from respath.data.shards import shard_path, texts
from respath.data.tokenize import (
    main,
    most_of_one,
    pieces,
    shard_quota,
    token_dtype,
    tokenize_shard,
    validation_stream,
)
from respath.data.tokenizer import load, make_tokenizer
from respath.errors import UserError
from respath.files import canonical_json, read_json, sha256_file
from respath.spec.data import BpeTokenizer
from tests.unit.corpus import tiny_tokens

ROOT = Path(__file__).parents[2]
DOMAIN = "RedPajamaCommonCrawl"


class Store:
    def __init__(self, folder: Path):
        self.manifest, self.data = tiny_tokens(folder, shards=2)
        self.sample, self.tokenizer = (
            folder / "sample" / "sample.json",
            folder / "tokenizer" / "tokenizer.json",
        )
        self.tokens = self.manifest.parent

    def texts(self, split: str, domain: str, shard: int) -> list[str]:
        return list(texts(shard_path(self.sample, read_json(self.sample), domain, split, shard)))

    def arguments(self, out: Path, domain: str = DOMAIN, shard: int = 0) -> list[str]:
        spec = canonical_json(self.data.model_dump(mode="json", exclude_defaults=True))
        options = {"--spec": spec, "--sample": self.sample, "--tokenizer": self.tokenizer, "--split": "train"}
        options |= {"--domain": domain, "--shard": shard, "--out": out}
        return [str(part) for pair in options.items() for part in pair]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return Store(tmp_path_factory.mktemp("tokens"))


def test_a_shard_is_its_documents_in_sample_order_each_followed_by_the_end_of_a_document(store):
    tokenizer = load(store.tokenizer)
    for split, domain, shard in (
        ("train", DOMAIN, 0),
        ("train", DOMAIN, 1),
    ):
        path = store.tokens / split / f"{domain}.{shard:02d}.json"
        content = read_json(path)
        ids = np.fromfile(path.with_suffix(".bin"), dtype=content["dtype"])
        documents = store.texts(split, domain, shard)[: content["documents"]]
        expected = [
            i for text in documents for i in [*tokenizer.encode(text, add_special_tokens=False).ids, 0]
        ]
        assert ids.tolist() == expected[: len(ids)]
        assert content["cut"] == (len(ids) < len(expected))
        kept = (
            tokenizer.decode(ids.tolist(), skip_special_tokens=True) if content["cut"] else "".join(documents)
        )
        assert content["tokens"] == len(ids)
        # A cut may fall inside a character of several bytes.
        assert abs(content["bytes"] - len(kept.encode())) <= (3 if content["cut"] else 0)
        assert content["sha256"] == sha256_file(path.with_suffix(".bin"))


def test_of_a_long_validation_document_a_part_is_taken_that_ends_with_a_line(store):
    tokenizer = load(store.tokenizer)
    for domain in store.data.sample.domains:
        path = store.tokens / "validation" / f"{domain}.00.json"
        content = read_json(path)
        ids = np.fromfile(path.with_suffix(".bin"), dtype=content["dtype"])
        whole = [
            [*tokenizer.encode(text, add_special_tokens=False).ids, 0]
            for text in store.texts("validation", domain, 0)
        ]
        most = most_of_one([len(document) for document in whole], 1000)
        ends = np.flatnonzero(ids == 0) + 1
        taken = [part.tolist() for part in np.split(ids, ends) if len(part)]
        assert len(taken) == content["documents"] and len(ids) == content["tokens"] <= 1000
        parts = 0
        for document, part in zip(whole, taken, strict=False):
            assert len(part) <= most
            if part == document:
                continue
            body = part[:-1] if part[-1] == 0 else part
            assert body == document[: len(body)]
            if part is not taken[-1]:
                parts += 1
                # The last eighth holds a line's end, or the part is as long as it may be.
                late = document[most - 1 - (most - 1) // 8 : most - 1]
                lines = [
                    place for place, token in enumerate(late) if tokenizer.id_to_token(token).endswith("Ċ")
                ]
                expected = most - 1 - len(late) + lines[-1] + 1 if lines else most - 1
                assert len(body) == expected and part[-1] == 0
        assert parts <= content["parts"] <= parts + 1
        lengths = np.array([len(part) for part in taken], float)
        assert content["tokens_of_documents"]["most"] == lengths.max()
        effective = lengths.sum() ** 2 / (lengths**2).sum()
        assert content["tokens_of_documents"]["effective"] == pytest.approx(effective, abs=0.01)


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 600))
def test_no_document_is_more_than_a_sixteenth_of_the_split_or_an_eighth_where_that_is_too_little(
    lengths, quota
):
    most = most_of_one(lengths, quota)
    sixteenth = -(-quota // 16)
    filled = sum(min(length, most) for length in lengths)
    if sum(min(length, sixteenth) for length in lengths) >= quota:
        assert most == sixteenth
    elif sum(min(length, -(-quota // 8)) for length in lengths) >= quota:
        assert filled >= quota > sum(min(length, most - 1) for length in lengths), "the least that fills it"
    else:
        assert most == -(-quota // 8) and filled < quota


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 600))
def test_a_split_reads_no_more_documents_than_fill_its_quota(lengths, quota):
    read = []

    def documents():
        for length in lengths:
            read.append(length)
            yield np.arange(1, length + 1, dtype="<u2"), length

    taken = 0
    for ids, size in validation_stream(documents(), quota, np.zeros(100, bool)):
        taken += len(ids)
        assert (size is None) == (len(ids) < ids[-1]), "a part ends with the last id of its document"
        if taken >= quota:
            break
    if taken >= quota:
        sixteenth = -(-quota // 16)
        needed = np.searchsorted(np.cumsum(np.minimum(lengths, sixteenth)), quota) + 1
        assert len(read) <= needed


def test_a_shard_holds_its_quota_exactly_or_all_that_there_is(store):
    for domain in store.data.sample.domains:
        for shard in (0, 1):
            path = store.tokens / "train" / f"{domain}.{shard:02d}.json"
            content = read_json(path)
            ids = np.fromfile(path.with_suffix(".bin"), dtype=content["dtype"])
            quota = shard_quota(store.data, "train", domain)
            assert content["quota_tokens"] == quota
            if len(ids) < quota:
                assert not content["cut"] and ids[-1] == 0
                assert content["documents"] == len(store.texts("train", domain, shard))
            else:
                assert len(ids) == quota


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*" \n\t.,'s1é", "ab", "word", "\n\n", "e\u0301", "<|endoftext|>"])),
    st.integers(1, 30),
)
def test_pieces_are_the_text_and_none_is_longer_than_the_limit(parts, limit):
    text = "".join(parts)
    parts = pieces(text, limit)
    assert "".join(parts) == text
    assert all(0 < len(part) <= limit for part in parts) or parts == [""]


@pytest.mark.parametrize("kind", ["bpe", "nanochat", "neox"])
def test_tokens_of_the_pieces_are_the_tokens_of_the_text(store, kind, tmp_path):
    path = store.tokenizer
    if kind == "nanochat":
        path = tmp_path / "tokenizer.json"
        make_tokenizer(BpeTokenizer(kind="bpe", vocab_size=512, split="nanochat"), path, store.sample)
    if kind == "neox":
        path = (
            Path(os.environ.get("RESPATH_SHARED", ROOT.parent / "shared"))
            / "data/tokenizer/20B_tokenizer.json"
        )
        if not path.exists():
            pytest.skip("needs the shared data folder (RESPATH_SHARED)")
    tokenizer = load(path)
    atoms = [
        "word",
        " the",
        " a",
        "\n",
        "\n\n",
        "  ",
        "    ",
        ".",
        ",",
        "'s",
        "'",
        "é",
        "e\u0301",
        "1",
        " 12",
        "\t",
        "\r\n",
        "<|end",
        "\u3000",
        ";",
        "_",
        ")\n",
    ]

    def words(text: str) -> list[str]:
        return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]

    # Long enough to be cut: lists of any length are mostly short ones.
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.sampled_from(atoms), min_size=60, max_size=120))
    def holds(parts: list[str]):
        # A safe place within every stretch of 24 characters: what real text has within 2^18.
        text = "".join(part + ("x\nword" if i % 5 == 4 else "") for i, part in enumerate(parts))
        cut = pieces(text, 60)
        assert len(cut) > 1
        joined = [i for part in cut for i in tokenizer.encode(part, add_special_tokens=False).ids]
        # The words too: a small vocabulary may lack the merge that a wrong place cuts.
        assert [word for part in cut for word in words(part)] == words(text)
        assert joined == tokenizer.encode(text, add_special_tokens=False).ids

    holds()


def test_long_documents_and_small_batches_give_the_same_ids(store, monkeypatch, tmp_path):
    reference = (store.tokens / "train" / f"{DOMAIN}.00.bin").read_bytes()
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 700)
    monkeypatch.setattr(module.pieces, "__defaults__", (500,))
    out = tmp_path / f"{DOMAIN}.00.json"
    tokenize_shard(store.data, store.sample, store.tokenizer, "train", DOMAIN, 0, out)
    assert out.with_suffix(".bin").read_bytes() == reference


def test_a_text_without_any_safe_place_is_cut_and_comes_back(store):
    tokenizer = load(store.tokenizer)
    text = "a" * 5000
    parts = pieces(text, 1000)
    assert [len(part) for part in parts] == [1000] * 5
    ids = [i for part in parts for i in tokenizer.encode(part).ids]
    assert tokenizer.decode(ids) == text


def test_ids_are_16_bits_wide_where_they_fit():
    assert (token_dtype(65_535).itemsize, token_dtype(65_536).itemsize) == (2, 4)


def test_a_finished_shard_is_left_alone_and_a_cut_one_is_made_anew(store, tmp_path, capsys):
    out = tmp_path / f"{DOMAIN}.00.json"
    arguments = store.arguments(out)
    assert main(arguments) == 0
    whole, binary = out.read_bytes(), out.with_suffix(".bin").read_bytes()
    before = out.stat().st_mtime_ns
    assert main(arguments) == 0 and out.stat().st_mtime_ns == before
    assert "up to date" in capsys.readouterr().err
    out.with_suffix(".bin").write_bytes(binary[:-2])
    assert main(arguments) == 0
    assert (out.read_bytes(), out.with_suffix(".bin").read_bytes()) == (whole, binary)


def test_a_lost_record_is_written_anew_without_encoding_and_a_changed_shard_is_encoded(
    store, tmp_path, capsys
):
    out = tmp_path / f"{DOMAIN}.00.json"
    arguments = store.arguments(out)
    assert main(arguments) == 0
    whole, binary, path = out.read_bytes(), out.with_suffix(".bin").read_bytes(), out.with_suffix(".bin")
    before = path.stat().st_mtime_ns
    for lost in (lambda: out.unlink(), lambda: out.write_text("")):
        lost()
        assert main(arguments) == 0
        assert out.read_bytes() == whole and path.stat().st_mtime_ns == before
    # Equal size, another byte.
    path.write_bytes(bytes([binary[0] ^ 1]) + binary[1:])
    out.unlink()
    assert main(arguments) == 0
    assert (out.read_bytes(), path.read_bytes()) == (whole, binary)


KILLED = """
import os, signal, sys
from respath.data import sample, tokenize
tokenize.BATCH_CHARACTERS = 2000
limit, written, write = int(sys.argv.pop(1)), 0, sample.Hashing.write
def dying(self, data):
    global written
    written += len(data)
    if written > limit:
        self.stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, data)
sample.Hashing.write = dying
sys.exit(tokenize.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("after", [0, 9_000])
def test_a_shard_killed_in_the_middle_is_absent_and_made_anew_with_the_same_bytes(store, tmp_path, after):
    out = tmp_path / "tokens" / f"{DOMAIN}.00.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(after), *store.arguments(out)], env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert not out.exists() and not out.with_suffix(".bin").exists()
    assert [p.suffix for p in out.parent.iterdir()] == [".part"]
    assert main(store.arguments(out)) == 0
    for suffix in (".bin", ".json"):
        assert (
            out.with_suffix(suffix).read_bytes()
            == (store.tokens / "train" / f"{DOMAIN}.00{suffix}").read_bytes()
        )
    assert {p.name for p in out.parent.iterdir()} == {out.name, f"{DOMAIN}.00.kept", f"{DOMAIN}.00.bin"}


def test_a_full_disk_is_one_line_that_names_the_file_and_leaves_nothing_half(
    store, tmp_path, monkeypatch, capsys
):
    out = tmp_path / f"{DOMAIN}.00.json"

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.Hashing, "write", full)
    assert main(store.arguments(out)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and f"{DOMAIN}.00.bin: no space left on the device" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_really_full_disk_is_one_line_too(store, tmp_path, capsys):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", mount], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        assert main(store.arguments(mount / f"{DOMAIN}.00.json")) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and "no space left on the device" in lines[0] and f"{mount}/" in lines[0]
        assert list(mount.iterdir()) == []
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_folder_that_may_not_be_written_is_one_line(store, tmp_path, capsys):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    assert main(store.arguments(tmp_path / f"{DOMAIN}.00.json")) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "permission denied" in lines[0]


def test_an_unknown_domain_and_a_missing_shard_are_named(store, tmp_path):
    with pytest.raises(UserError, match=r"--domain RedPajamaC5: .*did you mean 'RedPajamaC4'"):
        tokenize_shard(
            store.data, store.sample, store.tokenizer, "train", "RedPajamaC5", 0, tmp_path / "x.json"
        )
    with pytest.raises(UserError, match="has no train shard 7 of domain RedPajamaC4"):
        tokenize_shard(
            store.data, store.sample, store.tokenizer, "train", "RedPajamaC4", 7, tmp_path / "x.json"
        )
