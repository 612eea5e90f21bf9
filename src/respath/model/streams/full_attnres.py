"""Full attention residuals: each sub-layer reads a softmax mix, per token, of the embedding and all earlier outputs.

v_0 is the embedding, v_{j+1} the raw output of sub-layer j. Sub-layer k >= 1 reads

    e_i = <w_k, g_k * v_i / rms(v_i)>,  i <= k;   z = sum_i softmax(e)_i v_i;   x = norm_k(z)

and the head reads all 2 L + 1 sources likewise. That is Block AttnRes with blocks of one sub-layer: state, parameters
(4 L width), initialisation, roles and special layers are described there.
Source: AttnRes (Kimi, 2026); DepthBench (arXiv 2609.32534), Sec. 2.3 of its method and Appendix A.
"""

from __future__ import annotations

from respath.model.streams.block_attnres import BlockAttnRes
from respath.spec.model import ModelSpec
from respath.spec.streams.full_attnres import FullAttnResSpec


class FullAttnRes(BlockAttnRes):
    """A learned mix of every earlier sub-layer's output."""

    document = FullAttnResSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec, length=1)
