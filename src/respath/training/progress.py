"""What a person sees while a run trains: a bar on a terminal, a line per interval otherwise, and ``train.log``."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


class Reporter:
    """Says lines on stderr and appends them to the log; shows the training's progress. Silent on other ranks."""

    def __init__(self, name: str, leads: bool = True):
        self.name, self.leads = name, leads
        self._log = None
        self._bar = None
        self._task = None

    def open_log(self, path: Path) -> None:
        """Append from now on; a log that cannot be written costs one warning, not the run."""
        if not self.leads:
            return
        try:
            self._log = path.open("a", encoding="utf-8")
        except OSError as error:
            self.say(f"warning: {path}: {error.strerror}; going on without this log")

    def record(self, line: str) -> None:
        """A line for the log only."""
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
                self._log.flush()

    def say(self, line: str) -> None:
        """A line for the person and the log."""
        if not self.leads:
            return
        self.record(line)
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def start(self, step: int, steps: int, every: int) -> None:
        """Begin showing progress from ``step`` of ``steps``."""
        self.steps, self.every = steps, every
        self._begun, self._first = time.monotonic(), step
        if self.leads and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tokens/s  left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                refresh_per_second=4,
            )
            self._task = self._bar.add_task(self.name, total=steps, completed=step, loss="-", speed="-")
            self._bar.start()

    def step(self, step: int, loss: float, lr: float, tokens_per_step: int) -> None:
        """Show that ``step`` steps are done."""
        if not self.leads:
            return
        due = step % self.every == 0 or step == self.steps
        if self._bar is None and not due:
            return
        elapsed = max(time.monotonic() - self._begun, 1e-9)
        speed = (step - self._first) * tokens_per_step / elapsed
        if self._bar is not None:
            self._bar.update(self._task, completed=step, loss=f"{loss:.4f}", speed=f"{speed:,.0f}")
        if due:
            left = (self.steps - step) * elapsed / max(step - self._first, 1)
            line = (
                f"{self.name}: step {step}/{self.steps}  loss {loss:.4f}  lr {lr:.2e}  "
                f"{speed:,.0f} tokens/s  left {_duration(left)}"
            )
            self.record(line) if self._bar is not None else self.say(line)

    def close(self) -> None:
        """End the bar and the log."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.close()
            self._log = None
