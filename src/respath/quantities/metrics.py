"""Names of metrics, measured or derived: which there are, in which unit, and what a quantity is read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from respath.errors import did_you_mean
from respath.quantities.derived import DERIVED
from respath.quantities.kinds import KINDS, Kind, Names, split
from respath.quantities.quantity import Quantity


def unknown(metric: str, names: Names | None = None, *, series: bool = False, pair: bool = True) -> str:
    """Why a metric cannot exist; empty when it can.

    ``names``: the paper's domains and tasks; None: whatever they may be. ``series``: is a curve, list or array wanted, and not a
    number? ``pair``: are two runs at hand, so that metrics that compare runs may be asked for?
    """
    if metric in DERIVED:
        if series:
            return f"{metric!r} is one number, not a series"
        return "" if pair or not DERIVED[metric].compares else f"{metric!r} compares two runs"
    group = metric.partition(".")[0]
    derived = dict.fromkeys(name.partition(".")[0] for name in DERIVED if not name.startswith(tuple(KINDS)))
    if group in derived:
        return f"{metric!r} is no metric{did_you_mean(metric, DERIVED)}"
    if group not in KINDS or "." not in metric:
        return f"{metric!r} is no metric; it starts with the kind of result{did_you_mean(group, (*KINDS, *derived))}"
    kind, name = split(metric)
    if (names is not None or kind.of in ("start", "checkpoint") or kind.name == "analysis") and (
        problem := kind.unknown(name, names or Names())
    ):
        return f"{metric!r}: {problem}"
    if series != kind.is_series(name):
        return f"{metric!r} is {'one number, not a series' if series else 'a series, not one number'}"
    return ""


def unit_of(metric: str) -> str:
    """The unit in which a metric is read."""
    if metric in DERIVED:
        return DERIVED[metric].unit
    kind, name = split(metric)
    return kind.unit(name)


#: Names in words of what readers meet in sentences.
_TITLES = {
    "loss.mean": "validation loss",
    "loss.mean_bits_per_byte": "validation loss",
    "loss.bits_per_byte": "validation loss",
    "loss.common": "validation loss at the common length",
    "train.loss.final": "training loss",
    "curve.early": "training loss, first tenth of the steps after the warm-up",
    "account.parameters.total": "parameters",
    "account.kv_cache.ratio_to_baseline": "share of the baseline’s KV cache",
    "analysis.coefficients.late_over_early": "coefficients, later half of the layers over the earlier",
    "analysis.gradients.output_ratio_layer1": "gradient norm of the output matrix of layer 1, ratio",
    "analysis.gradients.value_ratio_layer1": "gradient norm of the value matrix of layer 1, ratio",
    "analysis.importance.entropy_mean": "entropy of token importance, nats",
    "analysis.importance.first_token_mean": "share of attention on the first token",
    "analysis.pca.components_mean_from_layer2": "principal components, mean from layer 2 on",
    "analysis.removal.attention_over_mlp": "harm of removing attention over that of removing MLPs",
    "analysis.similarity.value_to_first_mean": "cosine similarity of values to those of layer 1",
}


def title_of(metric: str, names: Mapping[str, str]) -> str:
    """A metric in words; ``names``: a paper's domains in words. Of an analysis or a path, its last part without underscores."""
    if metric in _TITLES:
        return _TITLES[metric]
    head, _, rest = metric.partition(".")
    if head == "core":
        return "CORE" if rest.startswith("core") else rest.replace("_", " ").replace(".", ", ")
    if head == "ngrams":
        return f"loss of {rest.partition('.')[0]} counts"
    if head == "nll":
        return f"loss on answers of {rest}"
    if metric in DERIVED and head != "analysis":
        return DERIVED[metric].title
    if head == "loss":
        return f"validation loss on {names.get(rest, rest)}"
    if head == "lm":
        task, _, name = rest.rpartition(".")
        return (
            f"{'mean accuracy' if task == 'mean' else task.replace('_', ' ') + ', ' + name.replace('_', ' ')}"
        )
    return rest.replace(".", ": ").replace("_", " ")


def is_series(metric: str) -> bool:
    """Is a metric a curve, a list or an array, and not one number?"""
    if metric in DERIVED:
        return False
    kind, name = split(metric)
    return kind.is_series(name)


def is_exact(metric: str) -> bool:
    """Is the metric computed from the paper's own shapes and compared exactly at every scale?"""
    if metric in DERIVED:
        return False
    kind, name = split(metric)
    return kind.is_exact(name)


def compares(metric: str) -> bool:
    """Is the metric itself a comparison of two runs (a ratio, a saving), and not subtracted from another run's?"""
    return metric in DERIVED and DERIVED[metric].compares


def worst(metric: str) -> int:
    """Where a diverged run's value ranks: +1 above all others (losses), -1 below (accuracies), 0 where a metric has no better end."""
    if metric in DERIVED:
        return DERIVED[metric].worst
    kind, name = split(metric)
    return kind.worst(name)


def read_from(quantity: Quantity, baseline: str) -> Iterator[tuple[Kind, str, Quantity]]:
    """Kind, name and quantity of everything that is read for a quantity, differences and derived metrics taken apart."""
    derived = DERIVED.get(quantity.metric)
    if derived is not None:
        sides = [quantity] if derived.compares else _sides(quantity)
        for one in (one for side in sides for one in derived.inputs(side, baseline)):
            yield from read_from(one, baseline)
        return
    kind, name = split(quantity.metric)
    for side in _sides(quantity):
        yield kind, name, side


def _sides(quantity: Quantity) -> list[Quantity]:
    alone = quantity.of(against=None)
    return [alone] if quantity.against is None else [alone, alone.of(subject=quantity.against)]
