"""What every part of the GPU check has: its device, its share of the time, and rows that are on disk as soon as they are known."""

from __future__ import annotations

import gc
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
#: Longest one-line error that is kept.
LINE = 300


def one_line(error: BaseException | str) -> str:
    """Kind and first line of an error."""
    said = str(error).strip()
    first = said.splitlines()[0] if said else ""
    kind = "" if isinstance(error, str) else type(error).__name__
    return ": ".join(filter(None, (kind, first)))[:LINE]


def plain(value: Any) -> Any:
    """A JSON value: a number that is not finite becomes None, as JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Part:
    """One part at work.

    ``rows``: what was measured or checked, one dictionary each; ``ok`` in a row says whether a check held, and is None or missing
    where nothing was checked. ``skipped``: what was left out, and why. ``about``: what holds for all rows.
    """

    def __init__(self, device: str, small: bool, seconds: float, out: Path):
        self.device, self.small, self.out = device, small, Path(out)
        self.end = time.monotonic() + seconds
        self.rows: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []
        self.about: dict[str, Any] = {}
        self.error: str | None = None
        self.doing = ""

    @property
    def cuda(self) -> bool:
        """Whether this runs on a GPU."""
        return self.device.startswith("cuda")

    @property
    def left(self) -> float:
        """Seconds until this part should end."""
        return self.end - time.monotonic()

    def write(self) -> None:
        """Put on disk what there is: a part that is ended from outside loses nothing but what it is at.

        Whole or as before, but not flushed through to the disk each time: nobody cuts the power.
        """
        content = {
            "about": self.about,
            "rows": self.rows,
            "skipped": self.skipped,
            "error": self.error,
            "doing": self.doing,
        }
        fresh = self.out.with_suffix(".part")
        fresh.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        os.replace(fresh, self.out)

    def row(self, **values: Any) -> dict[str, Any]:
        """Keep a row."""
        self.rows.append({key: plain(value) for key, value in values.items()})
        self.write()
        return self.rows[-1]

    def skip(self, what: str, why: str) -> None:
        """Say what is left out."""
        self.skipped.append({"what": what, "why": why})
        self.write()

    def affords(self, what: str, seconds: float = 0.0) -> bool:
        """Whether there is time for something that takes about so long; says so when there is not."""
        if self.left > seconds:
            self.doing = what
            self.write()
            return True
        needed = f", about {seconds:.0f} s needed" if seconds else ""
        self.skip(what, f"no time: {max(self.left, 0):.0f} s left{needed}")
        return False

    def attempt(self, name: dict[str, Any], action: Callable[[], Any], check: bool = False) -> Any:
        """What ``action`` returns; an error becomes a row (``name`` and the error in one line) and None.

        ``check``: the action is a check, so that breaking down counts as failing it. Want of memory or time never does.
        """
        try:
            return action()
        except torch.OutOfMemoryError:
            self.row(**name, error="out of GPU memory", ok=None)
        except TimeoutError as error:
            self.row(**name, error=one_line(str(error)), ok=None)
        except Exception as error:
            self.row(**name, error=one_line(error), ok=False if check else None)
        return None

    def free(self) -> None:
        """Give back the memory of what is no longer referred to."""
        gc.collect()
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def held(self) -> int:
        """Bytes of GPU memory in use by tensors; 0 on a CPU."""
        return torch.cuda.memory_allocated() if self.cuda else 0

    def watch_memory(self) -> None:
        """Forget the peak so far."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def peak(self, beside: int = 0) -> int | None:
        """Peak bytes since ``watch_memory``, less what was there ``beside``; None on a CPU, where nothing counts them."""
        return torch.cuda.max_memory_allocated() - beside if self.cuda else None
