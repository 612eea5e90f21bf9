"""Value paths and attention residuals: their equations, where they coincide, what they refuse."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from respath.errors import UserError
from respath.model import build_model
from respath.model.rope import rotate, rotations
from tests.unit.value_models import (
    GATED,
    SHAPE,
    VARIANTS,
    ByEquations,
    build,
    copied,
    perturbed,
    residual,
    some_ids,
    spec_of,
    values,
)

CLOSE = {"rtol": 0, "atol": 1e-11}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_computes_its_equations(variant):
    model, ids = perturbed(variant), some_ids()
    with torch.no_grad():
        torch.testing.assert_close(model(ids), ByEquations(model)(ids), **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_later_token_leaves_earlier_logits_alone_and_moves_its_own(variant):
    model, ids = perturbed(variant), some_ids()
    changed = ids.clone()
    changed[:, 5] = (changed[:, 5] + 1) % SHAPE["vocab_size"]
    with torch.no_grad():
        before, after = model(ids), model(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5], **CLOSE)
    assert (after[:, 5:] - before[:, 5:]).abs().amax(dim=(0, 2)).min() > 1e-6


# --- limits ------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [
        residual("query", source=0.0, own=1.0),
        residual("key", source=0.0, own=1.0),
        residual("attention", source=0.0, own=1.0),
        values("identity_map", "all", source=0.0, own=1.0),
        values("embedding", combine="add", source=0.0, own=1.0),
        values("table", combine="add", source=0.0, own=1.0),
        values("table", combine="add", source=0.0, own=1.0, learnable=True),
        values("scaled"),
    ],
    ids=str,
)
def test_source_zero_and_own_one_is_the_plain_transformer_bit_for_bit(overrides):
    plain, ids = perturbed({}), some_ids()
    variant = build(overrides)
    added = {name: tensor for name, tensor in variant.state_dict().items() if name.startswith("values.")}
    variant = copied(plain, variant, **added)
    assert torch.equal(variant(ids), plain(ids))


def test_adding_queries_before_the_rotation_equals_adding_them_after():
    generator = torch.Generator().manual_seed(2)
    first, own = (torch.randn(2, 9, 4, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    cos, sin = rotations(torch.arange(9), 8, 10_000.0, torch.float64)
    before = rotate(0.5 * first + 0.5 * own, cos, sin)
    after = 0.5 * rotate(first, cos, sin) + 0.5 * rotate(own, cos, sin)
    torch.testing.assert_close(before, after, rtol=0, atol=1e-14)


def test_the_whole_model_with_rotated_queries_added_equals_ours():
    class AddedAfter(ByEquations):
        """Adds the first layer's queries after the rotation."""

        def __call__(self, ids):
            seen, turned = [], self.turned

            def queries_and_keys(x):
                out = turned(x)
                seen.append(out)
                # Queries and keys alternate; from layer 2 on the queries are mixed.
                return 0.5 * seen[0] + 0.5 * out if len(seen) > 2 and len(seen) % 2 == 1 else out

            self.turned = queries_and_keys
            self.spec = spec_of({})
            return super().__call__(ids)

    model, ids = perturbed("query-residual"), some_ids()
    with torch.no_grad():
        torch.testing.assert_close(model(ids), AddedAfter(model)(ids), **CLOSE)


@pytest.mark.parametrize("layers", ["last-third", "every-2", "all"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "backbone",
    [{}, {"kv_heads": 2}, {"init_cut": 2.0}, {"backbone": "nanochat", "smear": False}],
    ids=str,
)
def test_bank_of_values_starts_as_values_projected_from_the_embedding(layers, dtype, backbone):
    ids = some_ids()
    bank, projected = (build({**backbone, **values(kind, layers)}, dtype) for kind in ("table", "embedding"))
    if backbone.get("backbone") == "nanochat":
        # Output projections and head start at or near zero there; without this, all logits would agree.
        for model in (bank, projected):
            for layer in model.layers:
                torch.nn.init.eye_(layer.attention.o_proj.weight)
            torch.nn.init.eye_(model.head.weight)
    ours, theirs = bank(ids), projected(ids)
    assert theirs.abs().max() > 1e-3
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5 * theirs.abs().max().item()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_an_aligned_table_holds_the_projection_that_the_baseline_of_equal_seed_starts_with():
    for overrides in ({}, {"stream": {"kind": "deepnorm"}}, {"init_cut": 2.0}, {"backbone": "nanochat"}):
        bank, plain = build({**overrides, **values("table")}, seed=5), build(overrides, seed=5)
        normed = F.rms_norm(plain.embedding.weight, (SHAPE["width"],), eps=SHAPE["norm_eps"])
        for j, n in enumerate((4, 5)):
            expected = normed @ plain.layers[n].attention.v_proj.weight.T
            torch.testing.assert_close(bank.values.tables[j].detach(), expected.detach(), rtol=0, atol=1e-13)
        other = build({**overrides, **values("table")}, seed=6)
        assert not torch.equal(other.values.tables[0], bank.values.tables[0])
        assert not torch.equal(bank.values.tables[0], bank.values.tables[1])


def test_a_uniform_table_and_its_gates_start_within_their_bounds():
    model = build(values("table", "every-2", **GATED))
    bound = (3 / SHAPE["width"]) ** 0.5
    for table in model.values.tables:
        assert 0.98 * bound < table.max() <= bound and -bound <= table.min() < -0.98 * bound
        assert abs(table.mean().item()) < 0.02 * bound
    for gate in model.values.gates:
        assert gate.min() >= 0 and gate.max() <= 0.02 and gate.std() > 0.003


def test_a_shared_table_equals_tables_of_equal_content():
    shared, ids = perturbed("table-shared"), some_ids()
    table = shared.values.tables[0].detach()
    apart = copied(
        shared, build("table-learnable"), **{f"values.tables.{j}": table.clone() for j in range(2)}
    )
    assert torch.equal(shared(ids), apart(ids))


def test_embedding_values_of_the_first_layer_are_its_own():
    first, ids = perturbed(values("embedding", [1])), some_ids()
    plain = copied(first, build({}))
    gain = dict(first.named_parameters())["layers.0.attention_norm.weight"]
    with torch.no_grad():
        assert (first(ids) - plain(ids)).abs().max() > 1e-3
        gain.fill_(1.0)
        torch.testing.assert_close(first(ids), copied(first, plain)(ids), **CLOSE)


def test_cross_layer_attention_over_equal_halves_is_plain_attention():
    # Keys and values that stand twice get half the weight each.
    from respath.model.kernels import Visibility, attend
    from respath.model.values.cross_layer import attend_jointly

    generator = torch.Generator().manual_seed(4)
    q = torch.randn(2, 7, 4, 8, generator=generator, dtype=torch.float64)
    k, v = (torch.randn(2, 7, 2, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    seen = Visibility(square=True, aligned=True, mask=None)
    for kernel in ("auto", "eager"):
        joint = attend_jointly(q, ((k, v), (k, v)), seen, kernel)
        torch.testing.assert_close(joint, attend(q, k, v, seen, kernel), rtol=0, atol=1e-13)


# --- what exists, and what is refused ------------------------------------------------------------


def test_replaced_projections_do_not_exist_and_tables_have_the_width_of_values():
    names = dict(build_model(spec_of("table-gqa2"), device="meta").named_parameters())
    present = [f"layers.{n}.attention.v_proj.weight" in names for n in range(6)]
    assert present == [True] * 4 + [False] * 2
    assert names["values.tables.0"].shape == (SHAPE["vocab_size"], 16)
    assert names["values.source"].shape == (2,) and "values.own" not in names


def test_tables_coefficients_and_gates_have_their_roles():
    from respath.model import parameter_roles

    roles = parameter_roles(build_model(spec_of("table-gated"), device="meta"))
    assert roles["values.tables.2"] == "table" and roles["values.gates.0"] == "matrix"
    roles = parameter_roles(build_model(spec_of("table-added-learnable"), device="meta"))
    assert roles["values.own"] == roles["values.source"] == "coefficient"
    assert parameter_roles(build_model(spec_of("scaled"), device="meta"))["values.scale"] == "coefficient"


def test_coefficients_stay_in_single_precision_and_tables_do_not_in_a_bf16_model():
    model = build("table-learnable", dtype=torch.bfloat16)
    assert model.values.source.dtype == torch.float32 and model.values.tables[0].dtype == torch.bfloat16
    assert model(some_ids()).dtype == torch.bfloat16


def test_every_second_layer_of_an_odd_number_leaves_the_source_of_v1_out():
    assert spec_of(values("reuse", "every-2"), layers=5).values.layers == (3, 5)
    assert spec_of(values("table", "every-2"), layers=5).values.layers == (1, 3, 5)
    assert spec_of(values("reuse", "every-2")).values.layers == (2, 4, 6)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (values("embedding", own=0.5), "combine: replace leaves out"),
        (values("table", own=0.5), "combine: replace leaves out"),
        (values("embedding", combine="add"), "adds to nothing"),
        (values("table", combine="add", own=0.0), "adds to nothing"),
        (values("table", gate=True, learnable=True), "gate stands in the place"),
        (values("table", gate=True, source=2.0), "gate stands in the place"),
        (values("table", gate=True) | {"width": 8, "heads": 2, "kv_heads": 2}, "12 channels"),
        (values("identity_map", "all") | {"kv_heads": 2}, "kv_heads equal to heads"),
        (values("identity_map", [1, 2]), "start at layer 2"),
        (values("cross_layer", [1]), "start at layer 2"),
        (values("cross_layer", "all") | {"sharing": {"every": 2, "keys": True}}, "excludes sharing keys"),
        (values("cross_layer", "all") | residual("attention"), "choose one"),
        (residual("query", [1, 2]), "start at layer 2"),
        (residual("key") | {"sharing": {"every": 2, "keys": True}}, "exclude each other"),
        (residual("attention") | {"windows": {"short": 4}}, "excludes windows"),
        (residual("value"), "of"),
        (values("table") | {"sharing": {"every": 2, "values": True}}, "exclude each other"),
        (values("table") | {"stream": {"kind": "moda"}}, "moda"),
        (
            values("mix", [3, 4], source=2, cache="post_mix", coefficients={"source": 0.5, "own": 0.5}),
            "belongs to source: previous",
        ),
        (values("reuse", [2, 4], source=3), "cannot use the value of layer 3"),
    ],
    ids=str,
)
def test_meaningless_combinations_are_refused_with_one_sentence(overrides, words):
    with pytest.raises(UserError, match=words) as caught:
        spec_of(overrides)
    assert len(caught.value.lines) == 1
