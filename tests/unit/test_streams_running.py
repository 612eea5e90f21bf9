"""Every stream decodes with a cache, checkpoints activations, compiles, composes with value paths and runs in bf16."""

from __future__ import annotations

import pytest
import torch

from respath.model import parameter_roles
from respath.model.loss import TrainingLoss
from respath.model.precision import LowPrecision
from tests.unit.stream_models import STREAMS, gap, model, perturbed, tokens

each_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)

VALUES = {
    "own": {"kind": "own"},
    "identity": {"kind": "mix", "layers": "all", "coefficients": {"source": 0.5, "own": 0.5}},
    "svformer": {"kind": "reuse", "layers": "all"},
}


def gradients(built, loss) -> dict[str, torch.Tensor]:
    built.zero_grad()
    loss.backward()
    return {name: parameter.grad for name, parameter in built.named_parameters()}


@each_stream
def test_decoding_equals_the_full_forward(stream):
    built, ids = perturbed(stream), tokens(2, 9)
    with torch.no_grad():
        full = built(ids)
        for chunks in ((5, 1, 3), (1,) * 9):
            cache = built.new_cache(2, 9)
            parts = [built(part, cache=cache) for part in ids.split(chunks, dim=1)]
            assert gap(torch.cat(parts, dim=1), full) < 1e-11


@each_stream
def test_decoding_rows_of_unequal_length_equals_the_full_forward(stream):
    built, ids = perturbed(stream), tokens(3, 10)
    chunks = ((4, 2, 0), (3, 1, 4), (0, 2, 1), (3, 3, 3))
    with torch.no_grad():
        full, cache, held = built(ids), built.new_cache(3, 10), [0, 0, 0]
        for lengths in chunks:
            chunk = torch.zeros(3, max(lengths), dtype=torch.int64)
            for row, length in enumerate(lengths):
                chunk[row, :length] = ids[row, held[row] : held[row] + length]
            logits = built(chunk, cache=cache, lengths=lengths)
            for row, length in enumerate(lengths):
                if length:
                    expected = full[row, held[row] : held[row] + length]
                    assert gap(logits[row, :length], expected) < 1e-11
                held[row] += length


@each_stream
def test_no_token_sees_a_later_one(stream):
    built, ids = perturbed(stream), tokens(2, 9)
    other = ids.clone()
    other[:, 6:] = (other[:, 6:] + 1) % 256
    with torch.no_grad():
        before, after = built(ids), built(other)
    assert gap(after[:, :6], before[:, :6]) < 1e-12
    assert gap(after[:, 6:], before[:, 6:]) > 1e-3


@each_stream
def test_gradients_are_the_same_with_activation_checkpointing(stream):
    built = perturbed(stream)
    expected = gradients(built, built(tokens()).square().mean())
    built.checkpoint_activations = True
    actual = gradients(built, built(tokens()).square().mean())
    for name, gradient in expected.items():
        assert torch.equal(actual[name], gradient), name


#: One form of each kind; those whose wiring takes two layers to appear get two, since tracing takes seconds a layer.
COMPILED = {
    kind: 2 if kind in ("moda", "block_attnres", "truncated") else 1
    for kind in {stream["kind"]: None for stream in STREAMS.values()}
}


@pytest.mark.parametrize(("kind", "layers"), COMPILED.items(), ids=COMPILED)
def test_the_model_compiles_as_one_graph(kind, layers):
    torch._dynamo.reset()
    built = perturbed(next(stream for stream in STREAMS.values() if stream["kind"] == kind), layers=layers)
    compiled = torch.compile(built, fullgraph=True, backend="eager")
    expected = gradients(built, built(tokens()).square().mean())
    output = compiled(tokens())
    torch.testing.assert_close(output, built(tokens()))
    for name, gradient in gradients(built, output.square().mean()).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@each_stream
def test_every_parameter_learns_under_every_value_path(stream, values):
    if stream["kind"] == "moda" and values["kind"] != "own":
        pytest.skip("refused: moda defines its own attention over depth")
    built = perturbed(stream, values=values)
    dead = ("transport", "projection") if stream.get("transport") is False else ()
    for name, gradient in gradients(built, built(tokens()).square().mean()).items():
        assert gradient is not None and gradient.isfinite().all(), name
        assert gradient.any() or name.endswith(dead), name


@each_stream
def test_every_entry_of_every_coefficient_and_routing_parameter_learns(stream):
    built = perturbed(stream)
    roles = parameter_roles(built)
    for name, gradient in gradients(built, built(tokens()).square().mean()).items():
        if roles[name] in ("coefficient", "routing"):
            dead = stream.get("transport") is False and name.endswith("transport")
            assert dead or (gradient != 0).all(), name


@each_stream
def test_bf16_compute_follows_fp32(stream):
    built = perturbed(stream, dtype=torch.float32, amount=0.05)
    ids = tokens(2, 17)
    expected = TrainingLoss(built)(ids)
    low = LowPrecision(TrainingLoss(built))
    loss = low(ids)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.02, atol=0)
    grads = gradients(built, loss)
    assert all(gradient.isfinite().all() for gradient in grads.values())
    exact = gradients(built, TrainingLoss(built)(ids))
    steering = [name for name, role in parameter_roles(built).items() if role in ("coefficient", "routing")]
    if steering:
        low, high = (torch.cat([found[name].flatten() for name in steering]) for found in (grads, exact))
        assert torch.cosine_similarity(low, high, dim=0) > 0.95


@pytest.mark.parametrize("kind", ["hc", "mhc"])
def test_streams_stay_in_bf16_and_are_mixed_by_fp32_weights(kind):
    built = model({"kind": kind}, dtype=torch.bfloat16)
    state = built.stream.open(torch.randn(1, 3, 32).bfloat16())
    x, (moved, writes) = built.stream.read(state, 0, torch.nn.Identity())
    assert x.dtype == moved.dtype == torch.bfloat16
    assert writes.dtype == torch.float32
    after, _ = built.stream.write((moved, writes), 0, x, None)
    assert after.dtype == torch.bfloat16
