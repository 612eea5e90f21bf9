"""The GPU check on a CPU: every part at tiny shapes, what it says without a GPU, and that it finds a wrong kernel."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest
import torch

from benchmarks import gpu_check, gpu_kernels
from benchmarks.gpu_page import gpu_lines
from benchmarks.gpu_part import Part
from respath.accounting.plan import PEAK_FLOPS, peak_key
from respath.files import read_json
from respath.model import kernels
from tests.project_copy import ROOT

GROUPED = "window, grouped, odd length"
SCRIPT = ROOT / "benchmarks" / "gpu_check.sh"


def script(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [str(SCRIPT), *arguments], env=environment, capture_output=True, text=True, timeout=1300
    )


@pytest.mark.slow
def test_every_part_runs_at_tiny_shapes_on_a_cpu_within_its_time(tmp_path):
    out = tmp_path / "gpu.json"
    ended = script("--device", "cpu", "--small", "--seconds", "1200", "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    report = read_json(out)
    assert report["seconds"] < 1200 and report["device"]["kind"] == "cpu"
    parts = report["parts"]
    assert list(parts) == sorted(gpu_check.SHARES)
    for name, part in parts.items():
        assert part["error"] is None and part["rows"], (name, part)
        assert not [row for row in part["rows"] if "error" in row], name
    assert report["checks"]["ok"] and report["checks"]["failed"] == 0

    checked = {(row["kernel"], row["dtype"]) for row in parts["kernels"]["rows"]}
    assert {
        (kernel, dtype) for kernel in ("eager", "sdpa", "auto", "flex") for dtype in ("fp32", "bf16")
    } <= checked
    assert {row["model"] for row in parts["models"]["rows"]} == {
        f"resformer/{size}/{variant}" for size, variant in gpu_check_models()
    }
    resumed, whole = parts["training"]["rows"]
    assert 0 < resumed["resumed_after"] < resumed["steps"] and resumed["final_loss"] < resumed["first_loss"]
    assert whole["same_weights"] is True
    assert all(row["cache_bytes"] == row["formula_bytes"] for row in parts["decoding"]["rows"])
    papers = {row["variant"].split("/")[0] for row in parts["variants"]["rows"]}
    assert {"resformer", "bov", "depthbench"} <= papers
    said = {each["what"]: each["why"] for part in parts.values() for each in part["skipped"]}
    assert "flash_attn" in said and "GPU" in said["compiled steps"] and "CPU" in said["flex, backward"]
    assert gpu_lines(report) == gpu_lines(None), "a CPU's numbers are not a GPU's"


def gpu_check_models():
    from benchmarks.gpu_speed import MODELS

    return MODELS


def test_without_a_gpu_it_says_so_and_touches_nothing_but_the_file_it_is_given(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    before = gpu_check.MEASURED.read_bytes() if gpu_check.MEASURED.exists() else None
    out = tmp_path / "gpu.json"
    ended = script("--out", str(out))
    assert ended.returncode == 0 and ended.stdout.startswith("no GPU: "), ended.stderr
    report = read_json(out)
    assert report["device"] is None and report["parts"] == {} and report["reason"] in ended.stdout
    assert gpu_check.main([]) == 0
    assert (gpu_check.MEASURED.read_bytes() if gpu_check.MEASURED.exists() else None) == before


def test_a_cpu_is_not_given_the_papers_shapes(capsys):
    assert gpu_check.main(["--device", "cpu"]) == 2
    assert "--small" in capsys.readouterr().err


def checked(tmp_path, kernel: str) -> list[dict]:
    """Rows of one kernel's checks on a CPU."""
    part = Part("cpu", True, 60, tmp_path / "rows.json")
    gpu_kernels.check_kernels(part, (kernel,))
    assert read_json(tmp_path / "rows.json")["rows"] == part.rows
    return part.rows


def test_the_kernels_of_a_cpu_keep_their_limits(tmp_path):
    rows = checked(tmp_path, "sdpa")
    assert len(rows) == 2 * len(gpu_kernels.cases(True))
    assert all(row["ok"] for row in rows), [row for row in rows if not row["ok"]]


@pytest.mark.parametrize("wrong", ["scale", "window", "gradient", "last row", "nan", "crash"])
def test_a_wrong_kernel_is_found(tmp_path, monkeypatch, wrong):
    right = kernels._sdpa

    def off(q, k, v, seen, dropout):
        if wrong == "scale":
            return right(q * 1.05, k, v, seen, dropout)
        if wrong == "window" and seen.square and seen.window is not None:
            return right(q, k, v, seen._replace(window=seen.window - 1), dropout)
        if wrong == "gradient":
            return right(q, k.detach() + 0.9 * (k - k.detach()), v, seen, dropout)
        out = right(q, k, v, seen, dropout)
        if wrong == "last row" and seen.square:
            out = torch.cat((out[:, :-1], 1.05 * out[:, -1:]), 1)
        if wrong == "nan" and seen.square:
            out = torch.cat((out[:, :-1], out[:, -1:] * float("nan")), 1)
        if wrong == "crash" and q.shape[2] != k.shape[2]:
            raise RuntimeError("no such kernel\nsecond line")
        return out

    some = [case for case in gpu_kernels.cases(True) if case.name in ("odd length", GROUPED)]
    monkeypatch.setattr(gpu_kernels, "cases", lambda small: some)
    monkeypatch.setattr(kernels, "_sdpa", off)
    rows = checked(tmp_path, "sdpa")
    assert len(rows) == 4
    failed = {row["dtype"] for row in rows if row["ok"] is False}
    assert failed == {"fp32", "bf16"}
    if wrong == "window":
        assert {row["case"] for row in rows if row["ok"] is False} == {GROUPED}
    report = gpu_check.verdict({"kernels": {"rows": rows}})
    assert not report["ok"] and report["failed"] == sum(row["ok"] is False for row in rows)
    if wrong == "crash":
        assert {row["error"] for row in rows if "error" in row} == {"RuntimeError: no such kernel"}


def test_a_wrong_kernel_makes_the_exit_code_one(tmp_path, monkeypatch):
    right = kernels._sdpa
    monkeypatch.setattr(kernels, "_sdpa", lambda q, *others: 1.01 * right(q, *others))
    monkeypatch.setattr(gpu_kernels, "cases", lambda small: [gpu_kernels.Case("one", 2, 2, 16, 20)])
    monkeypatch.setattr(gpu_kernels, "MODELS", ())
    out = tmp_path / "rows.json"
    part = ["--device", "cpu", "--small", "--part", "kernels", "--out", str(out)]
    assert gpu_check.main(part) == 1
    assert {row["kernel"] for row in read_json(out)["rows"] if not row["ok"]} == {"sdpa", "auto"}
    monkeypatch.setattr(kernels, "_sdpa", right)
    assert gpu_check.main(part) == 0


def options(**more) -> argparse.Namespace:
    return argparse.Namespace(device="cpu", small=True, **more)


def test_a_part_that_hangs_or_dies_costs_its_time_and_nothing_else(tmp_path, monkeypatch):
    hanging = tmp_path / "python"
    hanging.write_text(
        "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ $1 = --out ] && out=$2; shift; done\n"
        """echo '{"rows": [{"ok": true}], "skipped": [], "error": null, "doing": "the second"}' > $out\n"""
        "echo oh dear >&2\n[ $DIE = 1 ] && exit 9\nsleep 60\n"
    )
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(gpu_check, "GRACE_SECONDS", 0.5)
    monkeypatch.setenv("DIE", "0")
    hung = gpu_check.measured_part("kernels", tmp_path, options(), 0.5)
    assert hung["rows"] == [{"ok": True}] and hung["seconds"] < 5
    assert hung["skipped"][0]["what"] == "the second" and gpu_check.status_of(hung) == "partly"
    monkeypatch.setenv("DIE", "1")
    died = gpu_check.measured_part("kernels", tmp_path, options(), 0.5)
    assert died["error"] == "ended with exit code 9 at the second: oh dear" and died["rows"] == hung["rows"]


def test_peaks_are_found_by_product_name():
    names = {
        "NVIDIA A100-SXM4-80GB": "a100",
        "NVIDIA A100 80GB PCIe": "a100",
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H100 PCIe": "h100-pcie",
        "NVIDIA H100 NVL": "h100-nvl",
        "NVIDIA H200": "h200",
        "NVIDIA GH200 480GB": "gh200",
        "NVIDIA L40S": "l40s",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb": None,
        "NVIDIA L40": None,
        "Some CPU": None,
    }
    assert {name: peak_key(name) for name in names} == names
    assert all(key in PEAK_FLOPS for key in names.values() if key)


def gpu_report() -> dict:
    """A report as a GPU would give it, with made-up numbers: what the page does with each kind of row."""
    rows = {
        "kernels": [
            {"case": "a", "kernel": "sdpa", "dtype": "bf16", "forward": 1e-3, "backward": None, "ok": True},
            {"case": "b", "kernel": "sdpa", "dtype": "bf16", "forward": 0.5, "backward": 0.25, "ok": False},
            {
                "case": "model m",
                "kernel": "sdpa",
                "dtype": "fp32",
                "forward": 1e-7,
                "backward": 1e-6,
                "ok": True,
            },
        ],
        "models": [
            {"model": "m", "mode": "eager", "error": "out of GPU memory", "ok": None},
            {
                **{"model": "m", "mode": "compiled", "sequences": 32, "context": 2048, "seconds": 0.5},
                **{
                    "tokens_per_second": 131072.0,
                    "mfu": 0.41,
                    "peak_bytes": 31_000_000_000,
                    "compile_seconds": 62.0,
                },
            },
        ],
        "variants": [{"variant": "p/s/v", "seconds": 0.02, "over_baseline": 1.25, "peak_bytes": None}],
    }
    about = {"limits": {**gpu_kernels.LIMITS, "whole models": gpu_kernels.MODEL_LIMITS}}
    parts = {
        name: {"about": about, "rows": some, "skipped": [], "error": None} for name, some in rows.items()
    }
    parts["variants"]["skipped"] = [{"what": "3 variants of p", "why": "no time"}]
    device = {
        "kind": "cuda",
        "name": "G",
        "memory_bytes": 10**11,
        "driver": "1",
        "peak": "h200",
        "peak_flops": 989e12,
    }
    return {
        "device": device,
        "software": {"torch": "9", "flash_attn": None},
        "settings": {"small": False},
        "seconds": 300.0,
        "checks": gpu_check.verdict(parts),
        "parts": parts,
    }


def test_the_page_shows_what_was_measured_and_what_was_left_out():
    text = "\n".join(gpu_lines(gpu_report()))
    assert "989 TFLOP/s" in text and "2 checks passed, **1** failed" in text
    assert "| attention | sdpa | bf16 | 2 | 5.0e-01 (7.8e-03) | 2.5e-01 (1.6e-02) | **1** |" in text
    assert "| m | compiled | 32 of 2,048 | 0.500 | 131,072 | 41.0% | 31.00 GB | 62 s |" in text
    assert "* models: m eager: out of GPU memory" in text and "* variants: 3 variants of p: no time" in text
    assert "| p/s/v | 0.0200 | 1.25 | -- | -- | -- |" in text


def test_without_numbers_the_page_names_the_command():
    assert "Not measured" in "\n".join(gpu_lines(None)) and str(SCRIPT.relative_to(ROOT)) in "\n".join(
        gpu_lines(None)
    )
    assert gpu_lines({"device": None, "parts": {}}) == gpu_lines(None)
    small = {**gpu_report(), "settings": {"small": True}}
    assert gpu_lines(json.loads(json.dumps(small))) == gpu_lines(None)
