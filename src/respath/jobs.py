"""The environment that workflow jobs inherit (the library itself never imports Snakemake)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from respath.gpu_lease import SWITCH


def export_environment(root: Path) -> None:
    """Put our sources and the running Python first on the paths of child processes, and say where the project is.

    ``PATH`` matters when Snakemake was started as ``.venv/bin/snakemake`` without activating its environment: a job's
    ``python`` must be that one.
    """
    sources = [str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(sources)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    os.environ["RESPATH_ROOT"] = str(root)


def export_gpu_lease(wanted: bool) -> None:
    """Whether jobs take GPUs for themselves (``respath.gpu_lease``): training and evaluation alike."""
    os.environ[SWITCH] = "1" if wanted else "0"
