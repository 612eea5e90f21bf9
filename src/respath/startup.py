"""Start of a process that imports torch: half of what a short job costs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def slow_imports() -> Iterator[None]:
    """Import without garbage collection, and leave what modules are made of out of all later ones.

    Modules live as long as the process, yet collections walk their objects while they are made, now and then, and twice at
    the end: a third of what starting and ending a process with torch costs (docs/log.md). Objects that exist before stay, too.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
