"""What a finished run leaves in the repository: one small JSON of all that tables, figures and claims read of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from respath.errors import UserError
from respath.files import read_json, write_text
from respath.papers import needs
from respath.papers.resolve import Resolver, Run
from respath.quantities.keeping import binned
from respath.quantities.kinds import KINDS
from respath.results.kept import summary_id
from respath.results.reader import Results, kept_folder, kept_results
from respath.results.store import SCHEMA

#: Bytes of a bundle at most.
LARGEST = 200_000
#: The results of a run, by their name in a bundle. ``arrays`` stands only in bundles of runs whose arrays a figure draws.
PARTS = (*(name for name, kind in KINDS.items() if kind.kept == "run"), "arrays")
#: Kinds of result that the summary of a scale has.
IN_SUMMARY = tuple(name for name, kind in KINDS.items() if kind.kept == "summary")


def bundle(results: Results, run: Run, arrays: Collection[str] = ()) -> dict[str, Any] | None:
    """The bundle of a run; None while it has not ended or, when it finished, has not been evaluated.

    ``arrays``: names (``<module>.<array>``) of those that are kept.
    """
    train = results.train(run.id)
    if train is None or (results.of_run("loss", run.id) is None and train["status"] == "finished"):
        return None
    parts: dict[str, Any] = {}
    for name in PARTS[:-1]:
        document = results.of_run(name, run.id)
        parts[name] = None if document is None else KINDS[name].keep(document)
    found = {name: results.store.array("analysis", name, {"run": run.id}) for name in sorted(arrays)}
    if kept := {name: binned(array) for name, array in found.items() if array is not None}:
        parts["arrays"] = kept
    head = {"schema": SCHEMA, "kind": "reference", "run": run.id, "paper": run.paper, "scale": run.scale}
    return {**head, **parts}


def kept_or_told(project: Resolver, folder: Path | None = None) -> Results:
    """The kept results of the chosen scale. Raises UserError, with what to do, where none are kept."""
    folder, scale = folder or kept_folder(project), project.scale.id
    if not any(folder.glob("*.json")):
        raise UserError(
            f"{folder}: no results are kept at scale {scale}; run what you want to see (`snakemake TARGET --config scale={scale}`), "
            f"then `python -m respath.reference collect --scale {scale}`"
        )
    return kept_results(project, folder)


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


def summary(project: Resolver, results: Results) -> dict[str, Any]:
    """What tables and figures need beside trained runs: kind -> paper or run -> what is kept of its document."""
    keys = {paper: [results.key(paper)] for paper in project.chosen}
    for paper, known in keys.items():
        shown = [one for artifact in project.artifacts(paper) for one in needs.quantities(project, artifact)]
        for kind, _, quantity in needs.reads(
            project, paper, [*shown, *needs.quantities_of_claims(project, paper)]
        ):
            if kind.of == "start":
                known += [results.key(paper, run=run.id) for run in project.runs(paper, quantity.run)]
    found: dict[str, dict[str, Any]] = {name: {} for name in IN_SUMMARY}
    for name in IN_SUMMARY:
        for key in (key for paper in keys.values() for key in paper):
            if set(KINDS[name].keyed_by()) <= key.keys():
                document = results.store.document(name, key)
                if document is not None:
                    found[name][summary_id(name, key)] = KINDS[name].keep(document)
    return {"schema": SCHEMA, "kind": "reference_summary", "scale": project.scale.id, **found}


def collect(project: Resolver, results: Results, folder: Path, replace: bool = False) -> dict[str, list[str]]:
    """Bundle every ended run of the project's tables and figures into ``folder``; run ids by what was done.

    ``written``, ``grown`` (a part that was missing has come, such as an analysis), ``same``. Raises UserError, before
    anything is written, for results that contradict bundles of the same runs, unless ``replace``; and for a bundle above
    LARGEST bytes.
    """
    texts: dict[Path, str] = {}
    done: dict[str, list[str]] = {"written": [], "grown": [], "same": []}
    problems: list[str] = []
    arrays, claims = _drawn_arrays(project), _claims_in_force(project)
    for run in needs.all_runs(project).values():
        content = bundle(results, run, arrays.get(run.id, ()))
        if content is None:
            continue
        path = folder / f"{run.id}.json"
        old = read_json(path) if path.exists() else None
        content["claims"] = claims.get(run.id, {})
        if old is not None:
            if not (replace and _contradicted(old, content)):
                # Those that were in force when these results came, whatever has become of them.
                content["claims"] = old.get("claims")
            content |= {part: old[part] for part in PARTS if content.get(part) is None and part in old}
        if old == json.loads(_compact(content)):
            done["same"].append(run.id)
            continue
        if old is not None and not replace and (changed := _contradicted(old, content)):
            problems.append(
                f"{path}: {', '.join(changed)} of this run differ from {results.store.path('train', {'run': run.id})} and what was measured of it; keep the "
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
        whole |= {key: {**old.get(key, {}), **whole[key]} for key in IN_SUMMARY}
    texts[path] = text_of(whole)
    for path, text in texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
    return done


def _drawn_arrays(project: Resolver) -> dict[str, set[str]]:
    """Run id -> arrays that figures draw of it."""
    wanted: dict[str, set[str]] = {}
    for artifact in project.artifacts():
        for run, names in needs.of_artifact(project, artifact).arrays.items():
            wanted.setdefault(run, set()).update(names)
    return wanted


def _claims_in_force(project: Resolver) -> dict[str, dict[str, str]]:
    """Run id -> the hash of every claim that reads it, by the claim's id."""
    found: dict[str, dict[str, str]] = {}
    for paper in project.chosen:
        for claim in project.folder(paper).claims:
            for run in needs.runs_of_claim(project, paper, claim):
                found.setdefault(run, {})[claim.id] = claim.sha256[:12]
    return found


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
