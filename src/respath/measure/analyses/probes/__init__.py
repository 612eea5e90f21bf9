"""What each residual stream's states are, and what it means to skip or swap its blocks: one probe per stream.

Probes stand outside the model, so that looking changes nothing that is trained. Source of the rules: DepthBench (arXiv
2609.32534), Section 4, and the authors' analysis scripts where the paper is silent.
"""

from __future__ import annotations

from respath.measure.analyses.probes.attention_residuals import AttentionResiduals
from respath.measure.analyses.probes.hyper_connections import HyperConnections, ManifoldHyperConnections
from respath.measure.analyses.probes.moda import MixtureOfDepths
from respath.measure.analyses.probes.plain import (
    CompleteP,
    Keel,
    LayerNormScaling,
    PostNorm,
    Probe,
    Rewritten,
    SandwichLN,
    Truncated,
)
from respath.model.transformer import Transformer

#: The probe of each stream, by the name of the stream's module.
PROBES: dict[str, type[Probe]] = {
    "pre_ln": Probe,
    "complete_p": CompleteP,
    "sandwich_ln": SandwichLN,
    "lns": LayerNormScaling,
    "deepnorm": PostNorm,
    "keel": Keel,
    "hc": HyperConnections,
    "mhc": ManifoldHyperConnections,
    "full_attnres": AttentionResiduals,
    "block_attnres": AttentionResiduals,
    "moda": MixtureOfDepths,
    "denseformer": Rewritten,
    "hidden_residual": Rewritten,
    "scaled_pre_ln": Rewritten,
    "truncated": Truncated,
}


def probe_of(model: Transformer) -> Probe:
    """The probe of a model's stream."""
    return PROBES[type(model.stream).__module__.rpartition(".")[2]](model)
