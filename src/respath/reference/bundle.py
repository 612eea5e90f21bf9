"""What a finished run leaves in the repository: one small JSON of all that tables, figures and claims read of it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.comparison.results import Results
from respath.config.project import Project, Run
from respath.errors import UserError
from respath.files import read_json, write_text
from respath.reporting.panels.layers import position_bins

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 1
#: Points of a bundled curve at most, digits of its numbers and of analyses, and bytes of a bundle at most.
POINTS, DIGITS, LARGEST = 256, 6, 200_000
#: Digits of arrays over token positions: colours of a heat map show no more.
ARRAY_DIGITS = 4
#: The results of a run, by their name in a bundle. ``arrays`` stands only in bundles of runs whose arrays a figure draws.
PARTS = ("train", "loss", "lm", "analysis", "arrays")
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
    "imported",
)


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Floats of nested lists and mappings to so many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list) else value


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


def binned(array: np.ndarray) -> dict[str, Any]:
    """An array (layers, positions) as figures draw it: means over bins of positions, and the borders of the bins.

    To ARRAY_DIGITS significant digits; a bin with a value that is not finite is null. ``unbinned`` is what readers get back.
    """
    borders = position_bins(array.shape[1])
    means = [[float(row[a:b].astype("<f8").mean()) for a, b in itertools.pairwise(borders)] for row in array]
    values = [[mean if math.isfinite(mean) else None for mean in row] for row in means]
    return {"borders": borders, "values": rounded(values, ARRAY_DIGITS)}


def unbinned(kept: Mapping[str, Any]) -> np.ndarray:
    """The array (layers, positions) of ``binned``: each position has its bin's mean, so that bins have it again."""
    import numpy as np

    values = np.array([[math.nan if v is None else v for v in row] for row in kept["values"]], dtype="<f8")
    return np.repeat(values, np.diff(kept["borders"]), axis=1)


def bundle(results: Results, run: Run, arrays: Collection[str] = ()) -> dict[str, Any] | None:
    """The bundle of a run; None while it has not ended or, when it finished, has not been evaluated.

    ``arrays``: names (``<module>.<array>``) of those that are kept.
    """
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
        "validation": rounded(train.get("validation")),
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
        **_arrays(results, run, arrays),
    }


def _arrays(results: Results, run: Run, names: Collection[str]) -> dict[str, Any]:
    found = {name: array for name in sorted(names) if (array := results.array(run.id, name)) is not None}
    return {"arrays": {name: binned(array) for name, array in found.items()}} if found else {}


def _without_arrays(analysis: dict[str, Any] | None) -> dict[str, Any] | None:
    """Scalars and series; arrays over token positions are a part of their own, and only where a figure draws them."""
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
    """What tables and figures need beside trained runs: measured KV caches, the token store's counts and origin, and analyses
    of models before training."""
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
        "untrained": {
            run.id: _without_arrays(found)
            for artifact in project.artifacts()
            for run, _ in project.untrained_of(artifact).values()
            if (found := results.untrained(run.id)) is not None
        },
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
    arrays = _drawn_arrays(project)
    for run in project.all_runs().values():
        content = bundle(results, run, arrays.get(run.id, ()))
        if content is None:
            continue
        path = folder / f"{run.id}.json"
        old = read_json(path) if path.exists() else None
        if old is not None:
            content |= {part: old[part] for part in PARTS if content.get(part) is None and part in old}
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
        whole |= {key: {**old.get(key, {}), **whole[key]} for key in ("manifests", "kv", "untrained")}
    texts[path] = text_of(whole)
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    return done


def _drawn_arrays(project: Project) -> dict[str, set[str]]:
    """Run id -> arrays that figures draw of it."""
    wanted: dict[str, set[str]] = {}
    for artifact in project.artifacts():
        for run, names in project.arrays_of(artifact).items():
            wanted.setdefault(run, set()).update(names)
    return wanted


def _contradicted(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Parts that both have and that differ. An analysis that has more modules, or arrays, than before has only grown."""
    changed = []
    for part in PARTS:
        before, after = old.get(part), json.loads(_compact(new.get(part)))
        if before is None or before == after:
            continue
        if part in ("analysis", "arrays"):
            entries, now = (x if part == "arrays" else x.get("modules", {}) for x in (before, after))
            if all(now.get(name) == entry for name, entry in entries.items()):
                continue
        changed.append(part)
    return changed
