"""Files of a public data set from its hub: listed at one commit, resumed inside a file, checked by hash before use.

The hub's client lists and authenticates. The transfer is ours because the client (huggingface_hub 2.4) throws a half-fetched
file away when its process dies, and a file of SlimPajama has 12 GB. A token is only ever sent to the hub: it is in no message,
log or result, and redirects to another host do not carry it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from respath.data.paths import check_patterns, inside, missing_splits, splits_of
from respath.errors import UserError, did_you_mean
from respath.files import naming, read_json, sha256_file, write_json
from respath.spec.data import Corpus

#: Where hub files go when no location is configured.
DOWNLOADS = ".cache/respath/hub"
#: Files fetched at a time; more of them only meets the hub's limit on requests sooner.
WORKERS = 4
#: Requests for one file that may fail in a row without a new byte, and the longest wait that is granted between two.
TRIES, LONGEST_WAIT = 8, 600.0
#: Seconds without a byte after which a connection counts as lost.
SILENCE = 60.0
_BLOCK = 1 << 20
_LISTING = "listing.json"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LATER = (408, 425, 429, 500, 502, 503, 504)


class Remote(NamedTuple):
    """A file of a repository: its size, and the SHA-256 (large files) or git blob id (small ones) that it must have."""

    bytes: int
    sha256: str | None
    blob: str | None


class _Later(Exception):
    """The hub asks to come back later (429 and 5xx)."""

    def __init__(self, status: int, wait: float | None):
        super().__init__(f"HTTP {status}")
        self.status, self.wait = status, wait


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _api():
    from huggingface_hub import HfApi

    # Read here and not where the client reads it (at its import), so that a mirror named later counts too.
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def clean(text: str) -> str:
    """A message without what must not be in a log: the user's token, and the signed part of addresses."""
    from huggingface_hub import get_token

    for secret in {get_token(), os.environ.get("HF_TOKEN"), os.environ.get("HUGGING_FACE_HUB_TOKEN")} - {
        None,
        "",
    }:
        text = text.replace(secret, "***")
    return re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]+", r"\1?...", text)


def _status(error: BaseException | None) -> int | None:
    """HTTP status in an error or in what caused it: the client hides a 429 behind "file not found"."""
    while error is not None:
        code = getattr(error, "status", None) or getattr(
            getattr(error, "response", None), "status_code", None
        )
        if isinstance(code, int):
            return code
        error = error.__cause__ or error.__context__
    return None


def _advice(error: BaseException) -> str:
    status = _status(error)
    if status in (401, 403, 404):
        return f"HTTP {status}: gone, private or gated; set HF_TOKEN to a token with access"
    if status == 429:
        return (
            "HTTP 429: too many requests; set HF_TOKEN (a higher limit), wait some minutes and run the same command again "
            "(what was fetched is kept, also of unfinished files)"
        )
    said = clean((str(error).strip() or type(error).__name__).splitlines()[0])
    return (
        f"HTTP {status}: {said}; run the same command again, what was fetched is kept"
        if status
        else f"cannot be reached ({said}); run again where the hub can be reached, what was fetched is kept"
    )


def refused(corpus: Corpus, error: BaseException, instead: tuple[str, ...] = ()) -> UserError:
    """One line for a hub that refuses, asks for patience or cannot be reached, with what to do instead."""
    others = (
        f"; or use another copy: {', '.join(f'--config corpus={name}' for name in instead)}"
        if instead
        else ""
    )
    return UserError(
        f"corpus {corpus.name}: {corpus.repository}@{corpus.revision}: {_advice(error)}; or put its files into a folder and "
        f"name it (`locations: {{{corpus.name}: FOLDER}}` in config.yaml){others}"
    )


def _commit(corpus: Corpus, folder: Path) -> str:
    """The commit of the corpus. A branch is followed once: the commit found then is kept beside the files."""
    revision = str(corpus.revision)
    if _COMMIT.fullmatch(revision):
        return revision
    kept = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '-', revision)}.commit.json"
    if kept.exists():
        return str(read_json(kept)["commit"])
    commit = str(_api().dataset_info(corpus.repository, revision=revision).sha)
    if not _COMMIT.fullmatch(commit):
        raise UserError(f"corpus {corpus.name}: {corpus.repository}@{revision}: the hub names no commit")
    write_json(kept, {"commit": commit, "revision": revision})
    _say(f"{corpus.repository}@{revision} is commit {commit}; kept in {kept}")
    return commit


def _listing(corpus: Corpus, commit: str, folder: Path) -> dict[str, Remote]:
    """Every file of the repository at this commit; asked for once, as a commit never changes."""
    path = folder / _LISTING
    if not path.exists():
        from huggingface_hub.hf_api import RepoFile

        entries: dict[str, Any] = {}
        tree = _api().list_repo_tree(corpus.repository, recursive=True, revision=commit, repo_type="dataset")
        for entry in tree:
            if isinstance(entry, RepoFile):
                large = entry.lfs
                size, sha256 = (large.size, large.sha256) if large else (entry.size, None)
                entries[entry.path] = {
                    "bytes": size,
                    "sha256": sha256,
                    "blob": None if large else entry.blob_id,
                }
        write_json(path, {"repository": corpus.repository, "commit": commit, "files": entries})
    content = read_json(path)
    return {
        name: Remote(file["bytes"], file["sha256"], file["blob"]) for name, file in content["files"].items()
    }


def _wait_asked(headers: Any) -> float | None:
    """Seconds that a response asks to wait (``Retry-After``, or the ``t=`` of ``RateLimit``)."""
    found = re.fullmatch(r"\s*(\d+)\s*", headers.get("retry-after", "")) or re.search(
        r"\bt=(\d+)", headers.get("ratelimit", "")
    )
    return float(found[1]) if found else None


def _append(url: str, part: Path, have: int, listed: int, stop: threading.Event) -> None:
    """Fetch what is missing behind the first ``have`` bytes of ``part``; from the start where the server sends it all.

    Ends where more than the ``listed`` bytes come (such a file is wrong, and could fill the disk), and with ``stop``.
    """
    from huggingface_hub import get_session, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers

    headers = build_hf_headers() | {"accept-encoding": "identity"}
    if have:
        headers["range"] = f"bytes={have}-"
    with get_session().stream("GET", url, headers=headers, timeout=SILENCE) as response:
        if response.status_code in _LATER:
            raise _Later(response.status_code, _wait_asked(response.headers))
        if response.status_code == 416:
            part.unlink()
            return
        if response.status_code >= 400:
            response.read()
        hf_raise_for_status(response)
        start = re.match(r"bytes (\d+)-", response.headers.get("content-range", ""))
        more = response.status_code == 206 and start is not None and int(start[1]) == have
        with naming(part), part.open("ab" if more else "wb") as stream:
            # No size: the client would hold back, and with a broken connection lose, what does not fill a block yet.
            for block in response.iter_bytes():
                stream.write(block)
                if stream.tell() > listed or stop.is_set():
                    return


def _right(path: Path, remote: Remote) -> bool:
    """Whether a file has the hash that the repository lists."""
    if remote.sha256:
        return sha256_file(path) == remote.sha256
    digest = hashlib.sha1(f"blob {remote.bytes}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest() == remote.blob


class _Stopped(Exception):
    """Another file's failure, or Ctrl-C, ends the download; what came is kept."""


def _pause(seconds: float, stop: threading.Event) -> None:
    stop.wait(seconds)


def fetch_file(url: str, target: Path, remote: Remote, stop: threading.Event) -> None:
    """Fetch one file; it stands under its name only whole and with the listed hash. A half-fetched one is taken up again.

    Raises UserError for a file that comes with another hash twice; the client's errors when the hub keeps refusing.
    """
    from huggingface_hub import errors

    if target.exists() and target.stat().st_size == remote.bytes:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    failures, wrong = 0, 0
    while True:
        if stop.is_set():
            raise _Stopped
        have = part.stat().st_size if part.exists() else 0
        if part.exists() and have >= remote.bytes:
            if have == remote.bytes and _right(part, remote):
                break
            part.unlink()
            wrong += 1
            if wrong == 2:
                raise UserError(
                    f"{target}: what the hub sends has another hash than its list says; not used (is a proxy altering files?)"
                )
            continue
        error: BaseException | None = None
        try:
            _append(url, part, have, remote.bytes, stop)
        except _Later as later:
            error = later
        except errors.HTTPError as other:
            if _status(other) is not None:
                raise
            error = other
        if part.exists() and part.stat().st_size > have:
            failures = 0
        else:
            failures += 1
        if failures >= TRIES:
            raise error or UserError(f"{target}: the hub sends {have} of {remote.bytes} bytes and no more")
        if error is not None:
            asked = getattr(error, "wait", None)
            wait = min(2.0**failures if asked is None else asked, LONGEST_WAIT)
            _say(f"{target.name}: {clean(str(error) or type(error).__name__)}; again in {wait:.0f} s")
            _pause(wait, stop)
    os.replace(part, target)


def _check_space(corpus: Corpus, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"corpus {corpus.name}: {needed / 1e9:,.1f} GB are still to be fetched, {folder} has {free / 1e9:,.1f} GB free; name a "
            f"folder on another file system (`locations: {{{corpus.name}: FOLDER}}` in config.yaml)"
        )


def _url(corpus: Corpus, name: str, commit: str) -> str:
    from huggingface_hub import hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None
    return hf_hub_url(corpus.repository, name, repo_type="dataset", revision=commit, endpoint=endpoint)


def download(
    corpus: Corpus, cache: Path, instead: tuple[str, ...] = ()
) -> tuple[Path, str, dict[str, Remote]]:
    """Fetch the files of a hub corpus into ``cache``. Returns their folder, the commit, and what each file is.

    Raises UserError with one line of advice when the hub refuses, asks for patience or cannot be reached, when a listed name
    would leave the folder, when nothing matches, and when the disk is too small.
    """
    from filelock import FileLock
    from huggingface_hub import errors

    check_patterns(corpus)
    base = cache / str(corpus.repository).replace("/", "--")
    base.mkdir(parents=True, exist_ok=True)
    # One download of a repository at a time: several corpora may read from it.
    with FileLock(str(base / ".lock")):
        try:
            commit = _commit(corpus, base)
            folder = base / commit
            files = _listing(corpus, commit, folder)
            chosen, _ = splits_of(files, corpus)
            for split, patterns in missing_splits(corpus, chosen):
                near = did_you_mean(patterns[0], list(files)[:1000])
                raise UserError(
                    f"corpus {corpus.name}: no {split} file of {corpus.repository} matches {', '.join(patterns)}{near}"
                )
            targets = {name: inside(folder, name) for name in chosen}
            _fetch_all(corpus, commit, folder, {name: files[name] for name in chosen}, targets)
        except (OSError, errors.HTTPError, _Later) as error:
            if isinstance(error, OSError) and error.errno is not None and _status(error) is None:
                raise  # the disk's errors are not the hub's
            raise refused(corpus, error, instead) from None
    return folder, commit, {name: files[name] for name in chosen}


def _fetch_all(
    corpus: Corpus, commit: str, folder: Path, files: dict[str, Remote], targets: dict[str, Path]
) -> None:
    """Fetch what is missing, a few files at a time; the first failure ends it, finished and half files stay."""
    missing = [n for n, t in targets.items() if not (t.exists() and t.stat().st_size == files[n].bytes)]
    if not missing:
        return
    parts = [targets[name].with_name(f".{targets[name].name}.part") for name in missing]
    kept = sum(part.stat().st_size for part in parts if part.exists())
    total = sum(files[name].bytes for name in missing)
    _check_space(corpus, folder, total - kept)
    from huggingface_hub import get_token

    _say(
        f"{corpus.repository}@{commit[:8]}: {len(missing)} files, {total / 1e9:,.2f} GB, of which {kept / 1e9:,.2f} GB are here"
        + ("" if get_token() else "; without HF_TOKEN the hub limits requests more strictly")
    )
    start, done, stop = time.monotonic(), 0, threading.Event()

    def one(name: str) -> str:
        fetch_file(_url(corpus, name, commit), targets[name], files[name], stop)
        return name

    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for number, name in enumerate(pool.map(one, missing), 1):
                done += files[name].bytes
                rate = max(0, done - kept) / 1e6 / max(1e-9, time.monotonic() - start)
                _say(
                    f"{number}/{len(missing)} {name}: {files[name].bytes / 1e6:,.1f} MB ({rate:,.0f} MB/s in all)"
                )
        except BaseException:
            stop.set()
            raise
