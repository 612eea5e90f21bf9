"""States and values of a trace, similarities, principal components and norms, against direct evaluation."""

from __future__ import annotations

import itertools

import pytest
import torch

from respath.measure.analyses.norms import Norms
from respath.measure.analyses.pca import PCA, Moments, components
from respath.measure.analyses.similarity import Similarity, pair_cosine
from respath.measure.analyses.trace import Trace, trace
from respath.model import build_model
from tests.unit import stream_models, value_models
from tests.unit.value_models import ByEquations

#: Streams whose parameters and constants of a layer do not depend on how many layers follow.
CUT_ANYWHERE = ("pre_ln", "sandwich_ln", "lns", "hc", "mhc", "moda", "denseformer", "truncated")


def cosine(a, b) -> float:
    return float(a @ b / (a.norm() * b.norm()))


@pytest.mark.parametrize("kind", CUT_ANYWHERE)
def test_a_state_is_what_the_final_norm_would_see_if_the_model_ended_there(kind):
    model, ids = stream_models.perturbed(stream_models.STREAMS[kind]).eval(), stream_models.tokens()
    hidden = trace(model, ids, attention=False).hidden
    assert len(hidden) == 5
    for n in (2, 3):
        short = build_model(model.spec.model_copy(update={"layers": n}), dtype=torch.float64)
        weights = {name: tensor for name, tensor in model.state_dict().items() if name in short.state_dict()}
        short.load_state_dict(weights, strict=True)
        with torch.no_grad():
            torch.testing.assert_close(
                model.logits(model.final_norm(hidden[n])), short.eval()(ids), rtol=1e-9, atol=1e-10
            )


@pytest.mark.parametrize("stream", stream_models.STREAMS)
def test_the_last_state_gives_the_logits_and_the_first_is_the_embedding(stream):
    model, ids = stream_models.perturbed(stream_models.STREAMS[stream]).eval(), stream_models.tokens()
    with torch.no_grad():
        found, logits = trace(model, ids, attention=False), model(ids)
        torch.testing.assert_close(model.logits(model.final_norm(found.hidden[-1])), logits)
    if stream not in ("hc", "hc-unmixed", "hc-three"):  # hyper-connections end with the sum of their copies
        torch.testing.assert_close(found.hidden[0], model.embedding(ids).detach())


class Values(ByEquations):
    """The papers' equations, with (V_n as projected, V'_n) of every layer that has values of its own kept."""

    def value(self, n, *arguments):
        self.kept[n - 1] = super().value(n, *arguments)
        return self.kept[n - 1]

    def __call__(self, ids):
        self.kept = {}
        super().__call__(ids)
        return self.kept


@pytest.mark.parametrize("variant", value_models.VARIANTS)
def test_values_before_and_after_mixing_are_those_of_the_papers_equations(variant):
    model, ids = value_models.perturbed(variant), value_models.some_ids()
    found = trace(model, ids, attention=False)
    with torch.no_grad():
        expected = Values(model)(ids)
    spec = model.spec
    for n in range(spec.layers):
        shared = spec.sharing is not None and spec.sharing.values and n % spec.sharing.every
        own, mixed = (None, expected[n - n % spec.sharing.every][1]) if shared else expected[n]
        if own is None or found.own[n] is None:
            # The equations project what a replaced value leaves unused; the model does not.
            assert found.own[n] is None
        else:
            torch.testing.assert_close(found.own[n], own, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(found.values[n], mixed, rtol=1e-9, atol=1e-11)


def test_similarities_are_means_of_cosines_over_tokens_and_ordered_pairs():
    generator = torch.Generator().manual_seed(5)
    hidden, values = (
        [torch.randn(2, 5, 6, generator=generator, dtype=torch.float64) for _ in range(count)]
        for count in (3, 2)
    )
    running = Similarity(2)
    # In two batches: sums, not means of means.
    for rows in (slice(0, 1), slice(1, 2)):
        own = [values[0][rows], None]
        running.add(Trace([h[rows] for h in hidden], own, [v[rows] for v in values]))
    series = running.result().series
    places = list(itertools.product(range(2), range(5)))
    for i, j in itertools.product(range(3), repeat=2):
        wanted = sum(cosine(hidden[i][p], hidden[j][p]) for p in places) / len(places)
        assert series["hidden_layers"][i][j] == pytest.approx(wanted, abs=1e-6)
    wanted = sum(cosine(values[0][p], values[1][p]) for p in places) / len(places)
    assert series["value_to_first_after"] == pytest.approx([1.0, wanted])
    assert series["value_to_first_before"] == [pytest.approx(1.0), None]
    pairs = list(itertools.permutations(range(5), 2))
    for name, states in (("token_hidden", hidden[1:]), ("token_value_after", values)):
        wanted = [
            sum(cosine(x[b, s], x[b, t]) for b in range(2) for s, t in pairs) / (2 * len(pairs))
            for x in states
        ]
        assert series[name] == pytest.approx(wanted)
    assert running.result().reason == "layer 2 has no value of its own before mixing"


def test_equal_tokens_are_similar_and_a_token_is_not_paired_with_itself():
    assert float(pair_cosine(torch.ones(1, 4, 3))) == pytest.approx(1.0)
    assert float(pair_cosine(torch.eye(4)[None])) == pytest.approx(0.0, abs=1e-12)


def test_svformers_mixed_value_is_the_first_one_and_identitys_partly():
    ids = value_models.some_ids()
    found = {}
    for name, overrides in {
        "svformer": {"values": {"kind": "reuse", "layers": "all"}},
        "identity": value_models.IDENTITY,
        "transformer": {},
    }.items():
        running = Similarity(6)
        running.add(trace(value_models.perturbed(overrides), ids, attention=False))
        found[name] = running.result()
    assert found["svformer"].series["value_to_first_after"] == pytest.approx([1.0] * 6)
    assert found["svformer"].series["value_to_first_before"][1:] == [None] * 5
    assert found["svformer"].reason == "layers 2-6 have no value of its own before mixing"
    after = {name: found[name].scalars["value_to_first_mean"] for name in found}
    assert after["transformer"] < 0.5 < after["identity"] < 0.95 < after["svformer"]
    plain = found["transformer"].series
    assert plain["value_to_first_before"] == plain["value_to_first_after"]


def with_variances(variances, width=8, offset=0.0):
    """Vectors (n, width) with these variances along hidden directions."""
    generator = torch.Generator().manual_seed(2)
    directions = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
    count = len(variances)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=count)), dtype=torch.float64)
    return (signs * torch.tensor(variances, dtype=torch.float64).sqrt()) @ directions[:count] + offset


@pytest.mark.parametrize(
    ("variances", "expected"),
    [((1.0, 1.0, 1.0), 3), ((90.0, 9.5, 0.5), 2), ((98.5, 1.0, 0.5), 2), ((99.5, 0.5), 1)],
)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_components_are_the_fewest_that_hold_99_per_cent_of_the_centred_variance(variances, expected, offset):
    x, moments = with_variances(variances, offset=offset), Moments()
    for part in x.split(3):
        moments.add(part)
    torch.testing.assert_close(
        moments.covariance(), torch.cov(x.T, correction=0), rtol=1e-6, atol=1e-7 * sum(variances)
    )
    assert components(moments.covariance()) == expected


def test_states_without_variance_have_no_component():
    assert components(torch.zeros(4, 4, dtype=torch.float64)) == 0


def test_pca_pools_the_tokens_of_all_sequences_and_starts_with_the_embedding():
    x = with_variances((1.0, 1.0, 1.0)).view(2, 4, 8)
    running = PCA(2)
    states = [x, x * torch.tensor([1.0, 0.0]).view(2, 1, 1), torch.zeros_like(x) + 3.0]
    running.add(Trace(states, normed=x))
    found = running.result()
    # Half of the vectors leave the sign of one direction fixed.
    assert found.series["components"] == [3, 3, 0]
    assert found.scalars["components_mean_from_layer2"] == found.scalars["components_last"] == 0
    assert found.scalars["components_layer1"] == found.scalars["components_last_normed"] == 3


def test_norms_are_those_of_single_tokens_with_heads_concatenated():
    generator = torch.Generator().manual_seed(5)
    hidden, values = ([torch.randn(3, 4, 6, generator=generator) for _ in range(count)] for count in (3, 2))
    running = Norms(2)
    running.add(Trace(hidden, [2 * values[0], None], values))
    found = running.result()
    for n in range(2):
        for t in range(4):
            wanted = sum(float(values[n][b, t].norm()) for b in range(3)) / 3
            assert found.arrays["value"][n, t] == pytest.approx(wanted, rel=1e-6)
            wanted = sum(float(hidden[n + 1][b, t].norm()) for b in range(3)) / 3
            assert found.arrays["hidden"][n, t] == pytest.approx(wanted, rel=1e-6)
    value, series = found.arrays["value"], found.series
    assert series["value_first"] == pytest.approx(value[:, 0].tolist(), rel=1e-6)
    assert series["value_rest"] == pytest.approx(value[:, 1:].mean(1).tolist(), rel=1e-6)
    assert series["value_first_before"] == [pytest.approx(2 * value[0, 0], rel=1e-6), None]
    drains = [a / b for a, b in zip(series["value_first"], series["value_rest"], strict=True)]
    assert found.scalars["value_first_over_rest_mean"] == pytest.approx(sum(drains) / 2)
