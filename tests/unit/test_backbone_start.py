"""Backbones' parameters: counts, names, initial values, roles, optimizer groups, compile and round trip."""

from __future__ import annotations

import math

import pytest
import torch

from respath.errors import UserError
from respath.model import build_model, parameter_roles
from respath.model.loss import TrainingLoss, next_token_loss
from respath.model.precision import LowPrecision
from respath.spec.recipe import Recipe
from respath.training.optimizer import make_optimizer
from tests.unit.backbone_models import BACKBONES, PATHS, SHAPE, perturbed, some_ids, spec_of


def nanochat(layers: int, **fields) -> dict:
    """The recipe's shape at a depth."""
    width = -(-64 * layers // 128) * 128
    return {
        "backbone": "nanochat", "vocab_size": 32_768, "layers": layers, "width": width, "heads": width // 128,
        "kv_heads": width // 128, "ffn_width": 4 * width, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(("layers", "count"), [(12, 135_266_329), (24, 780_140_569)])
def test_nanochat_has_the_printed_number_of_parameters(layers, count):
    model = build_model(nanochat(layers), device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    plain = build_model(nanochat(layers, smear=False), device="meta")
    assert sum(parameter.numel() for parameter in plain.parameters()) == count - 25


def test_backbones_use_the_same_names_where_they_have_the_same_parts():
    names = {
        backbone: set(build_model(spec_of(backbone), device="meta").state_dict()) for backbone in BACKBONES
    }
    llama = names["llama"]
    assert names["llama-windows"] == llama
    gates = {name for name in llama if "gate_proj" in name}
    norms = {name for name in llama if "norm" in name}
    assert names["nanochat-no-smear"] == llama - gates - norms
    assert names["nanochat"] == llama - gates - norms | {"entry.gate", "entry.scale"}
    assert {name for name in names["gpt2"] if not name.endswith(".bias")} == llama - gates | {
        "entry.positions.weight"
    }
    assert names["gpt2"] - names["gpt2-tied"] == {"head.weight"}
    biased = {name.replace(".weight", ".bias") for name in llama - gates} - {"embedding.bias", "head.bias"}
    assert {name for name in names["gpt2"] if name.endswith(".bias")} == biased


def test_nanochat_starts_with_the_recipes_distributions():
    model = build_model({**SHAPE, "backbone": "nanochat", "width": 64, "vocab_size": 4000, "ffn_width": 256})
    bound = math.sqrt(3 / 64)
    for name, parameter in model.named_parameters():
        if name == "embedding.weight":
            assert abs(parameter.std() - 0.8) < 0.01 and parameter.abs().max() > 2.5
        elif name == "head.weight":
            assert abs(parameter.std() - 0.001) < 2e-5
        elif name.endswith(("o_proj.weight", "down_proj.weight")) or name.startswith("entry"):
            assert not parameter.any(), name
        else:
            limit = 0.4 * bound if "up_proj" in name else bound
            assert 0.98 * limit < parameter.abs().max() <= limit, name
            assert abs(parameter.std() - limit / math.sqrt(3)) < 0.03 * limit, name
    first = model.layers[0].attention
    assert not torch.equal(first.q_proj.weight, first.k_proj.weight)


def test_an_untouched_nanochat_model_is_its_embedding_under_the_head():
    model, ids = build_model(spec_of("nanochat"), dtype=torch.float64).eval(), some_ids()
    e = torch.nn.functional.rms_norm(model.embedding(ids), (32,), None, SHAPE["norm_eps"])
    torch.testing.assert_close(model(ids), 15 * torch.tanh(e @ model.head.weight.T / 15))


def test_gpt2_starts_normal_with_zero_biases_and_unit_gains():
    model = build_model(spec_of("gpt2", vocab_size=2000, init_std=0.05))
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter))
        else:
            deviation = 0.05 / math.sqrt(12) if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.05
            assert abs(parameter.std().item() / deviation - 1) < 4 / math.sqrt(2 * parameter.numel()), name


def test_a_cut_start_stays_within_three_deviations_and_no_cut_changes_nothing():
    shape = {**SHAPE, "vocab_size": 4000}
    free, cut = build_model(shape), build_model({**shape, "init_cut": 3.0})
    assert free.embedding.weight.abs().max() > 3.2 * 0.02
    for name, parameter in cut.named_parameters():
        if "norm" not in name:
            assert parameter.abs().max() <= 3 * 0.02 + 1e-7, name
    # A normal cut at 3 deviations has deviation 0.98658.
    assert abs(cut.embedding.weight.std() / 0.02 - 0.98658) < 0.005


def test_equal_seeds_give_gpt2_and_llama_the_same_matrices():
    llama, gpt2 = (build_model(spec_of(b)).state_dict() for b in ("llama", "gpt2"))
    for name in set(llama) & set(gpt2):
        # GPT-2 starts what adds to the residual smaller, by sqrt(2 L) for L = 6.
        smaller = 12**0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        torch.testing.assert_close(llama[name], gpt2[name] * smaller, rtol=1e-6, atol=0, msg=name)


EXPECTED_ROLES = {
    "gpt2": {
        "embedding.weight": "embedding", "entry.positions.weight": "embedding", "head.weight": "head",
        "layers.0.attention.q_proj.weight": "matrix", "layers.0.attention.q_proj.bias": "bias",
        "layers.0.mlp.down_proj.bias": "bias", "layers.0.attention_norm.weight": "norm",
        "layers.0.attention_norm.bias": "bias", "final_norm.bias": "bias",
    },
    "nanochat": {
        "embedding.weight": "embedding", "head.weight": "head", "entry.gate": "smear", "entry.scale": "smear",
        "layers.0.mlp.up_proj.weight": "matrix",
    },
    "nanochat-scalars": {"stream.own": "coefficient", "stream.source": "coefficient"},
}  # fmt: skip


@pytest.mark.parametrize("backbone", EXPECTED_ROLES)
def test_every_parameter_is_in_the_optimizer_group_of_its_role_and_decays_only_where_it_should(backbone):
    model = build_model(spec_of(backbone))
    roles = parameter_roles(model)
    assert set(roles) == {name for name, _ in model.named_parameters()}
    assert EXPECTED_ROLES[backbone].items() <= roles.items()
    recipe = Recipe(steps=4, warmup_steps=1, peak_lr=1e-3, final_lr=1e-4, batch_sequences=2, context=8)
    grouped = {}
    for group in make_optimizer(dict(model.named_parameters()), roles, recipe).param_groups:
        grouped |= dict.fromkeys(group["names"], group["weight_decay"])
    for name, role in roles.items():
        decays = role in ("matrix", "embedding", "head")
        assert grouped[name] == (0.1 if decays else 0.0), name


@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_parameter_has_a_gradient(backbone):
    model, ids = perturbed(backbone), some_ids()
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(next_token_loss(model, ids), list(parameters.values()))
    for name, gradient in zip(parameters, gradients, strict=True):
        # A softmax does not see what all keys have in common: the gradient of their bias is rounding.
        assert (gradient.abs().max() > 1e-8) != name.endswith("k_proj.bias"), name


@pytest.mark.parametrize("backbone", BACKBONES)
def test_changing_a_later_token_leaves_earlier_logits(backbone):
    model, ids = perturbed(backbone), some_ids()
    changed = ids.clone()
    changed[:, 8] = (changed[:, 8] + 1) % SHAPE["vocab_size"]
    with torch.no_grad():
        before, after = model(ids), model(changed)
    assert torch.equal(after[:, :8], before[:, :8])
    assert (after[:, 8:] - before[:, 8:]).abs().amax(dim=(0, 2)).min() > 1e-7


def test_smear_stays_in_single_precision_in_a_low_precision_model():
    model = build_model(spec_of("nanochat"), dtype=torch.bfloat16)
    assert model.entry.gate.dtype == model.entry.scale.dtype == torch.float32
    assert model.embedding.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("backbone", ["gpt2", "nanochat"])
def test_low_precision_compute_points_where_fp32_points(backbone):
    loss, ids = TrainingLoss(perturbed(backbone, dtype=torch.float32)), some_ids(4, 33)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.mul_(0.5)
    parameters = dict(loss.named_parameters())
    exact, rounded = (
        torch.autograd.grad(module(ids), list(parameters.values())) for module in (loss, LowPrecision(loss))
    )
    for name, a, b in zip(parameters, exact, rounded, strict=True):
        assert b.dtype == torch.float32
        if name.endswith("k_proj.bias"):
            continue  # a softmax does not see what all keys have in common: its gradient is rounding
        assert torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), 0) > 0.97, name


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"backbone": "gpt2"}, "give max_positions"),
        ({"backbone": "llama", "dropout": 0.1}, "belong to the gpt2 backbone"),
        ({"backbone": "gpt2", "max_positions": 9, "x0_scalars": True}, "belong to the nanochat backbone"),
        ({"backbone": "nanochat", "x0_scalars": True, "stream": {"kind": "hc"}}, "exclude the stream hc"),
        ({"backbone": "nanochat", "width": 16}, "24 channels"),
        ({"backbone": "nanochat", "stream": {"kind": "lns"}}, "has its own"),
        ({"windows": {"short": 3, "pattern": "SXL"}}, "pattern"),
    ],
)
def test_meaningless_combinations_are_refused_with_one_sentence(fields, words):
    with pytest.raises(UserError, match=words) as caught:
        build_model({**SHAPE, **fields})
    assert len(caught.value.lines) == 1


@pytest.fixture
def fresh_compiler():
    """The compiler keeps at most eight graphs per function in one process."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("backbone", "value_path"),
    [
        ("gpt2", "own"),
        ("nanochat", "own"),
        pytest.param("llama-windows", "own", marks=pytest.mark.slow),
        pytest.param("nanochat-scalars", "own", marks=pytest.mark.slow),
        *(
            pytest.param("nanochat", name, marks=pytest.mark.slow)
            for name in PATHS
            if name not in ("own", "attention-residual")
        ),
    ],
)
def test_backbones_compile_as_one_graph(backbone, value_path, fresh_compiler):
    model, ids = perturbed(backbone, value_path), some_ids()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_a_windowed_training_loss_compiles_with_inductor_and_equal_gradients(fresh_compiler):
    loss = TrainingLoss(perturbed("nanochat", "table", dtype=torch.float32, layers=3))
    # Longer than two blocks of queries, so that the window works by blocks.
    ids = some_ids(2, 290)
    compiled = torch.compile(loss, fullgraph=True)
    parameters = list(loss.parameters())
    expected, found = (torch.autograd.grad(module(ids), parameters) for module in (loss, compiled))
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * a.abs().max().item())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_weights_round_trip_through_a_file(backbone, tmp_path):
    from safetensors.torch import load_file, save_file

    model, ids = perturbed(backbone, dtype=torch.float32), some_ids()
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()}, tmp_path / "w.safetensors"
    )
    other = build_model(model.spec, seed=5).eval()
    other.load_state_dict(load_file(tmp_path / "w.safetensors"))
    assert torch.equal(other(ids), model(ids))
