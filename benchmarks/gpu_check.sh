#!/bin/sh
# What the CPU tests cannot see, on one GPU in under six minutes: kernels, step time, MFU and memory, decoding, a short
# training. Writes benchmarks/gpu.json, which `python -m benchmarks --render` puts into docs/performance.md.
# Needs no network. Exit code 1 when a check failed; without a GPU it says so and exits 0.
#
#   benchmarks/gpu_check.sh [--seconds 330] [--out FILE] [--only PART ...]
#   benchmarks/gpu_check.sh --device cpu --small --out /tmp/gpu.json     the script itself, on any machine, in two minutes
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=$(command -v "$python" || command -v python3)
PYTHONPATH="$root/src:$root" exec "$python" -m benchmarks.gpu_check "$@"
