"""Reading corpora: every format, every kind of bad row, nothing outside the root."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from respath.data import documents
from respath.data.documents import (
    Refusals,
    lines,
    list_corpus,
    list_folder,
    load_source,
    main,
    read,
    read_file,
    zst_blocks,
)
from respath.data.paths import inside
from respath.data.sample import make_sample
from respath.data.shards import shard_path, texts
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.spec.data import Corpus, Sample

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
    row = f'{{"text": {text}, "meta": {{"redpajama_set_name": "RedPajamaC4"}}}}\n'
    path.write_text(row + json.dumps(GOOD) + "\n")
    found, refusals, _ = read_all(path)
    assert len(found) == 1 and refusals.reasons == {"no text": 1}


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


def broken(path: Path, **how) -> str:
    """The one line that a broken file gives."""
    with pytest.raises(UserError) as error:
        read_all(path, **how)
    assert len(error.value.lines) == 1, error.value.lines
    return error.value.lines[0]


@pytest.mark.parametrize("kind", ["zst", "gz"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_file_is_fatal_and_named_with_the_rows_read_so_far(tmp_path, kind, share):
    data = packed(6000, kind)
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(data[: int(len(data) * share)])
    line = broken(path, refusals=Refusals(limit=10**6, show=lambda line: None))
    said = re.fullmatch(
        rf"{re.escape(str(path))}: .* \(rows read so far: ([\d,]+)\); put a whole copy.*", line
    )
    assert "ends too early" in line and said, line
    rows = int(said[1].replace(",", ""))
    assert rows < 6000 and (share < 0.3 or rows > 6000 * (share - 0.3))


@pytest.mark.parametrize("kind", ["zst", "gz"])
@pytest.mark.parametrize("where", ["middle", "behind"])
def test_stray_bytes_in_or_behind_a_compressed_file_are_fatal(tmp_path, kind, where):
    data = bytearray(packed(3000, kind))
    if where == "middle":
        data[len(data) // 2 :] = b"\xff" * (len(data) // 2)
    else:
        data += b"stray"
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(data)
    assert re.search("damaged|ends too early", broken(path))


@pytest.mark.parametrize("kind", ["", ".zst", ".gz"])
def test_rows_that_end_inside_a_row_are_fatal(tmp_path, kind):
    rows = (json.dumps(GOOD) + "\n").encode() * 3
    pack = {"": bytes, ".zst": zstandard.ZstdCompressor().compress, ".gz": gzip.compress}[kind]
    path = tmp_path / f"rows.jsonl{kind}"
    path.write_bytes(pack(rows[:-9]))
    assert "it ends inside a row (rows read so far: 3)" in broken(path)
    path.write_bytes(pack(rows + b"\0" * 512))
    assert "it ends inside a row" in broken(path), "what a crash leaves of blocks that were never written"


EMPTY = {
    "rows.jsonl": b"",
    "rows.jsonl.zst": zstandard.ZstdCompressor().compress(b""),
    "rows.jsonl.gz": gzip.compress(b""),
    "stub.jsonl": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "page.jsonl": b"<!DOCTYPE html>\n<title>Not found</title>\n",
    "other.jsonl": b'{"id": 1, "label": "x"}\n',
    "text.jsonl.zst": b"plain text",
    "text.jsonl.gz": b"plain text",
    "text.parquet": b"plain text",
    "nothing.parquet": b"",
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_or_foreign_file_is_fatal_and_no_bad_row(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(EMPTY[name])
    line = broken(path)
    assert str(path) in line and "rows read so far: " in line and "put a whole copy" in line
    if name in ("stub.jsonl", "page.jsonl"):
        assert f"the first: {name}:1: malformed JSON" in line


def test_a_parquet_file_without_rows_is_fatal(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet(path, [GOOD])
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).slice(0, 0), path)
    assert "holds no usable row (rows read so far: 0)" in broken(path)


@pytest.mark.parametrize("kind", ["", ".zst", ".gz", ".parquet"])
def test_a_file_that_changed_at_equal_size_since_it_was_listed_is_fatal(tmp_path, kind):
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / (f"rows.jsonl{kind}" if kind != ".parquet" else "rows.parquet")

    def write(text: str) -> None:
        rows = "".join(json.dumps({**GOOD, "text": f"{text} {i}"}) + "\n" for i in range(50)).encode()
        match kind:
            case ".parquet":
                parquet(path, [{**GOOD, "text": text}] * 50)
            case ".zst":
                path.write_bytes(zstandard.ZstdCompressor(level=1).compress(rows))
            case _:
                # Without the time of writing, so that equal rows are equal files.
                path.write_bytes(gzip.compress(rows, mtime=0) if kind else rows)

    write("first")
    write_json(tmp_path / "source.json", list_corpus(CORPUS, folder))
    size = path.stat().st_size
    write("other")
    assert path.stat().st_size == size, "the case under test"
    source = load_source(tmp_path / "source.json")
    with pytest.raises(UserError) as error:
        list(read([source], CORPUS, [DOMAIN], Refusals(), Counter()))
    (line,) = error.value.lines
    assert line.startswith(f"{path}: its SHA-256 is not the one that was listed")
    # The remedy: the old bytes are back, and listed or not, they are read.
    assert line.endswith(
        f"put a whole copy in its place or take it out of {folder}, delete {source.path} and run the same command again"
    )
    write("first")
    assert len(list(read([source], CORPUS, [DOMAIN], Refusals(), Counter()))) == 50


def test_our_own_documents_with_bytes_overwritten_at_equal_size_are_refused_and_fetching_again_mends_them(
    tmp_path,
):
    from respath.data.fetch import fetch_source

    out = tmp_path / "corpus" / "source.json"
    fetch_source("c4-python-topics", "embedded-pip", out)
    docs = out.with_name("docs.jsonl.zst")
    corpus = Corpus(name="embedded-pip", kind="embedded", profile="embedded-pip")

    def documents_in() -> int:
        return len(list(read([load_source(out)], corpus, [DOMAIN], Refusals(), Counter())))

    whole = documents_in()
    data = bytearray(docs.read_bytes())
    # One bit of the frame's header: whether a checksum follows. Every document is still decoded.
    for place, change in ((len(data) // 2, bytes(50)), (len(data) - 60, bytes(50))):
        damaged = data[:place] + change + data[place + 50 :]
        docs.write_bytes(damaged)
        with pytest.raises(UserError) as error:
            documents_in()
        assert str(docs) in error.value.lines[0]
        assert error.value.lines[0].endswith(
            f"delete {out} and run the same command again: it is fetched anew"
        )
    out.unlink()
    fetch_source("c4-python-topics", "embedded-pip", out)
    assert documents_in() == whole


def test_a_list_without_hashes_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    write_json(
        tmp_path / "source.json",
        {"kind": "source", "files": [{"path": "a.jsonl", "bytes": 3, "quick_sha256": "0" * 64}]},
    )
    with pytest.raises(
        UserError, match=r"without its SHA-256; delete .*source\.json and run the same command again"
    ):
        load_source(tmp_path / "source.json")


@pytest.mark.parametrize("kind", ["", ".zst", ".gz"])
def test_a_byte_order_mark_costs_no_row(tmp_path, kind):
    rows = b"\xef\xbb\xbf" + (json.dumps(GOOD) + "\n").encode() * 2
    pack = {"": bytes, ".zst": zstandard.ZstdCompressor().compress, ".gz": gzip.compress}[kind]
    path = tmp_path / f"rows.jsonl{kind}"
    path.write_bytes(pack(rows))
    found, refusals, _ = read_all(path)
    assert [d.where for d in found] == [f"{path.name}:1", f"{path.name}:2"] and not refusals.reasons


ODD_DOMAINS = ['["RedPajamaC4"]', '{"a": 1}', "3", "true", '"' + "R" * 200_000 + '"', '"\\ud800"']


@pytest.mark.parametrize("domain", ODD_DOMAINS, ids=["list", "object", "number", "true", "long", "surrogate"])
def test_a_domain_of_any_kind_is_refused_with_its_row(tmp_path, domain):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "x", "meta": {{"redpajama_set_name": {domain}}}}}\n{json.dumps(GOOD)}\n')
    found, refusals, _ = read_all(path)
    assert len(found) == 1 and refusals.reasons == {"unknown domain": 1}
    assert refusals.lines[0].startswith("rows.jsonl:1: unknown domain") and len(refusals.lines[0]) < 500


def test_json_text_in_meta_that_is_nested_two_thousand_deep_costs_its_row_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    deep = '{"a":' * 2000 + "1" + "}" * 2000
    path.write_text(json.dumps({"text": "x", "meta": deep}) + "\n" + json.dumps(GOOD) + "\n")
    found, refusals, _ = read_all(path)
    assert len(found) == 1 and refusals.reasons == {"unreadable row": 1}
    assert refusals.lines[0].startswith("rows.jsonl:1: unreadable row (RecursionError: ")


ODD_NOTES = {
    "JSON text nested too deeply to be read": json.dumps('{"a":' * 2000 + "1" + "}" * 2000),
    "a lone surrogate": '{"a": "\\ud800"}',
    "numbers that JSON has no word for": '{"a": [NaN, 1e999]}',
    "no object": '"\\ud800"',
}


@pytest.mark.parametrize("odd", ODD_NOTES.values(), ids=ODD_NOTES)
def test_what_stands_beside_a_text_costs_no_text(tmp_path, odd):
    (tmp_path / "in").mkdir()
    rows = [f'{{"text": "text {i}", "meta": {odd}}}' for i in range(9)]
    (tmp_path / "in" / "rows.jsonl").write_text("\n".join(rows) + "\n")
    corpus = Corpus(name="mine", kind="local", train_files=("*.jsonl",), domain_field=None)
    write_json(tmp_path / "source.json", list_corpus(corpus, tmp_path / "in"))
    out = tmp_path / "out" / "sample.json"
    content = make_sample(Sample(corpus=corpus, domains=("Mine",)), [tmp_path / "source.json"], out)
    splits = content["domains"]["Mine"]["splits"]
    assert sum(split["documents"] for split in splits.values()) == 9 and not content["refused"]
    train = list(texts(shard_path(out, content, "Mine", "train", 0)))
    assert train and all(text.startswith("text ") for text in train)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.just(DOMAIN),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "meta", "redpajama_set_name", "a"]), inner, max_size=3)
        | inner.map(json.dumps)
    ),
    max_leaves=12,
)
ROWS = JSON | st.fixed_dictionaries(
    {"text": st.just("some text") | JSON, "meta": st.just(GOOD["meta"]) | JSON}, optional={"a": JSON}
)


@settings(deadline=None, max_examples=100)
@given(st.lists(ROWS, max_size=6), st.sampled_from(["meta.redpajama_set_name", "meta", None]), st.booleans())
def test_no_row_of_json_ends_the_sampling(tmp_path_factory, rows, domain_field, surrogates):
    """Whatever rows hold, every row is a document or a refusal, and the documents are written and read back."""
    folder = tmp_path_factory.mktemp("json")
    lines = [json.dumps(row, ensure_ascii=surrogates) for row in rows]
    good = [
        json.dumps(GOOD),
        json.dumps({**GOOD, "text": "another"}),
        json.dumps({"text": "b", "meta": DOMAIN}),
    ]
    (folder / "rows.jsonl").write_bytes("\n".join([*lines, *good, ""]).encode("utf-8", "surrogatepass"))
    corpus = Corpus(name="mine", kind="local", train_files=("*.jsonl",), domain_field=domain_field)
    write_json(folder / "source.json", list_corpus(corpus, folder))
    sample = Sample(corpus=corpus, domains=(DOMAIN,), validation_share=0.5)
    out = folder / "out" / "sample.json"
    try:
        content = make_sample(sample, [folder / "source.json"], out)
    except UserError as error:  # with `meta` as domain one document is left, too few for two splits
        assert domain_field == "meta" and "has no" in error.lines[0]
        return
    entry = content["domains"][DOMAIN]
    refused = sum(entry["refused"].values()) + sum(content["refused"].values())
    written = [
        text
        for split, part in entry["splits"].items()
        for shard in range(len(part["shards"]))
        for text in texts(shard_path(out, content, DOMAIN, split, shard))
    ]
    others = sum(content["other_domains"].values())
    assert refused + others + len(written) + entry["duplicates"] == len(rows) + len(good)
    assert all(isinstance(text, str) and text.strip() for text in written)


def arrow_types():
    import pyarrow

    names = st.sampled_from(["text", "redpajama_set_name", "a"])
    plain = [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.binary(),
        pyarrow.int8(),
        pyarrow.float64(),
        pyarrow.bool_(),
    ]
    odd = [
        pyarrow.null(),
        pyarrow.timestamp("ns", "UTC"),
        pyarrow.duration("us"),
        pyarrow.date32(),
        pyarrow.decimal128(9, 2),
    ]
    dictionary = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    return st.recursive(
        st.sampled_from([*plain, *odd, dictionary]),
        lambda inner: (
            inner.map(pyarrow.list_)
            | st.lists(st.tuples(names, inner), min_size=1, max_size=3).map(pyarrow.struct)
            | inner.map(lambda value: pyarrow.map_(pyarrow.string(), value))
        ),
        max_leaves=4,
    )


def arrow_values(type_) -> st.SearchStrategy:
    """Python values of an Arrow type; of structs with a name twice, which Python has no value for, nothing."""
    import pyarrow

    match type_:
        case _ if pyarrow.types.is_map(type_):
            return st.lists(st.tuples(st.text(max_size=3), arrow_values(type_.item_type)), max_size=2)
        case _ if pyarrow.types.is_list(type_):
            return st.none() | st.lists(arrow_values(type_.value_type), max_size=3)
        case _ if pyarrow.types.is_struct(type_):
            fields = [type_.field(i) for i in range(type_.num_fields)]
            if len({field.name for field in fields}) < len(fields):
                return st.none()
            return st.none() | st.fixed_dictionaries({f.name: arrow_values(f.type) for f in fields})
        case _ if (
            pyarrow.types.is_dictionary(type_)
            or pyarrow.types.is_large_string(type_)
            or pyarrow.types.is_string(type_)
        ):
            return (
                st.none()
                | st.text(max_size=6)
                | st.sampled_from([DOMAIN, "some text", json.dumps(GOOD["meta"])])
            )
        case _ if pyarrow.types.is_binary(type_):
            return st.none() | st.binary(max_size=6)
        case _ if pyarrow.types.is_boolean(type_):
            return st.none() | st.booleans()
        case _ if pyarrow.types.is_floating(type_):
            return st.none() | st.floats()
        case _ if pyarrow.types.is_decimal(type_):
            return st.none() | st.decimals(-99, 99, places=2)
        case _ if pyarrow.types.is_null(type_):
            return st.none()
    return st.none() | st.integers(-100, 100)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_no_parquet_schema_ends_the_reading_with_anything_but_a_refusal_or_one_line(tmp_path_factory, data):
    import pyarrow
    import pyarrow.parquet

    fields = data.draw(st.lists(st.tuples(st.sampled_from(["text", "meta", "a"]), arrow_types()), max_size=4))
    count = data.draw(st.integers(0, 3))
    columns = [
        pyarrow.array([data.draw(arrow_values(type_)) for _ in range(count)], type_) for _, type_ in fields
    ]
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    schema = pyarrow.schema([pyarrow.field(*field) for field in fields])
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=schema), path)
    except (pyarrow.ArrowException, ValueError):
        assume(False)
    refusals = Refusals(show=lambda line: None)
    try:
        found, _, other = read_all(path, refusals)
    except UserError as error:
        assert len(error.lines) == 1 and str(path) in error.lines[0]
    else:
        assert len(found) + sum(refusals.reasons.values()) + sum(other.values()) == count
        assert all(isinstance(document.text, str) for document in found)


def test_a_parquet_file_with_two_columns_text_is_one_line(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "rows.parquet"
    columns = [pyarrow.array(["x"]), pyarrow.array(["y"]), pyarrow.array([GOOD["meta"]])]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=["text", "text", "meta"]), path)
    assert "2 columns are called 'text' (rows read so far: 0)" in broken(path)


@pytest.mark.parametrize("kind", ["zst", "gz"])
def test_frames_one_after_the_other_are_one_file(tmp_path, kind):
    path = tmp_path / f"rows.jsonl.{kind}"
    path.write_bytes(packed(10, kind) + packed(20, kind))
    assert len(read_all(path)[0]) == 30


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


def test_a_cut_parquet_file_is_fatal(tmp_path):
    path = tmp_path / "train.parquet"
    parquet(path, [GOOD] * 100)
    path.write_bytes(path.read_bytes()[:-20])
    assert "damaged parquet data: " in broken(path)


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
    marked = "its name marks it as held out"
    assert left_out == {"data/test-00000.jsonl": marked, "test/a.jsonl": marked}


def test_what_a_listing_does_not_look_at_is_said(tmp_path, capsys):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for folder in (root / "plain", root / ".hidden", elsewhere):
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text(json.dumps(GOOD) + "\n")
    (root / "linked").symlink_to(elsewhere)
    (root / "round").symlink_to(root)
    (root / os.fsdecode(b"caf\xe9.jsonl")).write_text("x")
    corpus = '{"name":"mine","kind":"local","train_files":["*.jsonl"]}'
    out = tmp_path / "source.json"
    assert main(["--corpus", corpus, "--location", str(root), "--out", str(out)]) == 0
    content = read_json(out)
    assert [file["path"] for file in content["files"]] == ["plain/rows.jsonl"]
    assert set(content["left_out"]) == {"linked", "round", ".hidden", "caf\\xe9.jsonl"}
    said = capsys.readouterr().err
    assert f"left out: linked (a linked folder; name the folder that it leads to, {elsewhere}" in said
    (root / "plain" / "rows.jsonl").unlink()
    assert main(["--corpus", corpus, "--location", str(root), "--out", str(out)]) == 2
    assert "left out: linked, a linked folder" in capsys.readouterr().err


def test_a_folder_that_cannot_be_read_is_said(tmp_path, monkeypatch):
    """Root reads every folder, so the refusal is the operating system's own error, raised where it would be."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "rows.jsonl").write_text("x")
    (tmp_path / "shut").mkdir()
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("shut"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    files, left_out = list_folder(CORPUS, tmp_path)
    assert [file["path"] for file in files] == ["open/rows.jsonl"]
    assert left_out == {"shut": "a folder that cannot be read (Permission denied)"}


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
    with pytest.raises(UserError, match=r"bytes, but .* run the same command again"):
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
