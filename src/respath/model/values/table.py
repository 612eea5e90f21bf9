"""Bank of Values: V'_n[t] = source_n E_n[id_t] (+ own_n V_n[t]) on the target layers, looked up by token id.

E_n is (vocab, kv_width), one table per target layer, or one for all (``shared``).

* ``replace``: the layer has no W^V. The values depend on the token id alone, so a cache holds the ids of all
  tokens, once for the model, and looks the rows up again; source_n is applied to attention's output, which is
  linear in the values.
* ``add``: beside the layer's own value; the sum is cached as any other value.
* ``gate``: 3 sigmoid(w_n x[0:12]) per token and key-value head in the place of source_n, x the layer's normed
  input and w_n (kv_heads, 12). With ``replace`` the gated rows are cached, for a gate depends on context.

Parameters: ``tables.{j}`` (vocab, kv_width), role table; learnable: ``source``, and with ``add`` also
``own``, (targets,) each; gate: ``gates.{j}`` (kv_heads, 12), role matrix.
Initialisation. Tables, ``aligned``: row t is the layer's initial W^V applied to the RMS-normed initial
embedding of token t, whether or not that W^V exists, so that the model starts as the one with values x_0 W^V
of equal seed (without smear); a shared table starts from its first target layer. ``uniform``: within
sqrt(3 / width). ``stored: bf16``: the tables are bf16 parameters. Coefficients: the spec's numbers (the paper's
scale starts at 1, its learned sum at source 0, own 1). Gates: uniform on [0, 0.02], so that a gate starts near 1.5.
Source: Bank of Values (arXiv 2606.02780), Sections 3 and 4, Table 1 and Figure 5; the gated sum is
nanochat's.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from respath.model.backbones import backbone
from respath.model.combine import combine, scalars
from respath.model.initial import Draw, Uniform
from respath.model.layers import linear
from respath.model.origin import Origin
from respath.model.values.own import Coefficients, ValuePath
from respath.spec.layout import layout, windows
from respath.spec.model import ModelSpec
from respath.spec.values.table import GATE_CHANNELS, TableSpec

#: Rows of a table that are worked out at a time at the start.
ROWS_AT_ONCE = 4096


class TableValues(ValuePath):
    """Rows of a table, alone or beside the layer's own value."""

    document = TableSpec

    def __init__(self, spec: ModelSpec):
        super().__init__(spec)
        values = spec.values
        self.spec = spec
        self.looks_up = bool(layout(spec).looked_up)
        self.near = tuple(window is not None for window in windows(spec))
        self.start = {"source": values.source, "own": values.own}
        if values.combine == "replace":
            del self.start["own"]
        if values.gate:
            del self.start["source"]
        self.learnable = values.learnable
        count, width = len(self.targets), spec.kv_width
        self.tables = nn.ParameterList(
            nn.Parameter(torch.empty(spec.vocab_size, width)) for _ in range(1 if values.shared else count)
        )
        self.gates = nn.ParameterList(
            nn.Parameter(torch.empty(spec.kv_heads, GATE_CHANNELS))
            for _ in range(count if values.gate else 0)
        )
        if self.learnable:
            for name in self.start:
                self.register_parameter(name, nn.Parameter(torch.empty(count)))

    def _apply(self, fn, recurse: bool = True):
        """Whatever else changes its dtype, a table that is kept in bf16 does not."""
        super()._apply(fn, recurse)
        if self.spec.values.stored == "bf16":
            for table in self.tables:
                table.data = table.data.bfloat16()
        return self

    @property
    def role(self) -> dict[str, str]:
        """Roles by parameter."""
        of_part = {"tables": "table", "gates": "matrix"}
        return {name: of_part.get(name.split(".")[0], "coefficient") for name, _ in self.named_parameters()}

    def weights(self) -> dict[str, tuple[Tensor | float, ...]]:
        """Coefficients of each target layer, by name."""
        if self.learnable:
            return {name: scalars(self.get_parameter(name)) for name in self.start}
        return {name: (number,) * len(self.targets) for name, number in self.start.items()}

    def open(self, origin: Origin) -> tuple:
        """Carried: the ids whose rows long and short layers need, and the coefficients."""
        ids = (origin.history, origin.near) if self.looks_up else (origin.ids, origin.ids)
        return ids, self.weights()

    def mix(
        self, n: int, own: Tensor | None, carried: tuple, x: Tensor, project: nn.Module
    ) -> tuple[Tensor, tuple]:
        """Rows and own value on target layers, the own value elsewhere.

        Rows that are looked up again while decoding are those of all tokens that attention sees,
        (batch, keys, kv_width).
        """
        if n not in self.targets:
            return own, carried
        ids, weights = carried
        at = self.targets.index(n)
        value = F.embedding(ids[self.near[n]], self.tables[0 if len(self.tables) == 1 else at]).to(x.dtype)
        if self.looks_up:
            return value, carried
        if len(self.gates):
            gate = 3 * torch.sigmoid(linear(x[..., :GATE_CHANNELS], self.gates[at]))
            value = (value.unflatten(-1, (self.spec.kv_heads, -1)) * gate[..., None]).flatten(-2)
        source = weights["source"][at] if "source" in weights else 1.0
        if own is None:
            return combine([value], [source]), carried
        return combine([value, own], [source, weights["own"][at]]), carried

    def finish(self, n: int, attended: Tensor, own: Tensor | None, carried: tuple) -> Tensor:
        """Attention's output times the scale, where it attended over bare rows."""
        if not self.looks_up or n not in self.targets:
            return attended
        scale = carried[1]["source"][self.targets.index(n)]
        return attended if not isinstance(scale, Tensor) and scale == 1.0 else combine([attended], [scale])

    def coefficients(self) -> Coefficients:
        """Of the rows, and of the own value where it is added; a gate is no coefficient."""
        return self.weights()

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """Aligned or uniform tables, small gates, the spec's coefficients."""
        values = {
            name: torch.full(parameter.shape, self.start[name])
            for name, parameter in self.named_parameters()
            if name in self.start
        }
        for j, gate in enumerate(self.gates):
            values[f"gates.{j}"] = draw(f"gates.{j}", gate.shape, Uniform(0.01)) + 0.01
        embedding = None
        for j, table in enumerate(self.tables):
            if self.spec.values.start == "uniform":
                bound = math.sqrt(3 / self.spec.width)
                values[f"tables.{j}"] = draw(f"tables.{j}", table.shape, Uniform(bound))
                continue
            if embedding is None:
                embedding = initial_embedding(self.spec, draw)
            projection = initial_projection(self.spec, draw, self.targets[j])
            values[f"tables.{j}"] = aligned(embedding, projection, self.spec.norm_eps)
        return values


def initial_embedding(spec: ModelSpec, draw: Draw) -> Tensor:
    """The embedding of a model of equal seed at its start, (vocab, width)."""
    start = backbone(spec).embedding_start
    return draw.elsewhere("embedding.weight", (spec.vocab_size, spec.width), start)


def initial_projection(spec: ModelSpec, draw: Draw, n: int) -> Tensor:
    """W^V of layer ``n`` of a model of equal seed at its start, (kv_width, width)."""
    start = backbone(spec).projection_start
    return draw.elsewhere(f"layers.{n}.attention.v_proj.weight", (spec.kv_width, spec.width), start)


def aligned(embedding: Tensor, projection: Tensor, eps: float) -> Tensor:
    """rmsnorm(embedding) projection^T, some rows at a time.

    (vocab, width), (kv_width, width) -> (vocab, kv_width), in fp64: rounding to the table's dtype then hides the
    order in which a machine adds up.
    """
    wide = projection.double().mT
    parts = embedding.split(ROWS_AT_ONCE)
    return torch.cat([F.rms_norm(part.double(), part.shape[-1:], eps=eps) @ wide for part in parts])
