"""Where a training's numbers come from: commit, sources, versions and machine, without anybody's paths."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

import respath

_PACKAGES = ("torch", "numpy", "safetensors", "pydantic", "deepspeed")


def _git(*arguments: str) -> str | None:
    folder = Path(respath.__file__).resolve().parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.strip()
    return None


def commit() -> dict[str, Any]:
    """Commit and whether tracked files differ from it; both None outside a git checkout of this package."""
    tracked = _git("ls-files", "--error-unmatch", "__init__.py")
    head = _git("rev-parse", "HEAD") if tracked else None
    if head is None:
        return {"commit": None, "dirty": None}
    return {"commit": head, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}


def processor() -> str:
    """Model name of the CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of the packages that training runs on, and of Python."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def provenance() -> dict[str, Any]:
    """What is the same for every run of this installation."""
    return {
        **commit(),
        "versions": versions(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "processor": processor(),
    }
