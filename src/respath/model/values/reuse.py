"""Reused values: V'_n = V_source on the target layers, which have no W^V.

SVFormer reuses V_1 in every layer; Sparse-ResFormer (V_1 only) in layers 6 to 8. Keys, queries and output projections stay
per layer; V_1 carries no rotary embedding. The cache holds the source's values once.
No parameters. The taking over itself is a matter of ``respath.model.layout``: attention reads the source's values.
Source: ResFormer (arXiv 2410.17897), Section 3.3 and Table 3.
"""

from __future__ import annotations

from respath.model.values.own import OwnValues


class ReusedValues(OwnValues):
    """Layers that project values attend over their own."""
