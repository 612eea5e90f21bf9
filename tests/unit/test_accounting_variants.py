"""Closed forms against the real module on the meta device, for every variant of every paper."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from respath.accounting.measure import measured_kv
from respath.errors import UserError
from respath.model import build_model, parameter_roles
from respath.model.resolve import resolve_spec
from respath.papers.resolve import papers_at
from respath.spec.cost import SUMMED, cache_bytes, count_parameters, forward_flops

PROJECT = papers_at("smoke")
REFS = [(paper, variant) for paper in PROJECT.library.known for variant in PROJECT.folder(paper).variants]
NAMES = ["/".join(ref) for ref in REFS]


def shapes(paper: str, variant: str, scale: str) -> dict[str, object]:
    """The variant's spec at every size that fits it, equal shapes once."""
    fitting = {}
    for size in PROJECT.folder(paper).paper.sizes:
        try:
            spec = PROJECT.at(scale).paper(paper).model(size, variant)
        except UserError:
            continue
        if spec not in fitting.values():
            fitting[size] = spec
    return fitting


@pytest.mark.parametrize(("paper", "variant"), REFS, ids=NAMES)
def test_the_module_has_as_many_parameters_as_counted_at_every_size(paper, variant):
    for size, spec in shapes(paper, variant, "paper").items():
        model = build_model(spec, device="meta")
        sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
        counted = count_parameters(spec)
        assert counted.total == sum(sizes.values()) == sum(counted.by_group.values()), size
        outside = ("embedding.", "entry.positions.", "head.", "final_norm.")
        assert counted.backbone == sum(n for name, n in sizes.items() if not name.startswith(outside)), size
        of_role: dict[str, int] = {}
        for name, role in parameter_roles(model).items():
            of_role[role] = of_role.get(role, 0) + sizes[name]
        for group, role in (
            ("norms", "norm"),
            ("coefficients", "coefficient"),
            ("routing", "routing"),
            ("tables", "table"),
            ("smear", "smear"),
            ("head", "head"),
        ):
            assert counted.by_group.get(group, 0) == of_role.get(role, 0), (size, group)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [scale for scale in PROJECT.library.scales if scale != "paper"])
@pytest.mark.parametrize(("paper", "variant"), REFS, ids=NAMES)
def test_small_modules_have_as_many_parameters_as_counted_at_every_size(paper, variant, scale):
    for size, spec in shapes(paper, variant, scale).items():
        model = build_model(spec, device="meta")
        assert count_parameters(spec).total == sum(p.numel() for p in model.parameters()), size


@pytest.mark.parametrize(("paper", "variant"), REFS, ids=NAMES)
def test_small_models_fit_where_the_papers_do(paper, variant):
    fitting = {scale: set(_sizes(paper, variant, scale)) for scale in PROJECT.library.scales}
    assert fitting["paper"] == fitting["smoke"] == fitting["mini"] != set()


def _sizes(paper: str, variant: str, scale: str):
    for size in PROJECT.folder(paper).paper.sizes:
        try:
            PROJECT.at(scale).paper(paper).model(size, variant)
        except UserError:
            continue
        yield size


@pytest.mark.parametrize(("paper", "variant"), REFS, ids=NAMES)
def test_forward_flops_are_those_of_pytorchs_counter_but_for_sums_term_by_term(paper, variant):
    spec = next(iter(shapes(paper, variant, "smoke").values()))
    # PyTorch's counter knows no windows: it counts the whole square.
    spec, time = resolve_spec(spec, overrides={"windows": None}), 24
    model = build_model(spec, device="meta")
    # By the definition: fused kernels add up scores over depth term by term, which the counter does not see.
    model.kernel = "eager"
    ids = torch.zeros(1, time, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids)
    components = forward_flops(spec, time, "all", "full")
    assert counter.get_total_flops() == sum(n for name, n in components.items() if name not in SUMMED)


@pytest.mark.parametrize(("paper", "variant"), REFS, ids=NAMES)
def test_the_real_cache_has_as_many_bytes_as_counted(paper, variant):
    spec = next(iter(shapes(paper, variant, "smoke").values()))
    cache = build_model(spec, device="meta").new_cache(3, 50, dtype=torch.bfloat16)
    assert cache.nbytes == cache_bytes(spec, 50, 3)


def test_a_prefill_fills_a_cache_of_token_ids_as_counted():
    spec = PROJECT.at("smoke").paper("bov").model("d12", "bov")
    assert measured_kv(spec, 40, batch=2) == {"bytes": cache_bytes(spec, 40, 2), "filled": 40}


def test_block_attention_residuals_are_refused_where_eight_blocks_do_not_fit():
    for size, sublayers in (("400M-L42", 84), ("400M-L70", 140)):
        for scale in PROJECT.library.scales:
            with pytest.raises(UserError, match=f"{sublayers} sub-layers do not divide into 8 blocks"):
                PROJECT.at(scale).paper("depthbench").model(size, "block-attnres")
