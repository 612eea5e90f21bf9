"""Every variant of every paper, as it is in the tables: decoding, kernels and recomputation.

Each module's own tests run the same on one small form of every kind; these take a minute and catch what a combination breaks.
"""

from __future__ import annotations

import pytest
import torch

from respath.model import build_model
from respath.model.loss import next_token_loss
from respath.model.resolve import resolve_spec
from tests.unit.noise import with_noise
from tests.unit.paper_variants import REFS, small_spec

pytestmark = pytest.mark.slow

EXACT = {"rtol": 0, "atol": 1e-10}
TIME = 12

#: Where windows are, a short layer sees itself and four earlier tokens, so that prompts and chunks cross it.
SHORT = {"windows": {"pattern": "SSSL", "short": 4}}


def distinct() -> dict[str, object]:
    """Ref -> small spec with short windows; equal models once."""
    refs = {}
    for paper, variant in REFS:
        spec = small_spec(paper, variant)
        refs.setdefault(resolve_spec(spec, overrides=SHORT) if spec.windows else spec, f"{paper}/{variant}")
    return {ref: spec for spec, ref in refs.items()}


SPECS = distinct()
each_variant = pytest.mark.parametrize("ref", SPECS)


def perturbed(ref: str, dtype=torch.float64):
    """A model with noise on every parameter, not in training: dropout is off."""
    return with_noise(build_model(SPECS[ref], dtype=dtype), 0.1).eval()


def some_ids(batch: int) -> torch.Tensor:
    return torch.randint(1024, (batch, TIME), generator=torch.Generator().manual_seed(3))


def fed(model, ids, chunks) -> torch.Tensor:
    """Logits of ``ids`` fed in chunks of the given lengths."""
    cache = model.new_cache(len(ids), TIME)
    return torch.cat([model(part, cache=cache) for part in ids.split(chunks, dim=1)], dim=1)


@each_variant
def test_every_way_through_the_cache_is_the_full_forward(ref):
    model, ids = perturbed(ref), some_ids(4)
    with torch.no_grad():
        full = model(ids)
        assert full.abs().max() > 0.01
        torch.testing.assert_close(fed(model, ids[:1], [1] * TIME), full[:1], **EXACT)
        torch.testing.assert_close(fed(model, ids, [7, 1, 1, 3]), full, **EXACT)
        cache, held = model.new_cache(4, TIME), [0] * 4
        for lengths in ([6, 1, 0, 3], [1, 4, 2, 5], [1, 1, 1, 1], [4, 0, 7, 3]):
            chunk = torch.zeros(4, max(lengths), dtype=torch.int64)
            for row, count in enumerate(lengths):
                chunk[row, :count] = ids[row, held[row] : held[row] + count]
            logits = model(chunk, cache=cache, lengths=lengths)
            for row, count in enumerate(lengths):
                expected = full[row, held[row] : held[row] + count]
                torch.testing.assert_close(logits[row, :count], expected, **EXACT)
                held[row] += count


@each_variant
def test_bf16_decoding_stays_within_rounding_of_the_bf16_forward(ref):
    model, ids = perturbed(ref, torch.bfloat16), some_ids(2)
    with torch.no_grad():
        full = model(ids).float()
        decoded = fed(model, ids, [7, 1, 1, 1, 1, 1]).float()
    # 2^-8 per rounding, through up to ten layers of perturbed weights.
    assert (decoded - full).norm() < 0.05 * full.norm()


@each_variant
def test_the_chosen_kernel_agrees_with_the_definition(ref):
    model, ids = perturbed(ref), some_ids(2)
    with torch.no_grad():
        chosen = model(ids)
        model.kernel = "eager"
        torch.testing.assert_close(model(ids), chosen, **EXACT)


@each_variant
def test_recomputed_activations_give_equal_gradients(ref):
    model, ids = perturbed(ref), some_ids(2)
    parameters, gradients = list(model.parameters()), []
    for model.checkpoint_activations in (False, True):
        gradients.append(torch.autograd.grad(next_token_loss(model, ids), parameters))
    assert all(torch.equal(kept, again) for kept, again in zip(*gradients, strict=True))


#: Compositions and forms that the modules' own tests do not trace; all variants of the papers would take minutes.
TRACED = [
    "depthbench/moda-post",
    "depthbench/hc-no-transport",
    "resformer/truncated-h2-v3",
    "resformer/no-hidden-residual-dense",
    "resformer/gpt2-svformer",
    "bov/bov-no-smear",
]


@pytest.mark.parametrize("ref", TRACED)
def test_a_composition_traces_as_one_graph(ref):
    torch._dynamo.reset()
    model, ids = perturbed(ref), some_ids(2)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-12, atol=1e-12)
    torch._dynamo.reset()
