"""What each stream stores: exact counts at the 24-layer shape of DepthBench, names and optimizer roles."""

from __future__ import annotations

import math

import pytest
import torch

from respath.model import build_model, parameter_roles
from respath.spec.cost import count_parameters
from respath.spec.model import ModelSpec
from tests.unit.stream_models import PRE_LN, SHAPE, STREAMS, model

L, D = 24, 1024
L24 = {
    "vocab_size": 50_280,
    "layers": L,
    "width": D,
    "heads": 16,
    "kv_heads": 16,
    "ffn_width": 2736,
    "norm_eps": 1e-6,
}


def count(stream: dict, **fields) -> int:
    built = build_model({**L24, **fields, "stream": stream}, device="meta")
    return sum(math.prod(parameter.shape) for parameter in built.parameters())


@pytest.mark.parametrize(
    ("stream", "total"),
    [
        (PRE_LN, 405_406_720),
        ({"kind": "lns"}, 405_406_720),
        ({"kind": "deepnorm"}, 405_406_720),
        ({"kind": "truncated", "start": 1}, 405_406_720),
        ({"kind": "sandwich_ln"}, 405_406_720 + 2 * L * D),
        ({"kind": "keel"}, 405_406_720 + (2 * L - 1) * D),
        ({"kind": "full_attnres"}, 405_505_024),
        ({"kind": "block_attnres", "length": 6}, 405_505_024),
        ({"kind": "hc"}, 405_702_880),
        ({"kind": "hc", "transport": False}, 405_702_880),
        ({"kind": "mhc"}, 410_126_608),
        ({"kind": "moda"}, 453_641_216),
        ({"kind": "moda", "norm": "post"}, 453_641_216),
    ],
    ids=str,
)
def test_the_24_layer_model_has_the_printed_number_of_parameters(stream, total):
    assert count(stream) == total


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_the_closed_form_counts_every_group(stream):
    spec = ModelSpec(**{**SHAPE, "stream": stream})
    built = build_model(spec, device="meta")
    counted, sizes = count_parameters(spec), {name: p.numel() for name, p in built.named_parameters()}
    assert counted.total == sum(sizes.values()) == sum(counted.by_group.values())
    groups = {"norm": "norms", "coefficient": "coefficients", "routing": "routing"}
    for role, group in groups.items():
        of_role = (name for name, found in parameter_roles(built).items() if found == role)
        assert counted.by_group.get(group, 0) == sum(sizes[name] for name in of_role)


def test_hc_without_transport_has_dead_parameters():
    spec = ModelSpec(**{**L24, "stream": {"kind": "hc", "transport": False}})
    counted = count_parameters(spec)
    assert counted.total - counted.live == 2 * L * (16 + 4 * D)


def test_grouped_queries_shrink_modas_projections():
    extra = count({"kind": "moda"}, kv_heads=8) - count(PRE_LN, kv_heads=8)
    assert extra == (L - 1) * 2 * D * D // 2


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_other_parameters_keep_their_names_and_shapes(stream):
    plain, built = model(PRE_LN), model(stream)
    shapes = {name: tensor.shape for name, tensor in built.state_dict().items()}
    for name, tensor in plain.state_dict().items():
        assert shapes.pop(name) == tensor.shape
    assert all(name.startswith("stream.") for name in shapes)


def roles_of(stream: dict) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, role in parameter_roles(model(stream)).items():
        if name.startswith("stream."):
            found.setdefault(name.split(".", 3)[-1] if ".sublayers." in name else name, set()).add(role)
    return found


def test_static_terms_of_hc_do_not_decay_and_its_gates_and_projections_do():
    assert roles_of({"kind": "hc"}) == {
        "projection": {"matrix"},
        "read": {"coefficient"},
        "transport": {"coefficient"},
        "write": {"coefficient"},
        "gates": {"routing"},
    }


def test_biases_and_gates_of_mhc_do_not_decay_and_its_projection_does():
    assert roles_of({"kind": "mhc"}) == {
        "projection": {"matrix"},
        "bias": {"coefficient"},
        "gates": {"coefficient"},
    }


def test_queries_of_attnres_are_routing_and_key_gains_are_norms():
    assert roles_of({"kind": "full_attnres"}) == {"stream.queries": {"routing"}, "stream.key_gains": {"norm"}}


def test_routing_parameters_stay_in_fp32_in_a_bf16_model():
    built = model({"kind": "hc"}, dtype=torch.bfloat16)
    for name, role in parameter_roles(built).items():
        wide = role in ("coefficient", "routing")
        assert built.get_parameter(name).dtype == (torch.float32 if wide else torch.bfloat16), name
