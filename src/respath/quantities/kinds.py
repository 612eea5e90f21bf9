"""Kinds of result: the one place that knows which there are, where their files lie, how they are read, and in which unit.

A metric is ``<kind>.<name>``. A new measurement is one record here, one module that writes the file, and one rule that runs it;
tables, figures, claims, captions, kept bundles and the inputs of Snakemake's rules follow from the record.
"""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol

from respath.errors import UserError, did_you_mean
from respath.files import dig
from respath.quantities import decoding, keeping
from respath.quantities.analyses import CATALOGUE, unit_of, unknown_module
from respath.quantities.core import FIELDS, MEANS, SUITES
from respath.quantities.likelihood import DOMAINS as LIKELIHOOD_DOMAINS
from respath.quantities.likelihood import SETS as LIKELIHOOD_SETS
from respath.quantities.quantity import Items, Reading, missing

Document = Mapping[str, Any]


class Resolved(Protocol):
    """A subject at a scale, as its papers resolve it: what computed kinds compute from and readers may ask."""

    @property
    def name(self) -> str:
        """For messages: ``82M/identity``, a domain, a checkpoint."""

    @property
    def entry(self) -> str:
        """The subject's name in a file of many: ``size/variant``, or a domain."""

    @property
    def no_common(self) -> str:
        """May ``loss.common`` be read: its reason against it, or nothing."""

    def account(self) -> Document:
        """Parameters, FLOPs and KV bytes in closed form (``respath account --json``)."""

    def spec(self) -> Document:
        """The run's spec, with what papers print and specs derive."""

    def launch(self) -> Document:
        """How the paper's machine runs a step."""


@dataclasses.dataclass(frozen=True)
class Names:
    """What a paper calls its own, to check metrics against: domains of its text, tasks and suites of CORE that it evaluates."""

    domains: Collection[str] = ()
    tasks: Collection[str] = ()
    suites: Collection[str] = ()


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of result.

    ``of``: what one document is of. run: a trained run; start: a run as it is before training; checkpoint: weights from
    elsewhere; model: a shape in the paper's terms; data: the text of a paper's runs.
    ``path``: where the document lies below results/, from {run}, {paper}, {size}, {variant}, {context} (in the paper's terms), {tokens},
    {checkpoint} and {scale}; empty when it is computed (``compute``). ``arrays``: an archive beside it. ``writes``: the ``kind`` that the file calls itself.
    ``keys``: what a document cannot do without. ``read``: a name's value in a document; by default a path of keys joined by dots. ``unknown``: why no such name can exist;
    empty when it can. ``unit``: a name's unit, the only one in which it is read.
    ``worst``: where a diverged run's value ranks: +1 above all others, -1 below, 0
    where a name has no better end. ``is_series``: is a name a curve, a list or an array, and not a number? ``exact``: names that every scale gives as the paper's own shapes do (``*``: all), compared exactly.
    ``kept``: where it goes in the repository's bundles: each run's own file, the scale's summary, or nowhere.
    ``keep``, ``restore``: what of a document is kept, and what readers get back.
    ``lacks``: what is said of a run that is trained and has no such file.
    """

    name: str
    title: str
    of: Literal["run", "start", "checkpoint", "model", "data"]
    read: Callable[[Any, str, Resolved], Reading] | None = None
    unknown: Callable[[str, Names], str] = lambda name, names: ""
    unit: Callable[[str], str] = lambda name: ""
    path: str = ""
    arrays: str = ""
    compute: Callable[[Resolved], Document] | None = None
    writes: str = ""
    keys: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    is_series: Callable[[str], bool] = lambda name: False
    worst: Callable[[str], int] = lambda name: 0
    kept: Literal["run", "summary", ""] = ""
    keep: Callable[[Document], Document] = dict
    restore: Callable[[Document], Document] = dict
    lacks: str = ""

    def value(self, document: Document, name: str, subject: Resolved) -> Reading:
        """A name's value in a document.

        Raises UserError where what is computed has no such name: then the metric is wrong, not the result.
        """
        if self.read is not None:
            return self.read(document, name, subject)
        value, unknown = dig(document, name)
        if unknown and self.of != "model":
            return missing(f"{self.path.rpartition('/')[2]} has no {name}{unknown}")
        if unknown:
            raise UserError(f"metric {f'{self.name}.{name}'!r} of {subject.name}: unknown{unknown}")
        return Reading(value)

    def is_exact(self, name: str) -> bool:
        """Does every scale give this name the value of the paper's own shapes?"""
        return name in self.exact or "*" in self.exact

    def keyed_by(self) -> tuple[str, ...]:
        """Names of what the path is made from."""
        return tuple(field for _, field, _, _ in string.Formatter().parse(self.path) if field)

    def file(self, key: Mapping[str, str]) -> str:
        """The document's path below the results' folder."""
        return self.path.format(**key)


# --- reading -------------------------------------------------------------------------------------------------------


def _quadrature(errors: list[float | None]) -> float | None:
    """Standard error of an unweighted mean of independent parts; None where one part has none."""
    known = [error for error in errors if error is not None]
    if not known or len(known) < len(errors):
        return None
    return math.sqrt(math.fsum(error * error for error in known)) / len(known)


#: Of one domain in loss.json; ``loss.<domain>`` alone is its loss.
_DOMAIN_FIELDS = ("loss", "stderr", "bits_per_byte", "tokens", "bytes", "sequences")
#: Over all domains; ``common``: the mean at the paper's common length; ``padded``: on documents one by one.
#: ``mean_bits_per_byte`` is a mean over domains, ``bits_per_byte`` that of their text together; ``_legacy``: over bytes as nanochat
#: counted them until July 2026.
_MEANS = ("mean", "mean_bits_per_byte", "bits_per_byte", "bits_per_byte_legacy", "common", "padded")


def _read_loss(document: Document, name: str, subject: Resolved) -> Reading:
    """``mean``: unweighted over domains; its error adds those of the domains in quadrature, because they are separate samples."""
    if name == "common":
        if subject.no_common:
            return missing(subject.no_common)
        # Without a second length its own is the common one.
        document, name = document.get("common") or document, "mean"
    if name == "padded":
        if name not in document:
            return missing(
                "documents were not scored one by one (`padded: true` in paper.yaml, evaluation, scores them)"
            )
        document, name = document[name], "mean"
    domains = document["domains"]
    if name.endswith(("bits_per_byte", "bits_per_byte_legacy")) and name in _MEANS:
        if name not in document:
            return missing(f"loss.json has no {name}: it was written before that was measured")
        return Reading(document[name], items=_bits_of_documents(domains, name))
    if name == "mean":
        of = {domain: entry["documents"] for domain, entry in domains.items() if "documents" in entry}
        errors = [domain.get("stderr") for domain in domains.values()]
        whole = of if of and len(of) == len(domains) else None
        return Reading(document["mean_loss"], _quadrature(errors), items=whole)
    domain, _, field = name.partition(".")
    field = field or "loss"
    if domain not in domains:
        return missing(f"loss.json has no domain {domain!r}{did_you_mean(domain, domains)}")
    entry = domains[domain]
    if field not in entry:
        return missing(f"loss.json has no {domain}.{field}{did_you_mean(field, entry)}")
    if field != "loss":
        return Reading(entry[field])
    items = {domain: entry["documents"]} if "documents" in entry else None
    return Reading(entry["loss"], entry.get("stderr"), items=items)


def _bits_of_documents(domains: Document, name: str) -> Items | None:
    """Bits and bytes of each document: of all domains together, or of each by itself for the mean over domains."""
    if not domains or any("text_of_documents" not in entry for entry in domains.values()):
        return None
    size = 2 if name.endswith("legacy") else 1
    bits = {
        domain: {
            number: (sums[0] / math.log(2), sums[size]) for number, sums in entry["text_of_documents"].items()
        }
        for domain, entry in domains.items()
    }
    if name.startswith("mean"):
        return bits
    return {
        "text": {f"{domain}/{number}": of for domain, part in bits.items() for number, of in part.items()}
    }


def _unknown_loss(name: str, names: Names) -> str:
    domain, _, field = name.partition(".")
    if name in _MEANS or (domain in names.domains and field in ("", *_DOMAIN_FIELDS)):
        return ""
    if domain in names.domains:
        return f"{field!r} is not measured{did_you_mean(field, _DOMAIN_FIELDS)}"
    return f"{domain!r} is no domain{did_you_mean(domain, (*_MEANS, *names.domains))}"


def _unit_of_loss(name: str) -> str:
    field = name.partition(".")[2] or name
    counts = {name: name for name in ("tokens", "bytes", "sequences")}
    return counts.get(field) or ("bits/byte" if "bits_per_byte" in field else "nats/token")


#: Orders of the n-gram models in ngrams.json.
_ORDERS = ("unigram", "bigram", "trigram")


def _read_ngrams(document: Document, name: str, subject: Resolved) -> Reading:
    """``<order>.mean``, ``<order>.<domain>``: as ``loss.`` of a model that counts."""
    order, _, rest = name.partition(".")
    return _read_loss(document["orders"][order], rest, subject)


def _unknown_ngrams(name: str, names: Names) -> str:
    order, _, rest = name.partition(".")
    if order not in _ORDERS:
        return f"{order!r} is no order of n-grams{did_you_mean(order, _ORDERS)}"
    if rest == "mean" or rest in names.domains:
        return ""
    return f"{rest!r} is no domain{did_you_mean(rest, ('mean', *names.domains))}"


#: Metrics that lm-eval's tasks write, each also with ``_stderr``: shares in its files, per cent everywhere here, and others.
_SHARES = ("acc", "acc_norm", "acc_bytes", "exact_match", "f1")
_TASK_METRICS = (*_SHARES, "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")


def _read_lm(document: Document, name: str, subject: Resolved) -> Reading:
    """``<task>.<metric>``; task ``mean``: unweighted over the tasks that have the metric."""
    task, _, metric = name.rpartition(".")
    reading = _lm_mean(document["tasks"], metric) if task == "mean" else _lm(document["tasks"], task, metric)
    return reading.times(100.0) if _unit_of_lm(name) == "%" else reading


def _lm(tasks: Document, task: str, metric: str) -> Reading:
    if task not in tasks:
        return missing(f"{task} is not among the evaluated tasks{did_you_mean(task, tasks)}")
    entry = tasks[task]
    if entry["status"] != "done":
        return missing(f"{task}: {entry.get('reason') or entry['status']}")
    metrics = entry["metrics"]
    if metric not in metrics:
        return missing(f"{task} has no metric {metric!r}{did_you_mean(metric, metrics)}")
    scores = entry.get("scores", {}).get(metric)
    items = {task: {item: (score, 1) for item, score in scores.items()}} if scores else None
    return Reading(metrics[metric], metrics.get(f"{metric}_stderr"), items=items)


def _lm_mean(tasks: Document, metric: str) -> Reading:
    """A mean over fewer tasks would be another quantity."""
    absent = [
        f"{name}: {entry.get('reason') or entry['status']}"
        for name, entry in tasks.items()
        if entry["status"] != "done"
    ]
    if absent:
        return missing("; ".join(absent))
    found = [_lm(tasks, task, metric) for task, entry in tasks.items() if metric in entry["metrics"]]
    if not found:
        return missing(f"no evaluated task has the metric {metric!r}")
    items = {task: documents for one in found if one.items for task, documents in one.items.items()}
    return Reading(
        math.fsum(one.value for one in found) / len(found),
        _quadrature([one.stderr for one in found]),
        items=items if len(items) == len(found) else None,
    )


def _unknown_lm(name: str, names: Names) -> str:
    task, _, metric = name.rpartition(".")
    if task not in ("mean", *names.tasks):
        return f"{task!r} is no evaluated task{did_you_mean(task, ('mean', *names.tasks))}"
    if metric.removesuffix("_stderr") not in _TASK_METRICS:
        return f"{metric!r} is no metric of lm-eval{did_you_mean(metric, _TASK_METRICS)}"
    return ""


def _unit_of_lm(name: str) -> str:
    metric = name.rpartition(".")[2].removesuffix("_stderr")
    return "%" if metric in _SHARES else "bits/byte" if metric == "bits_per_byte" else ""


def _core_parts(name: str) -> tuple[str, str, str]:
    """Suite (empty: the first that has the task), task (empty: the mean) and field of a name."""
    suite, _, rest = name.partition(".")
    if suite not in SUITES:
        suite, rest = "", name
    task, _, field = rest.rpartition(".")
    return suite, task, field


def _read_core(document: Document, name: str, subject: Resolved) -> Reading:
    """``<suite>``, ``<suite>.later``, ``<suite>.<task>.<field>``, or ``<task>.<field>`` of the first suite that has the task.

    The mean over fewer tasks than the suite's is another quantity, and never read.
    """
    suite, task, field = _core_parts(name)
    has = [
        own
        for own in SUITES
        if own in document["suites"] and (own == suite or (not suite and task in SUITES[own]))
    ]
    if not has:
        return missing(f"{suite or task} is not evaluated")
    suite = has[0]
    tasks = document["suites"][suite]["tasks"]
    if task:
        return _core_task(tasks, task, field)
    reasons: dict[str, list[str]] = {}
    for one in SUITES[suite]:
        entry = tasks.get(one, {"status": "not evaluated"})
        if entry["status"] != "done":
            reasons.setdefault(entry.get("reason") or entry["status"], []).append(one)
    if reasons:
        absent = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        return missing(
            f"not CORE, {sum(map(len, reasons.values()))} of {len(SUITES[suite])} tasks not run ({absent})"
        )
    found = [_core_task(tasks, one, "centred_later" if field else "centred") for one in SUITES[suite]]
    return Reading(
        math.fsum(one.value for one in found) / len(found),
        _quadrature([one.stderr for one in found]),
        items={task: items for one in found for task, items in (one.items or {}).items()},
    )


def _core_task(tasks: Document, task: str, field: str) -> Reading:
    """One task, its standard error over items, and what each item adds: centring is linear, so it is done item by item."""
    entry = tasks.get(task)
    if entry is None or entry["status"] != "done":
        return missing(f"{task}: {(entry or {}).get('reason') or 'not evaluated'}")
    guess = {"accuracy": 0.0, "centred": entry["guessing"], "centred_later": entry["guessing_later"]}[field]
    right, wrong = (1 - guess) / (1 - guess), (0 - guess) / (1 - guess)
    items = {str(place): (right if bit == "1" else wrong, 1) for place, bit in enumerate(entry["right"])}
    share, count = entry["accuracy"], len(items)
    error = math.sqrt(share * (1 - share) / (count - 1)) / (1 - guess) if count > 1 else None
    return Reading(entry[field], error, items={task: items})


def _unknown_core(name: str, names: Names) -> str:
    suite, task, field = _core_parts(name)
    suites = [suite] if suite else [own for own in SUITES if own in names.suites]
    if not set(suites) & set(names.suites):
        known = did_you_mean(suite, names.suites)
        return f"the paper evaluates no such suite; name it under `evaluation: core` of paper.yaml{known}"
    tasks = dict.fromkeys(task for own in suites for task in SUITES[own])
    if field in tasks:
        return f"is no number; take {', '.join(f'{name}.{one}' for one in FIELDS)}"
    if suite and not task:
        return "" if field in ("", *MEANS) else f"{field!r} is no mean of {suite}{did_you_mean(field, MEANS)}"
    if task not in tasks:
        return f"{task or name!r} is no task of {' or '.join(suites)}{did_you_mean(task or name, (*SUITES, *tasks))}"
    return "" if field in FIELDS else f"{field!r} is not measured of a task{did_you_mean(field, FIELDS)}"


#: Paths into train.json that may be shown, and their units.
_TRAIN_FIELDS = {
    "status": "",
    "steps": "steps",
    "tokens": "tokens",
    "curve": "nats/token",
    "validation": "nats/token",
    "loss.final": "nats/token",
    "loss.window": "steps",
    "cost.seconds": "s",
    "cost.tokens_per_second": "tokens/s",
    "cost.sessions": "",
}
#: Why an imported run has no curve.
NO_CURVE = "imported, without a training curve"


def imported(train: Document) -> Document | None:
    """Where the weights of a run come from that was not trained here (``respath import``); None for a trained one."""
    return (train.get("provenance") or {}).get("imported")


def _read_train(document: Document, name: str, subject: Resolved) -> Reading:
    value, unknown = dig(document, name)
    if unknown:
        return missing(f"train.json has no {name}{unknown}")
    if document.get("status") == "diverged" and name.startswith(("loss", "curve", "validation")):
        return Reading(state="diverged", reason=document.get("reason") or "training diverged")
    if name == "curve" and not value.get("step"):
        return missing(NO_CURVE if imported(document) else "train.json holds no curve")
    if value is None and imported(document):
        return missing("imported, its training is not recorded here")
    if name == "validation" and value is None:
        return missing("trained without validation on its way")
    return Reading(value)


def _unknown_train(name: str, names: Names) -> str:
    return (
        "" if name in _TRAIN_FIELDS else f"{name!r} is not in train.json{did_you_mean(name, _TRAIN_FIELDS)}"
    )


def _worst_of_lm(name: str) -> int:
    return 1 if name.endswith(("perplexity", "bits_per_byte")) else -1


def _read_analysis(document: Document, name: str, subject: Resolved) -> Reading:
    """``<module>.<scalar>`` or ``<module>.<series>``; arrays lie beside the document (``results.store``)."""
    module, _, field = name.partition(".")
    if module not in document["modules"]:
        return missing(f"analysed without {module}")
    found = document["modules"][module]
    value = found.get("scalars", {}).get(field)
    if value is None:
        value = found.get("series", {}).get(field)
    if value is not None:
        return Reading(value)
    return missing(f"no {name}: {found.get('reason') or 'not a finite number'}")


def _unknown_analysis(name: str, names: Names) -> str:
    module, _, field = name.partition(".")
    if problem := unknown_module(module):
        return problem
    outputs = CATALOGUE[module]
    if field in (*outputs.scalars, *outputs.series, *outputs.arrays):
        return ""
    known = (*outputs.scalars, *outputs.series, *outputs.arrays, *outputs.ratios)
    return f"analysis {module} has no scalar or series {field!r}{did_you_mean(field, known)}"


def _is_series(name: str) -> bool:
    module, _, field = name.partition(".")
    outputs = CATALOGUE.get(module)
    return outputs is not None and field in (*outputs.series, *outputs.arrays)


def is_array(kind: Kind, name: str) -> bool:
    """Is this an array in the archive beside a document?"""
    module, _, field = name.partition(".")
    return bool(kind.arrays) and module in CATALOGUE and field in CATALOGUE[module].arrays


def _read_cache(document: Document, name: str, subject: Resolved) -> Reading:
    entry = next((entry for entry in document["entries"] if entry["id"] == subject.entry), None)
    if entry is None:
        return missing(f"the cache of {subject.entry} is not measured")
    value, unknown = dig(entry, name)
    if unknown:
        raise UserError(f"metric {f'cache.{name}'!r} of {subject.name}: unknown{unknown}")
    return Reading(value)


def _read_nll(document: Document, name: str, subject: Resolved) -> Reading:
    """Of a set: nats per token of its targets. Of a domain: the plain mean of its two sets."""
    sets = document["sets"]
    readings = {one: _nll(sets, one) for one in LIKELIHOOD_DOMAINS.get(name, (name,))}
    if lacking := [reading.reason for reading in readings.values() if reading.state != "measured"]:
        return missing("; ".join(lacking))
    items = {
        one: documents for reading in readings.values() for one, documents in (reading.items or {}).items()
    }
    return Reading(
        math.fsum(reading.value for reading in readings.values()) / len(readings),
        items=items if len(items) == len(readings) else None,
    )


def _nll(sets: Document, name: str) -> Reading:
    entry = sets.get(name) or {"status": "not run"}
    if entry["status"] != "done":
        return missing(entry.get("reason") or f"{name}: {entry['status']}")
    documents = entry.get("documents")
    return Reading(entry["nll"], items={name: documents} if documents else None)


def _unknown_nll(name: str, names: Names) -> str:
    known = (*LIKELIHOOD_DOMAINS, *LIKELIHOOD_SETS)
    return (
        ""
        if name in known
        else f"{name!r} is no set or domain of the likelihood suite{did_you_mean(name, known)}"
    )


#: Units of what is measured of a phase on a device.
_BENCH_UNITS = {
    "seconds": "s",
    "tokens_per_second": "tokens/s",
    "hours_per_billion_tokens": "h/B tokens",
    "ratio": "1",
    "peak_bytes": "bytes",
    "peak_ratio": "1",
    "cache_bytes": "bytes",
    "cache_ratio": "1",
}
_PHASES = ("step", "prefill", "decode")


def _read_bench(document: Document, name: str, subject: Resolved) -> Reading:
    """``<phase>.<field>``, or ``device.<field>`` of the machine that it was measured on."""
    phase, _, field = name.partition(".")
    entry = document["device"] if phase == "device" else document["phases"][phase]
    if entry.get("status", "done") != "done":
        return missing(entry["status"])
    value = entry.get(field)
    return missing(f"{phase} has no {field} on this device") if value is None else Reading(value)


def _unknown_bench(name: str, names: Names) -> str:
    phase, _, field = name.partition(".")
    known = ("name", "kind", "clock_mhz", "threads") if phase == "device" else _BENCH_UNITS
    if phase not in ("device", *_PHASES):
        return f"{phase!r} is no phase{did_you_mean(phase, ('device', *_PHASES))}"
    return "" if field in known else f"{field!r} is not measured{did_you_mean(field, known)}"


def _read_decode(document: Document, name: str, subject: Resolved) -> Reading:
    """``b<batch>.<way>.<field>``, or ``device.<field>`` of the machine that it was measured on."""
    first, _, rest = name.partition(".")
    if first == "device":
        value = document["device"].get(rest)
        return missing(f"the device has no {rest}") if value is None else Reading(value)
    way, _, field = rest.partition(".")
    entry = document["batches"].get(first.removeprefix("b"), {}).get(way)
    if entry is None:
        return missing("not measured on this machine")
    if entry["status"] != "done":
        return missing(entry.get("reason") or entry["status"])
    value = entry.get(field)
    return missing(f"no {field} on this device") if value is None else Reading(value)


def _unknown_decode(name: str, names: Names) -> str:
    first, _, rest = name.partition(".")
    if first == "device":
        return (
            "" if rest in decoding.DEVICE else f"{rest!r} is not known{did_you_mean(rest, decoding.DEVICE)}"
        )
    batches = [f"b{batch}" for batch in decoding.BATCHES]
    if first not in batches:
        return f"{first!r} is no batch; take {' or '.join(batches)}"
    way, _, field = rest.partition(".")
    if way not in decoding.WAYS:
        return f"{way!r} is no way of decoding{did_you_mean(way, decoding.WAYS)}"
    return (
        "" if field in decoding.FIELDS else f"{field!r} is not measured{did_you_mean(field, decoding.FIELDS)}"
    )


def _unit_of_cache(name: str) -> str:
    return "bytes" if name.endswith("bytes") else "1" if name == "ratio_to_baseline" else ""


_ACCOUNT_UNITS = {"parameters": "parameters", "flops": "FLOP", "saved": "1"}


def _unit_of_account(name: str) -> str:
    part, _, field = name.partition(".")
    if name == "flops.saved_per_token":
        return "1"
    return _ACCOUNT_UNITS.get(part) or {"bytes": "bytes", "ratio_to_baseline": "1"}.get(field, "")


def _unit_of_spec(name: str) -> str:
    field = name.rpartition(".")[2]
    return (
        "tokens"
        if field in ("tokens", "tokens_per_step", "context")
        else {"training_flops": "FLOP"}.get(field, "")
    )


def _read_sample(document: Document, name: str, subject: Resolved) -> Reading:
    """Of one domain of the training split: ``proportion`` of all tokens, or a count."""
    train = document["splits"]["train"]
    if subject.entry not in train:
        return missing(f"the token store has no domain {subject.entry!r}{did_you_mean(subject.entry, train)}")
    entry = train[subject.entry]
    if name != "proportion":
        return Reading(entry[name]) if name in entry else missing(f"the token store counts no {name}")
    total = math.fsum(other["tokens"] for other in train.values())
    return Reading(entry["tokens"] / total) if total else missing("the training split is empty")


_SAMPLE_UNITS = {
    "proportion": "1",
    "tokens": "tokens",
    "quota_tokens": "tokens",
    "documents": "documents",
    "bytes": "bytes",
}


def _unknown_sample(name: str, names: Names) -> str:
    return "" if name in _SAMPLE_UNITS else f"{name!r} is not counted{did_you_mean(name, _SAMPLE_UNITS)}"


_RECORDS = (
    Kind(
        "train", "training of a run", of="run", path="runs/{run}/train.json", writes="train",
        keys=("status", "loss", "curve"), read=_read_train, unknown=_unknown_train, unit=lambda name: _TRAIN_FIELDS.get(name, ""),
        is_series=lambda name: name in ("curve", "validation"), worst=lambda name: int(name.startswith("loss")),
        kept="run", keep=keeping.thinned_train, restore=keeping.restored_train,
    ),
    Kind(
        "loss", "losses on validation text", of="run", path="evals/{run}/loss.json", writes="loss",
        keys=("status", "domains", "mean_loss", "mean_bits_per_byte"), read=_read_loss, unknown=_unknown_loss, unit=_unit_of_loss, worst=lambda name: 1,
        kept="run", lacks="trained, not evaluated",
    ),
    Kind(
        "lm", "downstream tasks", of="run", path="evals/{run}/lm.json", writes="lm_eval",
        keys=("status", "tasks"), read=_read_lm, unknown=_unknown_lm, unit=_unit_of_lm, worst=_worst_of_lm,
        kept="run", lacks="trained, not evaluated",
    ),
    Kind(
        "core", "few-shot tasks of CORE", of="run", path="evals/{run}/core.json", writes="core", keys=("status", "suites"),
        read=_read_core, unknown=_unknown_core, unit=lambda name: "1", worst=lambda name: -1, kept="run", lacks="trained, not evaluated",
    ),
    Kind(
        "nll", "likelihood of reference answers", of="run", path="evals/{run}/nll.json", writes="nll", keys=("status", "sets"),
        read=_read_nll, unknown=_unknown_nll, unit=lambda name: "nats/token", worst=lambda name: 1, kept="run", lacks="trained, not evaluated",
    ),
    Kind(
        "analysis", "states, attention and gradients of a trained run", of="run", path="analyses/{run}/analysis.json",
        arrays="analyses/{run}/arrays.npz", writes="analysis", keys=("status", "modules"),
        read=_read_analysis, unknown=_unknown_analysis, unit=unit_of, is_series=_is_series, kept="run", keep=keeping.without_arrays, lacks="trained, not analysed",
    ),
    Kind(
        "untrained", "the same of a run as it is before training", of="start", path="analyses/{run}/untrained.json",
        arrays="analyses/{run}/untrained.npz", writes="analysis", keys=("status", "modules"),
        read=_read_analysis, unknown=_unknown_analysis, unit=unit_of, is_series=_is_series, kept="summary", keep=keeping.without_arrays, lacks="not analysed",
    ),
    Kind(
        "ngrams", "n-grams of a run's own tokens, on the same validation text", of="start", path="evals/{run}/ngrams.json",
        writes="ngrams", keys=("status", "orders"), read=_read_ngrams, unknown=_unknown_ngrams, unit=lambda name: "nats/token",
        kept="summary", lacks="n-grams are not counted",
    ),
    Kind(
        "checkpoint", "the same of weights from elsewhere", of="checkpoint",
        path="analyses/checkpoint-{checkpoint}-{scale}/analysis.json", arrays="analyses/checkpoint-{checkpoint}-{scale}/arrays.npz",
        writes="analysis", keys=("status", "modules"), read=_read_analysis, unknown=_unknown_analysis, unit=unit_of, is_series=_is_series, lacks="not analysed",
    ),
    Kind(
        "account", "parameters, FLOPs and KV bytes in closed form", of="model", compute=lambda subject: subject.account(),
        unit=_unit_of_account, exact=("*",),
    ),
    Kind(
        "cache", "the KV cache as measured on the real cache object", of="model", path="kv/{paper}.json", writes="kv",
        keys=("entries",), read=_read_cache, unit=_unit_of_cache, exact=("*",),
        kept="summary",
    ),
    Kind(
        "bench", "time and memory on the device at hand, over the baseline's", of="model", path="bench/{scale}/{paper}/{size}/{variant}.json",
        writes="bench", keys=("device", "phases"), read=_read_bench, unknown=_unknown_bench,
        unit=lambda name: _BENCH_UNITS.get(name.partition(".")[2], ""), lacks="not measured on this machine",
    ),
    Kind(
        "decode", "decoding on the device at hand, over the baseline's", of="model",
        path="decode/{scale}/{paper}/{size}/{variant}/{context}.json", writes="decode", keys=("device", "batches"),
        read=_read_decode, unknown=_unknown_decode, unit=lambda name: decoding.FIELDS.get(name.rpartition(".")[2], ""),
        lacks="not measured on this machine",
    ),
    Kind(
        "spec", "configuration of a run", of="model", compute=lambda subject: subject.spec(), unit=_unit_of_spec, exact=("*",),
    ),
    Kind(
        "launch", "how the paper's machine runs a step", of="model", compute=lambda subject: subject.launch(), exact=("*",),
    ),
    Kind(
        "sample", "text that a paper's runs are trained on, by domain", of="data", path="tokens/{tokens}/manifest.json", writes="tokens",
        keys=("splits",), read=_read_sample, unknown=_unknown_sample, unit=lambda name: _SAMPLE_UNITS.get(name, ""),
        exact=("proportion",), kept="summary", keep=keeping.thinned_manifest,
    ),
)  # fmt: skip

#: Every kind by the first part of its metrics.
KINDS: dict[str, Kind] = {kind.name: kind for kind in _RECORDS}


def split(metric: str) -> tuple[Kind, str]:
    """Kind and name of a metric. Raises UserError with did-you-mean for a kind that does not exist."""
    kind, _, name = metric.partition(".")
    if kind not in KINDS or not name:
        raise UserError(
            f"{metric!r} is no metric; it starts with {', '.join(f'{kind}.' for kind in KINDS)}{did_you_mean(kind, KINDS)}"
        )
    return KINDS[kind], name


# --- units ---------------------------------------------------------------------------------------------------------

_COUNTS = {"K": 1e-3, "M": 1e-6, "B": 1e-9}
#: Unit of a metric -> what it may be shown in, with the factor.
SHOWN_IN: dict[str, dict[str, float]] = {
    "1": {"%": 100.0},
    "tokens": {f"{prefix} tokens": factor for prefix, factor in _COUNTS.items()},
    "parameters": _COUNTS,
    "FLOP": {"MFLOP": 1e-6, "GFLOP": 1e-9, "TFLOP": 1e-12, "PFLOP": 1e-15, "EFLOP": 1e-18},
    "bytes": {"KB": 1e-3, "MB": 1e-6, "GB": 1e-9, "KiB": 2.0**-10, "MiB": 2.0**-20, "GiB": 2.0**-30},
    "s": {"ms": 1e3, "min": 1 / 60, "h": 1 / 3600},
}


def factor(unit: str, shown: str) -> float:
    """What a value in ``unit`` is multiplied by to be shown in ``shown`` (empty: as it is).

    Raises UserError for units that do not convert.
    """
    if shown in ("", unit):
        return 1.0
    known = SHOWN_IN.get(unit, {})
    if shown not in known:
        has = f"comes in {unit}" if unit else "has no unit"
        options = ", ".join((*filter(None, [unit]), *known))
        remedy = f"; take {options}, or leave the unit out" if options else "; leave the unit out"
        raise UserError(f"{shown!r} does not fit a metric that {has}{remedy}")
    return known[shown]
