"""Cross-layer attention: one softmax over [K_n, K_1] that mixes [V_n, V_1], on the target layers.

U_n = softmax(Q_n [K_n, K_1]^T / sqrt(head_dim)) [V_n, V_1], where [K_n, K_1] and [V_n, V_1] are
(batch, 2 keys, kv_heads, head_dim). Both halves are causal, and the keys of layer 1 keep the rotary embedding
of their own tokens, as layer 1's attention sees them. The cache holds nothing more: layer 1's keys and values
are there already. Costs as much again as the target layers' attention. No parameters; layer 1 is plain.
Source: ResFormer (arXiv 2410.17897), Section 4.4 and Table 7; positions and mask are our reading, a recorded
decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from respath.model.kernels import Visibility, attend
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.values.cross_layer import CrossLayerSpec


class CrossLayerValues(ValuePath):
    """Own values; whose softmax also covers layer 1's keys is a matter of ``respath.spec.layout``."""

    document = CrossLayerSpec

    def coefficients(self) -> Coefficients:
        """None: the softmax weighs."""
        return {}


def attend_jointly(
    q: Tensor,
    pairs: Sequence[tuple[Tensor, Tensor]],
    seen: Visibility,
    kernel: str = "auto",
    dropout: float = 0.0,
) -> Tensor:
    """One softmax over several lots of keys and values of the same tokens, each visible as ``seen`` says.

    q (batch, time, heads, head_dim); pairs of k and v, (batch, keys, kv_heads, head_dim) each
    -> (batch, time, heads, head_dim).
    """
    keys, values = (torch.cat(parts, dim=1) for parts in zip(*pairs, strict=True))
    mask = seen.dense(q.shape[1], q.device)
    if mask is not None:
        mask = mask.repeat(*(1,) * (mask.dim() - 1), len(pairs))
    # The mask is not one of those that the fused kernels know.
    kernel = kernel if kernel == "eager" else "sdpa"
    return attend(q, keys, values, Visibility(square=False, aligned=False, mask=mask), kernel, dropout)
