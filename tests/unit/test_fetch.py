"""The embedded corpus: its catalogue, safe archives, and byte-stable output."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from respath.data import archives, catalogue, fetch
from respath.data.extract import EXTRACTORS
from respath.errors import UserError

ROOT = Path(__file__).parents[2]


def zip_with(path, members):
    with zipfile.ZipFile(path, "w") as whole:
        for name, data in members.items():
            whole.writestr(name, data)
    return path


def tar_with(path, *infos):
    with tarfile.open(path, "w:gz") as whole:
        for info, data in infos:
            info.size = len(data)
            whole.addfile(info, io.BytesIO(data))
    return path


ALL = archives.Selection(["**"])


def test_every_domain_has_a_source_that_needs_only_pip():
    covered = {source.domain for source in catalogue.load_sources() if source.origin == "pip"}
    assert covered == set(catalogue.DOMAINS)


def test_the_debian_profile_is_the_pip_profile_and_more():
    pip, debian = map(catalogue.source_ids, ("embedded-pip", "embedded-debian"))
    assert set(pip) < set(debian)
    assert len(set(debian)) == len(debian)


def test_every_source_is_licensed_described_and_extractable():
    for source in catalogue.load_sources():
        assert source.licence and source.document and source.note, source.id
        assert "proprietary" not in source.licence.lower() and "-NC" not in source.licence, source.id
        assert source.extractor in EXTRACTORS, source.id
        assert source.include, source.id


def test_pip_archives_are_pinned_and_debian_versions_are_not():
    for source in catalogue.load_sources():
        if source.origin == "pip":
            assert source.version and len(source.sha256) == 64 and source.kind in ("wheel", "sdist"), (
                source.id
            )
        if source.origin == "debian":
            assert not source.version and not source.sha256 and source.packages, source.id


def test_listing_the_sources_imports_nothing_heavy():
    heavy = "{'torch', 'zstandard', 'numpy', 'datasets', 'transformers'}"
    script = f"import sys; from respath.data.fetch import source_ids; source_ids('embedded-pip'); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout.strip() == "[]"


def test_a_wrong_name_gets_the_nearest_one():
    with pytest.raises(UserError, match="did you mean 'cc-botocore'"):
        catalogue.source_named("cc-botocor")
    with pytest.raises(UserError, match="did you mean 'embedded-pip'"):
        catalogue.source_ids("embeded-pip")


def test_a_source_outside_the_profile_is_refused(tmp_path):
    with pytest.raises(UserError, match="cc-perl is not part of embedded-pip"):
        fetch.fetch_source("cc-perl", "embedded-pip", tmp_path / "source.json", tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil.txt", "a/../../evil.txt", "/etc/passwd", "C:/evil.txt", "a\\..\\..\\evil.txt"]
)
def test_members_that_leave_the_tree_refuse_the_archive(tmp_path, name):
    with pytest.raises(UserError, match="unsafe member name"):
        archives.read_members(zip_with(tmp_path / "a.whl", {"ok.txt": b"x", name: b"x"}), ALL)
    with pytest.raises(UserError, match="unsafe member name"):
        archives.read_members(tar_with(tmp_path / "a.tar.gz", (tarfile.TarInfo(name), b"x")), ALL)


def test_links_are_never_followed(tmp_path):
    link = tarfile.TarInfo("docs/link.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard = tarfile.TarInfo("docs/hard.txt")
    hard.type, hard.linkname = tarfile.LNKTYPE, "docs/link.txt"
    packed = tar_with(
        tmp_path / "a.tar.gz", (link, b""), (hard, b""), (tarfile.TarInfo("docs/real.txt"), b"text")
    )
    assert archives.read_members(packed, ALL) == {"docs/real.txt": b"text"}
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as whole:
        info = zipfile.ZipInfo("link.txt")
        info.external_attr = 0o120777 << 16
        whole.writestr(info, "/etc/passwd")
    assert archives.read_members(tmp_path / "a.whl", ALL) == {}


def test_too_many_or_too_large_members_are_refused(tmp_path, monkeypatch):
    packed = zip_with(tmp_path / "a.whl", {"a.txt": b"x" * 100, "b.txt": b"x" * 100})
    monkeypatch.setattr(archives, "MAX_MEMBERS", 1)
    with pytest.raises(UserError, match="more than 1 members"):
        archives.read_members(packed, ALL)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 9)
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 150)
    with pytest.raises(UserError, match=r"more than 150 bytes"):
        archives.read_members(packed, ALL)
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 50)
    with pytest.raises(UserError, match=r"a\.txt has 100 bytes"):
        archives.read_members(packed, ALL)


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    import gzip

    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 1000)
    with pytest.raises(UserError, match="when decompressed"):
        archives.read_members(zip_with(tmp_path / "a.whl", {"a.json.gz": gzip.compress(b"0" * 5000)}), ALL)


def test_a_truncated_archive_is_a_one_line_error(tmp_path):
    whole = tar_with(tmp_path / "a.tar.gz", (tarfile.TarInfo("a.txt"), bytes(range(256)) * 400))
    whole.write_bytes(whole.read_bytes()[:300])
    with pytest.raises(UserError, match="damaged archive"):
        archives.read_members(whole, ALL)


def test_globs_cross_folders_only_with_two_stars():
    wanted = archives.Selection(["*/docs/**/*.txt"], ["**/skip.txt"])
    assert "p-1/docs/a.txt" in wanted and "p-1/docs/x/y/a.txt" in wanted
    assert (
        "docs/a.txt" not in wanted
        and "p-1/q/docs/a.txt" not in wanted
        and "p-1/docs/x/skip.txt" not in wanted
    )


class FakePip:
    """Stands where ``pip download`` runs: leaves a file, or fails with pip's words."""

    def __init__(self, monkeypatch, data=b"", error=""):
        self.calls, self.data, self.error = [], data, error
        monkeypatch.setattr(archives.subprocess, "run", self)

    def __call__(self, command, **kwargs):
        if command[-2:] == ["config", "list"]:
            return subprocess.CompletedProcess(command, 0, "", "")
        self.calls.append(command)
        if self.error:
            return subprocess.CompletedProcess(command, 1, "", self.error)
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True)
        (folder / "toy-1.0-py3-none-any.whl").write_bytes(self.data)
        return subprocess.CompletedProcess(command, 0, "", "")


GOOD = hashlib.sha256(b"good").hexdigest()


def test_a_download_with_another_hash_is_refused_and_not_kept(tmp_path, monkeypatch):
    FakePip(monkeypatch, b"evil")
    with pytest.raises(UserError, match=r"SHA-256 is .*, pinned is"):
        archives.fetch_wheel("toy", "1.0", GOOD, tmp_path)
    assert not list(tmp_path.rglob("*.whl"))


def test_a_cached_file_is_reused_and_a_damaged_one_is_fetched_again(tmp_path, monkeypatch, capsys):
    pip = FakePip(monkeypatch, b"good")
    first = archives.fetch_wheel("toy", "1.0", GOOD, tmp_path)
    assert archives.fetch_wheel("toy", "1.0", GOOD, tmp_path) == first
    assert len(pip.calls) == 1
    first.write_bytes(b"goo")
    assert archives.fetch_wheel("toy", "1.0", GOOD, tmp_path).read_bytes() == b"good"
    assert len(pip.calls) == 2 and "discarded" in capsys.readouterr().err


def test_pip_is_told_the_hash_and_never_to_install_or_resolve(tmp_path, monkeypatch):
    pip = FakePip(monkeypatch, b"good")
    archives.fetch_pip("toy", "1.0", GOOD, tmp_path, kind="sdist")
    command = pip.calls[0]
    assert command[1:4] == ["-m", "pip", "download"]
    assert "--require-hashes" in command and "--no-deps" in command and command[-2:] == ["--no-binary", "toy"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("/usr/bin/python: No module named pip", "ensurepip"),
        (
            f"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n  Expected sha256 {GOOD}\n       Got        {'0' * 64}",
            "serves a file with SHA-256 000",
        ),
        ("ERROR: No matching distribution found for toy==1.0", "finds no such file on the configured index;"),
        (
            "WARNING: Retrying after connection broken\nERROR: No matching distribution found",
            "could not be reached",
        ),
        ("ERROR: HTTPSConnectionPool: Max retries exceeded", "network error"),
    ],
)
def test_failures_of_pip_are_one_line_with_a_remedy(tmp_path, monkeypatch, words, expected):
    FakePip(monkeypatch, error=words)
    with pytest.raises(UserError, match=expected) as caught:
        archives.fetch_pip("toy", "1.0", GOOD, tmp_path, asked_by="cc-toy")
    assert len(caught.value.lines) == 1 and "cc-toy" in str(caught.value) and "toy==1.0" in str(caught.value)


def test_a_package_that_apt_does_not_know_is_named_with_both_remedies(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(archives, "_refresh_empty_lists", lambda: None)
    words = "E: Unable to locate package toy-doc-9"
    monkeypatch.setattr(
        archives.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 100, "", words)
    )
    with pytest.raises(
        UserError, match=r"toy-doc-9 or toy-doc-8: E: Unable .*apt-get update.*corpus=embedded-pip"
    ):
        archives.fetch_deb(["toy-doc-9", "toy-doc-8"], tmp_path, asked_by="cc-toy")


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with others"])
@pytest.mark.parametrize("lost", [False, True], ids=["another hash", "no hash"])
def test_a_cached_debian_package_with_another_hash_or_none_is_fetched_again(
    tmp_path, monkeypatch, capsys, together, lost
):
    asked = []

    def apt(command, cwd=None, **_):
        asked.append(command)
        if command[0] == "apt-get":
            for name in command[3:]:
                (Path(cwd) / f"{name}_1_all.deb").write_bytes(b"as apt checked it")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(archives.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(archives, "_refresh_empty_lists", lambda: None)
    monkeypatch.setattr(archives.subprocess, "run", apt)

    def fetch() -> Path:
        return (
            archives.fetch_debs(["toy-a", "toy-b"], tmp_path)[1]
            if together
            else archives.fetch_deb(["toy-b"], tmp_path)
        )

    first = fetch()
    asked.clear()
    assert fetch() == first and not any(command[0] == "apt-get" for command in asked)
    if lost:
        Path(f"{first}.sha256").unlink()
    else:
        first.write_bytes(b"another one, whole to look at")
    assert fetch().read_bytes() == b"as apt checked it"
    assert [command[3:] for command in asked if command[0] == "apt-get"] == [["toy-b"]]
    assert "not as apt fetched it" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
def test_a_debian_package_is_read_without_unpacking_it(tmp_path):
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(
        "Package: toy-doc\nVersion: 1\nArchitecture: all\nMaintainer: N <n@example.org>\nDescription: toy\n",
        encoding="utf-8",
    )
    (tree / "usr" / "share").mkdir(parents=True)
    (tree / "usr" / "share" / "a.txt").write_text("text", encoding="utf-8")
    (tree / "usr" / "share" / "link.txt").symlink_to("/etc/passwd")
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", str(tree), str(tmp_path / "toy.deb")],
        check=True,
        capture_output=True,
    )
    assert archives.read_members(tmp_path / "toy.deb", ALL) == {"usr/share/a.txt": b"text"}


def test_a_machine_without_apt_is_sent_to_the_pip_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"cc-perl.*perl-doc.*--config corpus=embedded-pip"):
        archives.fetch_deb(["perl-doc"], tmp_path, asked_by="cc-perl")


def test_documents_are_cleaned_deduplicated_and_refusals_counted():
    source = catalogue.source_named("book-speeches")
    long = "Fellow citizens, " * 20
    members = {
        "a.txt": long.encode(),
        "b.txt": long.replace(" ", " ").encode() + b"  \r\n",
        "c.txt": b"short",
    }
    kept, refused = fetch.documents(source, members)
    assert kept == [("a.txt", long.strip())]
    assert refused == {"duplicate": 1, "too short": 1}


def test_translations_are_told_from_english():
    portuguese = (
        "Por padrão, ele monitora todos os endereços de rede que existem para as requisições de entrada. " * 5
    )
    assert not fetch.looks_english(portuguese)
    assert fetch.looks_english("The Tour de France and de Gaulle are in the list of the names. " * 9)
    assert fetch.looks_english("Type  integer  4 bytes\n" * 50), (
        "tables have no stop words and are no translation"
    )


def test_cleaning_removes_control_characters_and_composes():
    assert fetch.clean("a\x07b \r\n\r\n\r\n\r\n\r\ncafe\u0301\ufeff\t\n") == "ab\n\n\ncaf\u00e9"


def test_equal_documents_give_equal_bytes(tmp_path):
    source = catalogue.source_named("book-speeches")
    written = []
    for name in ("one", "two"):
        out = tmp_path / name / "source.json"
        out.parent.mkdir()
        kept = [("b.txt", "Text \u00e9\n" * 50), ("a.txt", "Other\n" * 70)]
        record = fetch.write_source(source, "embedded-pip", out, kept, Counter({"too short": 2}), [], "0.1")
        written.append((out.read_bytes(), (out.parent / "docs.jsonl.zst").read_bytes()))
    assert written[0] == written[1]
    assert record["documents"] == 2 and record["refused"] == {"too short": 2}
    assert record["bytes"] == sum(len(text.encode()) for _, text in kept)
    assert record["files"][0]["sha256"] == hashlib.sha256(written[0][1]).hexdigest()


def test_rows_have_slimpajama_layout(tmp_path):
    import zstandard

    source = catalogue.source_named("book-speeches")
    fetch.write_source(
        source, "embedded-pip", tmp_path / "source.json", [("a.txt", "Text")], Counter(), [], "0.1"
    )
    with zstandard.open(tmp_path / "docs.jsonl.zst", "rt", encoding="utf-8") as stream:
        row = json.loads(stream.read())
    assert row == {
        "text": "Text",
        "meta": {
            "redpajama_set_name": "RedPajamaBook",
            "source": "book-speeches",
            "licence": source.licence,
            "path": "a.txt",
        },
    }


def test_the_standard_library_is_a_source_without_any_download(tmp_path, monkeypatch):
    monkeypatch.setattr(archives.subprocess, "run", lambda *a, **k: pytest.fail("no download expected"))
    record = fetch.fetch_source("github-stdlib", "embedded-pip", tmp_path / "source.json", tmp_path / "cache")
    assert record["domain"] == "RedPajamaGithub" and record["documents"] > 100 and record["bytes"] > 2_000_000
    assert record == json.loads((tmp_path / "source.json").read_text(encoding="utf-8"))


def test_the_page_about_data_is_in_step_with_the_sources():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert fetch.markdown() in page, (
        "run `python -m respath.data.fetch --markdown` and paste its output into docs/data.md"
    )


def test_a_user_error_shows_one_line_and_no_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "respath.data.fetch", "--source", "nonsense", "--out", str(tmp_path / "s.json")],
        capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: --source: no source 'nonsense'") and done.stderr.count("\n") == 1


BACKEND = """
from pathlib import Path
import helper

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = Path(folder, "toy-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: toy\\nVersion: 1.0\\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return info.name
"""


def index_of_two(folder: Path) -> str:
    """A folder for ``--find-links``: a source archive whose build backend needs a wheel. Returns the archive's SHA-256."""
    folder.mkdir()
    info = "helper-1.0.dist-info"
    zip_with(
        folder / "helper-1.0-py3-none-any.whl",
        {
            "helper.py": "",
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        },
    )
    project = '[build-system]\nrequires = ["helper"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    texts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n",
        "pyproject.toml": project,
        "backend.py": BACKEND,
    }
    archive = tar_with(
        folder / "toy-1.0.tar.gz",
        *((tarfile.TarInfo(f"toy-1.0/{name}"), text.encode()) for name, text in texts.items()),
    )
    return hashlib.sha256(archive.read_bytes()).hexdigest()


@pytest.mark.parametrize("place", ["variables", "file"])
def test_settings_of_pip_that_would_stop_a_pinned_download_do_not_and_the_index_holds(
    tmp_path, monkeypatch, place
):
    """The real pip; the index (a folder here) comes from the same place as the settings that must not steer us."""
    sha256 = index_of_two(tmp_path / "index")
    (tmp_path / "constraint.txt").write_text("helper==2.0\n")
    settings = {
        "constraint": str(tmp_path / "constraint.txt"),
        "target": str(tmp_path / "elsewhere"),
        "require-hashes": "1",
        "user": "1",
        "only-binary": ":all:",
        "no-index": "1",
        "find-links": str(tmp_path / "index"),
    }
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    if place == "file":
        (tmp_path / "pip.conf").write_text(
            "[global]\n" + "".join(f"{k} = {v}\n" for k, v in settings.items())
        )
    else:
        for name, value in settings.items():
            monkeypatch.setenv(f"PIP_{name.upper().replace('-', '_')}", value)
    got = archives.fetch_pip("toy", "1.0", sha256, tmp_path / "cache", kind="sdist")
    assert got.name == "toy-1.0.tar.gz" and not (tmp_path / "elsewhere").exists()


@pytest.mark.network
def test_a_small_package_is_really_fetched_through_pip(tmp_path):
    try:
        record = fetch.fetch_source(
            "arxiv-mpmath-docstrings", "embedded-pip", tmp_path / "source.json", tmp_path / "cache"
        )
    except UserError as error:
        if "network error" in str(error) or "could not be reached" in str(error) or "no pip" in str(error):
            pytest.skip(f"no package index from here: {error}")
        raise
    assert record["archives"] == [
        {
            "name": "mpmath-1.4.1-py3-none-any.whl",
            "sha256": catalogue.source_named("arxiv-mpmath-docstrings").sha256,
        }
    ]
    assert record["documents"] >= 10 and record["bytes"] > 50_000
