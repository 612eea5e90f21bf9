"""Requests to stop: signals and the wall-clock limit, answered between two steps."""

from __future__ import annotations

import signal
import time

from respath.errors import RETRY, UserError


class Stopped(UserError):
    """Work ended on request with everything kept: the same command goes on (exit code 75)."""

    exit_code = RETRY


class StopRequest:
    """Remembers that this process was asked to stop, and why.

    The handlers only set a field: a signal that arrives while a checkpoint is being written, even a second one,
    interrupts nothing. The trainer looks at ``reason`` after each step.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def __init__(self, limit_minutes: float | None = None):
        self.started = time.monotonic()
        self.limit_seconds = None if limit_minutes is None else limit_minutes * 60
        self.reason: str | None = None

    def listen(self) -> None:
        """Install the handlers: before the slow imports, so that an early signal is a request as well."""
        for number in self.SIGNALS:
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame) -> None:
        self.reason = self.reason or signal.Signals(number).name

    def check(self, reserve_seconds: float = 0.0) -> str | None:
        """Why to stop now, or None. ``reserve_seconds``: what one more step and a checkpoint would take."""
        spent = time.monotonic() - self.started + reserve_seconds
        if self.reason is None and self.limit_seconds is not None and spent >= self.limit_seconds:
            self.reason = f"the time limit of {self.limit_seconds / 60:g} minutes"
        return self.reason
