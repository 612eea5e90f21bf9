"""The held-out split: no copy of a validation text is trained on, and no near-duplicate of training text is validated on."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from respath.data import sample as module
from respath.data.documents import list_corpus
from respath.data.runs_of_words import folded
from respath.data.sample import document_bytes, document_id, excerpt, main, make_sample, split_value
from respath.files import canonical_json, read_json, write_json
from respath.spec.data import Corpus, Sample
from tests.unit.test_sample import A, B, corpus_of, sampled

#: Real prose in documents of some hundred words; a few share paragraphs.
PROSE = [
    text
    for name in sorted(topics)
    for start in range(0, len(topics[name]), 1500)
    if len(text := topics[name][start : start + 1500].strip()) > 600
]
SHARE = 0.2


def held_out(texts: list[str]) -> list[str]:
    return [text for text in texts if split_value(document_id(text)) < SHARE]


#: What happens to a text on its way through crawls and editors.
COPIES = {
    "trailing blanks": lambda text: "\n".join(line + "  " for line in text.split("\n")),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "doubled blanks": lambda text: text.replace(" ", "  "),
    "a blank before": lambda text: f"\n {text}",
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "one line": lambda text: " ".join(text.split()),
    "accents apart": lambda text: unicodedata.normalize("NFD", text),
}
#: Copies inside other texts: (text, another text) -> the text that is trained on.
CONTAINED = {
    "inside a longer text": lambda text, other: f"{other}\n\n{text}\n\n{other[::-1]}",
    "in capitals": lambda text, other: f"{text.upper()} {other[:50]}",
    "without punctuation": lambda text, other: "".join(
        c if c.isalnum() or c in "_ \n" else " " for c in text
    ),
    "its first third": lambda text, other: f"{other[:400]} {text[: len(text) // 3]}",
}


def split_of(folder: Path, rows: list[tuple[str, str]], **fields) -> tuple[dict, dict[str, list[str]]]:
    corpus, source = corpus_of(folder / "in", {"train.jsonl": random.Random(0).sample(rows, len(rows))})
    out = folder / "out" / "sample.json"
    sample = Sample(
        corpus=corpus, domains=tuple(sorted({d for d, _ in rows})), validation_share=SHARE, **fields
    )
    content = make_sample(sample, [source], out)
    found = sampled(out)
    return content, {
        split: [text for (_, s), texts in found.items() if s == split for text in texts]
        for split in ("train", "validation")
    }


@pytest.mark.parametrize("kind", COPIES)
def test_copies_that_differ_in_white_space_are_one_document_on_one_side(tmp_path, kind):
    texts = [f"é{text}" for text in PROSE[:150]]
    copies = [COPIES[kind](text) for text in texts]
    assert all(copy != text for copy, text in zip(copies, texts, strict=True))
    content, found = split_of(tmp_path, [(A, text) for text in [*texts, *copies]])
    assert content["domains"][A]["duplicates"] == 150
    train, validation = ({folded(text) for text in found[split]} for split in ("train", "validation"))
    assert len(train) + len(validation) + content["domains"][A]["near_duplicates"] == 150
    assert validation and not train & validation


@pytest.mark.parametrize("kind", CONTAINED)
@pytest.mark.parametrize("domain", [A, B], ids=["same domain", "another domain"])
def test_a_held_out_document_that_training_text_contains_is_dropped(tmp_path, kind, domain):
    """Some of the planted texts are held out themselves, so it is the trained ones whose originals must go."""
    texts, others = PROSE[:150], PROSE[150:300]
    planted = [
        (text, CONTAINED[kind](text, other)) for text, other in zip(held_out(texts), others, strict=False)
    ][:8]
    rows = [(A, text) for text in texts] + [(B, text) for text in PROSE[300:400]]
    before, unplanted = split_of(tmp_path / "before", rows)
    content, found = split_of(tmp_path / "after", rows + [(domain, copy) for _, copy in planted])
    trained = [text for text, copy in planted if copy in found["train"]]
    assert len(set(trained) & set(unplanted["validation"])) >= 3
    assert not set(trained) & set(found["validation"])
    assert content["domains"][A]["near_duplicates"] > before["domains"][A]["near_duplicates"]
    shared = content["domains"][A]["shared_runs"]
    assert (
        shared["held_out"][0] / shared["held_out"][1]
        > 0.1
        > shared["validation"][0] / shared["validation"][1]
    )


def test_a_held_out_document_that_quotes_training_text_at_length_is_dropped_and_a_short_quotation_stays(
    tmp_path,
):
    trained = [text for text in PROSE[:100] if text not in held_out(PROSE[:100])]
    rng = random.Random(1)

    def quoting(own: str, quotation: str) -> str:
        """With a mark that puts the document among the held out."""
        while True:
            text = f"{own}\n\n{quotation}\n\n{rng.random()}"
            if split_value(document_id(text)) < SHARE:
                return text

    long = quoting(PROSE[200], trained[0][:700])
    short = quoting(PROSE[201], " ".join(trained[1].split()[:20]))
    _, found = split_of(tmp_path, [(A, text) for text in [*trained, long, short, *PROSE[210:240]]])
    assert long not in found["validation"] and long not in found["train"]
    assert short in found["validation"]


def test_a_corpus_with_validation_files_of_its_own_is_treated_alike(tmp_path):
    texts = PROSE[:80]
    rows = {
        "train.jsonl": [(A, text) for text in texts] + [(A, f"{PROSE[100]}\n\n{PROSE[90]}")],
        "validation/v.jsonl": [(A, COPIES["CRLF"](texts[0])), (A, PROSE[90]), (A, PROSE[91])],
    }
    corpus, source = corpus_of(tmp_path, rows, validation_files=("validation/*",))
    out = tmp_path / "out" / "sample.json"
    content = make_sample(Sample(corpus=corpus, domains=(A,)), [source], out)
    found = sampled(out)
    assert texts[0] not in found[A, "train"], "a held-out text is not trained on"
    assert set(found[A, "validation"]) == {COPIES["CRLF"](texts[0]), PROSE[91]}
    assert content["domains"][A]["near_duplicates"] == 1 and content["domains"][A]["held_out"] == 3


def test_every_document_is_accounted_for(tmp_path):
    rows = [(A, text) for text in [*PROSE[:200], *PROSE[:30]]]
    rows += [(A, f"{PROSE[i]} {PROSE[200 + i]}") for i in range(30, 60)]
    content, found = split_of(tmp_path, rows, train_bytes={A: 100_000}, validation_bytes=30_000)
    entry = content["domains"][A]
    assert entry["near_duplicates"] > 0 and entry["beyond_budget"] > 0 and entry["duplicates"] > 0
    out = sum(map(len, found.values()))
    assert entry["documents_in"] == 260
    assert out + entry["duplicates"] + entry["beyond_budget"] + entry["near_duplicates"] == 260
    assert entry["held_out"] == len(found["validation"]) + entry["near_duplicates"]


def test_which_of_several_copies_stays_does_not_depend_on_files_parts_or_their_order(tmp_path):
    texts = PROSE[:60]
    rows = [(A, change(text)) for text in texts for change in (str, *COPIES.values())]
    results = []
    for number, (files, parts) in enumerate([(1, 1), (3, 1), (3, 3)]):
        mixed = random.Random(number).sample(rows, len(rows))
        folder = tmp_path / str(number)
        corpus, source = corpus_of(folder, {f"train{k}.jsonl": mixed[k::files] for k in range(files)})
        out = folder / "out" / "sample.json"
        make_sample(Sample(corpus=corpus, domains=(A,), validation_share=SHARE), [source], out, parts=parts)
        results.append(sampled(out))
    assert results[0] == results[1] == results[2]


# --- how many, and how long ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("documents", [2, 3, 20, 32, 70, 200])
def test_a_domain_holds_out_at_least_eight_documents_where_it_has_four_times_as_many(tmp_path, documents):
    content, found = split_of(tmp_path, [(A, text) for text in PROSE[:documents]])
    wanted = min(16, max(1, documents // 4))
    assert content["domains"][A]["held_out"] >= wanted >= min(8, documents // 4)
    assert len(found["train"]) >= documents // 2


def test_a_share_of_one_percent_still_holds_out_sixteen_and_the_same_for_every_seed(tmp_path):
    texts = PROSE[:150]
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, text) for text in texts]})
    found = []
    for seed in (1, 2):
        out = tmp_path / f"out{seed}" / "sample.json"
        make_sample(Sample(corpus=corpus, domains=(A,), validation_share=0.01, seed=seed), [source], out)
        found.append(set(sampled(out)[A, "validation"]))
    assert found[0] == found[1]
    lowest = sorted(texts, key=lambda text: split_value(document_id(text)))[:16]
    assert found[0] <= set(lowest) and len(found[0]) >= 8


def test_long_documents_give_a_part_each_so_that_many_fit_into_the_budget(tmp_path):
    long = ["\n\n".join(PROSE[i : i + 4]) for i in range(0, 240, 4)]
    budget = 32_000
    content, found = split_of(tmp_path, [(A, text) for text in long], validation_bytes=budget)
    sample = Sample(
        corpus=Corpus(name="x", kind="local", train_files=("*",)), domains=(A,), validation_bytes=budget
    )
    assert document_bytes(sample) == 1000
    assert content["domains"][A]["excerpts"] == content["domains"][A]["held_out"] >= 12
    for text in found["validation"]:
        assert len(text.encode()) <= 1000 and any(text in whole for whole in long)
    assert sum(len(text.encode()) for text in found["validation"]) <= budget


@pytest.mark.parametrize("limit", [300, 1000, 5000])
def test_an_excerpt_is_a_stretch_that_begins_and_ends_at_a_boundary_where_there_is_one(limit):
    lines = "\n\n".join(PROSE[:20])
    for text in (lines, lines.replace("e", "é"), lines.replace("\n", " "), "x" * 20_000, "é" * 20_000):
        found = excerpt(text, limit)
        assert found == excerpt(text, limit) and found in text
        assert limit // 3 < len(found.encode()) <= limit
    found = excerpt(lines, limit)
    start = lines.index(found)
    assert lines[start - 1] in "\n " and lines[start + len(found)] in "\n "
    assert excerpt(lines, 10**6) == lines


# --- bad input -----------------------------------------------------------------------------------------------------


def test_domains_whose_held_out_documents_all_stand_in_training_text_are_named_with_file_key_and_remedy(
    tmp_path, capsys
):
    rows = {
        "train.jsonl": [(d, f"{PROSE[i]} {PROSE[50 + i]}") for d in (A, B) for i in range(10)],
        "validation/v.jsonl": [(d, PROSE[i]) for d in (A, B) for i in range(5)],
    }
    corpus, source = corpus_of(tmp_path, rows, validation_files=("validation/*",))
    out = tmp_path / "out" / "sample.json"
    spec = canonical_json(
        {"corpus": corpus.model_dump(mode="json", exclude_defaults=True), "domains": [A, B]}
    )
    assert main(["--spec", spec, "--sources", str(source), "--out", str(out)]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(lines) == 2 and not out.exists()
    for line, domain in zip(lines, (A, B), strict=True):
        assert line.startswith(
            f"error: {out}: domains.{domain}: each of its 5 held-out documents shares 5% or more"
        )
        assert line.endswith(
            "name validation_files that are no copies of train_files, or add text of this domain to the folder"
        )
    # The remedy, followed.
    with (tmp_path / "validation" / "v.jsonl").open("a") as stream:
        for domain in (A, B):
            stream.write(json.dumps({"text": PROSE[200], "meta": {"redpajama_set_name": domain}}) + "\n")
    write_json(source, list_corpus(corpus, tmp_path))
    assert main(["--spec", spec, "--sources", str(source), "--out", str(out)]) == 0
    assert read_json(out)["domains"][A]["splits"]["validation"]["documents"] == 1


def test_what_is_remembered_of_the_held_out_documents_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RUNS_REMEMBERED", 2000)
    monkeypatch.setattr(module, "LEAST_RUNS", 20)
    kept = []

    class Watched(module.Found):
        def __init__(self, texts, most):
            super().__init__(texts, most)
            kept.append(self.kept)

    monkeypatch.setattr(module, "Found", Watched)
    rows = [
        (A, text)
        for text in [*PROSE[:200], *(f"{t} {o}" for t, o in zip(PROSE[:200], PROSE[200:], strict=False))]
    ]
    content, found = split_of(tmp_path, rows)
    assert sum(kept[0]) <= 2000 and len(kept[0]) == content["domains"][A]["held_out"]
    inside = [t for t in held_out(PROSE[:200]) if any(t in trained for trained in found["train"])]
    assert len(inside) > 10 and not set(inside) & set(found["validation"])
