"""What runs on a GPU, checked without one in a process of its own: a registered device guard stays until a process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # a minute: one model of every kind
def test_what_a_gpu_would_run_has_its_devices_kernels_memory_and_sums_right():
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "fake_cuda_checks.py")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    if " passed" not in done.stdout or "skipped" in done.stdout:
        pytest.skip(done.stdout[-600:])
