"""Measure what the project promises to be fast at, and write docs/performance.md.

python -m benchmarks              measure everything (about fifteen minutes on two idle cores), then render
python -m benchmarks --only plan  measure one part again and keep the other numbers
python -m benchmarks --variants resformer/dense bov/bov   these variants' steps and decoding again, the other rows stay
python -m benchmarks --render     render docs/performance.md from the stored numbers
benchmarks/gpu_check.sh           what a GPU does with it; rendered with the rest
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu_page import MEASURED, gpu_lines
from respath.files import read_json, write_json, write_text

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "benchmarks/numbers.json"
PAGE = ROOT / "docs/performance.md"
VALUE_PATH_GOAL = 1.03


def run(*arguments: str, threads: int = 1) -> str:
    """Standard output of a Python module or script of ours, on so many threads."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout


def plan() -> dict:
    """Wall and CPU time of dry runs (seconds, seven repetitions), in turn with what Snakemake takes without our rules.

    Its share is a dry run of one rule, and one of as many jobs of two rules with an input, an output and a command each.
    """
    scopes = {
        "snakemake -n all": ["all"],
        "snakemake -n all, every paper at scale paper": [
            "all",
            "--config",
            "scale=paper",
            "papers=[resformer,bov,depthbench]",
        ],
    }
    counts = {name: _jobs(dry_run(*scope)) for name, scope in scopes.items()}
    with tempfile.TemporaryDirectory() as folder:
        commands = {name: (counts[name], scope) for name, scope in scopes.items()}
        for jobs in (1, *counts.values()):
            bare = Path(folder) / f"{jobs}.smk"
            bare.write_text(_bare_rules(jobs))
            commands["one bare rule" if jobs == 1 else f"as many jobs ({jobs}) of bare rules"] = (
                jobs,
                ["-s", str(bare), "-d", folder],
            )
        wall: dict[str, list[float]] = {name: [] for name in commands}
        cpu: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(7):
            for name, (_, scope) in commands.items():
                start, used = time.perf_counter(), _cpu_of_children()
                dry_run(*scope)
                wall[name].append(time.perf_counter() - start)
                cpu[name].append(_cpu_of_children() - used)
    return {
        name: {
            "jobs": jobs,
            "median": statistics.median(wall[name]),
            "min": min(wall[name]),
            "cpu": statistics.median(cpu[name]),
        }
        for name, (jobs, _) in commands.items()
    }


def dry_run(*arguments: str) -> str:
    """What a dry run prints of every job, whatever is already made."""
    return run("-m", "snakemake", "-n", "--forceall", *arguments)


def _jobs(printed: str) -> int:
    """Jobs of a dry run."""
    return next(int(words[1]) for words in map(str.split, printed.splitlines()) if words[:1] == ["total"])


def _bare_rules(jobs: int) -> str:
    """A Snakefile of so many jobs: half of them make a file of another's."""
    if jobs == 1:
        return 'rule all:\n    output: "never"\n    shell: "touch {output}"\n'
    first = jobs // 2
    return (
        f"rule all:\n    input: [f'second/{{n}}' for n in range({jobs - 1 - first})], [f'first/{{n}}' for n in range({first})]\n"
        'rule first:\n    output: "first/{n}"\n    shell: "touch {output}"\n'
        'rule second:\n    input: "first/{n}"\n    output: "second/{n}"\n    shell: "cp {input} {output}"\n'
    )


def _cpu_of_children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PARTS = {
    "plan": plan,
    "rates": lambda: json.loads(run("benchmarks/data.py", "--rates", "--megabytes", "8")),
    "data": lambda: json.loads(run("benchmarks/data.py", "--megabytes", "8")),
    "step_bf16": lambda: json.loads(
        run("benchmarks/step_time.py", "--precision", "bf16", "--repetitions", "5", "--batch", "8")
    ),
    "step_fp32": lambda: json.loads(
        run("benchmarks/step_time.py", "--precision", "fp32", "--repetitions", "5", "--batch", "8")
    ),
    "variants": lambda: json.loads(run("-m", "benchmarks.variants")),
}


def some_variants(kept: dict, names: list[str]) -> dict:
    """The numbers of part ``variants`` with the rows of some variants measured anew, in five rounds."""
    new = json.loads(run("-m", "benchmarks.variants", "--only", *names, "--rounds", "5"))
    papers = [(kept["step"][shape], new["step"][shape]) for shape in new["step"]]
    for rows, measured in [*papers, (kept["decode"], new["decode"])]:
        for paper, found in measured.items():
            rows[paper].update(found)
    return kept


def machine() -> dict:
    """What the numbers were measured on."""
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def render(numbers: dict, gpu: dict | None) -> str:
    """docs/performance.md from the stored numbers, and those of a GPU where there are any."""
    lines = [
        "# Performance",
        "",
        "Measured by `make bench` (`python -m benchmarks`); the numbers are in `benchmarks/numbers.json`. Medians over repetitions",
        "in which the contenders take turns in one process, so that what else the machine does falls on all alike.",
        "",
        f"Machine: {numbers['machine']['cpu']}, {numbers['machine']['cores']} cores, Python {numbers['machine']['python']}.",
        "",
        "## Planning",
        "",
        "| dry run | jobs | median | fastest | CPU time | goal |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in numbers.get("plan", {}).items():
        goal = "Snakemake itself" if "bare" in name else "under 3 s" if "paper" in name else "under 2 s"
        lines.append(
            f"| {name} | {row['jobs']} | {row['median']:.2f} s | {row['min']:.2f} s | {row['cpu']:.2f} s | {goal} |"
        )
    if data := numbers.get("data"):
        lines += ["", "## Data", "", "| what | measured | goal |", "|---|---|---|"]
        for row in data["tokenization"] if isinstance(data["tokenization"], list) else [data["tokenization"]]:
            for key, value in row.items():
                if isinstance(value, dict):
                    ratio = value.get("ratio", value.get("stage_over_raw"))
                    if ratio is not None:
                        lines.append(f"| tokenization over the raw library, {key} | {ratio:.2f} | 0.9 |")
                elif "ratio" in key:
                    lines.append(f"| tokenization over the raw library ({key}) | {value:.2f} | 0.9 |")
        lines.append(
            f"| peak memory of tokenization | {_peak(data['peak_rss_mb']):.0f} MB | under 1,500 MB |"
        )
        for row in data["loader"]:
            rate = row["tokens_per_s"] / 1e6
            lines.append(f"| loader, context {row['context']:,} | {rate:.1f} M tokens/s on one core | 20 M |")
            lines.append(
                f"| construct the loader and read step 1,000,000, context {row['context']:,} | "
                f"{row['construct_and_batch_1000000_s'] * 1e3:.0f} ms | under 100 ms |"
            )
    if rates := numbers.get("rates"):
        lines += [
            "",
            "## Data at the paper's size",
            "",
            f"Of one process on {rates['sampled_mb']:.0f} MB of text (tokenizing: {rates['tokenized_mb']:.0f} MB), without the start of "
            f"Python; `snakemake plan` extrapolates them. Tokenizer: {rates['tokenizer']}, {rates['bytes_per_token']:.2f} bytes a token.",
            "",
            "| step | MB of text a CPU second | CPU hours for 20 B tokens | for 100 B | peak memory |",
            "|---|---|---|---|---|",
        ]
        for name in ("scan", "merge", "tokenize"):
            speed = rates[f"{name}_mb_per_s"]
            hours = [tokens * rates["bytes_per_token"] / speed / 1e6 / 3600 for tokens in (20e9, 100e9)]
            lines.append(
                f"| {name} | {speed:.1f} | {hours[0]:.1f} | {hours[1]:.1f} | {rates[f'{name}_peak_rss_mb']:.0f} MB |"
            )
    for precision in ("bf16", "fp32"):
        step = numbers.get(f"step_{precision}")
        if not step:
            continue
        shape = step["shape"]
        lines += [
            "",
            f"## Training step, {precision}",
            "",
            f"{shape['layers']} layers, width {shape['width']}, {shape['heads']} heads, vocabulary {shape['vocab_size']:,}, "
            f"{shape['batch']} sequences of {shape['context']} tokens, {step['threads']} thread, forward, backward and optimizer.",
            "",
        ]
        if precision == "bf16" and not step["cpu_has_bf16"]:
            lines += [
                "This CPU has no bf16 instructions: our products run in fp32 on bf16 numbers, Hugging Face's under autocast use",
                "PyTorch's emulation. The ratio says little about hardware with bf16.",
                "",
            ]
        lines += [
            "| model | seconds | over our Transformer | speed over Hugging Face Llama |",
            "|---|---|---|---|",
        ]
        for name, seconds in step["median_seconds"].items():
            over = step["variant_over_baseline"].get(name)
            speed = step.get("speed_over_huggingface", {}).get(name)
            lines.append(
                f"| {name} | {seconds:.3f} | {f'{over:.3f}' if over else '--'} | {f'{speed:.2f}' if speed else '--'} |"
            )
    if variants := numbers.get("variants"):
        lines += _variants(variants)
    lines += gpu_lines(gpu)
    return "\n".join(lines) + "\n"


def _variants(numbers: dict) -> list[str]:
    """The sections on every variant's step and on decoding."""
    shapes = numbers["shapes"]
    sizes = "; ".join(
        f"{name}: width {shape['width']}, {shape['batch']} sequences of {shape['context']} tokens"
        for name, shape in shapes.items()
    )
    lines = [
        "",
        "## Every variant's training step",
        "",
        "Time over the paper's baseline in the same backbone and shape, forward, backward and optimizer. FLOPs are the forward",
        "pass's matrix products and attention over the baseline's, in the larger shape. Value paths that need no more of them than",
        f"the baseline are to stay within {VALUE_PATH_GOAL:.2f}; the last column says whether they do, by CPU time. The baseline takes",
        "part in every turn a second time, and a step moves by several per cent with where a model lies in memory. So what a value",
        "path computes beyond the baseline's projections is timed by itself too, forward and backward, and set against the",
        "baseline's step (`alone`). `yes, alone` marks a row whose step misses the goal by less than the controls stray from one",
        "and whose own operations are within it.",
        "",
        f"{numbers['device']}, {numbers['precision']}, {numbers['threads']} thread, {numbers['heads']} heads, vocabulary "
        f"{numbers['vocabulary']:,}; {sizes}.",
    ]
    largest = list(shapes)[-1]
    controls = {name: _controls(numbers["step"][name]) for name in shapes}
    for name, strayed in controls.items():
        paths = [
            row["cpu"] for rows in numbers["step"][name].values() for row in rows.values() if row["goal"]
        ]
        if paths and strayed:
            lines += [
                "",
                f"{name}: the {len(strayed)} controls have a median of {statistics.median(strayed):.3f} and nine tenths of them lie within "
                f"{_noise(strayed):.3f} of one; the {len(paths)} value paths with a goal have a median of {statistics.median(paths):.3f}.",
            ]
    for paper, rows in numbers["step"][largest].items():
        heads = [f"{name}, {what}" for name in shapes for what in ("time", "CPU time", "alone")]
        lines += ["", f"### {paper}", "", f"| variant | {' | '.join(heads)} | FLOPs | within the goal |"]
        lines.append("|---" * (len(heads) + 3) + "|")
        for variant, row in rows.items():
            each = [numbers["step"][name][paper][variant] for name in shapes]
            cells = [
                cell
                for one in each
                for cell in (f"{one['wall']:.3f}", f"{one['cpu']:.3f}", _share(one.get("added")))
            ]
            said = _verdict(each, controls) if row["goal"] else "--"
            lines.append(f"| {row['size']}/{variant} | {' | '.join(cells)} | {row['flops']:.3f} | {said} |")
    shape = numbers["decode_shape"]
    lines += [
        "",
        "## Decoding",
        "",
        f"One token at a time for {shape['batch']} rows after a prompt of {shape['context']:,} tokens, width {shape['width']}, both at "
        "the same positions.",
        "Goal: not slower than the baseline, 1.00 or less.",
        "",
        "| variant | tokens/s | baseline's | time over the baseline | CPU time | cache | baseline's |",
        "|---|---|---|---|---|---|---|",
    ]
    for paper, rows in numbers["decode"].items():
        for variant, row in rows.items():
            lines.append(
                f"| {paper}/{row['size']}/{variant} | {row['tokens_per_second']:.0f} | {row['baseline_tokens_per_second']:.0f} "
                f"| {row['wall']:.3f} | {row['cpu']:.3f} | {row['cache_bytes'] / 1e6:.1f} MB "
                f"| {row['baseline_cache_bytes'] / 1e6:.1f} MB |"
            )
    return lines


def _controls(step: dict) -> list[float]:
    """CPU time of the baseline over itself, one for each group of variants that took turns together."""
    return list(
        dict.fromkeys(row["control"] for rows in step.values() for row in rows.values() if "control" in row)
    )


def _noise(controls: list[float]) -> float:
    """Distance from one that nine tenths of the controls keep."""
    distances = sorted(abs(ratio - 1) for ratio in controls)
    return distances[min(len(distances) - 1, round(0.9 * len(distances)))] if distances else 0.0


def _share(of_step: float | None) -> str:
    """A part of a step in per cent."""
    return "--" if of_step is None else f"{100 * of_step:+.1f} %"


def _verdict(shapes: list[dict], controls: dict[str, list[float]]) -> str:
    """Does a value path keep its goal in every shape: its step, or its own operations where the step cannot tell?"""
    over = [row["cpu"] - row["goal"] for row in shapes]
    if all(excess <= 0 for excess in over):
        return "yes"
    strays = [_noise(each) for each in controls.values()]
    told = any(excess > stray for excess, stray in zip(over, strays, strict=True))
    light = all(row.get("added") is not None and row["added"] <= row["goal"] - 1 for row in shapes)
    return "yes, alone" if light and not told else "no"


def _peak(value) -> float:
    return max(value.values()) if isinstance(value, dict) else value


def main() -> None:
    """Measure, store, render."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", choices=PARTS, action="append", help="measure only this part")
    chosen.add_argument("--variants", nargs="+", metavar="PAPER/VARIANT", help="measure only these variants")
    chosen.add_argument("--render", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    numbers = read_json(NUMBERS) if NUMBERS.exists() else {}
    parts = {name: PARTS[name] for name in arguments.only or PARTS}
    if arguments.variants:
        parts = {"variants": lambda: some_variants(numbers["variants"], arguments.variants)}
    for name, measure in [] if arguments.render else parts.items():
        print(f"measuring {name} ...", file=sys.stderr)
        numbers[name] = measure()
        numbers["machine"] = machine()
        write_json(NUMBERS, numbers)
    write_text(PAGE, render(numbers, read_json(MEASURED) if MEASURED.exists() else None))
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
