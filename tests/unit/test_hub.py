"""Fetching from a hub, against a real HTTP server on loopback: pinned, resumed, verified, patient, silent about the token."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from respath.data import hub as module
from respath.data.documents import Refusals, list_corpus, load_source, main, read
from respath.data.hub import download
from respath.errors import UserError
from respath.files import canonical_json, read_json, write_json
from respath.spec.data import Corpus
from tests.unit.hub_server import Hub, serving

ROOT = Path(__file__).parents[2]
TOKEN = "hf_FAKEfakeFAKEfake1234"
ROW = '{"text": "row %d of the file", "meta": {"redpajama_set_name": "RedPajamaC4"}}\n'
FILES = {
    "train/a.jsonl": "".join(ROW % i for i in range(4000)).encode(),
    "train/b.jsonl": (ROW % 1).encode(),
    "train/validation-b.jsonl": (ROW % 2).encode(),
    "val/v.jsonl": (ROW % 3).encode(),
    "README.md": b"# not data",
}
CORPUS = Corpus(
    name="some",
    kind="hub",
    repository="some/data",
    revision="c" * 40,
    train_files=("train/*.jsonl",),
    validation_files=("val/*",),
)


@pytest.fixture
def hub(monkeypatch):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    hub = Hub(dict(FILES))
    with serving(hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield hub


def test_the_wanted_files_of_the_pinned_commit_come_with_their_hashes(hub, tmp_path):
    content = list_corpus(CORPUS, tmp_path / "cache")
    assert {f["path"]: f["split"] for f in content["files"]} == {
        "train/a.jsonl": "train",
        "train/b.jsonl": "train",
        "val/v.jsonl": "validation",
    }
    assert content["left_out"] == {}, "what looks held out is not even fetched"
    assert content["revision"] == "c" * 40 and all(len(f["sha256"]) == 64 for f in content["files"])
    assert (
        not hub.asked("README")
        and not hub.asked("validation-b")
        and not hub.asked("/api/datasets/some/data?")
    )
    write_json(tmp_path / "source.json", content)
    found = list(
        read([load_source(tmp_path / "source.json")], CORPUS, ["RedPajamaC4"], Refusals(), Counter())
    )
    assert len(found) == 4002 and found[0].held_out and not found[1].held_out
    before = len(hub.requests)
    assert list_corpus(CORPUS, tmp_path / "cache") == content
    assert len(hub.requests) == before, "everything is here: the hub is not asked again"


def test_a_branch_is_followed_once_and_its_commit_recorded(hub, tmp_path):
    branch = CORPUS.model_copy(update={"revision": "main"})
    folder, commit, _ = download(branch, tmp_path)
    assert commit == "c" * 40 and folder.name == commit
    hub.commit = "d" * 40
    assert download(branch, tmp_path)[1] == "c" * 40


def test_a_broken_connection_goes_on_where_it_broke(hub, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "_pause", lambda seconds, stop: None)
    hub.breaks["train/a.jsonl"] = [70_000, 50_000]
    folder, _, _ = download(CORPUS, tmp_path)
    assert (folder / "train/a.jsonl").read_bytes() == FILES["train/a.jsonl"]
    ranges = [headers.get("range") for headers in hub.asked("train/a.jsonl")]
    assert ranges == [None, "bytes=70000-", "bytes=120000-"]
    assert "again in" in capsys.readouterr().err


def test_a_killed_download_goes_on_inside_the_file(hub, tmp_path):
    # What a killed process leaves: some bytes under the hidden name.
    download(CORPUS.model_copy(update={"train_files": ("train/b.jsonl",)}), tmp_path)
    folder = tmp_path / "some--data" / ("c" * 40)
    (folder / "train" / ".a.jsonl.part").write_bytes(FILES["train/a.jsonl"][:90_000])
    download(CORPUS, tmp_path)
    assert [headers.get("range") for headers in hub.asked("train/a.jsonl")] == ["bytes=90000-"]
    assert (folder / "train/a.jsonl").read_bytes() == FILES["train/a.jsonl"]
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("left", [b"x" * 90_000, b"x" * 10_000_000, FILES["train/a.jsonl"] + b"x"])
def test_a_half_file_of_other_bytes_is_fetched_anew(hub, tmp_path, left):
    part = tmp_path / "some--data" / ("c" * 40) / "train" / ".a.jsonl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)
    folder, _, _ = download(CORPUS, tmp_path)
    assert (folder / "train/a.jsonl").read_bytes() == FILES["train/a.jsonl"]


def test_a_server_without_ranges_sends_the_file_from_the_start(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_pause", lambda seconds, stop: None)
    hub.ignores_ranges = True
    hub.breaks["train/a.jsonl"] = [70_000]
    folder, _, _ = download(CORPUS, tmp_path)
    assert (folder / "train/a.jsonl").read_bytes() == FILES["train/a.jsonl"]


@pytest.mark.parametrize("longer", [0, 1, 5_000_000], ids=["as long", "longer", "much longer"])
@pytest.mark.parametrize("name", ["train/a.jsonl", "train/b.jsonl"], ids=["git blob or SHA-256", "the other"])
def test_an_altered_file_is_never_used(hub, tmp_path, name, longer):
    hub.altered[name] = hub.files[name][:-2] + b"!\n" + b"x" * longer
    with pytest.raises(UserError, match=r"another hash than its list says; not used"):
        download(CORPUS, tmp_path)
    assert not (tmp_path / "some--data" / ("c" * 40) / name).exists()
    assert len(hub.asked(name)) == 2, "tried once more from the start, then given up"


def test_a_hub_that_asks_for_patience_gets_it(hub, tmp_path, capsys, monkeypatch):
    waited = []
    monkeypatch.setattr(module, "_pause", lambda seconds, stop: waited.append(seconds))
    hub.statuses["train/a.jsonl"] = [429, 503]
    hub.headers_when_refusing = {"RateLimit": '"api";r=0;t=37'}
    download(CORPUS, tmp_path)
    assert waited == [37.0, 37.0]
    said = capsys.readouterr().err
    assert "a.jsonl: HTTP 429; again in 37 s" in said and "without HF_TOKEN" in said


def test_a_hub_that_keeps_refusing_gives_one_line_and_keeps_what_came(hub, tmp_path):
    hub.statuses["train/a.jsonl"] = [429] * 99
    with pytest.raises(UserError) as error:
        download(CORPUS, tmp_path, ("slimpajama-6b",))
    assert len(error.value.lines) == 1
    for part in (
        "HTTP 429: too many requests; set HF_TOKEN",
        "locations: {some: FOLDER}",
        "corpus=slimpajama-6b",
    ):
        assert part in error.value.lines[0]
    hub.statuses.clear()
    before = len(hub.requests)
    folder, _, _ = download(CORPUS, tmp_path)
    assert len(list(folder.rglob("*.jsonl"))) == 3
    asked = [path for _, path, _ in hub.requests[before:]]
    assert not any("tree" in path for path in asked) and 1 <= len(asked) <= 3


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_repository_that_is_gone_or_gated_names_token_folder_and_other_copies(hub, tmp_path, status):
    hub.statuses["train/a.jsonl"] = [status]
    with pytest.raises(UserError, match=rf"HTTP {status}: gone, private or gated; set HF_TOKEN") as error:
        download(CORPUS, tmp_path, ("other",))
    assert "--config corpus=other" in error.value.lines[0]


def test_without_a_network_the_advice_is_a_local_folder_and_finished_downloads_still_serve(
    hub, tmp_path, monkeypatch
):
    first = list_corpus(CORPUS, tmp_path / "cache")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert list_corpus(CORPUS, tmp_path / "cache") == first
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"cannot be reached.*locations: \{some: FOLDER\}"):
        download(CORPUS, tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["train/../../evil.jsonl", "/train/evil.jsonl", "train/..\\evil.jsonl"])
def test_a_listed_name_that_leaves_the_folder_refuses_the_repository(hub, tmp_path, name):
    entry = {"type": "file", "path": name, "size": 1, "oid": "e" * 40}
    hub.listed_extra = [entry]
    corpus = CORPUS.model_copy(update={"train_files": ("train/*.jsonl", "/train/*")})
    if name.startswith("/"):
        with pytest.raises(UserError, match="leaves the folder"):
            download(corpus, tmp_path)
        return
    with pytest.raises(UserError, match="not a path below"):
        download(CORPUS, tmp_path)
    assert not hub.asked("/resolve/") and not list(tmp_path.rglob("evil*"))


def test_a_disk_that_is_too_small_is_said_before_the_download(hub, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(
        UserError, match=r"are still to be fetched, .* free; name a folder on another file system"
    ):
        download(CORPUS, tmp_path)
    assert not hub.asked("/resolve/")


def test_patterns_that_match_nothing_are_named(hub, tmp_path):
    with pytest.raises(UserError, match=r"no train file of some/data matches train/\*\.zst"):
        download(CORPUS.model_copy(update={"train_files": ("train/*.zst",)}), tmp_path)


def test_a_folder_with_the_repositorys_files_is_used_and_the_hub_not_asked(hub, tmp_path, capsys):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    content = list_corpus(CORPUS, tmp_path)
    assert [f["path"] for f in content["files"]] == ["train/a.jsonl", "train/b.jsonl", "val/v.jsonl"]
    assert content["revision"] is None and not hub.requests
    assert "the hub is not asked" in capsys.readouterr().err
    (tmp_path / "val/v.jsonl").unlink()
    assert list_corpus(CORPUS, tmp_path)["revision"] == "c" * 40, "half a copy is no copy"


def test_the_token_goes_to_the_hub_alone_and_into_no_message_or_file(hub, tmp_path):
    storage = Hub(dict(FILES))
    storage.commit = "none"
    with serving(storage) as elsewhere:
        hub.storage = elsewhere
        storage.statuses = {"train/a.jsonl": [403]}
        arguments = ["--corpus", canonical_json(CORPUS.model_dump(mode="json", exclude_defaults=True))]
        arguments += ["--location", str(tmp_path / "cache"), "--out", str(tmp_path / "out" / "source.json")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_TOKEN": TOKEN, "RESPATH_DEBUG": "0"}
        said = ""
        for code in (2, 0):
            done = subprocess.run(
                [sys.executable, "-m", "respath.data.documents", *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == code, done.stderr
            said += done.stdout + done.stderr
    assert "HTTP 403" in said and "Traceback" not in said
    assert all(headers.get("authorization") == f"Bearer {TOKEN}" for headers in hub.asked(""))
    assert storage.asked("/storage/") and not any("authorization" in headers for headers in storage.asked(""))
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file
    assert TOKEN not in said and "sssecret" not in said
    assert read_json(tmp_path / "out" / "source.json")["revision"] == "c" * 40


def test_messages_lose_the_token_and_the_signed_part_of_addresses(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    text = f"refused {TOKEN} for https://cdn.example/x/y?Signature=abc&Expires=1 and https://hub.example/z"
    assert module.clean(text) == "refused *** for https://cdn.example/x/y?... and https://hub.example/z"


def test_the_stage_names_the_other_copies(hub, tmp_path, capsys):
    hub.statuses["train/a.jsonl"] = [404]
    spec = canonical_json(CORPUS.model_dump(mode="json", exclude_defaults=True))
    arguments = ["--corpus", spec, "--location", str(tmp_path), "--out", str(tmp_path / "s.json")]
    assert main([*arguments, "--instead", "one", "two"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("error: corpus some: ") and "corpus=one, --config corpus=two" in lines[-1]


def test_ctrl_c_ends_a_download_inside_a_file_with_one_line_and_keeps_what_came(hub, tmp_path):
    """The file needs minutes at the server's pace, so the end within seconds is the signal's."""
    hub.slow = set(FILES)
    hub.files = {**FILES, "train/a.jsonl": FILES["train/a.jsonl"] * 10}
    corpus = canonical_json(CORPUS.model_dump(mode="json", exclude_defaults=True))
    arguments = [
        "--corpus",
        corpus,
        "--location",
        str(tmp_path / "hub"),
        "--out",
        str(tmp_path / "source.json"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "respath.data.documents", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        # A shell that runs the tests in the background ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    part = tmp_path / "hub" / "some--data" / ("c" * 40) / "train" / ".a.jsonl.part"
    try:
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert (
        said.splitlines()[-1].startswith("stopped by Ctrl-C; run the same command again")
        and "Traceback" not in said
    )
    assert part.stat().st_size and not (tmp_path / "source.json").exists()
