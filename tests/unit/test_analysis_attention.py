"""Attention that tokens receive: against matrices written out, in every variant, and the entropy of uniform attention."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch

from respath.measure.analyses import received
from respath.measure.analyses.importance import Importance, entropy, uniform_importance
from respath.measure.analyses.replacing import listening
from respath.measure.analyses.trace import Trace, trace
from tests.unit import backbone_models, stream_models, value_models
from tests.unit.value_models import ByEquations


class Matrices(ByEquations):
    """The papers' equations, with the masked scores of every layer kept on the way."""

    def __call__(self, ids):
        self.kept = []
        super().__call__(ids)
        extra, path, layers = self.spec.attention_residual, self.spec.values, range(1, self.spec.layers + 1)
        found, kept = [], iter(self.kept)
        for n in layers:
            scores = next(kept)
            if path.kind == "cross_layer" and n in path.layers:
                both = torch.cat((scores, next(kept)), -1).softmax(-1)
                found.append(both[..., : ids.shape[1]] + both[..., ids.shape[1] :])
            elif extra is not None and extra.of == "attention" and n in extra.layers:
                found.append(extra.source * next(kept).softmax(-1) + extra.own * scores.softmax(-1))
            else:
                found.append(scores.softmax(-1))
        return found

    def scores(self, q, k):
        self.kept.append(super().scores(q, k))
        return self.kept[-1]


def operands(model, ids):
    """Per layer what its attention works on and what comes out."""
    heard = []
    with torch.no_grad(), contextlib.ExitStack() as stack:
        for layer in model.layers:
            hear = listening(
                layer.attention, "attended", lambda arguments, result: heard.append((arguments[0], result))
            )
            stack.enter_context(hear)
        model(ids)
    return heard


#: Variants that differ in what their attention runs over, and one that differs in its values only.
OF_ATTENTION = [
    name
    for name in value_models.VARIANTS
    if name.startswith(("query-", "key-", "attention-", "cross-")) or "share" in name or name == "table-gqa2"
]


@pytest.mark.parametrize("variant", OF_ATTENTION)
def test_received_attention_is_the_column_sum_of_the_matrix_in_the_papers_equations(variant):
    model, ids = value_models.perturbed(variant), value_models.some_ids()
    with torch.no_grad():
        expected = [matrix.sum((1, 2)) / matrix.shape[1] for matrix in Matrices(model)(ids)]
    for actual, column in zip(trace(model, ids).attention, expected, strict=True):
        torch.testing.assert_close(actual, column, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backbone", backbone_models.BACKBONES)
@pytest.mark.parametrize("path", ["own", "gqa2"])
def test_weights_times_values_are_what_the_kernel_returns(backbone, path):
    model, ids = backbone_models.perturbed(backbone, path), backbone_models.some_ids()
    for layer, (given, attended) in zip(model.layers, operands(model, ids), strict=True):
        weights = received.token_weights(layer.attention, given, 0, ids.shape[1])
        values = given.v.transpose(1, 2).repeat_interleave(given.q.shape[2] // given.v.shape[2], dim=1)
        torch.testing.assert_close((weights @ values).transpose(1, 2), attended, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("stream", ["moda", "moda-post"])
def test_depth_keys_count_for_the_querys_own_token(stream):
    model, ids = stream_models.perturbed(stream_models.STREAMS[stream]).eval(), stream_models.tokens()
    for layer, (given, _) in zip(model.layers, operands(model, ids), strict=True):
        batch, time, heads, size = given.q.shape
        group, column = heads // given.k.shape[2], torch.zeros(batch, time, dtype=torch.float64)
        for b in range(batch):
            for h in range(heads):
                for t in range(time):
                    q = given.q[b, t, h] / math.sqrt(size)
                    sequence = [q @ given.k[b, s, h // group] for s in range(t + 1)]
                    depth = [q @ key[b, t, h // group] for key, _ in given.depth]
                    weights = torch.stack(sequence + depth).softmax(0)
                    column[b, : t + 1] += weights[: t + 1] / heads
                    column[b, t] += weights[t + 1 :].sum() / heads
        torch.testing.assert_close(received.received(layer.attention, given), column, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        lambda: backbone_models.perturbed("llama-windows"),
        lambda: value_models.perturbed("cross-layer"),
        lambda: value_models.perturbed("attention-residual-gqa2"),
        lambda: stream_models.perturbed(stream_models.STREAMS["moda"]).eval(),
    ],
    ids=["windows", "cross-layer", "residual", "depth"],
)
def test_blocks_of_queries_change_nothing_and_every_row_sums_to_its_coefficients(model, monkeypatch):
    model, ids = model(), value_models.some_ids() % 256
    whole = trace(model, ids).attention
    monkeypatch.setitem(received.WEIGHTS, "cpu", 2 * ids.shape[0] * ids.shape[1] * model.spec.heads)
    residual = model.spec.attention_residual
    for n, (in_blocks, at_once) in enumerate(zip(trace(model, ids).attention, whole, strict=True), start=1):
        torch.testing.assert_close(in_blocks, at_once, rtol=1e-12, atol=1e-13)
        row = residual.source + residual.own if residual is not None and n in residual.layers else 1.0
        torch.testing.assert_close(in_blocks.sum(-1), torch.full((2,), 9.0 * row, dtype=torch.float64))


def test_a_window_hides_what_lies_before_it():
    model, ids = backbone_models.perturbed("llama-windows"), backbone_models.some_ids()
    given = operands(model, ids)[0][0]
    weights = received.token_weights(model.layers[0].attention, given, 0, ids.shape[1])
    assert weights[..., 10, :7].abs().max() == 0 and (weights[..., 10, 7:11] > 0).all()


@pytest.mark.parametrize(("time", "nats"), [(2048, 7.20), (1024, 6.51), (512, 5.82)])
def test_uniform_causal_attention_has_the_entropy_of_the_closed_form(time, nats):
    columns = [math.fsum(1 / (t + 1) for t in range(s, time)) / time for s in range(time)]
    expected = -math.fsum(share * math.log(share) for share in columns)
    importance = uniform_importance(time)
    torch.testing.assert_close(importance, torch.tensor(columns, dtype=torch.float64), rtol=1e-12, atol=0)
    assert float(entropy(importance)) == pytest.approx(expected, rel=1e-12)
    assert float(entropy(importance)) == pytest.approx(nats, abs=0.005) and expected < math.log(time)
    if time == 2048:
        assert float(importance[0]) == pytest.approx(0.0040, abs=5e-5)


def test_a_model_whose_queries_are_zero_attends_uniformly():
    model, ids = backbone_models.perturbed("llama"), backbone_models.some_ids(batch=3)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.q_proj.weight.zero_()
    running = Importance(model.spec.layers)
    running.add(trace(model, ids))
    found = running.result()
    uniform = found.scalars["uniform_entropy"]
    assert found.series["entropy"] == pytest.approx([uniform] * 6, rel=1e-9)
    assert found.series["first_token"] == pytest.approx([found.scalars["uniform_first_token"]] * 6, rel=1e-9)
    assert found.arrays["token_importance"].shape == (6, 13)


def test_importance_is_a_share_of_each_sequence_and_the_largest_come_first():
    attention = torch.tensor([[1.0, 1.0, 2.0], [3.0, 0.0, 1.0]], dtype=torch.float64)
    running = Importance(1)
    running.add(Trace(attention=[attention]))
    found = running.result()
    first = [0.25, 0.25, 0.5], [0.75, 0.0, 0.25]
    entropies = [-sum(p * math.log(p) for p in row if p) for row in first]
    assert found.series["entropy"] == pytest.approx([sum(entropies) / 2])
    assert found.series["first_token"] == pytest.approx([0.5])
    assert found.series["top"] == [pytest.approx([0.625, 0.25, 0.125])]
    assert found.arrays["token_importance"].tolist() == [[0.5, 0.125, 0.375]]


def test_listening_leaves_no_trace_on_the_model():
    model, ids = value_models.perturbed("mix-adjacent"), value_models.some_ids()
    before, names = model(ids), {name: set(vars(module)) for name, module in model.named_modules()}
    with pytest.raises(IndexError):
        trace(model, ids + 10_000)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == names
    assert torch.equal(model(ids), before)
