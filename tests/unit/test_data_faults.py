"""The data path under attack and in bad weather: kills at random moments, a full disk, files that lie, paths that leave."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from respath.data import sample as sampling
from respath.data import tokenize as tokenizing_stage
from respath.data.documents import list_corpus, load_source
from respath.data.loader import Loader, store_byte_lengths, validation_rows
from respath.data.manifest import verify
from respath.data.shards import shard_path
from respath.data.tokenize import main as tokenize_main
from respath.errors import UserError
from respath.files import canonical_json, read_json, write_json
from respath.spec.data import BpeTokenizer, Corpus, Data, Sample
from tests.unit.corpus import tiny_tokens

ROOT = Path(__file__).parents[2]
DOMAIN = "RedPajamaCommonCrawl"

#: Runs a stage's main and dies at the n-th of the moments at which it touches the disk.
DYING = """
import os, signal, sys
from respath.data import sample, shards, tokenize
left, stage = int(sys.argv[1]), {"sample": sample, "tokenize": tokenize}[sys.argv[2]]
tokenize.BATCH_CHARACTERS, sample.RUN_BYTES, sample.FRAME_BYTES = 3000, 20_000, 2000
def moment():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def at(function):
    def wrapped(*arguments, **keywords):
        moment()
        result = function(*arguments, **keywords)
        moment()
        return result
    return wrapped
os.fsync, os.replace = at(os.fsync), at(os.replace)
shards.Hashing.write = at(shards.Hashing.write)
code = stage.main(sys.argv[3:])
print("moments", 10**6 - left)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> tuple[Path, Data]:
    folder = tmp_path_factory.mktemp("faults")
    _, data = tiny_tokens(folder, shards=2)
    return folder, data


def dying(moment: int, stage: str, arguments: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", DYING, str(moment), stage, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def tokenizing(store: tuple[Path, Data], out: Path) -> list[str]:
    folder, data = store
    return [
        *("--spec", canonical_json(data.model_dump(mode="json", exclude_defaults=True))),
        *(
            "--sample",
            str(folder / "sample/sample.json"),
            "--tokenizer",
            str(folder / "tokenizer/tokenizer.json"),
        ),
        *("--split", "train", "--domain", DOMAIN, "--shard", "0", "--out", str(out)),
    ]


def sampling_again(store: tuple[Path, Data], out: Path) -> list[str]:
    folder, data = store
    spec = canonical_json(data.sample.model_dump(mode="json", exclude_defaults=True))
    return ["--spec", spec, "--sources", str(folder / "source.json"), "--out", str(out)]


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@pytest.mark.parametrize(
    ("stage", "kills"),
    [
        ("tokenize", 2),
        ("sample", 2),
        *(pytest.param(stage, 20, marks=pytest.mark.slow) for stage in ("tokenize", "sample")),
    ],
)
def test_a_stage_killed_again_and_again_at_random_moments_ends_with_the_same_bytes(
    store, tmp_path, stage, kills
):
    if stage == "tokenize":
        build, name = tokenizing, f"{DOMAIN}.000.json"
    else:
        build, name = sampling_again, "sample.json"
    whole = dying(10**6, stage, build(store, tmp_path / "whole" / name))
    assert whole.returncode == 0, whole.stderr
    moments = int(whole.stdout.split()[-1])
    assert moments >= 8
    out = tmp_path / "killed" / name
    rng = random.Random(11)
    killed = 0
    # The last moment of all comes last: after it nothing is left to be killed.
    for moment in [*(rng.randrange(1, moments) for _ in range(kills)), moments]:
        done = dying(moment, stage, build(store, out))
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        killed += done.returncode == -signal.SIGKILL
        for path in out.parent.glob("*.json"):
            json.loads(path.read_text())  # what stands under its name is whole
        if done.returncode == 0:  # earlier tries had left too little to do: from the start again
            shutil.rmtree(out.parent)
    assert killed > kills // 2
    assert dying(10**6, stage, build(store, out)).returncode == 0
    made = files_below(out.parent)
    expected = files_below(tmp_path / "whole")
    assert {name: made[name] for name in expected} == expected
    leftovers = set(made) - set(expected)
    assert all(name.endswith(".part") or "scan" in name for name in leftovers), leftovers


def test_a_disk_that_fills_while_sampling_is_one_line_and_leaves_no_sample(
    store, tmp_path, monkeypatch, capsys
):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert sampling.main(sampling_again(store, tmp_path / "out/sample.json")) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "no space left on the device" in lines[0] and ".run" in lines[0]
    assert not (tmp_path / "out/sample.json").exists() and not list(tmp_path.rglob("*.part"))


def test_memory_that_is_used_up_while_tokenizing_is_one_line_and_leaves_no_shard(
    store, tmp_path, monkeypatch, capsys
):
    """NumPy's own error, of an amount that no machine has."""
    out = tmp_path / f"{DOMAIN}.000.json"
    with monkeypatch.context() as patched:
        patched.setattr(tokenizing_stage.Hashing, "write", lambda self, data: np.empty(1 << 60, np.uint8))
        assert tokenize_main(tokenizing(store, out)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: out of memory (asked for 1.00 EiB); ")
    assert list(tmp_path.iterdir()) == []
    assert tokenize_main(tokenizing(store, out)) == 0
    whole = store[0] / "tokens" / "train" / f"{DOMAIN}.00.bin"
    assert out.with_suffix(".bin").read_bytes() == whole.read_bytes()


@pytest.fixture
def copy(tmp_path) -> Path:
    manifest, _ = tiny_tokens(tmp_path / "store", train_tokens=8000)
    return manifest


def load(manifest: Path) -> Loader:
    return Loader(manifest, context=16, batch_sequences=4, seed=1)


def test_training_and_evaluation_refuse_a_shard_that_is_not_the_manifests(copy):
    load(copy), validation_rows(copy, 16, 2)
    for split, read in (("train", load), ("validation", lambda m: validation_rows(m, 16, 2))):
        shard = next((copy.parent / split).glob("*.bin"))
        ids = np.fromfile(shard, dtype="<u2")
        ids[3] ^= 1
        ids.tofile(shard)
        with pytest.raises(
            UserError, match=rf"{shard.name}: its SHA-256 differs from .*; delete .*\.json and .*run the same"
        ):
            read(copy)
        with pytest.raises(UserError, match="SHA-256 differs"):
            verify(copy)
        ids[3] ^= 1
        ids.tofile(shard)
    load(copy)


def test_another_tokenizer_than_the_manifests_is_refused(copy):
    assert store_byte_lengths(copy).shape == (512,)
    path = copy.parent / read_json(copy)["tokenizer"]["path"]
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UserError, match="not the tokenizer of"):
        store_byte_lengths(copy)


def test_a_shard_that_is_a_link_out_of_the_store_is_refused(copy, tmp_path):
    shard = next((copy.parent / "train").glob("*.bin"))
    secret = tmp_path / "secret.bin"
    shard.rename(secret)
    shard.symlink_to(secret)
    with pytest.raises(UserError, match="outside the manifest's folder"):
        load(copy)


def test_a_sample_shard_that_is_a_link_out_of_the_sample_is_refused(store, tmp_path):
    assert sampling.main(sampling_again(store, tmp_path / "s/sample.json")) == 0
    shard = tmp_path / f"s/train/{DOMAIN}.00.jsonl.zst"
    shard.rename(tmp_path / "elsewhere.zst")
    shard.symlink_to(tmp_path / "elsewhere.zst")
    content = read_json(tmp_path / "s/sample.json")
    with pytest.raises(UserError, match="a link that leaves"):
        shard_path(tmp_path / "s/sample.json", content, DOMAIN, "train", 0)


def test_a_source_list_whose_file_becomes_a_link_outwards_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text("{}\n")
    corpus = Corpus(name="mine", kind="local", train_files=("*.jsonl",))
    write_json(tmp_path / "source.json", list_corpus(corpus, tmp_path / "in"))
    (tmp_path / "in/a.jsonl").rename(tmp_path / "secret")
    (tmp_path / "in/a.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="a link that leaves"):
        load_source(tmp_path / "source.json")


NAMES = ["../evil", "/etc", "a/b", ".hidden", "-rf", "a b", "$(x)", "", "a\nb", "a\0b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_or_domain_that_cannot_name_a_file_is_refused(name):
    with pytest.raises(ValidationError):
        Corpus(name=name, kind="local", train_files=("*",))
    corpus = Corpus(name="fine", kind="local", train_files=("*",))
    tokenizer = BpeTokenizer(kind="bpe", vocab_size=300)
    with pytest.raises(ValidationError, match="cannot name files"):
        Data(
            sample=Sample(corpus=corpus, domains=(name,)),
            tokenizer=tokenizer,
            train_tokens={name: 1},
            validation_tokens=1,
        )


def test_tokenizing_into_a_folder_that_is_a_file_is_one_line(store, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert tokenize_main(tokenizing(store, tmp_path / "file" / f"{DOMAIN}.000.json")) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
