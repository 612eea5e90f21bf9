"""Transport of hyper-connections: what is left of m separate streams after all sub-layers have mixed them.

    P = T_{2L-1} ... T_1 T_0      per token; T_k acts on the streams from the left (HC: A_k^T, mHC: R_k), rows are outputs
    rank    = exp(- sum_j p_j ln p_j),  p_j = sigma_j / sum sigma         sigma: singular values of P; m for the identity, 1 for
                                                                          a matrix of rank 1
    overlap = mean over pairs of distinct rows of |cosine|                0 for the identity, 1 where all outputs are alike
    spectrum[j] = mean over tokens of sigma_j / sigma_1

``effective_rank`` and ``overlap``: means over tokens, with ``_low`` and ``_high``, their 95 % intervals by a bootstrap over
``documents`` (1,000 draws of whole documents, seed 0; a mean is a ratio of sums). All in float64. ``*_along``: the same at the steps
whose weights are there, ``steps``: 0 (as drawn), the marks that the run kept (``keep_weights_at``) and the end;
``off_diagonal_along``: mean over sub-layers, tokens and entries of |T| off the diagonal; ``gates_along``: mean |gate|;
``static_along``: mean off-diagonal entry of what transports are without input (HC: |A_static|; mHC: b_res, the logits).
A faulty public fall-back multiplies mHC's gate with the bias too and makes P's rank 1.0 at the start; here it is 4.0.
Sample: document starts (all of ``--sequences``), each token in the document that it belongs to.
Source: DepthBench (arXiv 2609.32534), Section 4.3, Eqs. 9 and 10, Figure 10; overlap of rows, and the series along training, are
ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from respath.errors import UserError
from respath.measure.analyses.findings import Findings
from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.probes.hyper_connections import HyperConnections
from respath.model.transformer import Transformer

DRAWS, LEVEL = 1000, 0.95


def effective_rank(values: Tensor) -> Tensor:
    """exp of the entropy of singular values over their sum. (..., m) -> (...)."""
    shares = values / values.sum(-1, keepdim=True)
    return torch.special.entr(shares).sum(-1).exp()


def overlap(matrices: Tensor) -> Tensor:
    """Mean |cosine| of distinct rows. (..., m, m) -> (...)."""
    rows, m = F.normalize(matrices, dim=-1), matrices.shape[-1]
    cosines = (rows @ rows.mT).abs()
    return (cosines.sum((-2, -1)) - cosines.diagonal(dim1=-2, dim2=-1).sum(-1)) / (m * (m - 1))


def document_numbers(rows: Tensor, end: int | None) -> Tensor:
    """A number for each token's document, (rows, tokens) int64: a document ends with ``end`` and none goes on in another row."""
    ended = torch.zeros_like(rows)
    if end is not None:
        ended[:, 1:] = (rows[:, :-1] == end).cumsum(1)
    return ended + torch.arange(len(rows), device=rows.device)[:, None] * rows.shape[1]


def document_interval(values: np.ndarray, documents: np.ndarray) -> tuple[float, float, float]:
    """Mean over tokens and the ends of its bootstrap interval over documents. Both (tokens,)."""
    _, place = np.unique(documents, return_inverse=True)
    sums, counts = np.bincount(place, weights=values), np.bincount(place)
    draws = np.random.default_rng(0).multinomial(len(sums), [1 / len(sums)] * len(sums), size=DRAWS)
    means = (draws @ sums) / (draws @ counts)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(sums.sum() / counts.sum()), float(low), float(high)


class Transported(NamedTuple):
    """Per token: effective rank, overlap, off-diagonal size (tokens,), spectrum (tokens, m); and means over parameters."""

    rank: np.ndarray
    overlap: np.ndarray
    off_diagonal: np.ndarray
    spectrum: np.ndarray
    gates: float
    static: float


def transported(probe: HyperConnections, batches: Sequence[Tensor]) -> Transported:
    """Numbers of a model over batches of ids (rows, tokens)."""
    found = []
    for ids in batches:
        product, off = (part.flatten(0, 1) for part in probe.transport(ids))
        values = torch.linalg.svdvals(product)
        parts = (effective_rank(values), overlap(product), off, values / values[:, :1])
        found.append([part.cpu().numpy() for part in parts])
    rank, rows, off, spectrum = (np.concatenate(parts) for parts in zip(*found, strict=True))
    static = probe.static_transport()
    outside = ~torch.eye(static.shape[-1], dtype=torch.bool, device=static.device)
    entries = static[:, outside] if probe.static_is_logit else static[:, outside].abs()
    return Transported(rank, rows, off, spectrum, float(probe.gates().abs().mean()), float(entries.mean()))


def measure(
    model: Transformer,
    batches: Sequence[Tensor],
    end: int | None,
    step: int | None = None,
    marks: Iterable[tuple[int, Transformer]] = (),
) -> Findings:
    """Findings over batches of ids (rows, tokens), rows that begin with a document.

    ``end``: the token that ends a document. ``step``: of this model; ``marks``: earlier steps in order, with their models.
    Raises UserError for fewer than two documents.
    """
    probe = probe_of(model)
    if not isinstance(probe, HyperConnections):
        return Findings(reason="only hyper-connections transport several streams")
    rows, start = [], 0
    for ids in batches:
        rows.append(document_numbers(ids, end) + start)
        start += ids.numel()
    documents = torch.cat([numbers.flatten() for numbers in rows]).cpu().numpy()
    count = len(np.unique(documents))
    if count < 2:
        raise UserError(
            f"--sequences: they hold {count} document and the bootstrap of transport needs 2; raise --sequences "
            "(evaluation.analysis_sequences of the scale)"
        )
    along: dict[str, list] = {"steps": []}

    def record(at: int, one: Transported) -> None:
        along["steps"].append(at)
        for name, values in (("effective_rank", one.rank), ("overlap", one.overlap)):
            for suffix, number in zip(
                ("", "_low", "_high"), document_interval(values, documents), strict=True
            ):
                along.setdefault(f"{name}_along{suffix}", []).append(number)
        for name, number in (
            ("off_diagonal", float(one.off_diagonal.mean())),
            ("gates", one.gates),
            ("static", one.static),
        ):
            along.setdefault(f"{name}_along", []).append(number)

    for at, marked in marks:
        record(at, transported(probe_of(marked), batches))
    last = transported(probe, batches)
    record(step or 0, last)
    scalars = {
        f"{name}{suffix}": along[f"{name}_along{suffix}"][-1]
        for name in ("effective_rank", "overlap")
        for suffix in ("", "_low", "_high")
    }
    return Findings(scalars | {"documents": count}, along | {"spectrum": last.spectrum.mean(0).tolist()})
