"""What a GPU does with this project, in under six minutes and without network: one JSON, benchmarks/gpu.json.

  kernels   every attention kernel against the definition, forward and backward, fp32 and bf16; whole models
  models    step time, MFU and peak memory of ResFormer's 82M and 468M at the paper's shape, eager and compiled
  training  a short 82M run by the real trainer: killed, resumed, and compared with the same run in one piece
  decoding  tokens per second with a cache, its bytes beside the formula, its logits beside the full forward pass
  variants  step time and peak memory of every variant of the three papers at one modest shape

Each part runs in a process of its own, so that a broken one (a sticky CUDA error, a compilation without end) costs its share of
the time and nothing else. Time that a part leaves goes to the later ones; what there was no time for is listed.

Exit codes: 0 fine, or no GPU; 1 a check failed; 2 wrong use. ``python -m benchmarks --render`` renders the result.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_page import MEASURED
from benchmarks.gpu_part import ROOT, Part, one_line
from respath.errors import CHECK_FAILED, OK, UserError, guard
from respath.files import read_json, write_json

#: Parts in their order, and their shares of the time.
SHARES = {"kernels": 75, "models": 95, "training": 65, "decoding": 30, "variants": 65}
#: A part that has not ended by itself is ended when it is over its time by this share of it, and these seconds.
GRACE_SHARE, GRACE_SECONDS = 0.15, 3
SECONDS = {False: 330, True: 150}
#: What a part leaves that did not begin.
NOTHING: dict[str, Any] = {"about": {}, "rows": [], "error": None}


def run_part(part: Part, name: str) -> None:
    """Do one part's work; an error that no row caught is the part's."""
    import torch

    from benchmarks import gpu_kernels, gpu_speed, gpu_training

    works = {
        "kernels": gpu_kernels.run,
        "models": gpu_speed.run_models,
        "training": gpu_training.run,
        "decoding": gpu_speed.run_decoding,
        "variants": gpu_speed.run_variants,
    }
    torch.manual_seed(0)
    part.write()
    try:
        works[name](part)
    except Exception as error:
        part.error = one_line(error)
    part.doing = ""
    part.write()


# --- the machine ----------------------------------------------------------------------------------------------------


def no_gpu() -> str | None:
    """Why there is no GPU to check, None where there is one."""
    import torch

    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None and torch.version.hip is None:
        return f"this PyTorch ({torch.__version__}) was built without CUDA"
    return "PyTorch sees no device (nvidia-smi says what the driver sees; CUDA_VISIBLE_DEVICES may hide it)"


def driver() -> str | None:
    """Version of the NVIDIA driver, None where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(command, capture_output=True, text=True, timeout=20)
        if said.returncode == 0 and said.stdout.strip():
            return said.stdout.split()[0]
    return None


def describe(device: str) -> dict[str, Any]:
    """Device and software. Initialises CUDA: for a process that ends soon, whose memory is given back."""
    import importlib.metadata

    import torch

    from respath.accounting.plan import PEAK_FLOPS, peak_key

    def version(package: str) -> str | None:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
        return None

    software = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": version("triton"),
        "flash_attn": version("flash-attn"),
    }
    if not device.startswith("cuda"):
        return {"device": {"kind": "cpu", "name": platform.machine()}, "software": software}
    found = torch.cuda.get_device_properties(0)
    key = peak_key(found.name)
    return {
        "device": {
            "kind": "cuda",
            "name": found.name,
            "memory_bytes": found.total_memory,
            "capability": f"{found.major}.{found.minor}",
            "processors": found.multi_processor_count,
            "driver": driver(),
            "peak": key,
            "peak_flops": PEAK_FLOPS[key] if key else None,
        },
        "software": software,
    }


# --- all parts ------------------------------------------------------------------------------------------------------


def own_process(arguments: list[str], log: Path, seconds: float, compiler_cache: Path) -> int | None:
    """Exit code of this module in a process of its own; None when it was over its time and was ended."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        # Empty at the start: a time to compile that a cache shortened says nothing.
        "TORCHINDUCTOR_CACHE_DIR": str(compiler_cache),
    }
    command = [sys.executable, "-m", "benchmarks.gpu_check", *arguments]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # The part and what it has started: a trainer, the compiler's workers.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_line(log: Path) -> str:
    """What a process said last."""
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return one_line(said[-1]) if said else "said nothing"


def measured_part(name: str, folder: Path, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One part's record: rows, what was skipped, how it ended."""
    rows, log, begun = folder / f"{name}.json", folder / f"{name}.log", time.monotonic()
    arguments = [
        "--part",
        name,
        "--device",
        options.device,
        "--seconds",
        f"{seconds:.1f}",
        "--out",
        str(rows),
    ]
    arguments += ["--small"] if options.small else []
    limit = (1 + GRACE_SHARE) * seconds + GRACE_SECONDS
    code = own_process(arguments, log, limit, folder / "compiler")
    found = read_json(rows) if rows.exists() else {**NOTHING, "skipped": [], "doing": "its start"}
    doing = found.pop("doing")
    if code is None:
        found["skipped"].append({"what": doing, "why": f"ended after {limit:.0f} s, this part's time"})
    elif code not in (OK, CHECK_FAILED):
        found["error"] = f"ended with exit code {code} at {doing or 'its end'}: {last_line(log)}"
    return {"seconds": round(time.monotonic() - begun, 1), "share": round(seconds, 1), **found}


def status_of(record: dict[str, Any]) -> str:
    """done, partly (something was left out or broke down) or failed (nothing came of it)."""
    if not record["rows"]:
        return "failed" if record["error"] else "partly"
    broken = record["error"] or any("error" in row for row in record["rows"])
    return (
        "partly"
        if broken or any(each["why"].startswith(("no time", "ended")) for each in record["skipped"])
        else "done"
    )


def verdict(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How many checks held and failed, and whether all is well.

    It is not when a check failed, nor when the kernels were to be checked and none was.
    """
    checks = [row["ok"] for record in parts.values() for row in record["rows"] if row.get("ok") is not None]
    nothing = "kernels" in parts and not any(row.get("ok") is not None for row in parts["kernels"]["rows"])
    return {"passed": sum(checks), "failed": len(checks) - sum(checks), "ok": all(checks) and not nothing}


def failures(name: str, record: dict[str, Any]) -> list[str]:
    """One line for each check of a part that failed, and for its error."""
    lines = [f"{name}: {record['error']}"] if record["error"] else []
    for row in record["rows"]:
        if row.get("ok") is False or "error" in row:
            said = ", ".join(
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.items()
            )
            lines.append(f"{name}: {said}")
    return lines


def check_all(options: argparse.Namespace) -> dict[str, Any]:
    """All parts, one after the other, within the time."""
    begun, report = time.monotonic(), {"schema": 1, "kind": "gpu_check"}
    # So that the parts are ended, too, when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="respath-gpu-") as name:
        folder = Path(name)
        about = folder / "device.json"
        code = own_process(
            ["--part", "device", "--device", options.device, "--out", str(about)],
            folder / "device.log",
            60,
            folder,
        )
        if code != OK:
            raise UserError(f"--device {options.device}: {last_line(folder / 'device.log')}")
        report |= read_json(about)
        wanted = [part for part in SHARES if part in (options.only or SHARES)]
        parts: dict[str, dict[str, Any]] = {}
        for number, part in enumerate(wanted):
            left = options.seconds - (time.monotonic() - begun)
            share = SHARES[part] / sum(SHARES[later] for later in wanted[number:])
            # The last part's grace has to fit as well.
            seconds = (left * share - GRACE_SECONDS) / (1 + GRACE_SHARE)
            print(f"{part}: up to {max(seconds, 0):.0f} s ...", file=sys.stderr, flush=True)
            if seconds < 1:
                skipped = [{"what": part, "why": "no time left"}]
                parts[part] = {**NOTHING, "seconds": 0.0, "share": 0.0, "skipped": skipped}
            else:
                parts[part] = measured_part(part, folder, options, seconds)
            parts[part]["status"] = status_of(parts[part])
            summary = f"{part}: {parts[part]['status']}, {len(parts[part]['rows'])} rows, {parts[part]['seconds']} s"
            print(summary, *failures(part, parts[part]), sep="\n  ", file=sys.stderr, flush=True)
            for each in parts[part]["skipped"]:
                print(f"  skipped: {each['what']} ({each['why']})", file=sys.stderr, flush=True)
    report["parts"], report["checks"] = parts, verdict(parts)
    report["settings"] = {"small": options.small, "seconds": options.seconds, "device": options.device}
    report["seconds"] = round(time.monotonic() - begun, 1)
    return report


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="benchmarks/gpu_check.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--small", action="store_true", help="tiny shapes: does the script work?")
    made.add_argument("--seconds", type=float, help="time for all parts (330; with --small 150)")
    made.add_argument("--only", nargs="+", choices=SHARES, help="these parts")
    made.add_argument(
        "--out",
        type=Path,
        help="the JSON (default: benchmarks/gpu.json for a whole check of a GPU, else none)",
    )
    made.add_argument("--part", choices=(*SHARES, "device"), help=argparse.SUPPRESS)
    made.add_argument("--debug", action="store_true", help="show tracebacks")
    return made


@guard
def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    options = parser().parse_args(arguments)
    options.seconds = options.seconds or SECONDS[options.small]
    if options.part == "device":
        write_json(options.out, describe(options.device))
        return OK
    if options.device == "cpu" and not options.small:
        raise UserError("--device cpu: the papers' shapes take hours on a CPU; add --small")
    if options.part:
        part = Part(options.device, options.small, options.seconds, options.out)
        run_part(part, options.part)
        return CHECK_FAILED if any(row.get("ok") is False for row in part.rows) else OK
    reason = no_gpu() if options.device == "cuda" else None
    if reason:
        print(f"no GPU: {reason}; nothing was measured (try the script itself: --device cpu --small)")
        report = {"schema": 1, "kind": "gpu_check", "device": None, "reason": reason, "parts": {}}
    else:
        report = check_all(options)
    whole = not reason and options.device == "cuda" and not options.small and not options.only
    out = options.out or (MEASURED if whole else None)
    if out is not None:
        write_json(out, report)
        print(out)
    if reason:
        return OK
    checks = report["checks"]
    print(f"{checks['passed']} checks passed, {checks['failed']} failed, {report['seconds']:.0f} s")
    return OK if checks["ok"] else CHECK_FAILED


if __name__ == "__main__":
    sys.exit(main())
