"""One trainer per run: a lock that ends with its process, and a heartbeat that is watched, never compared with a clock."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time

import pytest

from respath.errors import RETRY
from respath.training.lease import LEASE_HELD, Lease, LeaseHeld
from respath.training.stopping import Stopped

#: Short enough for tests; a beat must fit into the time after which a writer counts as dead, many times over.
QUICK = {"beat_seconds": 0.05, "stale_seconds": 1.0}


def foreign_record(folder, beat: int = 1) -> None:
    """A heartbeat of a trainer on another machine, with a clock that is years off."""
    record = {
        "host": "node7",
        "pid": 1,
        "time": "1999-01-01T00:00:00Z",
        "beat": beat,
        "machine": "other",
        "token": "x",
    }
    part = folder / "part"
    part.write_text(json.dumps(record))
    part.replace(folder / "lease.json")


def hold(folder, taken) -> None:
    with Lease(folder, **QUICK):
        taken.set()
        time.sleep(600)


@pytest.fixture
def holder(tmp_path):
    """Another process of this machine that holds the lease."""
    context = multiprocessing.get_context("fork")
    taken = context.Event()
    process = context.Process(target=hold, args=(tmp_path, taken))
    process.start()
    assert taken.wait(30)
    yield process
    process.kill()
    process.join()


def test_a_lease_is_free_again_after_it_ends(tmp_path):
    for _ in range(2):
        with Lease(tmp_path, **QUICK) as lease:
            record = json.loads(lease.record_path.read_text())
            assert record["pid"] == os.getpid() and {"host", "time", "beat"} <= set(record)
        assert not lease.record_path.exists()


def test_a_second_process_is_told_who_holds_it(tmp_path, holder):
    with pytest.raises(LeaseHeld, match=f"process {holder.pid}") as held, Lease(tmp_path, **QUICK):
        pass
    assert held.value.exit_code == LEASE_HELD and len(held.value.lines) == 1


def test_death_by_kill_frees_the_lease_at_once(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert (tmp_path / "lease.json").exists(), "the dead leave their record behind"
    with Lease(tmp_path, beat_seconds=0.05, stale_seconds=1e9):
        pass


def test_waiting_ends_when_the_holder_does(tmp_path, holder):
    threading.Timer(0.3, holder.kill).start()
    said = []
    with Lease(tmp_path, wait_minutes=1, say=said.append, **QUICK):
        assert not holder.is_alive()
    assert len(said) == 1 and "waiting for another trainer" in said[0]


def test_waiting_ends_after_the_minutes_given(tmp_path, holder):
    with pytest.raises(LeaseHeld), Lease(tmp_path, wait_minutes=0.2 / 60, **QUICK):
        pass
    assert holder.is_alive()


def test_a_stop_request_ends_the_waiting_as_retryable(tmp_path, holder):
    with (
        pytest.raises(Stopped, match="SIGTERM: stopped while waiting") as stopped,
        Lease(tmp_path, wait_minutes=10, should_stop=lambda: "SIGTERM", **QUICK),
    ):
        pass
    assert stopped.value.exit_code == RETRY


def test_a_silent_record_of_another_machine_is_taken_over_whatever_its_clock_says(tmp_path):
    foreign_record(tmp_path)
    said, begun = [], time.monotonic()
    with Lease(tmp_path, say=said.append, **QUICK):
        assert time.monotonic() - begun >= QUICK["stale_seconds"]
    assert "waiting" in said[0] and "node7" in said[0] and "silent; taking over" in said[1]


def test_a_beating_record_of_another_machine_is_waited_for_until_it_goes(tmp_path):
    def beat():
        for number in range(20):
            foreign_record(tmp_path, number)
            time.sleep(0.1)
        (tmp_path / "lease.json").unlink()

    thread = threading.Thread(target=beat)
    foreign_record(tmp_path)
    thread.start()
    said = []
    with Lease(tmp_path, say=said.append, **QUICK):
        assert not thread.is_alive() or not any("taking over" in line for line in said)
    thread.join()
    assert not any("taking over" in line for line in said)


def test_a_beating_record_of_another_machine_is_left_alone_after_the_minutes_given(tmp_path):
    ended = threading.Event()

    def beat():
        number = 0
        while not ended.is_set():
            number += 1
            foreign_record(tmp_path, number)
            time.sleep(0.02)

    thread = threading.Thread(target=beat)
    foreign_record(tmp_path)
    thread.start()
    try:
        with pytest.raises(LeaseHeld, match="node7"), Lease(tmp_path, wait_minutes=0, **QUICK):
            pass
    finally:
        ended.set()
        thread.join()


def test_a_holder_that_slept_through_a_takeover_learns_that_it_lost_the_lease(tmp_path):
    with Lease(tmp_path, **QUICK) as lease:
        foreign_record(tmp_path)
        deadline = time.monotonic() + 30
        while not lease.lost and time.monotonic() < deadline:
            time.sleep(0.01)
        assert lease.lost
    assert (tmp_path / "lease.json").exists(), "the new holder's record stays"
