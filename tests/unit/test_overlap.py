"""Overlap of evaluation items with the sample: planted runs are found, each once, and nothing else is."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from respath.data.documents import list_corpus
from respath.data.overlap import DOMAIN_BYTES, main, overlap
from respath.data.runs_of_words import WORDS, runs_of_words
from respath.data.sample import make_sample
from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.spec.data import Corpus, Sample

A, B = "RedPajamaC4", "RedPajamaBook"


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(f"w{rng.randrange(10**6)}" for _ in range(words))


def sample_with(folder: Path, rows: list[tuple[str, str]], **fields) -> Path:
    (folder / "in").mkdir(parents=True)
    lines = [json.dumps({"text": text, "meta": {"redpajama_set_name": domain}}) for domain, text in rows]
    (folder / "in" / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = Corpus(name="mine", kind="local", train_files=("*.jsonl",))
    write_json(folder / "source.json", list_corpus(corpus, folder / "in"))
    out = folder / "sample" / "sample.json"
    make_sample(
        Sample(corpus=corpus, domains=(A, B), validation_share=1e-9, **fields), [folder / "source.json"], out
    )
    return out


def items_with(folder: Path, tasks: dict[str, list[dict]], **others) -> Path:
    folder.mkdir()
    entries = dict(others)
    for task, rows in tasks.items():
        file = folder / f"{task}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        entries[task] = {"status": "done", "file": file.name, "sha256": sha256_file(file), "items": len(rows)}
    write_json(folder / "items.json", {"schema": 1, "kind": "eval_items", "suite": "s", "tasks": entries})
    return folder / "items.json"


@pytest.fixture
def planted(tmp_path):
    rng = random.Random(1)
    questions = [sentence(rng, 20) for _ in range(30)]
    documents = [(domain, sentence(rng, 200)) for domain in (A, B) for _ in range(40)]
    # Item 3 whole in C4 twice; 13 words of item 7 in Book, in other letters and with marks between; 12 words of item 9.
    cut = questions[7].split()[4:17]
    documents += [
        (A, f"before {questions[3]} after"),
        (A, f"once more {questions[3]}"),
        *((B, f"{mark}, " + "; ".join(word.upper() for word in cut) + ".") for mark in "xyz"),
        (B, " ".join(questions[9].split()[:12])),
    ]
    rng.shuffle(documents)
    tasks = {
        "quiz": [{"question": q, "choices": {"text": ["yes", "no"], "label": ["A", "B"]}} for q in questions],
        "short": [{"text": "too few words to tell"}, {"text": sentence(rng, 13)}],
    }
    items = items_with(tmp_path / "items", tasks, gone={"status": "not run", "reason": "needs hub"})
    return sample_with(tmp_path, documents, shards=3), items


def test_planted_overlaps_are_found_and_nothing_else_is(planted):
    content = overlap(*planted)
    assert content["tasks"]["quiz"] == {
        "items": 30,
        "long_enough": 30,
        "hit": 2,
        "domains": {A: 1, B: 1},
        "examples": [3, 7],
    }
    assert content["tasks"]["short"] == {
        "items": 2,
        "long_enough": 1,
        "hit": 0,
        "domains": {},
        "examples": [],
    }
    assert content["skipped"] == {"gone": "needs hub"}
    read = content["domains"]
    # A quarter of so few documents is held out, and not read.
    assert read[A]["documents"] == read[A]["of_documents"] >= 31 and read[A]["hit"] in (1, 2)


def test_the_report_is_the_same_bytes_each_time_and_never_holds_an_items_text(planted, tmp_path):
    sample, items = planted
    outs = [tmp_path / f"{i}.json" for i in range(2)]
    for out in outs:
        assert main(["--sample", str(sample), "--items", str(items), "--out", str(out)]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert b"w" + str(random.Random(1).randrange(10**6)).encode() not in outs[0].read_bytes()


def test_only_the_first_documents_of_the_seeded_order_are_read(planted):
    sample, items = planted
    content = overlap(sample, items, domain_bytes=3000)
    for domain in content["domains"].values():
        assert 3000 <= domain["bytes"] < 3000 + 2000 and domain["documents"] < domain["of_documents"]
    assert content["domain_bytes"] == 3000 < DOMAIN_BYTES


def test_runs_of_words_ignore_case_and_punctuation_and_need_thirteen_words():
    text = "One, two three FOUR five six: seven eight nine ten eleven twelve thirteen"
    plain = text.lower().replace(",", "").replace(":", " ")
    assert len(runs_of_words(text)) == 1 and runs_of_words(text).tolist() == runs_of_words(plain).tolist()
    assert len(runs_of_words(" ".join(text.split()[:12]))) == 0
    swapped = " ".join([*text.split()[1:], "one"])
    assert runs_of_words(swapped).tolist() != runs_of_words(text).tolist()
    assert len(runs_of_words(" ".join(["same"] * 40))) == 40 - WORDS + 1


def test_items_that_changed_or_lie_elsewhere_are_refused(planted, capsys):
    sample, items = planted
    content = read_json(items)
    content["tasks"]["quiz"]["sha256"] = "0" * 64
    write_json(items, content)
    with pytest.raises(UserError, match="run the same command again"):
        overlap(sample, items)
    content["tasks"]["quiz"]["file"] = "../../secret.jsonl"
    write_json(items, content)
    with pytest.raises(UserError, match="not a path below"):
        overlap(sample, items)
    write_json(items, {"kind": "else"})
    assert main(["--sample", str(sample), "--items", str(items), "--out", "x.json"]) == 2
    assert "not a list of evaluation items" in capsys.readouterr().err
