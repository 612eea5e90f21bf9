"""Every parameter of every variant of every paper: what it starts as, and which optimizer group it is in, by its name alone.

The table below is written from the papers and facts, not from the modules; a parameter that it does not name fails.
"""

from __future__ import annotations

import math
import re

import pytest
import torch

from respath.config.request import RunRequest
from respath.model import build_model, parameter_roles
from respath.training.optimizer import make_optimizer
from tests.unit.paper_variants import PROJECT, REFS

NAMES = ["/".join(ref) for ref in REFS]

#: What is taken from the AdamW papers' recipes, by role: decay of ResFormer and of DepthBench.
DECAY = {
    "matrix": (0.1, 0.1),
    "embedding": (0.1, 0.1),
    "head": (0.1, 0.1),
    "norm": (0.0, 0.1),
    "bias": (0.0, 0.0),
    "coefficient": (0.0, 0.0),
    "routing": (0.1, 0.1),
}


def fitting_size(paper: str, variant: str) -> str:
    """The first size that fits the variant."""
    from respath.errors import UserError

    for size in PROJECT.folder(paper).paper.sizes:
        try:
            PROJECT.at("smoke").paper(paper).model(size, variant)
        except UserError:
            continue
        return size
    raise AssertionError(f"{paper}/{variant} fits no size")


def normal(std: float):
    def check(tensor: torch.Tensor, spec) -> None:
        # A normal draw cut at three deviations has deviation 0.98658.
        expected = std * (0.98658 if spec.init_cut == 3.0 else 1.0)
        assert abs(tensor.std().item() / expected - 1) < 5 / math.sqrt(2 * tensor.numel())
        assert abs(tensor.mean().item()) < 5 * expected / math.sqrt(tensor.numel())
        if spec.init_cut is not None:
            assert tensor.abs().max() <= spec.init_cut * std * (1 + 1e-6)

    return check


def uniform(low: float, high: float):
    def check(tensor: torch.Tensor, spec) -> None:
        assert low <= tensor.min() and tensor.max() <= high
        middle, spread = (low + high) / 2, (high - low) / math.sqrt(12)
        assert abs(tensor.mean().item() - middle) < 5 * spread / math.sqrt(tensor.numel())
        assert abs(tensor.std().item() / spread - 1) < 5 / math.sqrt(2 * tensor.numel())

    return check


def equal(expected):
    def check(tensor: torch.Tensor, spec) -> None:
        wanted = torch.as_tensor(expected, dtype=tensor.dtype)
        assert torch.equal(tensor, wanted.expand(tensor.shape))

    return check


def aligned(at: int):
    """Row t: the replaced or absent W^V of the target layer, of equal seed, on the normed embedding of t."""

    def check(tensor: torch.Tensor, spec) -> None:
        plain = build_model({**spec.model_dump(mode="json"), "values": {"kind": "own"}})
        x = plain.embedding.weight / plain.embedding.weight.square().mean(-1, keepdim=True).sqrt()
        wanted = x @ plain.layers[spec.values.layers[at] - 1].attention.v_proj.weight.T
        # Half a step of bf16 where the table is kept in it.
        rtol = 2**-8 if tensor.dtype == torch.bfloat16 else 1e-4
        torch.testing.assert_close(tensor.float(), wanted.detach(), rtol=rtol, atol=1e-4)

    return check


def expected(name: str, spec):
    """(role, check of the start) of a parameter."""
    stream, values, nano = spec.stream.kind, spec.values, spec.backbone == "nanochat"
    bound, std = math.sqrt(3 / spec.width), spec.init_std
    if name == "embedding.weight":
        return "embedding", normal(0.8 if nano else std)
    if name == "entry.positions.weight":
        return "embedding", normal(std)
    if name == "head.weight":
        return "head", normal(0.001 if nano else std)
    if name in ("entry.gate", "entry.scale"):
        return "smear", equal(0.0)
    if re.fullmatch(r"final_norm\.weight|layers\.\d+\.(attention|mlp)_norm\.weight", name):
        return "norm", equal(1.0)
    if name.endswith(".bias") and name.startswith(("layers.", "final_norm")):
        return "bias", equal(0.0)
    if matrix := re.fullmatch(r"layers\.\d+\.(?:attention|mlp)\.(q|k|v|o|gate|up|down)_proj\.weight", name):
        part, factor = matrix[1], 1.0
        if nano and part in "o down":
            return "matrix", equal(0.0)
        if nano:
            limit = 0.4 * bound if part == "up" else bound
            return "matrix", uniform(-limit, limit)
        if spec.backbone == "gpt2" and part in ("o", "down"):
            factor = (2 * spec.layers) ** -0.5
        if stream in ("hc", "mhc") and part in ("o", "down"):
            factor = 0.5
        if stream == "deepnorm" and part in ("v", "o", "gate", "up", "down"):
            factor = (8 * spec.layers) ** -0.25
        return "matrix", normal(factor * std)
    of_stream = {
        ("sandwich_ln", r"stream\.output_norms\.\d+\.weight"): ("norm", equal(1.0)),
        ("keel", r"stream\.post_norms\.\d+\.weight"): ("norm", equal(1.0)),
        ("full_attnres", r"stream\.queries"): ("routing", equal(0.0)),
        ("full_attnres", r"stream\.key_gains"): ("norm", equal(1.0)),
        ("block_attnres", r"stream\.queries"): ("routing", equal(0.0)),
        ("block_attnres", r"stream\.key_gains"): ("norm", equal(1.0)),
        ("moda", r"stream\.depth_projections\.\d+\.weight"): ("matrix", normal(std)),
        ("hidden_residual", r"stream\.source"): ("coefficient", equal(getattr(spec.stream, "source", None))),
        ("hidden_residual", r"stream\.own"): ("coefficient", equal(getattr(spec.stream, "own", None))),
    }
    for (kind, pattern), answer in of_stream.items():
        if stream == kind and re.fullmatch(pattern, name):
            return answer
    if stream == "denseformer" and (found := re.fullmatch(r"stream\.weights\.(\d+)", name)):
        return "coefficient", equal([0.0] * (int(found[1]) + 1) + [1.0])
    if found := re.fullmatch(r"stream\.sublayers\.(\d+)\.(\w+)", name):
        one_hot = [float(s == int(found[1]) % 4) for s in range(4)]
        eye = torch.eye(4)
        if stream == "hc":
            return {
                "projection": ("matrix", equal(0.0)),
                "read": ("coefficient", equal(one_hot)),
                "transport": ("coefficient", equal(eye)),
                "write": ("coefficient", equal(1.0)),
                "gates": ("routing", equal(0.01)),
            }[found[2]]
        gap8 = spec.stream.start == "gap8"
        biases = [8.0 if hot else -8.0 for hot in one_hot] + [0.0] * 4 + (8 * (eye - 1)).flatten().tolist()
        return {
            "projection": ("matrix", equal(0.0) if gap8 else normal(std)),
            "bias": ("coefficient", equal(biases if gap8 else 0.0)),
            "gates": ("coefficient", equal(0.01)),
        }[found[2]]
    if values.kind == "mix":
        weights = values.coefficients
        start = {"source": weights.source, "own": weights.own, "logits": 0.0}
        # softmax of equal logits is 1 / count, so that the scale starts the source's weight at the spec's number.
        count = spec.layers if weights.parameterisation == "softmax_all" else len(values.layers)
        start["scale"] = weights.source * count
        return "coefficient", equal(start[name.removeprefix("values.")])
    if values.kind == "dense":
        assert re.fullmatch(r"values\.weights\.\d+", name)
        return "coefficient", equal(1.0)
    if (values.kind, name) in (("reuse", "values.scale"), ("scaled", "values.scale")):
        return "coefficient", equal(1.0)
    if values.kind in ("embedding", "table") and name in ("values.source", "values.own"):
        # A learned sum starts as the baseline, a learned replacement at 1.
        added = values.combine == "add"
        return "coefficient", equal({"values.source": 0.0 if added else 1.0, "values.own": 1.0}[name])
    if found := re.fullmatch(r"values\.tables\.(\d+)", name):
        return "table", uniform(-bound, bound) if values.gate else aligned(int(found[1]))
    if re.fullmatch(r"values\.gates\.\d+", name):
        return "matrix", uniform(0.0, 0.02)
    raise AssertionError(f"no start and group are known for {name}")


@pytest.mark.parametrize(("paper", "variant"), REFS, ids=NAMES)
def test_every_parameter_starts_and_is_grouped_as_the_paper_says(paper, variant):
    size = fitting_size(paper, variant)
    model = build_model(f"{paper}/{size}/{variant}", scale="smoke")
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        role, check = expected(name, model.spec)
        assert roles[name] == role, name
        try:
            check(parameter.detach(), model.spec)
        except AssertionError as error:
            raise AssertionError(f"{name} does not start as expected") from error
    if paper == "bov":
        return  # its groups are Muon's, of which test_muon has the table
    recipe = PROJECT.at("paper").paper(paper).run(RunRequest(size=size, variant=variant), 1).spec.recipe
    grouped = {}
    for group in make_optimizer(dict(model.named_parameters()), roles, recipe).param_groups:
        for name in group["names"]:
            assert name not in grouped
            grouped[name] = (group["weight_decay"], group["factor"])
    at = ("resformer", "depthbench").index(paper)
    assert grouped == {name: (DECAY[role][at], 1.0) for name, role in roles.items()}
