"""Small models of every value path and attention residual, and a direct evaluation of their equations."""

from __future__ import annotations

import math

import torch

from respath.documents import check
from respath.model import build_model
from respath.spec.model import ModelSpec
from tests.unit.noise import with_noise

SHAPE = {
    "vocab_size": 259,
    "layers": 6,
    "width": 32,
    "heads": 4,
    "kv_heads": 4,
    "ffn_width": 40,
    "norm_eps": 1e-12,
}


def values(kind: str, layers="last-third", **fields) -> dict:
    """Overrides that choose a value path."""
    return {"values": {"kind": kind, "layers": layers, **fields}}


def residual(of: str, layers="all", **fields) -> dict:
    """Overrides that add an attention residual."""
    return {"attention_residual": {"of": of, "layers": layers, **fields}}


IDENTITY = values("mix", "all", coefficients={"source": 0.5, "own": 0.5})
GATED = {"combine": "add", "own": 1.0, "gate": True, "start": "uniform"}

#: Overrides of the small model, by name.
VARIANTS = {
    "scaled": values("scaled"),
    "embedding": values("embedding"),
    "embedding-learnable": values("embedding", "every-2", learnable=True),
    "embedding-first": values("embedding", "all"),
    "embedding-added": values("embedding", combine="add", source=0.5, own=0.5),
    "embedding-added-learnable": values("embedding", combine="add", source=0.0, own=1.0, learnable=True),
    "embedding-gqa2": {"kv_heads": 2, **values("embedding", learnable=True)},
    "table": values("table"),
    "table-learnable": values("table", learnable=True),
    "table-every-layer": values("table", "all", learnable=True),
    "table-shared": values("table", shared=True, learnable=True),
    "table-added": values("table", combine="add", source=0.3, own=1.0),
    "table-added-learnable": values("table", combine="add", source=0.0, own=1.0, learnable=True),
    "table-gated": values("table", "every-2", **GATED),
    "table-replaced-and-gated": values("table", gate=True, start="uniform"),
    "table-gqa2": {"kv_heads": 2, **values("table", learnable=True)},
    "table-gated-gqa2": {"kv_heads": 2, **values("table", "every-2", **GATED)},
    "table-share-keys": {"sharing": {"every": 2, "keys": True}, **values("table", learnable=True)},
    "identity-map": values("identity_map", "all"),
    "identity-map-sum": values("identity_map", [3, 5], source=1.0, own=1.0),
    "cross-layer": values("cross_layer", "all"),
    "cross-layer-gqa2": {"kv_heads": 2, **values("cross_layer", [2, 5])},
    "query-residual": residual("query"),
    "query-residual-gqa2": {"kv_heads": 2, **residual("query", [3, 6])},
    "key-residual": residual("key"),
    "key-residual-gqa2": {"kv_heads": 2, **residual("key", source=0.3, own=0.9)},
    "attention-residual": residual("attention"),
    "attention-residual-gqa2": {"kv_heads": 2, **residual("attention", [2, 4], source=0.3, own=0.9)},
    "query-residual-identity": {**residual("query"), **IDENTITY},
    "attention-residual-svformer": {**residual("attention"), **values("reuse", "all")},
    "attention-residual-table": {**residual("attention"), **values("table", learnable=True)},
    "attention-residual-share-keys": {**residual("attention"), "sharing": {"every": 2, "keys": True}},
    "attention-residual-cla2": {
        **residual("attention"),
        "sharing": {"every": 2, "keys": True, "values": True},
    },
    "cross-layer-query-residual": {**residual("query"), **values("cross_layer", "all")},
    "reuse-last-third-learnable": values("reuse", learnable=True),
    "reuse-of-layer-2": values("reuse", [4, 6], source=2, learnable=True),
    "mix-with-layer-3": values("mix", [5, 6], source=3, coefficients={"source": 0.5, "own": 0.5}),
    "mix-adjacent-postmix": values(
        "mix", "all", source="previous", cache="post_mix", coefficients={"source": 0.5, "own": 0.5}
    ),
    "mix-adjacent": values("mix", "all", source="previous", coefficients={"source": 1.0, "own": 1.0}),
}


def spec_of(variant: str | dict, **shape) -> ModelSpec:
    """The spec of a named variant, or of overrides, in the small shape or another."""
    overrides = VARIANTS[variant] if isinstance(variant, str) else variant
    return check(ModelSpec, {**SHAPE, **shape, **overrides}, "test")


def build(variant: str | dict, dtype=torch.float64, seed: int = 0, **shape):
    """A model at its start."""
    return build_model(spec_of(variant, **shape), dtype=dtype, seed=seed).eval()


def perturbed(variant: str | dict, dtype=torch.float64, seed: int = 0, **shape):
    """A model with noise on every parameter, so that nothing is zero, one or equal to something else."""
    return with_noise(build(variant, dtype, seed, **shape), seed=seed + 1)


def some_ids(batch: int = 2, time: int = 9, seed: int = 3) -> torch.Tensor:
    """Random token ids, the last of which repeats the first."""
    ids = torch.randint(SHAPE["vocab_size"], (batch, time), generator=torch.Generator().manual_seed(seed))
    ids[:, -1] = ids[:, 0]
    return ids


def copied(source, target, **replaced):
    """``target`` with the weights of ``source`` where both have them, and the given ones elsewhere."""
    weights = {name: tensor for name, tensor in source.state_dict().items() if name in target.state_dict()}
    missing, unexpected = target.load_state_dict({**weights, **replaced}, strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    return target


class ByEquations:
    """Logits of the llama backbone, attention matrices written out, straight from the papers' equations."""

    def __init__(self, model):
        self.spec, self.weight = model.spec, dict(model.named_parameters())

    def norm(self, x, gain=None):
        normed = x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.spec.norm_eps)
        return normed if gain is None else normed * self.weight[f"{gain}.weight"]

    def split(self, x):
        """(batch, time, heads d) -> (batch, heads, time, d), key-value heads repeated for their group."""
        heads = x.unflatten(-1, (-1, self.spec.head_dim)).transpose(1, 2)
        return heads.repeat_interleave(self.spec.heads // heads.shape[1], dim=1)

    def turned(self, x):
        """Rotary embedding as multiplication of complex numbers."""
        half = self.spec.head_dim // 2
        powers = self.spec.rope_theta ** (-torch.arange(half, dtype=x.dtype) / half)
        angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), powers)
        pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((pairs.real, pairs.imag), -1)

    def scores(self, q, k):
        """Scores of queries and keys that are split and turned, masked."""
        scores = q @ k.mT / math.sqrt(self.spec.head_dim)
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, -math.inf)

    def value(self, n, h, x0, ids, banked, mixed):
        """(V_n as projected or None, V'_n) of layer ``n``, numbered from 1."""
        spec, path, weight = self.spec, self.spec.values, self.weight
        projection = weight.get(f"layers.{n - 1}.attention.v_proj.weight")
        own = None if projection is None else h @ projection.T
        if n not in getattr(path, "layers", ()):
            return own, own
        at = path.layers.index(n)

        def coefficient(name):
            return weight[f"values.{name}"][at] if f"values.{name}" in weight else getattr(path, name)

        if path.kind == "scaled":
            return own, weight["values.scale"][at] * own
        if path.kind == "embedding":
            both = coefficient("source") * (x0 @ projection.T)
            return own, both + coefficient("own") * own if path.combine == "add" else both
        if path.kind == "table":
            rows = weight[f"values.tables.{0 if path.shared else at}"][ids]
            factor = coefficient("source")
            if path.gate:
                gate = 3 / (1 + torch.exp(-(h[..., :12] @ weight[f"values.gates.{at}"].T)))
                factor = gate.repeat_interleave(spec.head_dim, -1)
            return own, factor * rows + coefficient("own") * own if path.combine == "add" else factor * rows
        if path.kind == "reuse":
            return None, coefficient("scale") * banked[path.source]
        if path.kind == "mix":
            source = banked[n - 1 if path.source == "previous" else path.source]
            if path.cache == "post_mix":
                source = mixed[n - 1].transpose(1, 2).flatten(-2)
            return own, path.coefficients.source * source + path.coefficients.own * own
        return own, own

    def __call__(self, ids):
        spec, weight, path, extra = self.spec, self.weight, self.spec.values, self.spec.attention_residual
        x = weight["embedding.weight"][ids]
        x0 = self.norm(x)
        queries, keys, banked, mixed = {}, {}, {}, {}
        for n in range(1, spec.layers + 1):
            name = f"layers.{n - 1}.attention"
            h = self.norm(x, f"{name}_norm")
            first = n if spec.sharing is None else n - (n - 1) % spec.sharing.every
            q = h @ weight[f"{name}.q_proj.weight"].T
            k = h @ weight[f"{name}.k_proj.weight"].T if f"{name}.k_proj.weight" in weight else None
            targeted = extra is not None and n in extra.layers
            if n == 1:
                raw = {"query": q, "key": k}
            if targeted and extra.of == "query":
                q = extra.source * raw["query"] + extra.own * q
            if targeted and extra.of == "key":
                k = extra.source * raw["key"] + extra.own * k
            queries[n] = self.turned(self.split(q))
            keys[n] = self.turned(self.split(k)) if k is not None else keys[first]
            if spec.sharing is not None and spec.sharing.values and first != n:
                mixed[n] = mixed[first]
            else:
                banked[n], value = self.value(n, h, x0, ids, banked, mixed)
                mixed[n] = self.split(value)
            scores = self.scores(queries[n], keys[n])
            if path.kind == "cross_layer" and n in path.layers:
                both = torch.cat((scores, self.scores(queries[n], keys[1])), -1).softmax(-1)
                attended = both @ torch.cat((mixed[n], mixed[1]), -2)
            else:
                matrix = scores.softmax(-1)
                if targeted and extra.of == "attention":
                    first_matrix = self.scores(queries[1], keys[1]).softmax(-1)
                    matrix = extra.source * first_matrix + extra.own * matrix
                attended = matrix @ mixed[n]
            attended = attended.transpose(1, 2).flatten(-2)
            if path.kind == "identity_map" and n in path.layers:
                attended = path.own * attended + path.source * banked[1]
            x = x + attended @ weight[f"{name}.o_proj.weight"].T
            h = self.norm(x, f"layers.{n - 1}.mlp_norm")
            gate, up = (h @ weight[f"layers.{n - 1}.mlp.{which}_proj.weight"].T for which in ("gate", "up"))
            x = x + (gate * torch.sigmoid(gate) * up) @ weight[f"layers.{n - 1}.mlp.down_proj.weight"].T
        return self.norm(x, "final_norm") @ weight["head.weight"].T
