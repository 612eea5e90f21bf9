"""Which analyses there are and what each one measures, by name (no torch: configurations are checked against it).

A metric is ``analysis.<module>.<scalar>``. Series have one entry per layer, the first for layer 1, unless said otherwise;
an entry is null where a layer has no such quantity. Maps over layers are series of rows. What the names mean stands in the module of that name.
"""

from __future__ import annotations

from typing import NamedTuple

from respath.errors import did_you_mean


class Outputs(NamedTuple):
    """Names of what one module measures. ``ratios``: scalars of a comparison, left run over right run, of a scalar; ``units``:
    of scalars that have one.
    """

    scalars: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    ratios: dict[str, str] = {}
    units: dict[str, str] = {}


#: Gradient norms of the first layer, in the readings of ``respath.measure.analyses.gradients``.
_FIRST_LAYER = tuple(
    f"{matrix}_layer1{reading}"
    for reading in ("", "_of_sequences", "_of_outputs", "_of_jacobian")
    for matrix in ("query", "key", "value", "output")
)

CATALOGUE: dict[str, Outputs] = {
    "similarity": Outputs(
        scalars=(
            "value_to_first_mean",
            "value_to_first_before_mean",
            "hidden_embedding_to_later_mean",
            "hidden_layer1_to_later_mean",
            "token_hidden_mean",
            "token_value_before_mean",
            "token_value_before_rise",
            "token_value_after_mean",
        ),
        series=(
            "hidden_layers",
            "value_to_first_before",
            "value_to_first_after",
            "token_hidden",
            "token_value_before",
            "token_value_after",
        ),
    ),
    "coefficients": Outputs(
        scalars=("late_over_early", "moved_mean", "moved_max"),
        series=("source", "own", "ratio", "matrix"),
    ),
    "gradients": Outputs(
        scalars=("loss", *_FIRST_LAYER),
        series=("norm_q", "norm_k", "norm_v", "norm_o"),
        ratios={name.replace("_layer1", "_ratio_layer1"): name for name in _FIRST_LAYER},
    ),
    "gains": Outputs(scalars=("moved_mean", "unmoved_share", "matrix_rms"), units={"unmoved_share": "1"}),
    "removal": Outputs(
        scalars=("loss", "attention_over_mlp", "attention_increase_mean", "mlp_increase_mean"),
        series=("attention", "mlp"),
    ),
    "pca": Outputs(
        scalars=(
            "components_mean_from_layer2",
            "components_layer1",
            "components_last",
            "components_last_normed",
        ),
        series=("components",),
    ),
    "importance": Outputs(
        scalars=(
            "entropy_mean",
            "first_token_mean",
            "entropy_packed_mean",
            "first_token_packed_mean",
            "uniform_entropy",
            "uniform_first_token",
        ),
        series=(
            "entropy",
            "first_token",
            "top",
            "top_percent",
            "entropy_packed",
            "first_token_packed",
            "top_packed",
            "top_percent_packed",
        ),
        arrays=("token_importance", "token_importance_packed"),
    ),
    "norms": Outputs(
        scalars=("value_first_over_rest_mean", "hidden_first_over_rest_max"),
        series=(
            "value_first",
            "value_first_before",
            "value_rest",
            "hidden_first",
            "hidden_rest",
            "value_first_packed",
            "hidden_first_packed",
        ),
        arrays=("value", "hidden", "value_packed", "hidden_packed"),
    ),
    "angular": Outputs(
        scalars=("late_step_mean", "late_mean", "late_step_mean_mixes", "late_mean_mixes"),
        series=("step", "by_distance", "step_mixes", "by_distance_mixes"),
    ),
    "causal": Outputs(
        scalars=(
            "late_share",
            "late_above",
            "late_pairs",
            "late_mean",
            "late_share_corrected",
            "late_share_mixes",
        ),
        series=("score", "score_corrected", "score_mixes", "thresholds", "late_shares"),
        units=dict.fromkeys(("late_share", "late_share_corrected", "late_share_mixes"), "1"),
    ),
    "permutation": Outputs(
        scalars=("loss", "late_share", "late_above", "late_pairs", "late_mean", "late_signed_mean"),
        series=("score", "signed", "thresholds", "late_shares"),
        units={"loss": "nats/token", "late_share": "1"},
    ),
    "lens": Outputs(
        scalars=("final_loss", "rises", "largest_rise"),
        series=("kl", "exit_loss", "top5"),
        units={"final_loss": "nats/token"},
    ),
    "pruning": Outputs(
        scalars=("loss", "first", "last", "mean", "late_mean", "late_max"),
        series=("increase", "increase_corrected"),
        units=dict.fromkeys(("loss", "first", "last", "mean", "late_mean", "late_max"), "nats/token"),
    ),
    "answers": Outputs(
        scalars=("whole", "first", "last", "mean", "late_mean"),
        series=("change",),
        units=dict.fromkeys(("whole", "first", "last", "mean", "late_mean"), "1"),
    ),
    "paths": Outputs(scalars=("newest_mean", "embedding_mean"), series=("weights",)),
    "reads": Outputs(
        scalars=("unread_layers", "unread_share"),
        series=("newest", "embedding", "unread_limits", "unread_by_limit"),
        units={"unread_share": "1"},
    ),
    "transport": Outputs(
        scalars=(
            "effective_rank",
            "effective_rank_low",
            "effective_rank_high",
            "overlap",
            "overlap_low",
            "overlap_high",
            "documents",
        ),
        series=(
            "spectrum",
            "steps",
            "effective_rank_along",
            "effective_rank_along_low",
            "effective_rank_along_high",
            "overlap_along",
            "overlap_along_low",
            "overlap_along_high",
            "off_diagonal_along",
            "gates_along",
            "static_along",
        ),
    ),
}


def unit_of(name: str) -> str:
    """Unit of ``<module>.<scalar>``; empty where it has none."""
    module, _, field = name.partition(".")
    return CATALOGUE[module].units.get(field, "") if module in CATALOGUE else ""


def unknown_module(name: str) -> str | None:
    """What is wrong with the name of a module, with the nearest known one; None when it exists."""
    return None if name in CATALOGUE else f"{name!r} is no analysis{did_you_mean(name, CATALOGUE)}"


def unknown_series(path: str) -> str | None:
    """What is wrong with ``<module>.<series or array>``; None when there is one."""
    module, _, name = path.partition(".")
    if problem := unknown_module(module):
        return problem
    known = (*CATALOGUE[module].series, *CATALOGUE[module].arrays)
    return None if name in known else f"analysis {module} has no series {name!r}{did_you_mean(name, known)}"
