"""One metric of one run, model or data set, read from its result file: a value, or why there is none."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from respath.comparison.results import Results, imported
from respath.config.project import Project, Run
from respath.config.request import RunRequest
from respath.errors import UserError, did_you_mean
from respath.files import dig

#: Metrics that a small scale reproduces exactly: they come from the paper's own shapes (or are proportions of the data).
SCALE_FREE = ("account.", "kv.", "spec.", "launch.", "sample.proportion")
#: Metrics of a trained run: one value per seed.
PER_SEED = ("loss.", "lm.", "train.", "analysis.")

State = Literal["measured", "diverged", "not run"]


@dataclasses.dataclass(frozen=True)
class Reading:
    """A value with its standard error over items (None where there is none), or the reason why there is no value."""

    value: float | int | str | bool | None = None
    stderr: float | None = None
    state: State = "measured"
    reason: str = ""


def is_scale_free(metric: str) -> bool:
    """Is this metric computed from the paper-scale spec and compared exactly at every scale?"""
    return metric.startswith(SCALE_FREE)


def is_per_seed(metric: str) -> bool:
    """Does this metric have one value per seed?"""
    return metric.startswith(PER_SEED)


def missing(reason: str) -> Reading:
    """A value that is not there (yet)."""
    return Reading(state="not run", reason=reason)


def read_run(results: Results, run: Run, metric: str) -> Reading:
    """A ``loss.``, ``lm.``, ``train.`` or ``analysis.`` metric of one trained run.

    ``loss.mean`` is the unweighted mean over domains in nats per token; its standard error adds those of the domains in
    quadrature, because domains are separate samples. ``loss.common`` is that mean at the paper's common length.
    ``lm.<task>.<metric>`` is a fraction, as lm-eval writes it.
    """
    kind, _, path = metric.partition(".")
    train = results.train(run.id)
    if train is not None and train.get("status") == "diverged" and kind in ("loss", "lm", "analysis"):
        return Reading(state="diverged", reason=train.get("reason") or "training diverged")
    if kind == "train":
        if train is None:
            return missing("not trained")
        value, unknown = dig(train, path)
        if unknown:
            return missing(f"{results.path('runs', run.id, 'train.json')} has no {path}{unknown}")
        if value is None and imported(train):
            return missing("imported, its training is not recorded here")
        if train.get("status") == "diverged" and path.startswith("loss"):
            return Reading(state="diverged", reason=train.get("reason") or "training diverged")
        return Reading(value=value)
    if kind == "loss" and path == "common":
        common = results.project.evaluation_of(run.paper, run.scale).common_context
        if common is None or run.context < common:
            return missing(
                "not scored at a length beyond its training's" if common else "the paper has no common length"
            )
    read, parse, word = {
        "loss": (results.loss, _loss, "evaluated"),
        "lm": (results.lm, _lm, "evaluated"),
        "analysis": (results.analysis, _analysis, "analysed"),
    }[kind]
    data = read(run.id)
    if data is None:
        return missing("not trained" if train is None else f"trained, not {word}")
    if data.get("status") == "diverged":
        return Reading(state="diverged", reason=data.get("reason") or "training diverged")
    return parse(data, path)


def _loss(data: dict[str, Any], name: str) -> Reading:
    domains = data["domains"]
    if name == "common":
        # Without a second length its own is the common one.
        return _loss(data.get("common") or data, "mean")
    if name in ("mean", "mean_bits_per_byte"):
        errors = [domain.get("stderr") for domain in domains.values()]
        stderr = (
            math.sqrt(math.fsum(e * e for e in errors)) / len(errors)
            if errors and None not in errors
            else None
        )
        return Reading(data["mean_loss"], stderr) if name == "mean" else Reading(data["mean_bits_per_byte"])
    domain, _, field = name.partition(".")
    if domain not in domains:
        return missing(f"loss.json has no domain {domain!r}{did_you_mean(domain, domains)}")
    field = field or "loss"
    if field not in domains[domain]:
        return missing(f"loss.json has no {domain}.{field}{did_you_mean(field, domains[domain])}")
    return Reading(domains[domain][field], domains[domain].get("stderr") if field == "loss" else None)


def _lm(data: dict[str, Any], path: str) -> Reading:
    task, _, metric = path.rpartition(".")
    tasks = data["tasks"]
    if task == "mean":
        return _lm_mean(tasks, metric)
    if task not in tasks:
        return missing(f"{task} is not among the evaluated tasks{did_you_mean(task, tasks)}")
    entry = tasks[task]
    if entry["status"] != "done":
        return missing(f"{task}: {entry.get('reason') or entry['status']}")
    metrics = entry["metrics"]
    if metric not in metrics:
        return missing(f"{task} has no metric {metric!r}{did_you_mean(metric, metrics)}")
    return Reading(metrics[metric], metrics.get(f"{metric}_stderr"))


def _analysis(data: dict[str, Any], path: str) -> Reading:
    module, _, name = path.partition(".")
    if module not in data["modules"]:
        return missing(f"analysed without {module}")
    found = data["modules"][module]
    value = found["scalars"].get(name)
    if value is None:
        return missing(f"analysis {module} has no {name}: {found.get('reason') or 'not a finite number'}")
    return Reading(value)


def _lm_mean(tasks: dict[str, Any], metric: str) -> Reading:
    """Unweighted mean over the tasks that have this metric; a mean over fewer tasks would be another quantity."""
    absent = [
        f"{name}: {entry.get('reason') or entry['status']}"
        for name, entry in tasks.items()
        if entry["status"] != "done"
    ]
    if absent:
        return missing("; ".join(absent))
    having = [entry["metrics"] for entry in tasks.values() if metric in entry["metrics"]]
    if not having:
        return missing(f"no evaluated task has the metric {metric!r}")
    errors = [metrics.get(f"{metric}_stderr") for metrics in having]
    stderr = math.sqrt(math.fsum(e * e for e in errors)) / len(errors) if None not in errors else None
    return Reading(math.fsum(metrics[metric] for metrics in having) / len(having), stderr)


def read_exact(
    project: Project, results: Results, paper: str, request: RunRequest, metric: str, scale: str
) -> Reading:
    """An ``account.``, ``kv.``, ``spec.`` or ``launch.`` quantity of a model at ``scale``.

    Raises UserError when the quantity does not exist: then the table is wrong, not the results.
    """
    kind, _, path = metric.partition(".")
    where = f"{request.size}/{request.variant}"
    if kind in ("spec", "launch"):
        run = project.resolve(paper, request, seed=0, scale=scale)
        data: Any = project.view_of(run) if kind == "spec" else project.launch_of(paper, run)
    elif kind == "kv":
        if scale != "paper":
            return missing("measured at the paper's shapes only")
        data = results.kv(paper, request.size, request.variant)
        if data is None:
            return missing(f"{results.path('kv', f'{paper}.json')} has no {where}")
    else:
        data = results.account(paper, request.size, request.variant, "paper" if scale == "paper" else "scale")
        if data is None:
            return missing(f"{results.accounts_path(paper)} has no {where}")
    value, unknown = dig(data, path)
    if unknown:
        raise UserError(f"papers/{paper}/tables.yaml: metric {metric!r} of {where}: unknown{unknown}")
    return Reading(value=value)


def read_sample(results: Results, paper: str, domain: str, metric: str) -> Reading:
    """``sample.proportion`` or ``sample.tokens`` of one domain of the training split."""
    manifest = results.manifest(paper)
    if manifest is None:
        return missing(f"{results.manifest_path(paper)} is not there yet")
    train = manifest["splits"]["train"]
    field = metric.partition(".")[2]
    if domain not in train:
        return missing(f"the token store has no domain {domain!r}{did_you_mean(domain, train)}")
    if field == "proportion":
        total = math.fsum(entry["tokens"] for entry in train.values())
        return Reading(train[domain]["tokens"] / total) if total else missing("the training split is empty")
    if field not in train[domain]:
        raise UserError(
            f"papers/{paper}/tables.yaml: metric {metric!r}: unknown{did_you_mean(field, ['proportion', *train[domain]])}"
        )
    return Reading(train[domain][field])
