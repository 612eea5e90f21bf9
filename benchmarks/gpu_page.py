"""The section "On a GPU" of docs/performance.md, from the JSON that benchmarks/gpu_check.sh writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

COMMAND = "benchmarks/gpu_check.sh"
#: Where a whole check of a GPU is kept.
MEASURED = Path(__file__).resolve().with_name("gpu.json")


def gigabytes(count: int | None) -> str:
    """Bytes as a table shows them."""
    return "--" if count is None else f"{count / 1e9:.2f} GB"


def number(value: float | None, form: str = ".3f") -> str:
    """A number, or dashes where there is none."""
    return "--" if value is None else format(value, form)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table after an empty line; nothing when it has no rows."""
    heads, lines = list(heads), [f"| {' | '.join(row)} |" for row in rows]
    return ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines] if lines else []


def _shape(about: dict[str, Any]) -> str:
    shape = about.get("shape", {})
    return ", ".join(f"{name} {value:,}" for name, value in shape.items())


def _whole(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Rows that were measured to their end."""
    return [row for row in rows if key in row and "error" not in row]


def _kernels(rows: list[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    limits = about.get("limits", {})
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in _whole(rows, "kernel"):
        what = "whole models" if row["case"].startswith("model ") else "attention"
        groups.setdefault((what, row["kernel"], row["dtype"]), []).append(row)
    shown = []
    for (what, kernel, dtype), group in groups.items():
        limit = limits[what if what in limits else dtype]
        # A number that is not finite is kept as null, and is no error that a maximum may hide.
        worst = [
            max((row[way] for row in group if row[way] is not None), default=None)
            for way in ("forward", "backward")
        ]
        failed = sum(row["ok"] is False for row in group)
        shown.append(
            (
                what,
                kernel,
                dtype,
                str(len(group)),
                f"{number(worst[0], '.1e')} ({limit['forward']:.1e})",
                f"{number(worst[1], '.1e')} ({limit['backward']:.1e})",
                f"**{failed}**" if failed else "0",
            )
        )
    heads = (
        "what",
        "kernel",
        "precision",
        "cases",
        "worst forward (limit)",
        "worst backward (limit)",
        "failed",
    )
    lines = table(heads, shown)
    if lines:
        reasons = [f"* Limits, {name}: {limit['why']}" for name, limit in limits.items()]
        lines = [
            "",
            "### Kernels",
            "",
            "Errors against the definition in float64 on the same rounded numbers: norm of the difference over the norm of the",
            "right answer at the worst token; of whole models the loss's relative error and the gradient's, in norm.",
            *lines,
            "",
            *reasons,
        ]
    return lines


def _models(rows: list[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    lines = table(
        ("model", "step", "sequences", "seconds", "tokens/s", "MFU", "peak memory", "to compile"),
        (
            (
                row["model"],
                row["mode"],
                f"{row['sequences']} of {row['context']:,}",
                number(row["seconds"]),
                f"{row['tokens_per_second']:,.0f}",
                number(row["mfu"], ".1%"),
                gigabytes(row["peak_bytes"]),
                f"{row['compile_seconds']:.0f} s" if "compile_seconds" in row else "--",
            )
            for row in _whole(rows, "seconds")
        ),
    )
    text = [
        "",
        "### ResFormer's models at the paper's shape",
        "",
        "Forward, backward and AdamW, bf16 on fp32 weights. The number of sequences is doubled from one while the next step",
        "should fit, up to the paper's 32 on each GPU. MFU: the accounting's FLOPs over the data sheet's dense bf16 peak.",
    ]
    return [*text, *lines] if lines else []


def _training(rows: list[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    by_run = {row["run"]: row for row in rows if "error" not in row}
    resumed, whole = by_run.get("killed and resumed"), by_run.get("uninterrupted")
    if resumed is None:
        return []
    same = "was not run in one piece as well, for want of time"
    if whole is not None:
        same = f"run in one piece it ends with {'the same weights, bit for bit' if whole['same_weights'] else '**other weights**'}"
    return [
        "",
        "### Training",
        "",
        f"{resumed['model']} by the trainer, {resumed['steps']} steps of {resumed['sequences']} sequences of {resumed['context']:,} tokens "
        f"(micro-batches of {resumed['micro_batch']}), on the standard library's text: loss {number(resumed['first_loss'], '.2f')} at first, "
        f"{number(resumed['final_loss'], '.2f')} at the end; {resumed['tokens_per_second']:,.0f} tokens/s, MFU {number(resumed['mfu'], '.1%')}, "
        f"with deterministic kernels. Killed, it went on after step {resumed['resumed_after']}; {same}.",
    ]


def _decoding(rows: list[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    lines = table(
        ("variant", "tokens/s", "cache", "as the formula says", "peak memory", "error of logits"),
        (
            (
                row["variant"],
                f"{row['tokens_per_second']:,.0f}",
                f"{row['cache_bytes'] / 1e6:.1f} MB",
                "yes" if row["cache_bytes"] == row["formula_bytes"] else "**no**",
                gigabytes(row.get("peak_bytes")),
                number(row["logit_error"], ".0e"),
            )
            for row in _whole(rows, "cache_bytes")
        ),
    )
    text = [
        f"One token at a time in bf16, {_shape(about)}. Logits: largest difference from the full forward pass over the largest",
        "logit, in float64 on smaller models. folded: coefficients in W_O; host, prefetch: value tables in host memory.",
    ]
    return ["", "### Decoding on a GPU", "", *text, *lines] if lines else []


def _variants(rows: list[dict[str, Any]], about: dict[str, Any]) -> list[str]:
    lines = table(
        ("variant", "seconds", "over the baseline", "FLOPs", "peak memory", "over the baseline"),
        (
            (
                row["variant"],
                number(row["seconds"], ".4f"),
                number(row["over_baseline"], ".2f"),
                number(row.get("flops_over_baseline"), ".2f"),
                gigabytes(row.get("peak_bytes")),
                number(row.get("peak_over_baseline"), ".2f"),
            )
            for row in sorted(_whole(rows, "seconds"), key=lambda row: row["variant"])
        ),
    )
    text = [
        f"Not compiled, {_shape(about)}. `(control)` is a baseline measured again at the end, over its first time.",
    ]
    return ["", "### Every variant's step on a GPU", "", *text, *lines] if lines else []


SECTIONS = {
    "kernels": _kernels,
    "models": _models,
    "training": _training,
    "decoding": _decoding,
    "variants": _variants,
}


def _left_out(parts: dict[str, Any]) -> list[str]:
    lines = []
    for name, record in parts.items():
        if record["error"]:
            lines.append(f"* {name}: {record['error']}")
        for row in record["rows"]:
            if "error" in row:
                what = " ".join(
                    str(row[key])
                    for key in ("model", "mode", "variant", "case", "kernel", "dtype", "run")
                    if key in row
                )
                lines.append(f"* {name}: {what}: {row['error']}")
        lines += [f"* {name}: {each['what']}: {each['why']}" for each in record["skipped"]]
    return ["", "### Left out", "", *lines] if lines else []


def gpu_lines(report: dict[str, Any] | None) -> list[str]:
    """The section; without a report of a GPU's full check it says how to get one."""
    lines = ["", "## On a GPU", ""]
    if (
        report is None
        or report.get("device") is None
        or report["device"]["kind"] != "cuda"
        or report["settings"]["small"]
    ):
        return [
            *lines,
            f"Not measured. On a machine with a GPU `{COMMAND}` writes `benchmarks/gpu.json` in under six minutes, without network, and",
            "`python -m benchmarks --render` puts it here.",
        ]
    device, software, checks = report["device"], report["software"], report["checks"]
    packages = ", ".join(f"{name} {version}" for name, version in software.items() if version)
    peak = (
        f"peak {device['peak_flops'] / 1e12:,.0f} TFLOP/s (`{device['peak']}`)"
        if device["peak"]
        else "peak not in the table"
    )
    lines += [
        f"`{COMMAND}`, {report['seconds']:.0f} s. {device['name']}, {gigabytes(device['memory_bytes'])}, driver {device['driver']}, {peak}; "
        f"{packages}.",
        "",
        f"{checks['passed']} checks passed, {'none' if not checks['failed'] else '**' + str(checks['failed']) + '**'} failed.",
    ]
    for name, section in SECTIONS.items():
        if name in report["parts"]:
            lines += section(report["parts"][name]["rows"], report["parts"][name]["about"])
    return lines + _left_out(report["parts"])
