"""One trainer per run: an operating-system lock that death frees, and a heartbeat for hosts that do not share locks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from respath.errors import UserError
from respath.training.queue import in_slurm_job
from respath.training.stopping import Stopped

#: Exit code of a trainer that found another one at work on the same run (EX_UNAVAILABLE of sysexits.h).
LEASE_HELD = 69

#: Seconds between heartbeats, and how long one must stay unchanged, while we watch, before its writer counts as dead.
BEAT_SECONDS = 20.0
STALE_SECONDS = 120.0

#: The heartbeat has a fixed size and is overwritten in place, so that beating needs no free disk space.
_RECORD_BYTES = 512


class LeaseHeld(UserError):
    """Another trainer is at work on this run."""

    exit_code = LEASE_HELD


def _machine() -> str:
    """Identity of the running kernel: containers of one machine share it and share its file locks."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


class Lease:
    """The right to train in a folder. Use as a context manager around everything that writes there.

    On one machine the lock decides: POSIX locks end with their process, however it dies. Where another machine wrote
    the last heartbeat its lock may be invisible here (network file systems), so its heartbeat is watched: the writer
    is alive when the record changes while we look. Only our own monotonic clock is read, so clocks may differ or jump.
    """

    def __init__(
        self,
        folder: Path,
        wait_minutes: float | None = None,
        should_stop: Callable[[], str | None] = lambda: None,
        say: Callable[[str], None] = lambda line: None,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
    ):
        self.folder = Path(folder)
        self.wait_seconds = None if wait_minutes is None else wait_minutes * 60
        self.should_stop, self.say = should_stop, say
        self.beat_seconds, self.stale_seconds = beat_seconds, stale_seconds
        self.machine, self.host = _machine(), socket.gethostname()
        self.token = f"{self.host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.lost = False
        self._lock: int | None = None
        self._beats = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def record_path(self) -> Path:
        """The heartbeat: host, process id, time, counter."""
        return self.folder / "lease.json"

    # --- taking ---

    def __enter__(self) -> Lease:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lease.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise
        self._thread = threading.Thread(target=self._beat_until_ended, name="lease", daemon=True)
        self._thread.start()
        return self

    def _take(self) -> None:
        started = time.monotonic()
        watched, unchanged_since, seen_alive = self._read(), started, False
        told = False
        while True:
            locked, holder, now = self._try_lock(), self._read(), time.monotonic()
            here = holder is None or holder.get("machine") == self.machine
            if locked and here:
                break
            if holder != watched:
                watched, unchanged_since, seen_alive = holder, now, True
            if locked and now - unchanged_since >= self.stale_seconds:
                self.say(f"{self.folder}: the trainer on {self._name(holder)} has been silent; taking over")
                break
            # In a queue, leaving would only use up the job's retries: the other is usually what an earlier start of the
            # workflow submitted, and when it has finished there is nothing left to train.
            leave = here and not in_slurm_job()
            patience = self.wait_seconds if self.wait_seconds is not None else 0.0 if leave else math.inf
            # A record from elsewhere may be a dead trainer's: that takes some watching before it counts as held.
            if now - started >= patience and (not locked or seen_alive):
                raise LeaseHeld(
                    f"{self.folder}: another trainer is at work on this run ({self._name(holder)}); "
                    "let it finish, or wait for it with --runtime '{\"lease_wait_minutes\": 60}'"
                )
            if reason := self.should_stop():
                raise Stopped(f"{reason}: stopped while waiting for the trainer on {self._name(holder)}")
            if not told:
                told = True
                self.say(f"{self.folder}: waiting for another trainer of this run ({self._name(holder)})")
            time.sleep(min(1.0, self.beat_seconds / 4))
        self._write()

    def _try_lock(self) -> bool:
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            # A file system without locks: the heartbeat alone has to do.
            return True
        return True

    # --- holding ---

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(self.beat_seconds):
            # A full or absent disk must not end a training; the next beat may succeed.
            with contextlib.suppress(OSError):
                holder = self._read()
                if holder is not None and holder.get("token") != self.token:
                    # We slept so long (suspended machine) that another took over: writing now would mix two trainers.
                    self.lost = True
                    return
                self._write()

    def _write(self) -> None:
        self._beats += 1
        record = {
            "host": self.host,
            "pid": os.getpid(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "beat": self._beats,
            "machine": self.machine,
            "token": self.token,
        }
        text = json.dumps(record).ljust(_RECORD_BYTES - 1) + "\n"
        handle = os.open(self.record_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.pwrite(handle, text.encode(), 0)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _read(self) -> dict | None:
        try:
            record = json.loads(self.record_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    @staticmethod
    def _name(holder: dict | None) -> str:
        if holder is None:
            return "which has left no record yet"
        return f"host {holder.get('host')}, process {holder.get('pid')}, last heard {holder.get('time')}"

    # --- giving back ---

    def __exit__(self, *failure) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if not self.lost:
            with contextlib.suppress(OSError):
                self.record_path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
