"""The manifest: byte-stable, every document accounted for, every damaged shard named."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from respath.data.manifest import main, make_manifest, summary, verify
from respath.errors import UserError
from respath.files import canonical_json, read_json, write_json
from tests.unit.corpus import tiny_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    tiny_tokens(folder, shards=2)
    return folder


@pytest.fixture
def copy(folder, tmp_path) -> Path:
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy" / "tokens" / "manifest.json"


def arguments(folder: Path, out: Path, shards: list[Path]) -> list[str]:
    spec = canonical_json(read_json(folder / "tokens" / "manifest.json")["spec"])
    return [
        *("--spec", spec, "--sample", str(folder / "sample" / "sample.json"), "--out", str(out)),
        *(
            "--tokenizer",
            str(folder / "tokenizer" / "tokenizer.json"),
            "--sources",
            str(folder / "source.json"),
        ),
        *("--shards", *map(str, shards)),
    ]


def test_the_same_shards_in_any_order_give_the_same_bytes(folder, capsys):
    shards = sorted((folder / "tokens").glob("*/*.json"))
    first = (folder / "tokens" / "manifest.json").read_bytes()
    assert main(arguments(folder, folder / "tokens" / "again.json", shards[::-1])) == 0
    assert (folder / "tokens" / "again.json").read_bytes() == first
    page = capsys.readouterr().err
    assert "RedPajamaStackExchange" in page and len(page.splitlines()) < 25


def test_documents_in_are_out_or_accounted_for(folder):
    content = verify(folder / "tokens" / "manifest.json", full=True)
    counts = content["counts"]
    assert counts["documents_in"] == (
        counts["documents_out"]
        + sum(counts["refused"].values())
        + counts["duplicates"]
        + counts["near_duplicates"]
        + counts["beyond_budget"]
        + counts["beyond_quota"]
    )
    assert counts["documents_out"] == sum(
        d["documents"] for split in content["splits"].values() for d in split.values()
    )


def test_the_validation_split_says_how_it_came_about_and_where_its_documents_are_few(folder):
    content = verify(folder / "tokens" / "manifest.json")
    sample = read_json(folder / "sample" / "sample.json")["domains"]
    assert content["near_duplicates"] == {"words": 13, "share": 0.05}
    for domain, entry in content["splits"]["validation"].items():
        made = sample[domain]
        assert entry["held_out"] == made["held_out"] >= entry["documents"] and entry["documents"] > 0
        assert (
            entry["near_duplicates"] == made["near_duplicates"] and entry["duplicates"] == made["duplicates"]
        )
        found, of = made["shared_runs"]["held_out"]
        assert entry["shared_runs_before"] == pytest.approx(found / of, abs=1e-6)
        assert entry["shared_runs_before"] >= entry["shared_runs"]
        spread = entry["tokens_of_documents"]
        assert spread["least"] <= spread["median"] <= spread["most"] <= entry["tokens"]
        assert 1 <= spread["effective"] <= entry["documents"]
        assert entry["few"] == (entry["documents"] < 8)
    assert any(entry["few"] for entry in content["splits"]["validation"].values())
    assert "fewer than 8 documents" in summary(content)
    assert "held_out" not in content["splits"]["train"][domain]


def test_a_domain_below_its_quota_is_marked_short(folder):
    train = verify(folder / "tokens" / "manifest.json")["splits"]["train"]
    for domain in train.values():
        assert domain["short"] == any(
            2 * shard["tokens"] < domain["quota_tokens"] for shard in domain["shards"]
        )
    assert train["RedPajamaCommonCrawl"]["short"] and not train["RedPajamaC4"]["short"]
    assert "repeated in further epochs" in summary(read_json(folder / "tokens" / "manifest.json"))


def test_the_text_of_a_local_corpus_is_no_stand_in(folder):
    content = read_json(folder / "tokens" / "manifest.json")
    assert content["stand_in"] is False and "local copy of tiny" in content["note"]
    assert content["sources"][0]["source"] == "local" and content["tokenizer"]["eos_id"] == 0
    assert (folder / "tokens" / content["tokenizer"]["path"]).exists()


def test_a_changed_a_cut_and_a_missing_shard_are_all_named(copy):
    shards = sorted((copy.parent / "train").glob("*.bin"))
    ids = np.fromfile(shards[0], dtype=np.uint16)
    ids[5] ^= 1
    ids.tofile(shards[0])
    shards[1].write_bytes(shards[1].read_bytes()[:-2])
    shards[2].unlink()
    with pytest.raises(UserError) as error:
        verify(copy)
    assert [str(shard) in line for shard, line in zip(shards[:3], error.value.lines, strict=False)] == [
        True
    ] * 3
    assert "SHA-256 differs" in error.value.lines[0] and "missing" in error.value.lines[2]
    assert "run the same command again" in error.value.lines[3]
    # The quick check sees sizes only: it runs at every start, however large the store.
    with pytest.raises(UserError) as quick:
        verify(copy, full=False)
    assert len(quick.value.lines) == 3


def test_a_shard_outside_the_folder_of_the_manifest_is_refused(copy):
    content = read_json(copy)
    content["splits"]["train"]["RedPajamaC4"]["shards"][0]["path"] = "../../secret.bin"
    write_json(copy, content)
    with pytest.raises(UserError, match="outside the manifest's folder"):
        verify(copy)


def test_missing_double_and_foreign_shards_are_refused_together(copy):
    folder = copy.parent.parent
    shards = sorted(copy.parent.glob("*/*.json"))
    foreign = read_json(shards[3])
    write_json(shards[3], {**foreign, "tokenizer_sha256": "0" * 64})
    data = verify(copy)["spec"]
    from respath.documents import check
    from respath.spec.data import Data

    with pytest.raises(UserError) as error:
        make_manifest(
            check(Data, data, "spec"),
            [*shards[1:], shards[5]],
            folder / "tokenizer" / "tokenizer.json",
            folder / "sample" / "sample.json",
            [folder / "source.json"],
            copy,
        )
    text = "\n".join(error.value.lines)
    assert (
        "shards [0] are missing" in text
        and "the same shard as" in text
        and "made with another tokenizer" in text
    )


@pytest.mark.parametrize("content", ["{}", "[]", "oops", '{"kind": "train"}'])
def test_something_else_is_no_manifest(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match="manifest"):
        verify(tmp_path / "manifest.json")


def test_a_shard_whose_bytes_changed_after_it_was_made_is_in_no_manifest(tmp_path):
    manifest, data = tiny_tokens(tmp_path)
    shards = sorted(manifest.parent.glob("*/*.json"))
    binary = shards[3].with_suffix(".bin")
    binary.write_bytes(binary.read_bytes()[:-2] + b"\1\1")
    with pytest.raises(UserError) as error:
        make_manifest(
            data,
            shards,
            tmp_path / "tokenizer/tokenizer.json",
            tmp_path / "sample/sample.json",
            [tmp_path / "source.json"],
            manifest,
        )
    assert error.value.lines == [
        f"{binary}: missing, or its SHA-256 differs from {shards[3].name}; delete {shards[3].name} and run the same command again"
    ]
