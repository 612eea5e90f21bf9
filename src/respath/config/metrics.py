"""What a metric of a trained run may be called, so that a slip of the pen is refused and not shown as an empty cell.

The names behind ``analysis.`` are in ``respath.analysis.catalogue``; those behind ``account.``, ``kv.`` and ``spec.`` are paths
into what these compute.
"""

from __future__ import annotations

from collections.abc import Collection

from respath.errors import did_you_mean

#: Of one domain in loss.json; ``loss.<domain>`` alone is its loss.
DOMAIN_FIELDS = ("loss", "stderr", "bits_per_byte", "tokens", "bytes", "sequences")
#: Over all domains; ``common``: the mean at the common length.
MEANS = ("mean", "mean_bits_per_byte", "common")
#: Metrics that lm-eval's tasks write, each also with ``_stderr``.
TASK_METRICS = (
    "acc",
    "acc_norm",
    "acc_bytes",
    "exact_match",
    "f1",
    "perplexity",
    "word_perplexity",
    "byte_perplexity",
    "bits_per_byte",
)
#: Paths into train.json that tables and figures may show.
TRAIN_FIELDS = (
    "status",
    "steps",
    "tokens",
    "curve",
    "loss.final",
    "loss.window",
    "cost.seconds",
    "cost.tokens_per_second",
    "cost.sessions",
)


def unknown_run_metric(metric: str, domains: Collection[str], tasks: Collection[str]) -> str:
    """Why a ``loss.``, ``lm.`` or ``train.`` metric cannot exist; empty when it can, and for metrics of other kinds."""
    kind, _, name = metric.partition(".")
    if kind == "loss":
        domain, _, field = name.partition(".")
        if name in MEANS or (domain in domains and field in ("", *DOMAIN_FIELDS)):
            return ""
        if domain in domains:
            return f"{metric!r}: {field!r} is not measured{did_you_mean(field, DOMAIN_FIELDS)}"
        return f"{metric!r}: {domain!r} is no domain{did_you_mean(domain, (*MEANS, *domains))}"
    if kind == "lm":
        task, _, measure = name.rpartition(".")
        if task not in ("mean", *tasks):
            return f"{metric!r}: {task!r} is no evaluated task{did_you_mean(task, ('mean', *tasks))}"
        if measure.removesuffix("_stderr") not in TASK_METRICS:
            return f"{metric!r}: {measure!r} is no metric of lm-eval{did_you_mean(measure, TASK_METRICS)}"
    if kind == "train" and name not in TRAIN_FIELDS:
        return f"{metric!r}: {name!r} is not in train.json{did_you_mean(name, TRAIN_FIELDS)}"
    return ""
