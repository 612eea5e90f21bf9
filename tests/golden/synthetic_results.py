"""Result files in the contract's form for every run of a project, made up but deterministic: nothing is trained."""

import hashlib
import json
import math

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.files import canonical_json
from respath.papers import needs
from respath.papers.subjects import Resolved
from respath.spec.data import tokens_id


def write_json(path, value):
    """JSON without the disk flush of real results: tests write hundreds of files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, sort_keys=True))


COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCES = "5" * 64


def noise(*key):
    """A number in -1..1 that depends on nothing but the key."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:4]) / 2**31 - 1


def sha(*key):
    """A SHA-256 that stands for bytes which do not exist."""
    return hashlib.sha256(repr(key).encode()).hexdigest()


def default_loss(run):
    """A final loss that falls with size, differs a little between variants, and by seed much the same for all of them."""
    size = run.spec.model.layers * run.spec.model.width**2
    return (
        6.0
        - 0.15 * math.log(size)
        + 0.03 * noise(run.variant)
        + 0.02 * noise("seed", run.seed)
        + 0.004 * noise(run.id)
    )


def train_record(run, loss, manifest_sha256, status="finished"):
    """train.json of a run that ended at ``loss``."""
    recipe = run.spec.recipe
    points = min(recipe.steps, 128)
    steps = [round((k + 1) * recipe.steps / points) for k in range(points)]
    curve = [
        loss
        + 4.0 * math.exp(-6.0 * step / recipe.steps) * (1 + 0.03 * noise(run.variant, "early"))
        + 0.03 * noise(run.seed, step)
        + 0.004 * noise(run.id, step)
        for step in steps
    ]
    stop = points if status == "finished" else points // 3
    return {
        "schema": 1,
        "kind": "train",
        "run": run.id,
        "spec": run.spec.model_dump(mode="json"),
        "status": status,
        "reason": None if status == "finished" else "loss is not finite at step 27",
        "steps": recipe.steps,
        "tokens": recipe.tokens,
        "loss": {"final": loss, "window": max(1, recipe.steps // 10)}
        if status == "finished"
        else {"final": None, "window": 1},
        "curve": {
            "step": steps[:stop],
            "tokens": [step * recipe.tokens_per_step for step in steps[:stop]],
            "loss": curve[:stop],
            "lr": [recipe.peak_lr] * stop,
        },
        "validation": {
            "step": steps[:stop],
            "tokens": [step * recipe.tokens_per_step for step in steps[:stop]],
            "loss": [loss + 4.0 * math.exp(-6.0 * step / recipe.steps) for step in steps[:stop]],
            "domains": {
                domain: [loss + 4.0 * math.exp(-6.0 * step / recipe.steps) for step in steps[:stop]]
                for domain in run.spec.data.sample.domains
            },
        },
        "weights": {
            "path": f"checkpoints/{run.id}/final/model.safetensors",
            "sha256": sha(run.id, "weights"),
        },
        "manifest_sha256": manifest_sha256,
        "cost": {"seconds": 12.5, "tokens_per_second": 10_000.0, "sessions": 1},
        "provenance": {
            "commit": COMMIT,
            "dirty": False,
            "sources_sha256": SOURCES,
            "versions": {"torch": "2.13.0"},
        },
    }


def loss_record(run, loss, manifest_sha256, stderr=0.004):
    """loss.json: domains around ``loss``, their unweighted mean exactly ``loss``."""
    domains = run.spec.data.sample.domains
    shifts = [0.3 * (index - (len(domains) - 1) / 2) for index in range(len(domains))]
    return {
        "schema": 1,
        "kind": "loss",
        "run": run.id,
        "status": "done",
        "domains": {
            domain: {
                "loss": loss + shift,
                "stderr": stderr,
                "bits_per_byte": (loss + shift) / 2.5,
                "tokens": 4096,
                "bytes": 16384,
                "sequences": 16,
            }
            for domain, shift in zip(domains, shifts, strict=True)
        },
        "mean_loss": loss,
        "mean_bits_per_byte": loss / 2.5,
        "context": run.spec.recipe.context,
        "weights_sha256": sha(run.id, "weights"),
        "manifest_sha256": manifest_sha256,
    }


def lm_record(run, tasks, limit):
    """lm.json: accuracies near chance; the second task could not be loaded."""
    entries = {}
    for index, task in enumerate(tasks):
        if index == 1:
            entries[task] = {"status": "not run", "reason": "needs the hub or a local file"}
        elif task == "wikitext":
            metrics = {"word_perplexity": 900 + 50 * noise(run.id, task), "bits_per_byte": 2.0}
            entries[task] = {
                "status": "done",
                "source": "wheel",
                "items": min(limit or 62, 62),
                "of_items": 62,
                "version": 2,
                "metrics": metrics,
            }
        else:
            metrics = {"acc": 0.3 + 0.1 * noise(run.id, task), "acc_stderr": 0.05}
            entries[task] = {
                "status": "done",
                "source": "wheel",
                "items": limit or 1000,
                "of_items": 1000,
                "version": 1,
                "metrics": metrics,
            }
    return {
        "schema": 1,
        "kind": "lm_eval",
        "run": run.id,
        "status": "done",
        "suite": run.paper,
        "limit": limit,
        "lm_eval_version": "0.4.11",
        "tasks": entries,
    }


def write_results(project, folder, *, loss_of=default_loss, skip=(), diverged=(), stderr=0.004, uneven=False):
    """Write results for every run of the project below ``folder``.

    ``skip`` and ``diverged``: run ids left out, or ended by divergence. ``uneven``: proportions of the token store differ
    from the quotas.
    """
    manifests = {}
    for paper in project.chosen:
        data = project.paper(paper).data
        train = {
            domain: {
                "tokens": round(quota * (1.3 if uneven and index == 0 else 1.0)),
                "documents": 10,
                "bytes": quota * 4,
                "quota_tokens": quota,
                "shards": [],
            }
            for index, (domain, quota) in enumerate(sorted(data.train_tokens.items()))
        }
        manifest = {
            "schema": 1,
            "kind": "tokens",
            "spec": {},
            "stand_in": True,
            "note": "Embedded text stands in for the paper's corpus.",
            "dtype": "uint16",
            "splits": {"train": train, "validation": {}},
            "sources": [],
        }
        write_json(folder / "tokens" / tokens_id(data) / "manifest.json", manifest)
        manifests[paper] = hashlib.sha256(canonical_json(manifest).encode()).hexdigest()
        _write_caches(project, folder, paper)
    for run in needs.all_runs(project).values():
        if run.id in skip:
            continue
        loss, manifest = loss_of(run), manifests[run.paper]
        status = "diverged" if run.id in diverged else "finished"
        write_json(folder / "runs" / run.id / "train.json", train_record(run, loss, manifest, status))
        if status == "diverged":
            continue
        evaluation = project.paper(run.paper).evaluation
        write_json(folder / "evals" / run.id / "loss.json", loss_record(run, loss, manifest, stderr))
        write_json(folder / "evals" / run.id / "lm.json", lm_record(run, evaluation.tasks, evaluation.limit))


def _write_caches(project, folder, paper):
    """The measured caches of all models: what the closed form says."""
    entries = []
    for size in project.folder(paper).paper.sizes:
        for variant in project.folder(paper).variants:
            try:
                held = Resolved(project.paper(paper).full, RunRequest(size=size, variant=variant)).account()[
                    "kv_cache"
                ]["bytes"]
            except UserError:  # a variant that does not fit this size has no cache
                continue
            entries.append({"id": f"{size}/{variant}", "formula_bytes": held, "measured_bytes": held})
    write_json(folder / "kv" / f"{paper}.json", {"schema": 1, "kind": "kv", "entries": entries})
