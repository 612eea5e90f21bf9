"""Sampling: the order depends on seed and text alone, nothing held out is trained on, every document is accounted for."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from respath.data import documents
from respath.data import sample as module
from respath.data.documents import list_corpus
from respath.data.sample import document_id, main, make_sample, shuffle_key, split_value
from respath.data.shards import shard_path, texts
from respath.errors import UserError
from respath.files import canonical_json, read_json, write_json
from respath.spec.data import Corpus, Sample

A, B = "RedPajamaC4", "RedPajamaBook"


def corpus_of(folder: Path, rows: dict[str, list[tuple[str, str]]], **fields) -> tuple[Corpus, Path]:
    """Write {file: [(domain, text)]} below ``folder`` and list it."""
    for name, pairs in rows.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"text": text, "meta": {"redpajama_set_name": domain}}) for domain, text in pairs]
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    corpus = Corpus(name="mine", kind="local", **{"train_files": ("train*.jsonl",), **fields})
    source = folder / "source.json"
    write_json(source, list_corpus(corpus, folder))
    return corpus, source


def sampled(out: Path) -> dict[tuple[str, str], list[str]]:
    """{(domain, split): texts in order, shard after shard}."""
    content = read_json(out)
    found = {}
    for domain, entry in content["domains"].items():
        for split, part in entry["splits"].items():
            shards = range(len(part["shards"]))
            found[domain, split] = [
                t for k in shards for t in texts(shard_path(out, content, domain, split, k))
            ]
    return found


def words(n: int, seed: int = 0, size: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [f"{i} " + "x" * rng.randrange(size) for i in range(n)]


def test_the_order_depends_on_seed_and_text_not_on_files_or_their_order(tmp_path):
    rows = [(domain, text) for domain in (A, B) for text in words(120)]
    one = {"train.jsonl": rows}
    mixed = random.Random(3).sample(rows, len(rows))
    three = {f"train{k}.jsonl": mixed[k::3] for k in range(3)}
    results = []
    for i, files in enumerate((one, three)):
        corpus, source = corpus_of(tmp_path / str(i), files)
        out = tmp_path / f"out{i}" / "sample.json"
        make_sample(Sample(corpus=corpus, domains=(A, B), validation_share=0.1), [source], out)
        results.append(sampled(out))
    assert results[0] == results[1]
    assert results[0][A, "train"] != sorted(results[0][A, "train"])
    corpus, source = corpus_of(tmp_path / "0", one)
    make_sample(
        Sample(corpus=corpus, domains=(A, B), validation_share=0.1, seed=2),
        [source],
        tmp_path / "s2" / "sample.json",
    )
    other = sampled(tmp_path / "s2" / "sample.json")
    assert other[A, "train"] != results[0][A, "train"]
    # A held-out document stays held out whatever the seed.
    assert {k: sorted(v) for k, v in other.items()} == {k: sorted(v) for k, v in results[0].items()}


def test_every_document_is_out_refused_a_duplicate_or_beyond_the_budget(tmp_path):
    rows = [(A, text) for text in [*words(300), *words(40)]] + [(A, " "), ("Nowhere", "x"), (A, "")]
    corpus, source = corpus_of(tmp_path / "in", {"train.jsonl": rows})
    sample = Sample(corpus=corpus, domains=(A,), train_bytes={A: 3000}, validation_bytes=300, shards=3)
    content = make_sample(sample, [source], tmp_path / "out" / "sample.json")
    entry = content["domains"][A]
    out = sum(split["documents"] for split in entry["splits"].values())
    assert entry["refused"] == {"empty text": 2} and content["refused"] == {"unknown domain": 1}
    assert entry["documents_in"] == 342 == out + 2 + entry["duplicates"] + entry["beyond_budget"]
    assert entry["beyond_budget"] > 0 and 0 < entry["duplicates"] <= 40
    assert len(content["refused_rows"]) == 3
    shards = entry["splits"]["train"]["shards"]
    assert max(s["documents"] for s in shards) - min(s["documents"] for s in shards) <= 1
    found = sampled(tmp_path / "out" / "sample.json")
    assert len(set(found[A, "train"])) == len(found[A, "train"])
    assert not set(found[A, "train"]) & set(found[A, "validation"])


def expected(rows: list[str], sample: Sample, split: str, budget: int | None) -> list[str]:
    """The sample by its definition, in memory."""
    unique = sorted(set(rows), key=lambda t: shuffle_key(document_id(t), sample.seed))
    held = [
        t
        for t in unique
        if (split_value(document_id(t)) < sample.validation_share) == (split == "validation")
    ]
    taken, size = [], 0
    for text in held:
        if budget is not None and size >= budget:
            break
        taken.append(text)
        size += len(text.encode())
    return taken


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    budget=st.one_of(st.none(), st.integers(1, 12_000)),
    copies=st.integers(1, 12),
    run=st.sampled_from([3_000, 1 << 20]),
    frame=st.sampled_from([1, 700, 1 << 20]),
    parts=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_runs_parts_budget_and_duplicates_give_what_sorting_everything_would_give(
    tmp_path_factory, monkeypatch, budget, copies, run, frame, parts, seed
):
    tmp_path = tmp_path_factory.mktemp("sample")
    rows = [f"é{text}" for text in words(250, seed)]
    copied = [*rows, *(rows[:40] * (copies - 1))]
    files = {f"train{k}.jsonl": [(A, text) for text in copied[k::3]] for k in range(3)}
    corpus, source = corpus_of(tmp_path, files)
    sample = Sample(
        corpus=corpus,
        domains=(A,),
        seed=seed,
        train_bytes={A: budget} if budget else {},
        validation_share=0.2,
    )
    monkeypatch.setattr(module, "RUN_BYTES", run)
    monkeypatch.setattr(module, "FRAME_BYTES", frame)
    out = tmp_path / "out" / "sample.json"
    make_sample(sample, [source], out, parts=parts)
    found = sampled(out)
    assert found[A, "train"] == expected(rows, sample, "train", budget)
    assert found[A, "validation"] == expected(rows, sample, "validation", None)
    assert not list(out.parent.glob("scan/*/*"))


def test_many_copies_in_front_of_the_budget_do_not_leave_the_sample_short(tmp_path):
    rows = words(400)
    first = sorted(rows, key=lambda t: shuffle_key(document_id(t), 1))[:20]
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, t) for t in [*(first * 60), *rows]]})
    sample = Sample(corpus=corpus, domains=(A,), train_bytes={A: 4000}, validation_share=0.05)
    make_sample(sample, [source], tmp_path / "out" / "sample.json")
    assert sampled(tmp_path / "out" / "sample.json")[A, "train"] == expected(rows, sample, "train", 4000)


def test_validation_files_are_held_out_and_never_trained_on_even_as_copies(tmp_path):
    rows = words(60)
    corpus, source = corpus_of(
        tmp_path,
        {
            "train.jsonl": [(A, t) for t in rows],
            "validation/v.jsonl": [(A, t) for t in [*rows[:7], "only here"]],
        },
        validation_files=("validation/*",),
    )
    content = make_sample(Sample(corpus=corpus, domains=(A,)), [source], tmp_path / "out" / "sample.json")
    found = sampled(tmp_path / "out" / "sample.json")
    assert set(found[A, "validation"]) == {*rows[:7], "only here"}
    assert set(found[A, "train"]) == set(rows[7:])
    assert content["own_validation"] and content["domains"][A]["duplicates"] == 7


def test_a_domain_of_two_documents_has_one_on_each_side(tmp_path):
    for i in range(6):
        rows = [(A, f"first {i}"), (A, f"second {i}")]
        corpus, source = corpus_of(tmp_path / str(i), {"train.jsonl": rows})
        make_sample(Sample(corpus=corpus, domains=(A,)), [source], tmp_path / str(i) / "out" / "sample.json")
        found = sampled(tmp_path / str(i) / "out" / "sample.json")
        assert (len(found[A, "train"]), len(found[A, "validation"])) == (1, 1)


def test_an_empty_domain_names_domain_corpus_and_remedy(tmp_path):
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [("RedPajamaGithub", "x"), ("Odd", "y")]})
    with pytest.raises(UserError) as error:
        make_sample(Sample(corpus=corpus, domains=(A,)), [source], tmp_path / "out" / "sample.json")
    line = error.value.lines[0]
    for part in (A, "corpus mine", "local corpus", "RedPajamaGithub", "unknown domain", "check train_files"):
        assert part in line
    assert not (tmp_path / "out" / "sample.json").exists()
    embedded = Corpus(name="embedded-pip", kind="embedded", profile="embedded-pip")
    with pytest.raises(
        UserError, match=r"RedPajamaC4 has no document .*profile embedded-pip.*embedded-debian"
    ):
        make_sample(Sample(corpus=embedded, domains=(A,)), [source], tmp_path / "out2" / "sample.json")


def test_a_rerun_does_nothing_and_a_fresh_run_gives_the_same_bytes(tmp_path, capsys):
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, t) for t in words(50)]})
    spec = canonical_json(
        {"corpus": corpus.model_dump(mode="json", exclude_defaults=True), "domains": [A], "shards": 2}
    )
    outs = [tmp_path / name / "sample.json" for name in ("a", "b")]
    for out in outs:
        assert main(["--spec", spec, "--sources", str(source), "--out", str(out)]) == 0
    files = sorted(p.relative_to(outs[0].parent) for p in outs[0].parent.rglob("*") if p.is_file())
    assert len(files) == 4
    for file in files:
        assert (outs[0].parent / file).read_bytes() == (outs[1].parent / file).read_bytes()
    before = outs[0].stat().st_mtime_ns
    assert main(["--spec", spec, "--sources", str(source), "--out", str(outs[0])]) == 0
    assert outs[0].stat().st_mtime_ns == before and "up to date" in capsys.readouterr().err
    (outs[0].parent / "train" / f"{A}.00.jsonl.zst").unlink()
    assert main(["--spec", spec, "--sources", str(source), "--out", str(outs[0])]) == 0
    assert (outs[0].parent / "train" / f"{A}.00.jsonl.zst").exists()


def test_a_changed_shard_is_fatal_and_names_the_remedy(tmp_path):
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, t) for t in words(50)]})
    out = tmp_path / "out" / "sample.json"
    content = make_sample(Sample(corpus=corpus, domains=(A,)), [source], out)
    path = shard_path(out, content, A, "train", 0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="sample again"):
        shard_path(out, content, A, "train", 0)


def test_shards_keep_the_origin_of_each_document(tmp_path):
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, t) for t in words(50)]})
    out = tmp_path / "out" / "sample.json"
    content = make_sample(Sample(corpus=corpus, domains=(A,)), [source], out)
    import zstandard

    data = (
        zstandard.ZstdDecompressor().stream_reader(shard_path(out, content, A, "train", 0).open("rb")).read()
    )
    row = json.loads(data.splitlines()[0])
    line = int(row["meta"]["where"].rpartition(":")[2])
    assert row["text"] == words(50)[line - 1] and row["meta"]["redpajama_set_name"] == A


def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RUN_BYTES", 1 << 16)
    monkeypatch.setattr(module, "FRAME_BYTES", 1 << 12)
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, f"{i} " + "y" * 1000) for i in range(2000)]})
    sorted_at_once = []
    original = module._Runs.flush

    def watched(self):
        sorted_at_once.append(sum(len(record[-1]) for record in self._records))
        original(self)

    monkeypatch.setattr(module._Runs, "flush", watched)
    make_sample(Sample(corpus=corpus, domains=(A,)), [source], tmp_path / "out" / "sample.json")
    assert len(sorted_at_once) > 20 and max(sorted_at_once) < 2 * (1 << 16)


def three_files(folder: Path) -> tuple[Corpus, Path]:
    rows = [(domain, text) for domain in (A, B) for text in [*words(90), *words(30)]]
    files = {f"train{k}.jsonl": [*rows[k::3], (A, ""), ("Odd", "x")] for k in range(3)}
    held_out = {"validation/v.jsonl": [(B, text) for text in [*words(9), "only here"]]}
    fields = {"validation_files": ("validation/*",)}
    corpus, source = corpus_of(
        folder, {**files, **held_out, "validation/w.jsonl": [(A, "also held")]}, **fields
    )
    return corpus, source


def test_parts_scanned_by_independent_jobs_give_the_bytes_of_one_pass(tmp_path, monkeypatch):
    corpus, source = three_files(tmp_path / "in")
    sample = Sample(corpus=corpus, domains=(A, B), train_bytes={A: 900, B: 800}, shards=2)
    spec = canonical_json(sample.model_dump(mode="json", exclude_defaults=True))
    outs = [tmp_path / name / "sample.json" for name in ("one", "three")]
    assert main(["--spec", spec, "--sources", str(source), "--out", str(outs[0])]) == 0
    common = ["--spec", spec, "--sources", str(source), "--parts", "3"]
    for part in (2, 0, 1):
        listed = outs[1].parent / "scan" / f"{module.part_name(part, 3)}.json"
        assert main([*common, "--part", str(part), "--out", str(listed)]) == 0
    scanned = []
    original = documents.File.documents
    monkeypatch.setattr(documents.File, "documents", lambda *a, **k: scanned.append(a) or original(*a, **k))
    assert main([*common, "--out", str(outs[1])]) == 0
    monkeypatch.undo()
    assert not scanned, "what the jobs have scanned is not read again"
    names = [sorted(p.relative_to(o.parent) for p in o.parent.rglob("*.zst")) for o in outs]
    assert names[0] == names[1] and len(names[0]) == 6
    for file in ["sample.json", *names[0]]:
        assert (outs[0].parent / file).read_bytes() == (outs[1].parent / file).read_bytes()
    content = read_json(outs[0])
    assert content["refused"] == {"unknown domain": 3} and len(content["refused_rows"]) == 6
    held_out = {"only here", *words(9)}
    train = {t for (_, split), found in sampled(outs[1]).items() if split == "train" for t in found}
    assert not train & held_out, "what one domain holds out no other domain trains on"


def test_a_part_that_is_missing_or_of_other_files_is_scanned_anew(tmp_path):
    corpus, source = three_files(tmp_path / "in")
    sample = Sample(corpus=corpus, domains=(A, B))
    loaded = [module.load_source(source)]
    folder = tmp_path / "out"
    first = module.scan_part(sample, loaded, folder, 0, 2)
    assert module.scan_part(sample, loaded, folder, 0, 2) == first
    run = folder / "scan" / module.part_name(0, 2) / first["runs"][0]["path"]
    run.write_bytes(run.read_bytes()[:-1])
    module.scan_part(sample, loaded, folder, 0, 2)
    assert run.stat().st_size == first["runs"][0]["bytes"]
    other = sample.model_copy(update={"seed": 5})
    assert module.scan_part(other, loaded, folder, 0, 2)["inputs"] != first["inputs"]


@pytest.mark.parametrize(
    ("part", "out", "expected"),
    [("3", "scan/003-of-003.json", "parts 0 to 2"), ("1", "scan/other.json", "scan/001-of-003.json")],
)
def test_a_part_that_there_is_not_and_a_wrong_place_are_said(tmp_path, capsys, part, out, expected):
    corpus, source = three_files(tmp_path / "in")
    spec = canonical_json({"corpus": corpus.model_dump(mode="json", exclude_defaults=True), "domains": [A]})
    arguments = ["--spec", spec, "--sources", str(source), "--parts", "3", "--part", part]
    assert main([*arguments, "--out", str(tmp_path / out)]) == 2
    assert expected in capsys.readouterr().err


def test_a_shard_path_that_leaves_the_sample_is_refused(tmp_path):
    corpus, source = corpus_of(tmp_path, {"train.jsonl": [(A, t) for t in words(50)]})
    out = tmp_path / "out" / "sample.json"
    content = make_sample(Sample(corpus=corpus, domains=(A,)), [source], out)
    content["domains"][A]["splits"]["train"]["shards"][0]["path"] = "../source.json"
    with pytest.raises(UserError, match="not a path below"):
        shard_path(out, content, A, "train", 0)


def test_a_file_that_was_made_whole_costs_only_the_part_that_reads_it(tmp_path, capsys):
    corpus, source = three_files(tmp_path / "in")
    rows = tmp_path / "in" / "train2.jsonl"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:-30])
    write_json(source, list_corpus(corpus, tmp_path / "in"))
    sample = Sample(corpus=corpus, domains=(A, B))
    loaded, folder = [module.load_source(source)], tmp_path / "out"
    lists = [module.scan_part(sample, loaded, folder, part, 5) for part in range(4)]
    with pytest.raises(UserError, match="ends inside a row"):
        module.scan_part(sample, loaded, folder, 4, 5)
    rows.write_bytes(whole)
    write_json(source, list_corpus(corpus, tmp_path / "in"))
    loaded = [module.load_source(source)]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.run")}
    assert [module.scan_part(sample, loaded, folder, part, 5) for part in range(4)] == lists
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.run")} == before
    module.make_sample(sample, [source], folder / "sample.json", parts=5)
