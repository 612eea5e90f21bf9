"""Gradient norms, removal of sub-layers and coefficients, against autograd, zeroed matrices and parameters by hand."""

from __future__ import annotations

import pytest
import torch

from respath.measure.analyses import coefficients, gains, gradients, removal
from respath.model import parameter_roles
from respath.model.loss import next_token_loss
from tests.unit import backbone_models, model_cases, stream_models, value_models

PARTS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}


def targets(ids):
    return ids[:, 1:].numel()


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["transformer", "identity-gqa2", "learnable", "svformer", "cla2"])
def test_gradient_norms_are_those_of_autograd_on_the_mean_loss(variant):
    model, ids = model_cases.perturbed(variant), model_cases.some_ids(batch=5)
    found = gradients.measure(model, ids.split(2), targets(ids))
    loss = next_token_loss(model, ids)
    loss.backward()
    assert found.scalars["loss"] == pytest.approx(loss.item(), rel=1e-12)
    for name, attribute in PARTS.items():
        expected = []
        for layer in model.layers:
            matrix = getattr(layer.attention, attribute)
            expected.append(
                None if matrix is None else pytest.approx(matrix.weight.grad.square().sum().sqrt().item())
            )
        assert found.series[f"norm_{name}"] == expected
    assert found.scalars["value_layer1"] == found.series["norm_v"][0]
    assert all(value > 0 for value in found.series["norm_o"])


def test_a_missing_matrix_has_no_norm_and_the_result_says_so():
    model, ids = model_cases.perturbed("svformer"), model_cases.some_ids()
    found = gradients.measure(model, [ids], targets(ids))
    assert found.series["norm_v"][1:] == [None] * 3 and found.series["norm_v"][0] > 0
    assert found.reason == "some layers have no W_V"
    assert gradients.measure(model_cases.perturbed("transformer"), [ids], targets(ids)).reason is None


def test_the_first_layers_value_gradient_has_a_part_from_every_layer_that_mixes_it():
    ids, norms = model_cases.some_ids(batch=4), {}
    for variant in ("transformer", "identity"):
        model = model_cases.perturbed(variant)
        norms[variant] = gradients.measure(model, [ids], targets(ids)).scalars["value_layer1"]
    assert norms["identity"] != pytest.approx(norms["transformer"], rel=0.05)


def test_one_sequence_has_the_losss_gradient_and_signs_estimate_the_whole_jacobian():
    model, ids = model_cases.perturbed("identity"), model_cases.some_ids(batch=1)[:, :5]
    found = gradients.measure(model, [ids], targets(ids)).scalars
    assert found["value_layer1_of_sequences"] == pytest.approx(found["value_layer1"], rel=1e-5)
    weight = model.layers[0].attention.v_proj.weight
    logits = model(ids)[0]
    summed = torch.autograd.grad(logits.sum() / 5, weight, retain_graph=True)[0]
    assert found["value_layer1_of_outputs"] == pytest.approx(float(summed.norm()), rel=1e-5)
    square = sum(
        float(torch.autograd.grad(one, weight, retain_graph=True)[0].square().sum())
        for one in logits.flatten()
    )
    copies = gradients.per_sequence(model, [ids.expand(300, -1)])["jacobian"]["v"]
    # 300 draws: the estimate of a norm is within a few per cent.
    assert copies == pytest.approx((square / 5) ** 0.5, rel=0.05)


# --- removal ----------------------------------------------------------------------------------------------------------

MODELS = {
    "transformer": lambda: model_cases.perturbed("transformer"),
    "learnable": lambda: model_cases.perturbed("learnable"),
    "share-keys": lambda: model_cases.perturbed("share-keys"),
    "attention-residual": lambda: value_models.perturbed("attention-residual", layers=4),
    "gpt2": lambda: backbone_models.perturbed("gpt2", layers=4),
    "nanochat": lambda: backbone_models.perturbed("nanochat", layers=4),
    **{
        name: lambda name=name: stream_models.perturbed(stream_models.STREAMS[name]).eval()
        for name in ("hc", "block_attnres", "deepnorm", "moda", "denseformer")
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_removing_sublayers_equals_zeroing_what_they_add(name):
    model, ids = MODELS[name](), model_cases.some_ids(batch=3) % 256
    found = removal.measure(model, ids.split(2), targets(ids))
    with torch.no_grad():
        whole = next_token_loss(model, ids).item()
    assert found.scalars["loss"] == found.series["attention"][0] == found.series["mlp"][0]
    assert found.scalars["loss"] == pytest.approx(whole, rel=1e-10)
    for kind, matrix in (("attention", "o_proj"), ("mlp", "down_proj")):
        zeroed, losses = MODELS[name](), [whole]
        for layer in reversed(zeroed.layers[1:]):
            last = getattr(getattr(layer, kind), matrix)
            with torch.no_grad():
                for parameter in last.parameters():
                    parameter.zero_()
                losses.append(next_token_loss(zeroed, ids).item())
        assert found.series[kind] == pytest.approx(losses, rel=1e-9)
    with torch.no_grad():
        assert next_token_loss(model, ids).item() == whole


def test_the_quotient_of_increases_is_null_unless_removing_mlps_costs_something():
    model, ids = model_cases.perturbed("transformer"), model_cases.some_ids()
    found = removal.measure(model, [ids], targets(ids))
    increases = [
        sum(loss - found.scalars["loss"] for loss in found.series[kind][1:]) / 3
        for kind in ("attention", "mlp")
    ]
    if increases[1] > 0:
        assert found.scalars["attention_over_mlp"] == pytest.approx(increases[0] / increases[1])
    with torch.no_grad():
        for layer in model.layers[1:]:
            layer.mlp.down_proj.weight.zero_()
    found = removal.measure(model, [ids], targets(ids))
    assert found.scalars["attention_over_mlp"] is None and "no quotient" in found.reason


# --- coefficients -----------------------------------------------------------------------------------------------------


def measured(model):
    return coefficients.measure(model)


def test_learnable_coefficients_are_read_per_layer_with_their_ratio():
    model = model_cases.perturbed("learnable-sparse")
    with torch.no_grad():
        model.values.source.copy_(torch.tensor([0.5, 3.0]))
        model.values.own.copy_(torch.tensor([0.25, -1.5]))
    found = measured(model)
    assert found.series["source"] == [None, 0.5, None, 3.0]
    assert found.series["own"] == [None, 0.25, None, -1.5]
    assert found.series["ratio"] == [None, 2.0, None, -2.0]
    # Magnitudes are compared: the sign of a coefficient is in the series.
    assert found.scalars["late_over_early"] == pytest.approx(1.0)
    # From 0.5 and 0.5.
    assert found.scalars["moved_mean"] == pytest.approx((0 + 0.25 + 2.5 + 2.0) / 4)
    assert found.scalars["moved_max"] == 2.5


def test_late_layers_are_compared_with_early_ones_by_geometric_means():
    assert coefficients.late_over_early([None, 2.0, 0.5], [8.0, -0.5, 16.0]) == pytest.approx(4.0)
    assert coefficients.late_over_early([None, None], [1.0]) is None
    assert coefficients.late_over_early([0.0], [1.0]) is None


def test_constant_coefficients_are_read_and_have_not_moved():
    found = measured(model_cases.perturbed("constant-2"))
    assert found.series["ratio"] == [None, 2.0, 2.0, 2.0]
    assert found.scalars["late_over_early"] == 1.0
    assert "moved_mean" not in found.scalars and found.reason == "no coefficient is learned"


@pytest.mark.parametrize(("variant", "shares"), [("plus", 4), ("plus-softmax-targets", 3)])
def test_plus_coefficients_are_the_scaled_softmax(variant, shares):
    model = model_cases.perturbed(variant)
    path = model.values
    exponentials = path.logits.detach().exp()
    expected = (path.scale.detach() * exponentials / exponentials.sum()).tolist()
    assert len(expected) == shares
    found = measured(model)
    assert found.series["source"] == [None, *(pytest.approx(value) for value in expected[-3:])]
    assert found.series["own"][1:] == path.own.tolist()
    start = model_cases.build_model(model.spec, dtype=torch.float64)
    assert measured(start).scalars["moved_max"] == pytest.approx(0, abs=1e-12)


def test_dense_coefficients_are_a_triangle_whose_first_row_is_the_own_value():
    model = model_cases.perturbed("dense")
    found = measured(model)
    matrix = found.series["matrix"]
    assert matrix[0] == [1.0, None, None, None]
    for n, weights in enumerate(model.values.weights, start=1):
        assert matrix[n] == [*weights.tolist(), *[None] * (3 - n)]
    assert found.series["source"] == [None, *(matrix[n][0] for n in (1, 2, 3))]
    assert found.series["own"] == [None, *(matrix[n][n] for n in (1, 2, 3))]
    moved = [abs(weight - 1.0) for row in matrix[1:] for weight in row if weight is not None]
    assert found.scalars["moved_mean"] == pytest.approx(sum(moved) / 9)
    assert measured(model_cases.perturbed("dense-constant")).series["matrix"][1] == [0.0, 1.0, None, None]


def test_scales_of_reused_and_tabled_values_stand_under_source_and_of_own_values_under_own():
    reused = measured(model_cases.perturbed("reuse-scaled"))
    assert None not in reused.series["source"][1:] and reused.series["own"] == [None] * 4
    assert reused.series["ratio"] == [None] * 4 and reused.scalars["late_over_early"] is None
    scaled = measured(value_models.perturbed("scaled"))
    assert scaled.series["source"] == [None] * 6 and scaled.series["own"][:4] == [None] * 4
    table = measured(value_models.perturbed("table-learnable"))
    assert table.series["source"][4:] == pytest.approx(
        value_models.perturbed("table-learnable").values.source.tolist()
    )


def test_a_path_without_coefficients_says_so():
    found = measured(model_cases.perturbed("neutreno"))
    assert found.as_dict() == {
        "scalars": {}, "series": {}, "reason": "the value path neutreno has no coefficients"
    }  # fmt: skip


def test_gains_are_measured_by_their_distance_from_one_and_matrices_by_their_entries():
    model = model_cases.perturbed("transformer")
    roles = parameter_roles(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_({"norm": 1.0, "matrix": -0.5}.get(roles[name], 7.0))
        model.final_norm.weight[0] = 0.75
    count = sum(p.numel() for name, p in model.named_parameters() if roles[name] == "norm")
    found = gains.measure(model).scalars
    assert found == {"moved_mean": 0.25 / count, "unmoved_share": 1 - 1 / count, "matrix_rms": 0.5}


def test_steps_that_bf16_rounds_away_leave_gains_at_one():
    # The spacing that the docstring names: half of it is lost, more than half moves the gain.
    one = torch.ones(1, dtype=torch.bfloat16)
    assert one + 0.0039 == 1 and one + 0.0040 > 1 and one - 0.0019 == 1 and one - 0.0020 < 1
    assert one * (1 - 1e-2 * 0.1) == 1
