"""How far gains of norms have moved from 1, and how large the matrices are: what decay and the precision of parameters leave.

    moved_mean      mean over all gains g of norms of |g - 1|
    unmoved_share   share of them that are exactly 1
    matrix_rms      root mean square of the entries of all matrices of the layers

Kept in bf16, whose neighbours of 1 are 0.0078 above and 0.0039 below, a gain at 1 loses every step up by less than 0.0039 and down by
less than 0.00195, and with it the decay of a ten-thousandth a step; with fp32 master weights both add up.
Source: ours, for decision bf16-parameters of DepthBench (arXiv 2609.32534).
"""

from __future__ import annotations

import torch

from respath.measure.analyses.findings import Findings
from respath.model import parameter_roles
from respath.model.transformer import Transformer


@torch.no_grad()
def measure(model: Transformer) -> Findings:
    """Gains and matrices of a model, in float64."""
    roles = parameter_roles(model)
    named = {name: parameter.double() for name, parameter in model.named_parameters()}
    gains = [named[name].flatten() for name, role in roles.items() if role == "norm"]
    matrices = [named[name].flatten() for name, role in roles.items() if role == "matrix"]
    scalars: dict[str, float | None] = {"matrix_rms": float(torch.cat(matrices).square().mean().sqrt())}
    if not gains:
        return Findings(scalars, reason="its norms have no gains")
    away = (torch.cat(gains) - 1).abs()
    return Findings(
        scalars | {"moved_mean": float(away.mean()), "unmoved_share": float((away == 0).double().mean())}
    )
