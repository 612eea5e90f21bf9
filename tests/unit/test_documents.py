"""Reading corpora: every format, every kind of bad row, nothing outside the root."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from respath.config.run import Corpus
from respath.data import documents
from respath.data.documents import (
    Refusals,
    lines,
    list_folder,
    load_source,
    main,
    read,
    read_file,
    zst_blocks,
)
from respath.data.paths import inside
from respath.errors import UserError
from respath.files import write_json

DOMAIN = "RedPajamaC4"
CORPUS = Corpus(name="mine", kind="local", train_files=("*",))
GOOD = {"text": "a good row", "meta": {"redpajama_set_name": DOMAIN}}


def shared_corpus() -> Path:
    root = Path(__file__).parents[2]
    folder = Path(os.environ.get("RESPATH_SHARED", root.parent / "shared")) / "data" / "corpus"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder (RESPATH_SHARED)")
    return folder


def read_all(
    path: Path, refusals: Refusals | None = None, corpus: Corpus = CORPUS, domains=(DOMAIN,), default=None
):
    refusals = refusals or Refusals(show=lambda line: None)
    other = Counter()
    found = list(
        read_file(
            path,
            shown=path.name,
            corpus=corpus,
            domains=domains,
            default_domain=default,
            refusals=refusals,
            other=other,
        )
    )
    return found, refusals, other


BAD_ROWS = {
    "malformed JSON": b'{"text": "cut',
    "invalid UTF-8": b'{"text": "\xff\xfe", "meta": {"redpajama_set_name": "RedPajamaC4"}}',
    "not a JSON object": b"[1, 2]",
    "no text": b'{"meta": {"redpajama_set_name": "RedPajamaC4"}}',
    "empty text": b'{"text": "  \\n ", "meta": {"redpajama_set_name": "RedPajamaC4"}}',
    "no domain": b'{"text": "x"}',
    "unknown domain": b'{"text": "x", "meta": {"redpajama_set_name": "RedPyjama"}}',
    "invalid Unicode": b'{"text": "\\ud800", "meta": {"redpajama_set_name": "RedPajamaC4"}}',
    "empty line": b"",
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_a_bad_row_is_reported_with_file_line_and_reason_and_the_others_are_kept(tmp_path, reason):
    good = json.dumps(GOOD).encode()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([good, BAD_ROWS[reason], good, b""]))
    found, refusals, _ = read_all(path)
    assert [d.where for d in found] == ["rows.jsonl:1", "rows.jsonl:3"]
    assert refusals.reasons == {reason: 1}
    assert refusals.lines[0].startswith(f"rows.jsonl:2: {reason}")


@pytest.mark.parametrize("text", ["12", '["a"]', "null", "true"])
def test_a_text_that_is_no_string_is_refused(tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": {text}, "meta": {{"redpajama_set_name": "RedPajamaC4"}}}}\n')
    found, refusals, _ = read_all(path)
    assert not found and refusals.reasons == {"no text": 1}


def test_a_deeply_nested_row_is_refused_instead_of_ending_the_run(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("[" * 200_000 + "\n" + json.dumps(GOOD) + "\n")
    found, refusals, _ = read_all(path)
    assert len(found) == 1 and refusals.reasons == {"malformed JSON": 1}


def test_a_last_line_without_line_end_counts_as_a_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD))
    assert len(read_all(path)[0]) == 2


def test_meta_as_json_text_is_read_like_an_object(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "x", "meta": json.dumps(GOOD["meta"])}) + "\n")
    assert read_all(path)[0][0].meta == GOOD["meta"]


def test_rows_of_a_known_domain_that_is_not_wanted_are_counted_apart(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "x", "meta": {"redpajama_set_name": "RedPajamaBook"}}) + "\n")
    found, refusals, other = read_all(path)
    assert not found and not refusals.reasons and other == {"RedPajamaBook": 1}


def packed(count: int, kind: str) -> bytes:
    rows = b"".join(
        json.dumps({**GOOD, "text": f"{i} {os.urandom(40).hex()}"}).encode() + b"\n" for i in range(count)
    )
    return zstandard.ZstdCompressor().compress(rows) if kind == "zst" else gzip.compress(rows)


@pytest.mark.parametrize("kind", ["zst", "gz"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_file_keeps_the_documents_before_the_break_and_counts_one_refusal(tmp_path, kind, share):
    data = packed(6000, kind)
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(data[: int(len(data) * share)])
    found, refusals, _ = read_all(path)
    assert [d.text.split()[0] for d in found] == [str(i) for i in range(len(found))]
    assert len(found) < 6000 and (share < 0.3 or len(found) > 6000 * (share - 0.3))
    assert refusals.reasons == {"truncated or damaged file": 1}


@pytest.mark.parametrize("kind", ["zst", "gz"])
def test_a_damaged_compressed_file_counts_one_refusal(tmp_path, kind):
    data = bytearray(packed(3000, kind))
    data[len(data) // 2 :] = b"\xff" * (len(data) // 2)
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(data)
    found, refusals, _ = read_all(path, Refusals(limit=10_000, show=lambda line: None))
    assert 0 < len(found) < 3000
    assert refusals.reasons["truncated or damaged file"] == 1


@pytest.mark.parametrize("kind", ["zst", "gz"])
def test_frames_one_after_the_other_are_one_file(tmp_path, kind):
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(packed(10, kind) + packed(20, kind))
    assert len(read_all(path)[0]) == 30


def test_what_is_no_zstd_at_all_is_one_refusal(tmp_path):
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(b"plain text")
    assert read_all(path)[1].reasons == {"truncated or damaged file": 1}


def test_too_many_refused_rows_are_fatal_and_the_message_lists_the_first_ones(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("oops\n" * 200)
    with pytest.raises(UserError) as error:
        read_all(path)
    assert "101 rows refused" in error.value.lines[0] and "--max-refused" in error.value.lines[0]
    assert error.value.lines[1].startswith("rows.jsonl:1: malformed JSON")


def test_one_percent_of_a_long_file_may_be_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = json.dumps(GOOD) + "\n"
    path.write_text((good * 199 + "oops\n") * 110)
    found, refusals, _ = read_all(path)
    assert len(found) == 199 * 110 and refusals.reasons == {"malformed JSON": 110}


def test_a_row_longer_than_the_limit_is_refused_and_reading_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_ROW_BYTES", 1 << 16)
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**GOOD, "text": "x" * (3 << 20)}) + "\n" + json.dumps(GOOD) + "\n")
    found, refusals, _ = read_all(path)
    assert [d.where for d in found] == ["rows.jsonl:2"]
    assert "row longer" in refusals.lines[0] and refusals.lines[0].startswith("rows.jsonl:1:")


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\xff", b"\n")), max_size=20))
def test_lines_do_not_depend_on_how_the_bytes_arrive(blocks):
    whole = b"".join(blocks)
    expected = whole.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert [line for _, line in lines(blocks)] == expected


def parquet(path: Path, rows: list[dict]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("meta", [GOOD["meta"], json.dumps(GOOD["meta"])], ids=["struct", "JSON text"])
def test_parquet_is_read_with_meta_as_a_struct_or_as_text(tmp_path, meta):
    path = tmp_path / "train.parquet"
    parquet(
        path,
        [
            {"text": "first", "meta": meta, "n": 1},
            {"text": None, "meta": meta, "n": 2},
            {"text": "é", "meta": meta, "n": 3},
        ],
    )
    found, refusals, _ = read_all(path)
    assert [(d.text, d.where) for d in found] == [("first", "train.parquet:1"), ("é", "train.parquet:3")]
    assert refusals.lines == ["train.parquet:2: no text (text is missing)"]


def test_a_parquet_file_without_the_text_column_names_the_columns(tmp_path):
    path = tmp_path / "train.parquet"
    parquet(path, [{"texts": "first", "meta": GOOD["meta"]}])
    with pytest.raises(UserError, match=r"no column 'text' \(did you mean 'texts'\?\); set text_field"):
        read_all(path)


def test_a_cut_parquet_file_is_one_refusal(tmp_path):
    path = tmp_path / "train.parquet"
    parquet(path, [GOOD] * 100)
    path.write_bytes(path.read_bytes()[:-20])
    assert read_all(path)[1].reasons == {"truncated or damaged file": 1}


def test_a_corpus_without_a_domain_column_gives_its_rows_to_the_one_domain(tmp_path):
    corpus = Corpus(name="edu", kind="local", train_files=("*",), text_field="content", domain_field=None)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"content": "x", "score": 3}\n')
    document = read_all(path, corpus=corpus, domains=("FineWebEdu",))[0][0]
    assert (document.domain, document.meta) == ("FineWebEdu", {"score": 3})
    with pytest.raises(UserError, match="domain_field names no column"):
        read_all(path, corpus=corpus, domains=("A", "B"))


# --- paths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname", "a/../../secret", "", "a\\..\\b"])
def test_a_listed_path_that_leaves_the_root_is_refused(tmp_path, path):
    (tmp_path / "root").mkdir()
    with pytest.raises(UserError):
        inside(tmp_path / "root", path)
    write_json(tmp_path / "root" / "source.json", {"kind": "source", "files": [{"path": path, "bytes": 1}]})
    with pytest.raises(UserError):
        load_source(tmp_path / "root" / "source.json")


def test_a_link_that_leaves_the_root_is_refused_but_a_hub_cache_is_followed(tmp_path):
    secret = tmp_path / "secret.jsonl"
    secret.write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.jsonl").symlink_to(secret)
    with pytest.raises(UserError, match="a link that leaves"):
        list_folder(CORPUS, root)
    snapshot, blobs = tmp_path / "datasets--x" / "snapshots" / "abc", tmp_path / "datasets--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "1").write_text("x")
    (snapshot / "rows.jsonl").symlink_to("../../blobs/1")
    assert list_folder(CORPUS, snapshot)[0][0]["path"] == "rows.jsonl"


def test_a_pattern_that_leaves_the_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="leaves the folder"):
        list_folder(Corpus(name="mine", kind="local", train_files=("../*.jsonl",)), tmp_path)


def test_a_pattern_without_a_match_names_the_files_that_are_there(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no train file .* matches \*\.parquet; files there: a\.jsonl"):
        list_folder(Corpus(name="mine", kind="local", train_files=("*.parquet",)), tmp_path)


def test_validation_and_test_files_are_never_training_files(tmp_path):
    for name in ("train/a.jsonl", "validation/a.jsonl", "test/a.jsonl", "data/test-00000.jsonl", "b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    corpus = Corpus(
        name="mine", kind="local", train_files=("**/*.jsonl",), validation_files=("validation/*",)
    )
    chosen, left_out = list_folder(corpus, tmp_path)
    assert {f["path"]: f["split"] for f in chosen} == {
        "train/a.jsonl": "train",
        "b.jsonl": "train",
        "validation/a.jsonl": "validation",
    }
    assert left_out == ["data/test-00000.jsonl", "test/a.jsonl"]


def test_a_listed_file_that_changed_its_size_is_fatal(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps(GOOD) + "\n")
    out = tmp_path / "source.json"
    corpus = '{"name":"mine","kind":"local","train_files":["*.jsonl"]}'
    assert main(["--corpus", corpus, "--location", str(folder), "--out", str(out)]) == 0
    first = out.read_bytes()
    assert main(["--corpus", corpus, "--location", str(folder), "--out", str(out)]) == 0
    assert out.read_bytes() == first
    source = load_source(out)
    assert [d.text for d in read([source], CORPUS, [DOMAIN], Refusals(), Counter())] == ["a good row"]
    (folder / "a.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"bytes, but .* fetch again"):
        load_source(out)


def test_a_local_corpus_without_a_location_says_where_to_set_it(tmp_path, capsys):
    corpus = '{"name":"mine","kind":"local","train_files":["*.jsonl"]}'
    assert main(["--corpus", corpus, "--location", "", "--out", str(tmp_path / "s.json")]) == 2
    assert "locations: {mine: FOLDER}" in capsys.readouterr().err


# --- real rows -----------------------------------------------------------------------------------------------------


def test_the_shared_corpus_is_read_without_a_refusal():
    folder = shared_corpus() / "RedPajamaC4"
    for path in sorted(folder.glob("*.zst")):
        found, refusals, _ = read_all(path)
        assert found and not refusals.reasons


def test_bytes_of_a_real_file_arrive_whole():
    path = shared_corpus() / "RedPajamaC4" / "debian-policy.jsonl.zst"
    with path.open("rb") as stream:
        ours = b"".join(zst_blocks(stream))
    with path.open("rb") as stream:
        theirs = zstandard.ZstdDecompressor().stream_reader(stream).read()
    assert ours == theirs
