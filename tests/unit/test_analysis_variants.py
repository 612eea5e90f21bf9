"""Every variant of every paper goes through every analysis, and each gives what the catalogue says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from respath.files import canonical_json
from respath.measure.analyses.inputs import Inputs
from respath.measure.analyses.stage import analyse_model
from respath.model import build_model
from respath.quantities.analyses import CATALOGUE
from tests.unit.noise import with_noise
from tests.unit.paper_variants import REFS, small_spec

TIME = 9
#: Modules with one entry per layer in every series (and how many more in these), and arrays of (layers, positions).
LAYERED = {
    "similarity": {"hidden_layers": 1},
    "coefficients": {},
    "gradients": {},
    "removal": {},
    "pca": {"components": 1},
    "importance": {},
    "norms": {},
}
#: One of each kind of value path, attention, stream and backbone; the others run with the slow tests.
QUICK = {
    ("resformer", "transformer"),
    ("resformer", "plus"),
    ("resformer", "dense"),
    ("resformer", "svformer"),
    ("resformer", "neutreno"),
    ("resformer", "cla2"),
    ("resformer", "cross-layer-attention"),
    ("resformer", "attention-residual"),
    ("resformer", "gpt2-transformer"),
    ("bov", "bov"),
    ("bov", "v-plus-table-gated"),
    ("depthbench", "mhc"),
    ("depthbench", "block-attnres"),
    ("depthbench", "moda"),
}

variants = pytest.mark.parametrize(
    ("paper", "variant"),
    [pytest.param(*ref, id="/".join(ref), marks=() if ref in QUICK else pytest.mark.slow) for ref in REFS],
)


def some_inputs(vocabulary: int) -> Inputs:
    packed, starts = (np.random.default_rng(seed).integers(0, vocabulary, (2, TIME)) for seed in (1, 2))
    return Inputs({"one": packed[:1], "two": packed[1:]}, {"one": starts, "two": starts[:0]})


def test_the_quick_variants_exist():
    assert set(REFS) >= QUICK


@variants
def test_a_variant_goes_through_every_analysis(paper, variant):
    spec = small_spec(paper, variant)
    model = with_noise(build_model(spec, seed=3), 0.02).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = analyse_model(model, some_inputs(spec.vocab_size), CATALOGUE)
    assert set(found) == set(CATALOGUE)
    for name, findings in found.items():
        expected, content = CATALOGUE[name], findings.as_dict()
        canonical_json(content)
        # What a variant lacks is left out or null, with the reason beside it.
        lacking = {*expected.scalars, *expected.series} - {*findings.scalars, *findings.series}
        assert not lacking or findings.reason or name == "coefficients", (name, lacking)
        assert set(findings.scalars) <= set(expected.scalars)
        assert set(findings.series) <= set(expected.series)
        assert set(findings.arrays) == set(expected.arrays)
        if name in LAYERED:
            lengths = {key: len(values) for key, values in findings.series.items()}
            assert lengths == {key: spec.layers + LAYERED[name].get(key, 0) for key in lengths}
        for array in findings.arrays.values():
            assert array.shape == (spec.layers, TIME) and np.isfinite(array).all()
    importance = found["importance"]
    assert all(0 < nats < math.log(TIME) for nats in importance.series["entropy"])
    np.testing.assert_allclose(importance.arrays["token_importance"].sum(1), 1, rtol=1e-5)
    assert None not in found["similarity"].series["value_to_first_after"]
    assert found["gradients"].scalars["loss"] == pytest.approx(found["removal"].scalars["loss"], rel=1e-5)
    # Analyses look and touch nothing.
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
