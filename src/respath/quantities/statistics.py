"""Means, intervals, pooled spreads, errors from the choice of text, adjustments and power. Pure functions of numbers.

Seeds are the units of every interval. Where the same text was scored by all seeds, the error from the choice of that text
does not shrink with more seeds: it is estimated by a bootstrap over documents and added as a second part.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

#: Two-sided confidence of every interval, and the power at which an effect counts as detectable.
CONFIDENCE, POWER = 0.95, 0.80
#: Numbers of seeds for which the smallest detectable effect is given.
SEEDS = (2, 3, 5, 8, 10)
#: A spread this many times the pooled spread of the others refuses the pool, as does Bartlett's test at BARTLETT.
SPREAD_FACTOR, BARTLETT = 3.0, 0.01
#: Level at which a comparison's own spread counts as larger than the pooled one: generous, because the pool errs on its cost.
STANDS_OUT = 0.2
#: Fewer comparisons are not pooled: which of two spreads is the odd one is chance, and verdicts err in 7 of 100 cases.
FEWEST_POOLED = 3
#: Resamples of a bootstrap: its standard error is then known to about 2 %.
DRAWS = 2000
#: Random integers of a bootstrap that are in memory at once.
_CHUNK = 1 << 22
#: More seeds than this are no plan.
_MOST_SEEDS = 100_000

# --- means and intervals -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Interval:
    """t interval of a mean (or of an estimate): ``low`` to ``high`` at CONFIDENCE, from ``n`` values.

    ``stderr`` is sqrt(seed_error^2 + text_error^2) with ``freedom`` degrees of freedom (Welch and Satterthwaite's where there
    are two parts). ``text_error`` is None where no sums per document exist. ``variance``: own or pooled. ``detectable``: the
    smallest distance from a bound that n values would clear with probability POWER, were the errors known to be these.
    """

    mean: float
    stderr: float
    low: float
    high: float
    n: int
    freedom: float
    seed_error: float
    detectable: float
    text_error: float | None = None
    variance: str = "own"


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ValueError for no values."""
    if not values:
        raise ValueError("the mean of no values")
    return math.fsum(values) / len(values)


def variance_of(values: Sequence[float]) -> float | None:
    """Variance with n - 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1)


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; None for fewer than two values."""
    variance = variance_of(values)
    return None if variance is None else math.sqrt(variance / len(values))


@functools.lru_cache(maxsize=4096)
def _t_quantile(probability: float, freedom: float) -> float:
    from scipy.special import ndtri, stdtrit  # heavy, and only reports need it

    return float(ndtri(probability) if math.isinf(freedom) else stdtrit(freedom, probability))


def _t_tail(t: float, freedom: float) -> float:
    """P(T > t)."""
    from scipy.special import ndtr, stdtr

    return float(ndtr(-t) if math.isinf(freedom) else stdtr(freedom, -t))


def interval_of(
    centre: float,
    n: int,
    seed_error: float,
    freedom: float,
    text: TextError | None = None,
    variance: str = "own",
) -> Interval:
    """Interval around ``centre`` from a standard error over seeds with its degrees of freedom, and the text's."""
    parts = [(seed_error**2, freedom)]
    if text is not None:
        parts.append((text.stderr**2, text.freedom))
    total = math.fsum(part for part, _ in parts)
    share = math.fsum((part / total) ** 2 / free for part, free in parts if part > 0) if total else 0.0
    effective = 1 / share if share else freedom
    stderr = math.sqrt(total)
    half = _t_quantile(0.5 + CONFIDENCE / 2, effective) * stderr
    return Interval(
        mean=centre,
        stderr=stderr,
        low=centre - half,
        high=centre + half,
        n=n,
        freedom=effective,
        seed_error=seed_error,
        detectable=detectable_factor(effective) * stderr,
        text_error=None if text is None else text.stderr,
        variance=variance,
    )


def t_interval(values: Sequence[float], pool: Pool | None = None, text: TextError | None = None) -> Interval:
    """Interval of the mean of two or more values, from their own spread, or from ``pool``'s.

    Raises ValueError for fewer than two values, also with a pool: nothing is judged from one seed.
    """
    n = len(values)
    own = standard_error(values)
    if own is None:
        raise ValueError(f"an interval needs at least two values, got {n}")
    if pool is None:
        return interval_of(mean(values), n, own, n - 1, text)
    return interval_of(mean(values), n, pool.std / math.sqrt(n), pool.freedom, text, "pooled")


def jackknife_interval(estimate: float, without_one: Sequence[float]) -> Interval:
    """Interval of an estimate from n units by Tukey's delete-one jackknife.

    ``without_one``: the estimate recomputed n times, each time without one unit. With their mean m the standard error is
    sqrt((n - 1) / n * sum((e - m)^2)), and the interval is the estimate ± t(0.975, n - 1) standard errors: it always holds
    the estimate, which the mere range of ``without_one`` need not. Raises ValueError for fewer than two.
    """
    n = len(without_one)
    if n < 2:
        raise ValueError(f"a jackknife needs at least two values, got {n}")
    centre = mean(without_one)
    stderr = math.sqrt(math.fsum((value - centre) ** 2 for value in without_one) * (n - 1) / n)
    return interval_of(estimate, n, stderr, n - 1)


def tail_probabilities(interval: Interval, bound: float) -> tuple[float, float]:
    """One-sided p-values against a bound: (that the true value is not below it, that it is not above it).

    The interval lies wholly below ``bound`` exactly where the first is below (1 - CONFIDENCE) / 2.
    """
    if interval.stderr == 0:
        return (0.0 if interval.mean < bound else 1.0), (0.0 if interval.mean > bound else 1.0)
    t = (interval.mean - bound) / interval.stderr
    return _t_tail(-t, interval.freedom), _t_tail(t, interval.freedom)


# --- a spread pooled over comparisons ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Group:
    """Values by seed of one comparison, and the runs that they combine.

    ``runs``: coefficient of each run, e.g. {"identity": 1, "transformer": -1}. Comparisons that share a run share its noise.
    """

    values: Mapping[int, float]
    runs: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Pool:
    """Standard deviation of one value, pooled over ``comparisons``, with its degrees of freedom.

    ``refused``: why it may not be used; empty where it may.
    """

    std: float
    freedom: float
    comparisons: int
    refused: str = ""


def pool(groups: Sequence[Group]) -> Pool | None:
    """Pooled spread of comparisons of equal weights (all differences, or all single values); None where none has two seeds.

    std^2 = sum of squared deviations from each comparison's mean / sum of (n_i - 1). Each comparison counts once, however
    often it is given, whichever side comes first. Twenty differences from one baseline all hold the baseline's noise, so
    20 (n - 1) degrees of freedom would be too many: with independent runs of equal variance, deviations r = A e for a known
    matrix A, and the first two moments of r'r (Satterthwaite) give tr(A'A)^2 / tr((A'A)^2); for k differences from one baseline
    4 k (n - 1) / (k + 3).

    Refused with fewer than FEWEST_POOLED comparisons, where one spread is SPREAD_FACTOR times the pooled spread of the others,
    and where Bartlett's test rejects equal variances at BARTLETT. (Shared runs make spreads more alike, so its level is not exceeded.)
    """
    unique: dict[frozenset, Group] = {}
    for group in groups:
        if len(group.values) < 2:
            continue
        key = frozenset(group.runs.items())
        turned = frozenset((run, -weight) for run, weight in group.runs.items())
        unique.setdefault(turned if turned in unique else key, group)
    kept = list(unique.values())
    if not kept:
        return None
    freedoms = np.array([len(group.values) - 1 for group in kept], dtype=float)
    variances = np.array([variance_of(list(group.values.values())) for group in kept])
    std = math.sqrt(float(freedoms @ variances / freedoms.sum()))
    return Pool(std, _shared_freedom(kept), len(kept), _refusal(variances, freedoms))


def _shared_freedom(groups: Sequence[Group]) -> float:
    """Satterthwaite's degrees of freedom of the pooled squares, as ``pool`` says."""
    cells = sorted({(run, seed) for group in groups for run in group.runs for seed in group.values})
    place = {cell: index for index, cell in enumerate(cells)}
    rows = []
    for group in groups:
        block = np.zeros((len(group.values), len(cells)))
        for row, seed in zip(block, group.values, strict=True):
            for run, weight in group.runs.items():
                row[place[run, seed]] = weight
        rows.append(block - block.mean(axis=0))
    deviations = np.concatenate(rows)
    # Either product has the same traces; the smaller one is formed.
    if deviations.shape[0] > deviations.shape[1]:
        deviations = deviations.T
    product = deviations @ deviations.T
    return float(np.trace(product) ** 2 / np.square(product).sum())


def _refusal(variances: np.ndarray, freedoms: np.ndarray) -> str:
    if len(variances) < FEWEST_POOLED:
        return f"{len(variances)} of the {FEWEST_POOLED} comparisons that a pool needs"
    if not variances.any():
        return ""
    largest = int(np.argmax(variances))
    others = np.delete(np.arange(len(variances)), largest)
    rest = float(freedoms[others] @ variances[others] / freedoms[others].sum())
    if variances[largest] > SPREAD_FACTOR**2 * rest:
        ratio = f"{math.sqrt(variances[largest] / rest):.1f}" if rest else "infinitely many"
        return f"one spread is {ratio} times that of the others (at most {SPREAD_FACTOR:g})"
    p = _bartlett(variances, freedoms)
    return f"spreads differ by more than chance (Bartlett p = {p:.2g})" if p < BARTLETT else ""


def stands_out(values: Sequence[float], pooled: Pool) -> str:
    """Why a comparison may not use a pool that it is part of: its own spread is larger, by an F test at STANDS_OUT; else empty.

    The checks of the whole pool see one wide comparison among narrow ones too seldom at three seeds. Without this one, verdicts
    on it err in 22 of 100 cases where it is 3.3 times as wide; with it in 8, and in 10 where it is 1.7 times as wide.
    """
    from scipy.special import fdtrc

    own = variance_of(values)
    if not pooled.std or own is None:
        return ""
    ratio = own / pooled.std**2
    if fdtrc(len(values) - 1, pooled.freedom, ratio) >= STANDS_OUT:
        return ""
    return f"its own spread is {math.sqrt(ratio):.1f} times the pooled one"


def _bartlett(variances: np.ndarray, freedoms: np.ndarray) -> float:
    """p-value of Bartlett's test of equal variances (Snedecor and Cochran 1989, with its correction)."""
    from scipy.special import chdtrc

    if not variances.all():
        return 0.0
    k, total = len(variances), freedoms.sum()
    pooled = freedoms @ variances / total
    statistic = total * math.log(pooled) - float(freedoms @ np.log(variances))
    correction = 1 + ((1 / freedoms).sum() - 1 / total) / (3 * (k - 1))
    return float(chdtrc(k - 1, statistic / correction))


# --- the choice of text --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Documents:
    """What one comparison measured on each document of one stratum (a domain, or a task), aligned over both sides.

    ``ids`` (D,) in any order; ``sums`` (D,): total of the metric, left less right, mean over seeds; ``sizes`` (D,): tokens (or
    items) that it is a total of. The stratum's value is sums.sum() / sizes.sum().
    """

    ids: tuple[str, ...]
    sums: np.ndarray
    sizes: np.ndarray


@dataclasses.dataclass(frozen=True)
class TextError:
    """Standard error from the choice of documents, with its degrees of freedom.

    ``documents``: how many each stratum has. ``unknown``: strata of one document, whose part nobody can estimate.
    """

    stderr: float
    freedom: float
    documents: dict[str, int]
    unknown: tuple[str, ...] = ()


#: Per stratum and document: total of a metric, and the tokens or items that it is a total of.
Items = Mapping[str, Mapping[str, tuple[float, float]]]


def paired_documents(
    sides: Sequence[tuple[float, Mapping[int | None, Items]]], factor: float = 1.0
) -> dict[str, Documents]:
    """Documents of a comparison from its sides: (coefficient, items by seed), e.g. (1, left) and (-1, right).

    Seeds that not all sides have are left out. Raises ValueError where sides or seeds scored different documents, or
    different numbers of tokens of one: such numbers are not paired.
    """
    seeds = [seed for seed in sides[0][1] if all(seed in by_seed for _, by_seed in sides)]
    result: dict[str, Documents] = {}
    if not seeds:
        return result
    reference = sides[0][1][seeds[0]]
    for stratum, documents in reference.items():
        ids = tuple(sorted(documents))
        sizes = np.array([documents[name][1] for name in ids], dtype=float)
        total = np.zeros(len(ids))
        for weight, by_seed in sides:
            for seed in seeds:
                given = by_seed[seed].get(stratum, {})
                if given.keys() != documents.keys() or any(given[n][1] != documents[n][1] for n in ids):
                    raise ValueError(f"{stratum}: the sides were scored on different documents")
                total += weight * np.array([given[name][0] for name in ids])
        result[stratum] = Documents(ids, factor * total / len(seeds), sizes)
    return result


def text_error(strata: Mapping[str, Documents], draws: int = DRAWS) -> TextError | None:
    """Standard error of the unweighted mean over strata from the choice of documents; None without any stratum of two.

    Cluster bootstrap, paired: whole documents are drawn with replacement within each stratum, the same for both sides and
    all seeds, and the ratio sums / sizes is formed anew. A stratum's variance is multiplied by D / (D - 1), without which a
    bootstrap of few documents is too narrow; parts add up, with Satterthwaite's degrees of freedom. The draws follow from
    the documents' ids alone, so that all comparisons on one text are resampled alike and a report is the same twice.
    """
    parts: list[tuple[float, int]] = []
    unknown = []
    for name, stratum in strata.items():
        if len(stratum.ids) < 2:
            unknown.append(name)
            continue
        parts.append((_bootstrap_variance(stratum, draws) / len(strata) ** 2, len(stratum.ids) - 1))
    if not parts:
        return None
    total = math.fsum(variance for variance, _ in parts)
    squares = math.fsum(variance**2 / freedom for variance, freedom in parts)
    freedom = total**2 / squares if squares else float(min(free for _, free in parts))
    counts = {name: len(stratum.ids) for name, stratum in strata.items()}
    return TextError(math.sqrt(total), freedom, counts, tuple(unknown))


def _bootstrap_variance(stratum: Documents, draws: int) -> float:
    count = len(stratum.ids)
    order = sorted(range(count), key=stratum.ids.__getitem__)
    # Draws move ratios, not sums: centring costs nothing and keeps digits where differences are small.
    sums, sizes = stratum.sums[order], stratum.sizes[order]
    centre = sums.sum() / sizes.sum()
    sums = sums - centre * sizes
    digest = hashlib.sha256("\n".join(stratum.ids[k] for k in order).encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))
    step = max(1, _CHUNK // count)
    ratios = []
    for start in range(0, draws, step):
        drawn = generator.integers(count, size=(min(step, draws - start), count))
        ratios.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return float(np.concatenate(ratios).var(ddof=1)) * count / (count - 1)


# --- several tests at once -----------------------------------------------------------------------------------------


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the given order: the family's error rate holds whatever depends on what."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


# --- power ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def detectable_factor(freedom: float) -> float:
    """Distance from a bound, in true standard errors, that a t interval clears with probability POWER.

    Exact: the noncentrality d with P(T'(freedom, d) > t(0.975, freedom)) = POWER; 16.33 at n = 2, 5.65 at n = 3.
    """
    from scipy.special import nctdtrinc

    quantile = _t_quantile(0.5 + CONFIDENCE / 2, freedom)
    if freedom > 1e4:  # the normal limit, right to 1e-4
        return quantile + _t_quantile(POWER, math.inf)
    return float(nctdtrinc(freedom, 1 - POWER, quantile))


def detectable_effect(
    std: float, n: int, freedom: float | None = None, text: TextError | None = None
) -> float:
    """Smallest distance from a bound that ``n`` values of this true standard deviation show with probability POWER.

    ``freedom``: of a pooled variance (default n - 1). ``text``: an error that more seeds do not shrink.
    """
    interval = interval_of(0.0, n, std / math.sqrt(n), n - 1 if freedom is None else freedom, text)
    return interval.detectable


def seeds_needed(
    effect: float,
    std: float,
    freedom_of: Callable[[int], float] | None = None,
    text: TextError | None = None,
) -> int | None:
    """Fewest seeds (two or more) that show ``effect``, a distance from a bound, with probability POWER.

    None where no number would: the effect is 0, or smaller than the choice of text lets anybody see. ``freedom_of``: degrees
    of freedom at n seeds (default n - 1).
    """

    def shows(n: int) -> bool:
        return detectable_effect(std, n, freedom_of(n) if freedom_of else None, text) <= abs(effect)

    if effect == 0 or not shows(_MOST_SEEDS):
        return None
    low, high = 1, 2
    while not shows(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high
