"""What the messages of data and items say is followed literally: what they name is deleted, the same stages run again, and all ends well."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from respath.data import archives
from respath.data.documents import list_corpus
from respath.data.loader import store_byte_lengths
from respath.data.overlap import main as overlap_main
from respath.data.overlap import overlap
from respath.data.sample import make_sample
from respath.errors import UserError
from respath.files import read_json, write_json, write_text
from respath.measure.lm import read_items
from respath.reporting.contamination import overlap_context
from respath.results.reader import Results
from respath.spec.data import sample_id
from tests.dag.disturbed import named_for_deletion
from tests.golden.toy import toy_project
from tests.unit.corpus import tiny_rows, tiny_tokens
from tests.unit.test_corpora import write_zst
from tests.unit.test_evaluation_items import PIQA, collect, write_lines
from tests.unit.test_overlap import items_with, sample_with, sentence


def follow(folder: Path, stage: Callable[[], object]) -> list[str]:
    """Run a stage that must refuse, and delete what it names; returns the names."""
    with pytest.raises(UserError) as refused:
        stage()
    named = sorted({path for line in refused.value.lines for path in named_for_deletion(folder, line)})
    assert named, refused.value.lines
    for path in named:
        (folder / path).unlink(missing_ok=True)
    return sorted(path.name for path in named)


def documents() -> list[tuple[str, str]]:
    """Of two domains, no two alike."""
    rng = random.Random(1)
    return [(domain, sentence(rng, 100)) for domain in ("RedPajamaC4", "RedPajamaBook") for _ in range(20)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_kind(path: Path) -> None:
    write_json(path, {"schema": 1, "kind": "something else"})


# --- items ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def collected(tmp_path) -> tuple[Path, Callable[[], object]]:
    """items.json of two tasks from local files, and the stage that makes it."""
    rows = [PIQA | {"goal": f"boil egg number {number}"} for number in range(4)]
    write_lines(tmp_path / "local/piqa/valid.jsonl", rows)
    write_lines(tmp_path / "local/piqa/valid-labels.lst", [0, 1, 0, 1])

    def stage():
        return collect(tmp_path, location=tmp_path / "local", tasks=("piqa",))

    stage()
    return tmp_path / "out/items.json", stage


HARMS = {
    "changed": lambda items: cut(items.with_name("piqa.jsonl")),
    "gone": lambda items: items.with_name("piqa.jsonl").unlink(),
    "list cut": cut,
}


@pytest.mark.parametrize("harm", HARMS)
def test_items_that_changed_are_deleted_as_told_collected_and_read(collected, harm):
    items, stage = collected
    whole = items.with_name("piqa.jsonl").read_bytes()
    HARMS[harm](items)
    named = follow(items.parent, lambda: read_items(items))
    assert "items.json" in named and not items.exists()
    stage()
    assert read_items(items)["tasks"]["piqa"]["items"] == 4
    assert items.with_name("piqa.jsonl").read_bytes() == whole


@pytest.mark.parametrize("harm", [*HARMS, "another kind"])
def test_the_overlap_names_what_to_collect_again_and_then_is_found(tmp_path, collected, harm):
    items, stage = collected
    sample = sample_with(tmp_path / "text", documents())
    before = overlap(sample, items)
    (HARMS | {"another kind": other_kind})[harm](items)
    assert "items.json" in follow(items.parent, lambda: overlap(sample, items))
    stage()
    assert overlap(sample, items) == before


# --- overlap --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", [cut, other_kind])
def test_a_broken_overlap_report_is_deleted_as_told_made_and_shown(tmp_path, harm):
    project = toy_project()
    items = items_with(tmp_path / "items", {"piqa": [{"text": "word " * 20}]})
    sample = sample_with(tmp_path / "text", documents())
    report = tmp_path / "results/overlap" / sample_id(project.paper("toy").data.sample) / "toy.json"
    command = ["--sample", str(sample), "--items", str(items), "--out", str(report)]
    assert overlap_main(command) == 0
    whole = report.read_bytes()
    harm(report)

    def shown():
        return overlap_context(project, Results(project, tmp_path / "results"), "toy")

    assert follow(report.parent, shown) == ["toy.json"]
    assert overlap_main(command) == 0 and report.read_bytes() == whole
    assert shown()["rows"]


# --- archives -------------------------------------------------------------------------------------------------------------


def test_a_damaged_archive_is_deleted_as_told_fetched_and_read(tmp_path):
    whole = tmp_path / "index/package.zip"
    whole.parent.mkdir()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as stream:
        stream.writestr("package/text.txt", "some text " * 1000)
    cached = tmp_path / "cache/package.zip"
    cached.parent.mkdir()
    cached.write_bytes(whole.read_bytes())
    cut(cached)

    def read():
        return archives.read_members(cached, archives.Selection(["**"]))

    assert follow(cached.parent, read) == ["package.zip"]
    # Fetching takes what is not in the cache from where it comes (test_fetch).
    cached.write_bytes(whole.read_bytes())
    assert list(read()) == ["package/text.txt"]


# --- corpora --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way_out", ["a whole copy in its place", "taken out"])
def test_a_cut_file_of_a_local_corpus_is_replaced_or_taken_out_as_told_and_sampled(tmp_path, way_out):
    from respath.spec.data import Corpus, Sample

    folder, source, out = tmp_path / "mine", tmp_path / "source.json", tmp_path / "sample/sample.json"
    rows = tiny_rows()
    corpus = Corpus(name="mine", kind="local", train_files=("*.jsonl.zst",))
    domains = tuple(sorted({row["meta"]["redpajama_set_name"] for row in rows}))
    write_zst(folder / "a.jsonl.zst", rows)
    write_zst(folder / "b.jsonl.zst", rows[::2], cut=0.6)

    def sampled():
        write_json(source, list_corpus(corpus, folder)) if not source.exists() else None
        return make_sample(Sample(corpus=corpus, domains=domains, validation_share=0.1), [source], out)

    with pytest.raises(UserError) as refused:
        sampled()
    assert "put a whole copy in its place or take it out of" in refused.value.lines[0]
    assert follow(tmp_path, sampled) == ["source.json"]
    if way_out == "taken out":
        (folder / "b.jsonl.zst").unlink()
    else:
        write_zst(folder / "b.jsonl.zst", rows[::2])
    assert sampled()["domains"].keys() == set(domains)


HARMED_LISTS = {
    "of another kind": other_kind,
    "without a hash": lambda path: write_json(path, without_hashes(read_json(path))),
    "of a file that is gone": lambda path: (path.parent / "mine/b.jsonl").unlink(),
    "of a file that grew": lambda path: write_text(path.parent / "mine/b.jsonl", "{}\n"),
}


def without_hashes(content: dict) -> dict:
    for file in content["files"]:
        file["sha256"] = None
    return content


@pytest.mark.parametrize("harm", HARMED_LISTS)
def test_a_list_of_files_that_does_not_fit_them_is_deleted_as_told_and_made_anew(tmp_path, harm):
    from respath.data.documents import load_source
    from respath.spec.data import Corpus

    corpus, source = Corpus(name="mine", kind="local", train_files=("*.jsonl",)), tmp_path / "source.json"
    for name in "ab":
        write_lines(tmp_path / f"mine/{name}.jsonl", [{"text": f"document of {name}", "meta": {}}])
    write_json(source, list_corpus(corpus, tmp_path / "mine"))
    HARMED_LISTS[harm](source)
    assert follow(tmp_path, lambda: load_source(source)) == ["source.json"]
    write_json(source, list_corpus(corpus, tmp_path / "mine"))
    assert load_source(source).content["files"]


def test_another_tokenizer_under_a_store_is_deleted_with_its_manifest_as_told_and_both_are_made_anew(
    tmp_path,
):
    manifest, _ = tiny_tokens(tmp_path / "one")
    tokenizer = (manifest.parent / read_json(manifest)["tokenizer"]["path"]).resolve()
    whole = {path: path.read_bytes() for path in (tokenizer, manifest)}
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()), indent=3))
    assert follow(manifest.parent, lambda: store_byte_lengths(manifest)) == [
        "manifest.json",
        "tokenizer.json",
    ]
    again, _ = tiny_tokens(tmp_path / "again")
    made = (again.parent / read_json(again)["tokenizer"]["path"]).resolve()
    assert made.read_bytes() == whole[tokenizer] and store_byte_lengths(again).any()
