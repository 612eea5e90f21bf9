"""What a finished run leaves in the repository: one small JSON of all that tables, figures and claims read of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from respath.comparison.results import Results
from respath.config.project import Project, Run
from respath.errors import UserError
from respath.files import read_json, write_text

SCHEMA = 1
#: Points of a bundled curve at most, digits of its numbers and of analyses, and bytes of a bundle at most.
POINTS, DIGITS, LARGEST = 256, 6, 30_000
#: The results of a run, by their name in a bundle.
PARTS = ("train", "loss", "lm", "analysis")
#: What a bundle keeps of a training's provenance: machine, commit and versions, nothing of anybody's folders or network.
_PROVENANCE = (
    "commit",
    "dirty",
    "sources_sha256",
    "versions",
    "platform",
    "processor",
    "device",
    "device_name",
    "engine",
    "world_size",
    "processes",
    "threads",
    "micro_batch",
    "precision",
    "compile",
)


def rounded(value: Any) -> Any:
    """Floats of nested lists and mappings to DIGITS significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    "imported",
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def thinned(curve: Mapping[str, list]) -> dict[str, list]:
    """Steps and losses of a curve, at most POINTS of them: means over neighbours, at the last one's step.

    Tokens follow from steps, and learning rates from the spec.
    """
    steps, losses = curve["step"], curve["loss"]
    width = max(1, math.ceil(len(steps) / POINTS))
    groups = [range(start, min(start + width, len(steps))) for start in range(0, len(steps), width)]
    means = [math.fsum(losses[index] for index in group) / len(group) for group in groups]
    return {"step": [steps[group[-1]] for group in groups], "loss": rounded(means)}


def restored(train: Mapping[str, Any]) -> dict[str, Any]:
    """train.json as its readers know it, from the bundled one: tokens of the curve come back."""
    per_step = train["tokens"] // train["steps"] if train.get("steps") else 0
    curve = train["curve"]
    return {**train, "curve": {**curve, "tokens": [step * per_step for step in curve["step"]]}}


def bundle(results: Results, run: Run) -> dict[str, Any] | None:
    """The bundle of a run; None while it has not ended or, when it finished, has not been evaluated."""
    train, loss = results.train(run.id), results.loss(run.id)
    if train is None or (loss is None and train["status"] == "finished"):
        return None
    kept = {
        key: train.get(key)
        for key in (
            "schema",
            "kind",
            "run",
            "status",
            "reason",
            "steps",
            "tokens",
            "loss",
            "cost",
            "manifest_sha256",
            "spec",
        )
    }
    provenance = train.get("provenance") or {}
    kept |= {
        "curve": thinned(train["curve"]),
        "weights": {"sha256": (train.get("weights") or {}).get("sha256")},
        "provenance": {key: provenance[key] for key in _PROVENANCE if key in provenance},
    }
    return {
        "schema": SCHEMA,
        "kind": "reference",
        "run": run.id,
        "paper": run.paper,
        "scale": run.scale,
        "train": kept,
        "loss": loss,
        "lm": results.lm(run.id),
        "analysis": _without_arrays(results.analysis(run.id)),
    }


def _without_arrays(analysis: dict[str, Any] | None) -> dict[str, Any] | None:
    """Scalars and series; arrays over token positions are too large to keep."""
    if analysis is None:
        return None
    modules = {
        name: {key: value for key, value in module.items() if key != "arrays"}
        for name, module in analysis["modules"].items()
    }
    provenance = analysis.get("provenance") or {}
    kept = {key: provenance[key] for key in _PROVENANCE if key in provenance}
    return {**analysis, "modules": rounded(modules), "provenance": kept}


def text_of(content: Mapping[str, Any]) -> str:
    """JSON with one line per entry of the bundle and of its parts: small, and still readable in a diff."""
    lines = []
    for key in sorted(content):
        value = content[key]
        if isinstance(value, Mapping):
            inner = ",\n".join(f"  {json.dumps(name)}: {_compact(value[name])}" for name in sorted(value))
            lines.append(f"{json.dumps(key)}: {{\n{inner}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def summary(project: Project, results: Results) -> dict[str, Any]:
    """What tables need beside runs: measured KV caches, and the token store's counts and origin."""
    manifests = {}
    for paper in project.folders:
        manifest = results.manifest(paper)
        if manifest is None:
            continue
        train = {
            domain: {
                key: entry[key] for key in ("tokens", "documents", "bytes", "quota_tokens") if key in entry
            }
            for domain, entry in manifest["splits"]["train"].items()
        }
        manifests[paper] = {
            **{key: manifest.get(key) for key in ("schema", "kind", "stand_in", "note", "dtype")},
            "splits": {"train": train, "validation": {}},
        }
    kv = {
        paper: {"schema": 1, "kind": "kv", "entries": entries}
        for paper in project.folders
        if (entries := results.kv_entries(paper))
    }
    return {
        "schema": SCHEMA,
        "kind": "reference_summary",
        "scale": project.scale.id,
        "manifests": manifests,
        "kv": kv,
    }


def collect(project: Project, results: Results, folder: Path, replace: bool = False) -> dict[str, list[str]]:
    """Bundle every ended run of the project's tables and figures into ``folder``; run ids by what was done.

    ``written``, ``grown`` (a part that was missing has come, such as an analysis), ``same``. Raises UserError, before
    anything is written, for results that contradict bundles of the same runs, unless ``replace``; and for a bundle above
    LARGEST bytes.
    """
    texts: dict[Path, str] = {}
    done: dict[str, list[str]] = {"written": [], "grown": [], "same": []}
    problems: list[str] = []
    for run in project.all_runs().values():
        content = bundle(results, run)
        if content is None:
            continue
        path = folder / f"{run.id}.json"
        old = read_json(path) if path.exists() else None
        if old is not None:
            content |= {part: old.get(part) for part in PARTS if content[part] is None}
        if old == json.loads(_compact(content)):
            done["same"].append(run.id)
            continue
        if old is not None and not replace and (changed := _contradicted(old, content)):
            problems.append(
                f"{path}: {', '.join(changed)} of this run differ from {results.path('runs', run.id)} and its evaluations; keep the "
                "old result, or pass --replace to keep the new one"
            )
            continue
        texts[path] = text_of(content)
        if (size := len(texts[path].encode())) > LARGEST:
            problems.append(f"{path}: would have {size:,} bytes; a bundle may have {LARGEST:,}")
        done["written" if old is None else "grown"].append(run.id)
    if problems:
        raise UserError(problems)
    whole = summary(project, results)
    path = folder / "summary.json"
    if path.exists():
        # A part that this machine has not made stays as it is.
        old = read_json(path)
        whole |= {key: {**old.get(key, {}), **whole[key]} for key in ("manifests", "kv")}
    texts[path] = text_of(whole)
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    return done


def _contradicted(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Parts that both have and that differ. An analysis that has more modules than before has only grown."""
    changed = []
    for part in PARTS:
        before, after = old.get(part), json.loads(_compact(new[part]))
        if before is None or before == after:
            continue
        if part == "analysis" and all(
            after.get("modules", {}).get(name) == module for name, module in before.get("modules", {}).items()
        ):
            continue
        changed.append(part)
    return changed
