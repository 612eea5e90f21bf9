"""The papers' corpora as papers/corpora.yaml names them: real rows in the original formats, whole and broken, to tokens."""

from __future__ import annotations

import json
import os
import sysconfig
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest
import zstandard

from respath.data.detokenize import Detokenizer, byte_of_character, gpt2
from respath.data.documents import SLIMPAJAMA_DOMAINS, lines, list_corpus, zst_blocks
from respath.data.manifest import make_manifest, verify
from respath.data.paths import matches, splits_of
from respath.data.sample import make_sample
from respath.data.shards import shard_path, texts
from respath.data.tokenize import tokenize_shard
from respath.data.tokenizer import END_OF_TEXT, load, make_tokenizer
from respath.documents import check, load_yaml
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.papers.paper import Corpora
from respath.spec.data import Data, NeoxTokenizer, Sample
from respath.spec.document import identity

ROOT = Path(__file__).parents[2]
CORPORA = check(Corpora, load_yaml(ROOT / "papers/corpora.yaml"), "papers/corpora.yaml").corpora
DOMAINS = SLIMPAJAMA_DOMAINS


def below_shared(*parts: str) -> Path:
    return Path(os.environ.get("RESPATH_SHARED", ROOT.parent / "shared")).joinpath("data", *parts)


def shared(*parts: str) -> Path:
    path = below_shared(*parts)
    if not path.exists():
        pytest.skip("needs the shared data folder (RESPATH_SHARED)")
    return path


def real_rows(domain: str, count: int = 12, longest: int = 20_000) -> list[dict]:
    """The first rows of a domain that are not too long, as they were published: text and meta.

    Without the shared data folder, rows of the same form with the text of this Python's own library.
    """
    folder = below_shared("corpus", domain)
    if not folder.exists():
        return own_rows(domain, count, longest)
    rows = []
    for path in sorted(folder.glob("*.zst")):
        with path.open("rb") as stream:
            for _, line in lines(zst_blocks(stream)):
                row = json.loads(line)
                if len(row["text"]) <= longest:
                    rows.append(row)
                if len(rows) == count:
                    return rows
    return rows


def own_rows(domain: str, count: int, longest: int) -> list[dict]:
    names = [*DOMAINS, "FineWebEdu-like"]
    rows = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[!st]*/*.py"))[
        names.index(domain) :: len(names)
    ]:
        text = path.read_text(encoding="utf-8", errors="replace")
        if 200 <= len(text) <= longest:
            rows[text] = {"text": text, "meta": {"redpajama_set_name": domain}}
    return list(rows.values())[:count]


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [row for domain in DOMAINS for row in real_rows(domain)]


def write_zst(path: Path, rows: list, cut: float = 1.0) -> None:
    """Rows (or raw lines) as one zstd frame, cut at a share of its bytes."""
    raw = b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
    packed = zstandard.ZstdCompressor().compress(raw)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed[: int(len(packed) * cut)])


def write_parquet(path: Path, rows: list[dict]) -> None:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=16)


def sampled(
    name: str, folder: Path, out: Path, domains=DOMAINS, parts: int = 1, **fields
) -> dict[str, set[str]]:
    """{split: texts} of a sample of a corpus of papers/corpora.yaml whose files lie in ``folder``."""
    corpus = CORPORA[name]
    write_json(out / "source.json", list_corpus(corpus, folder))
    sample = Sample(corpus=corpus, domains=domains, validation_share=0.1, **fields)
    how = {"gpt2": str(shared("tokenizer", "gpt2"))} if corpus.token_field else {}
    content = make_sample(sample, [out / "source.json"], out / "sample.json", parts=parts, **how)
    return {
        split: {
            text
            for domain in domains
            for k in range(len(content["domains"][domain]["splits"][split]["shards"]))
            for text in texts(shard_path(out / "sample.json", content, domain, split, k))
        }
        for split in ("train", "validation")
    }


# --- the list itself ----------------------------------------------------------------------------------------------------


def test_every_corpus_is_named_by_its_key_and_points_to_corpora_that_there_are():
    for key, corpus in CORPORA.items():
        assert corpus.name == key and set(corpus.instead) <= set(CORPORA) - {key}
        if corpus.kind == "hub":
            assert corpus.download_bytes and corpus.instead, key
            assert corpus.revision == "main" or len(corpus.revision) == 40, key


def test_sizes_and_alternatives_are_no_part_of_a_runs_identity():
    for corpus in CORPORA.values():
        assert not {"download_bytes", "instead"} & set(identity(corpus))
        plain = corpus.model_copy(update={"download_bytes": None, "instead": ()})
        assert identity(plain) == identity(corpus)


def test_the_authors_selection_never_opens_chunk_10():
    corpus = CORPORA["slimpajama-authors"]
    names = [
        f"{split}/chunk{k}/example_{split}_0.jsonl.zst"
        for split in ("train", "validation", "test")
        for k in range(1, 11)
    ]
    chosen, _ = splits_of(names, corpus)
    assert {name.split("/")[1] for name, split in chosen.items() if split == "train"} == {
        f"chunk{k}" for k in range(1, 10)
    }
    assert {name.split("/")[1] for name, split in chosen.items() if split == "validation"} == {
        f"chunk{k}" for k in range(1, 6)
    }
    assert not any(name.startswith("test") for name in chosen)


def test_bank_of_values_reads_170_files_and_holds_the_last_one_out():
    names = [f"shard_{k:05d}.parquet" for k in range(6543)]
    chosen, _ = splits_of(names, CORPORA["climbmix"])
    assert sorted(chosen) == [*names[:170], names[6542]] and chosen[names[6542]] == "validation"


def test_the_first_thirty_files_of_the_large_upload_are_taken():
    names = [f"data/train-{k:05d}-of-00250.parquet" for k in range(250)]
    assert [n for n in names if matches(n, CORPORA["slimpajama-reupload"].train_files)] == names[:30]


# --- SlimPajama ---------------------------------------------------------------------------------------------------------


def original_layout(folder: Path, rows: list[dict]) -> Path:
    """Two chunks of training files, one of validation, and what must never be read."""
    held_out, train = rows[::6], [row for i, row in enumerate(rows) if i % 6]
    write_zst(folder / "train/chunk1/example_train_0.jsonl.zst", train[::2])
    write_zst(folder / "train/chunk9/example_train_0.jsonl.zst", train[1::2])
    write_zst(
        folder / "train/chunk10/example_train_0.jsonl.zst", [{"text": "chunk 10", "meta": rows[0]["meta"]}]
    )
    write_zst(folder / "test/chunk1/example_test_0.jsonl.zst", [{"text": "test", "meta": rows[0]["meta"]}])
    write_zst(folder / "validation/chunk1/example_holdout_0.jsonl.zst", held_out)
    return folder


def test_original_rows_become_tokens_in_every_domain_with_their_counts(tmp_path, rows):
    folder = original_layout(tmp_path / "slimpajama", rows)
    found = sampled("slimpajama-authors", folder, tmp_path / "sample", parts=2, shards=2)
    held_out = {row["text"] for row in rows[::6]}
    assert found["validation"] <= held_out and found["validation"]
    assert found["train"] == {row["text"] for i, row in enumerate(rows) if i % 6} - held_out
    made = read_json(tmp_path / "sample/sample.json")["domains"].values()
    # Files with one licence or one template on top are near-duplicates.
    assert len(held_out - found["validation"]) == sum(entry["near_duplicates"] for entry in made)
    sample_json, tokenizer_json = tmp_path / "sample/sample.json", tmp_path / "tokenizer/tokenizer.json"
    make_tokenizer(
        NeoxTokenizer(kind="neox"), tokenizer_json, origin=str(shared("tokenizer", "20B_tokenizer.json"))
    )
    sample = check(Sample, read_json(sample_json)["spec"], "sample.json")
    quotas = dict.fromkeys(DOMAINS, 3000)
    data = Data(
        sample=sample, tokenizer=NeoxTokenizer(kind="neox"), train_tokens=quotas, validation_tokens=500
    )
    shards = []
    for domain in DOMAINS:
        for split, shard in (("train", 0), ("train", 1), ("validation", 0)):
            out = tmp_path / "tokens" / split / f"{domain}.{shard:03d}.json"
            tokenize_shard(data, sample_json, tokenizer_json, split, domain, shard, out)
            shards.append(out)
    manifest = tmp_path / "tokens/manifest.json"
    make_manifest(data, shards, tokenizer_json, sample_json, [tmp_path / "sample/source.json"], manifest)
    content = verify(manifest, full=True)
    for domain in DOMAINS:
        entry = content["splits"]["train"][domain]
        assert 0 < entry["tokens"] <= 3000 and entry["short"] == (entry["tokens"] < 3000)
    tokenizer = load(tokenizer_json)
    ids = np.fromfile(tmp_path / "tokens/train/RedPajamaC4.000.bin", dtype="<u2")
    first = next(texts(shard_path(sample_json, read_json(sample_json), "RedPajamaC4", "train", 0)))
    expected = [*tokenizer.encode(first, add_special_tokens=False).ids, 0][: len(ids)]
    assert ids[: len(expected)].tolist() == expected


@pytest.mark.parametrize("kind", ["struct", "JSON text"])
def test_the_parquet_uploads_give_the_sample_of_the_original_rows(tmp_path, rows, kind):
    original = original_layout(tmp_path / "original", rows)
    expected = sampled("slimpajama-local", original, tmp_path / "one")
    copied = []
    for row in [*rows, {"text": "chunk 10", "meta": rows[0]["meta"]}]:
        meta = {"redpajama_set_name": row["meta"]["redpajama_set_name"]}
        copied.append({"text": row["text"], "meta": meta if kind == "struct" else json.dumps(meta)})
    split = {
        "validation": copied[:-1:6],
        "train": [row for i, row in enumerate(copied) if i % 6 or row is copied[-1]],
    }
    for name, part in split.items():
        write_parquet(tmp_path / f"copy/data/{name}-00000-of-00001.parquet", part)
    # A folder with the repository's own names stands in for the hub.
    found = sampled("slimpajama-6b", tmp_path / "copy", tmp_path / "two")
    assert found == expected and len(found["train"]) > 40


def test_broken_rows_among_real_ones_are_counted_and_nothing_else_is_lost(tmp_path, rows):
    c4 = real_rows("RedPajamaC4", 40)
    meta = {"redpajama_set_name": "RedPajamaC4"}
    huge = {"text": "\n\n".join(row["text"] for row in rows) * 3, "meta": meta}
    special = {"text": f"{c4[0]['text'][:200]} {END_OF_TEXT} <|padding|> and on", "meta": meta}
    odd = [
        huge,
        special,
        {**c4[1], "meta": json.dumps(meta)},
        *c4[2:5],
        *c4[2:5],
        {"text": c4[5]["text"]},
        {"text": c4[6]["text"], "meta": None},
        {"text": c4[7]["text"], "meta": "no JSON"},
        {"text": c4[8]["text"], "meta": {"redpajama_set_name": "RedPajamaC5"}},
        {"text": None, "meta": meta},
        {"meta": meta},
        b'{"text": "\xff\xfe", "meta": {"redpajama_set_name": "RedPajamaC4"}}',
        b'{"text": "cut',
    ]
    write_zst(tmp_path / "in/train/odd.jsonl.zst", odd)
    write_zst(tmp_path / "in/train/whole.jsonl.zst", c4[10:20])
    prose = {"text": topics["naming"], "meta": meta}
    write_zst(tmp_path / "in/validation/v.jsonl.zst", [prose])
    found = sampled("slimpajama-local", tmp_path / "in", tmp_path / "out", domains=("RedPajamaC4",))
    content = read_json(tmp_path / "out/sample.json")
    entry = content["domains"]["RedPajamaC4"]
    assert entry["refused"] == {"no text": 2} and entry["duplicates"] == 3
    assert content["refused"] == {
        "invalid UTF-8": 1,
        "malformed JSON": 1,
        "no domain": 3,
        "unknown domain": 1,
    }
    assert len(content["refused_rows"]) == 8 and all(":" in line for line in content["refused_rows"])
    out = sum(split["documents"] for split in entry["splits"].values())
    assert entry["documents_in"] == out + 2 + 3 and entry["beyond_budget"] == 0
    assert {huge["text"], special["text"], c4[1]["text"]} <= found["train"]
    assert {row["text"] for row in c4[10:20]} <= found["train"]
    write_zst(tmp_path / "in/train/cut.jsonl.zst", c4[20:], cut=0.6)
    with pytest.raises(
        UserError, match=r"cut\.jsonl\.zst: the zstd data ends too early \(rows read so far: "
    ):
        sampled("slimpajama-local", tmp_path / "in", tmp_path / "again", domains=("RedPajamaC4",))


def test_text_that_spells_a_special_token_is_encoded_as_the_characters_that_it_is(tmp_path):
    tokenizer = load(shared("tokenizer", "20B_tokenizer.json"))
    text = f"before {END_OF_TEXT} between <|padding|> after"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert not {0, 1} & set(ids) and tokenizer.decode(ids) == text


def test_a_domain_without_a_row_is_named_with_the_remedy(tmp_path, rows):
    write_zst(
        tmp_path / "in/train/a.jsonl.zst", [r for r in rows if "Book" not in r["meta"]["redpajama_set_name"]]
    )
    write_zst(tmp_path / "in/validation/v.jsonl.zst", rows[:2])
    with pytest.raises(
        UserError,
        match=r"domain RedPajamaBook has no document in corpus slimpajama-local .*check train_files",
    ):
        sampled("slimpajama-local", tmp_path / "in", tmp_path / "out")


# --- FineWeb-Edu --------------------------------------------------------------------------------------------------------


def test_fineweb_edu_rows_are_one_domain_with_the_named_file_held_out(tmp_path):
    rows = [
        {
            "text": row["text"],
            "id": f"<urn:uuid:{i}>",
            "dump": "fixture",
            "url": "https://example.org",
            "file_path": "fixture",
            "language": "en",
            "language_score": 0.5,
            "token_count": 1,
            "score": 3.0,
            "int_score": 3,
        }
        for i, row in enumerate(real_rows("FineWebEdu-like", 30))
    ]
    write_parquet(tmp_path / "in/sample/100BT/000_00000.parquet", rows[:20])
    write_parquet(tmp_path / "in/sample/100BT/013_00008.parquet", rows[20:])
    write_parquet(tmp_path / "in/sample/10BT/000_00000.parquet", [{**rows[0], "text": "another sample"}])
    found = sampled("fineweb-edu-100bt", tmp_path / "in", tmp_path / "out", domains=("FineWebEdu",))
    assert found["train"] == {row["text"] for row in rows[:20]}
    content = read_json(tmp_path / "out/sample.json")
    held_out = {row["text"] for row in rows[20:]}
    assert found["validation"] <= held_out and found["validation"]
    assert len(held_out - found["validation"]) == content["domains"]["FineWebEdu"]["near_duplicates"]
    path = shard_path(tmp_path / "out/sample.json", content, "FineWebEdu", "train", 0)
    with path.open("rb") as stream:
        meta = json.loads(next(lines(zst_blocks(stream)))[1])["meta"]
    assert set(meta) == {"redpajama_set_name", "where"}, "only the columns that are needed are read"


# --- ClimbMix -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpt2_rows() -> list[dict]:
    """Real texts as ClimbMix has them: GPT-2 ids and no text; the text is kept beside, for the test."""
    from tokenizers import Tokenizer

    from respath.data.tokenizer import from_gpt2_files

    folder = shared("tokenizer", "gpt2")
    tokenizer = Tokenizer.from_str(from_gpt2_files(folder / "encoder.json", folder / "vocab.bpe"))
    tokenizer.encode_special_tokens = True
    found = [row for domain in ("RedPajamaC4", "RedPajamaWikipedia") for row in real_rows(domain, 20)]
    encoded = [(row["text"], tokenizer.encode(row["text"], add_special_tokens=False).ids) for row in found]
    return [
        {"text": text, "row": {"cluster_id": i % 20 + 1, "tokens": ids, "token_count": len(ids)}}
        for i, (text, ids) in enumerate(encoded)
    ]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_climbmix_tokens_come_back_as_the_text_they_were_made_of(tmp_path, gpt2_rows, kind):
    rows = [row["row"] for row in gpt2_rows]
    rows[3] = {**rows[3], "tokens": [50256, *rows[3]["tokens"], 50256]}
    if kind == "parquet":
        write_parquet(tmp_path / "in/climbmix_small/shard_0.tokenized.parquet", rows[:30])
        write_parquet(tmp_path / "in/climbmix_small/shard_99.tokenized.parquet", rows[30:])
        found = sampled("climbmix-tokens", tmp_path / "in", tmp_path / "out", domains=("ClimbMix",))
        assert found["validation"] == {row["text"] for row in gpt2_rows[30:]}
    else:
        (tmp_path / "in").mkdir()
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "in/part_0.tokenized.jsonl").write_text(text)
        found = sampled("climbmix-tokens-local", tmp_path / "in", tmp_path / "out", domains=("ClimbMix",))
    texts_in, texts_out = {row["text"] for row in gpt2_rows}, found["train"] | found["validation"]
    entry = read_json(tmp_path / "out/sample.json")["domains"]["ClimbMix"]
    # Navigation pages look alike: one that is held out goes when training text holds it.
    assert texts_out <= texts_in and len(texts_in - texts_out) == entry["near_duplicates"] <= 1
    assert entry["refused"] == {}


def test_bad_token_rows_are_refused_with_their_reason(tmp_path, gpt2_rows):
    good = [row["row"] for row in gpt2_rows[:20]]
    # Bytes E2 80 are the start of a three-byte character.
    bad = [[50257], [-1], [40, 50256, 40], [1.5], "text", [[1]], [158]]
    lines_ = [
        *good,
        *({"cluster_id": 1, "tokens": tokens, "token_count": 1} for tokens in bad),
        {"cluster_id": 1},
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/part_0.tokenized.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines_))
    sampled("climbmix-tokens-local", tmp_path / "in", tmp_path / "out", domains=("ClimbMix",))
    content = read_json(tmp_path / "out/sample.json")
    assert content["domains"]["ClimbMix"]["refused"] == {"bad token ids": len(bad), "no text": 1}
    said = "\n".join(content["refused_rows"])
    for reason in (
        "50257 is no id",
        "-1 is no id",
        "an end of text inside",
        "not a list of whole",
        "invalid UTF-8",
    ):
        assert reason in said


def test_bytes_are_spelled_one_to_one():
    spelled = byte_of_character()
    assert (
        sorted(spelled.values()) == list(range(256))
        and spelled["A"] == 65
        and spelled["Ġ"] == 32
        and spelled["Ċ"] == 10
    )


def test_every_text_comes_back_from_the_bytes_it_is_made_of():
    vocabulary = dict(byte_of_character().items()) | {END_OF_TEXT: 256}
    detokenize = Detokenizer(vocabulary)
    for text in ("", "plain", "é — 漢字 🎉\n\t\x00", END_OF_TEXT):
        assert detokenize([256, *text.encode(), 256]) == text
    assert detokenize([]) == detokenize([256]) == ""


def test_another_vocabulary_than_gpt2s_is_refused(tmp_path):
    folder = shared("tokenizer", "gpt2")
    vocabulary = read_json(folder / "encoder.json")
    vocabulary["Ġthe"], vocabulary["Ġof"] = vocabulary["Ġof"], vocabulary["Ġthe"]
    write_json(tmp_path / "encoder.json", vocabulary)
    (tmp_path / "vocab.bpe").write_text((folder / "vocab.bpe").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UserError, match="differ from the published gpt2 tokenizer"):
        gpt2(str(tmp_path))


def test_token_rows_without_a_vocabulary_are_not_read_as_text(tmp_path):
    from respath.data.documents import Refusals, read_file

    (tmp_path / "x.jsonl").write_text('{"tokens": [1]}\n')
    how = {
        "shown": "x.jsonl",
        "domains": ("D",),
        "default_domain": None,
        "refusals": Refusals(),
        "other": Counter(),
    }
    with pytest.raises(UserError, match="holds token ids"):
        list(read_file(tmp_path / "x.jsonl", corpus=CORPORA["climbmix-tokens"], **how))
