"""Every variant traces to one graph, without hidden state and without breaks."""

from __future__ import annotations

import shutil

import pytest
import torch

from respath.model import build_model
from respath.model.loss import TrainingLoss
from respath.model.precision import LowPrecision
from tests.unit.model_cases import VARIANTS, perturbed, some_ids

#: Tracing takes a second or two each; these cover every module, the others run with the slow tests.
QUICK = ("learnable", "svformer-share-keys", "denseformer")


@pytest.fixture(autouse=True)
def fresh_compiler():
    """One process compiles many models; the compiler keeps at most eight per function."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "variant", [v if v in QUICK else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]
)
def test_every_variant_compiles_as_one_graph(variant):
    model, ids = perturbed(variant), some_ids()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("low", [False, True])
def test_the_training_loss_compiles_as_one_graph_in_both_precisions(low):
    loss, ids = TrainingLoss(perturbed("learnable", dtype=torch.float32)), some_ids()
    module = LowPrecision(loss) if low else loss
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    expected = torch.autograd.grad(module(ids), list(loss.parameters()))
    gradients = torch.autograd.grad(compiled(ids), list(loss.parameters()))
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("low", [False, True], ids=["fp32", "low precision"])
def test_recomputed_activations_compile_as_one_graph_with_the_gradients_of_kept_ones(low):
    loss, ids = TrainingLoss(perturbed("learnable", dtype=torch.float32)), some_ids()
    module = LowPrecision(loss) if low else loss
    expected = torch.autograd.grad(module(ids), list(loss.parameters()))
    loss.model.checkpoint_activations = True
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    gradients = torch.autograd.grad(compiled(ids), list(loss.parameters()))
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="inductor needs a C++ compiler"
)
@pytest.mark.parametrize(
    ("ref", "overrides"), [("resformer/2M/learnable", {}), ("depthbench/400M-L16/hc", {"layers": 2})]
)
def test_a_training_loss_compiles_with_inductor_and_equal_gradients(ref, overrides):
    """With the windowed token table of ``test_backbone_start`` a value path, a stream and a backbone."""
    loss = TrainingLoss(build_model(ref, scale="smoke", overrides=overrides))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    ids = some_ids(2, 48)
    compiled = torch.compile(loss, fullgraph=True)
    parameters = list(loss.parameters())
    expected, found = (torch.autograd.grad(module(ids), parameters) for module in (loss, compiled))
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * a.abs().max().item())
