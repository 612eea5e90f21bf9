"""States between blocks, skipped and swapped blocks: against shorter models, exchanged weights, and the authors' bookkeeping."""

from __future__ import annotations

import pkgutil

import pytest
import torch

import respath.model.streams
from respath.measure.analyses.interventions import skipped, swapped
from respath.measure.analyses.probes import PROBES, probe_of
from respath.measure.analyses.replacing import replaced
from respath.measure.analyses.walk import resumed, walk
from respath.model import build_model
from tests.unit import stream_models
from tests.unit.stream_models import Branches, gap, perturbed, tokens

#: DepthBench's ten architectures, Block AttnRes with boundaries inside blocks too.
TEN = {
    name: stream_models.STREAMS[name]
    for name in (
        *("pre_ln", "sandwich_ln", "lns", "deepnorm", "keel", "hc", "mhc", "full_attnres", "block_attnres"),
        "moda",
    )
}
LAYERS = stream_models.SHAPE["layers"]
each = pytest.mark.parametrize("stream", TEN)


def built(stream, **fields):
    """A model with noise on every parameter, in evaluation mode, that keeps no gradients."""
    chosen = TEN.get(stream, stream) if isinstance(stream, str) else stream
    return perturbed(chosen, **fields).eval().requires_grad_(False)


def bits(model) -> dict[str, bytes]:
    """Every weight as bytes."""
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def without(model, block: int):
    """The same stream with a layer less: the weights of all other blocks, each with its sub-layers' tensors of the stream."""
    short = build_model(model.spec.model_copy(update={"layers": LAYERS - 1}), dtype=torch.float64).eval()
    weights, moved = model.state_dict(), {}
    for name in short.state_dict():
        parts = name.split(".")
        per_layer = parts[0] == "layers" or parts[:2] == ["stream", "depth_projections"]
        for place, part in enumerate(parts):
            if part.isdigit():
                index = int(part)
                steps = 1 if per_layer else 2
                parts[place] = str(index + steps * (index // steps >= block))
                break
        moved[name] = weights[".".join(parts)]
    short.load_state_dict(moved)
    return short.requires_grad_(False)


# --- states -----------------------------------------------------------------------------------------------------------


def test_every_stream_has_a_probe():
    streams = {module.name for module in pkgutil.iter_modules(respath.model.streams.__path__)}
    assert set(PROBES) == streams


@each
def test_the_last_readout_gives_the_logits_and_the_first_state_is_the_embedding(stream):
    model, ids = built(stream), tokens()
    probe, seen = probe_of(model), walk(model, ids)
    logits = model.logits(model.final_norm(probe.readout(seen.states[-1], LAYERS)))
    assert torch.equal(logits, model(ids)) and torch.equal(model.logits(seen.hidden), model(ids))
    first, embedded = probe.geometry(seen.states[0], 0), model.embedding(ids)
    copies = first.shape[-1] // embedded.shape[-1]
    assert torch.equal(first, embedded.repeat(1, 1, copies)) and copies == (
        4 if stream in ("hc", "mhc") else 1
    )


@pytest.mark.parametrize("kind", ["hc", "mhc"])
def test_hyper_connections_are_seen_side_by_side_and_read_as_the_model_ends(kind):
    model = built(kind)
    probe, seen = probe_of(model), walk(model, tokens())
    streams = seen.states[2][0]
    assert torch.equal(probe.geometry(seen.states[2], 2), torch.cat(streams.unbind(-2), -1))
    together = streams.sum(-2) if kind == "hc" else streams.mean(-2)
    torch.testing.assert_close(probe.readout(seen.states[2], 2), together)


class AttnRes:
    """Attention residuals as the authors' code keeps them: a bank of sources and the running sum x, with their skip rule."""

    def __init__(self, model, ids, skip=None, corrected=False):
        self.model, self.stream, self.branch = model, model.stream, Branches(model, ids)
        self.length, self.skip, self.corrected = self.stream.length, skip, corrected
        self.bank, self.x = [self.branch.embedded], None
        self.geometry, self.mixes = [self.branch.embedded], [self.branch.embedded]

    def mix(self, reader, sources):
        norms = [
            source * (source.square().mean(-1, keepdim=True) + self.stream.eps).rsqrt() for source in sources
        ]
        row = reader - 1
        scores = [norm @ (self.stream.queries[row] * self.stream.key_gains[row]) for norm in norms]
        weights = torch.stack(scores, -1).softmax(-1)
        return sum(weights[..., i, None] * source for i, source in enumerate(sources))

    def read(self, reader):
        """The reader's mix of the bank and the running sum, which joins the bank where a block begins."""
        sources = [*self.bank, *([] if self.x is None else [self.x])]
        begins = reader % self.length == 0 or reader == self.stream.head
        follows = self.skip is not None and reader == 2 * self.skip + 2
        mixed = sources[-1] if follows and begins else self.mix(reader, sources)
        if reader % 2 == 0:
            self.mixes.append(mixed)
            self.geometry.append(mixed if begins else sources[-1])
        if reader % self.length == 0:
            self.bank, self.x = sources, None
        return mixed

    def add(self, y):
        self.x = y if self.x is None else self.x + y

    def hidden(self):
        """The head's mix; ``geometry`` and ``mixes`` hold the states then."""
        for block in range(LAYERS):
            if block == self.skip:
                # What is skipped neither reads nor joins: the mix before it is what it would have read.
                if block:
                    bank, x = self.bank, self.x
                    self.read(2 * block)
                    self.bank, self.x = bank, x
                elif not self.corrected:
                    self.x = self.branch.embedded
                # Its keys and values are made in the model; here no later layer shares them.
                continue
            for k in (2 * block, 2 * block + 1):
                z = self.branch.embedded if k == 0 else self.read(k)
                self.add(self.branch(k, self.branch.norm(k)(z)))
        return self.read(self.stream.head)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("skip", [None, 0, 1, 2, 3])
def test_attention_residuals_keep_their_books_as_the_authors_scripts_do(length, skip):
    model, ids = built({"kind": "block_attnres", "length": length}), tokens()
    probe, reference = probe_of(model), AttnRes(model, ids, skip)
    hidden = reference.hidden()

    def compare():
        assert gap(model(ids), reference.branch.logits(hidden)) < 1e-11
        for n, state in enumerate(walk(model, ids).states):
            assert gap(probe.geometry(state, n), reference.geometry[n]) < 1e-11
            assert gap(probe.geometry(state, n, mixes=True), reference.mixes[n]) < 1e-11
            assert gap(probe.readout(state, n), reference.mixes[n]) < 1e-11

    if skip is None:
        compare()
    else:
        with skipped(model, skip):
            compare()


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_corrected_the_embedding_stands_once_among_the_sources(length):
    model, ids = built({"kind": "block_attnres", "length": length}), tokens()
    with skipped(model, 0, corrected=True):
        found, sources = model(ids), len(model.stream.sources(walk(model, ids).states[1]))
    with skipped(model, 0):
        doubled = model(ids)
        assert len(model.stream.sources(walk(model, ids).states[1])) == 2 == sources + 1
    reference = AttnRes(model, ids, 0, corrected=True)
    assert gap(found, reference.branch.logits(reference.hidden())) < 1e-11
    assert gap(found, doubled) > 1e-6


# --- skips ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["pre_ln", "sandwich_ln", "hc", "mhc", "moda"])
@pytest.mark.parametrize("block", range(LAYERS))
def test_a_model_without_a_block_is_the_model_with_a_layer_less(stream, block):
    if stream == "moda" and block == LAYERS - 1:
        # The new last block's extra projection is one that nothing reads.
        block = LAYERS - 2
    model, ids = built(stream), tokens()
    with skipped(model, block, corrected=True):
        found = model(ids)
    assert torch.allclose(found, without(model, block)(ids), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stream", ["lns", "deepnorm", "keel"])
@pytest.mark.parametrize("block", range(LAYERS))
def test_a_skipped_block_of_a_norm_variant_is_the_identity(stream, block):
    model, ids = built(stream), tokens()
    branch = Branches(model, ids)
    state = model.stream.open(branch.embedded)
    for k in range(2 * LAYERS):
        if k // 2 != block:
            x, state = model.stream.read(state, k, branch.norm(k))
            state = model.stream.write(state, k, branch(k, x), branch.norm(k))
    with skipped(model, block):
        assert torch.equal(model(ids), branch.logits(state))


def test_a_skipped_moda_block_leaves_zeros_as_the_published_rule_says():
    model, ids, silent = built("moda"), tokens(), built("moda")
    layer = silent.layers[1]
    projections = (
        layer.attention.k_proj,
        layer.attention.v_proj,
        layer.attention.o_proj,
        layer.mlp.down_proj,
    )
    for matrix in (*projections, silent.stream.depth_projections[1]):
        matrix.weight.zero_()
    with skipped(model, 1):
        assert torch.allclose(model(ids), silent(ids), rtol=1e-12, atol=1e-13)
        published = model(ids)
    with skipped(model, 1, corrected=True):
        assert gap(model(ids), published) > 1e-6


def test_values_that_later_layers_read_are_made_by_a_skipped_block():
    fields = {"values": {"kind": "mix", "layers": "all", "coefficients": {"source": 0.5, "own": 0.5}}}
    model, ids = built("pre_ln", **fields), tokens()
    silent = built("pre_ln", **fields)
    for matrix in (silent.layers[0].attention.o_proj, silent.layers[0].mlp.down_proj):
        matrix.weight.zero_()
    with skipped(model, 0):
        assert torch.equal(model(ids), silent(ids))


@pytest.mark.parametrize("stream", stream_models.STREAMS)
def test_a_pass_that_goes_on_from_a_block_is_the_whole_pass(stream):
    model, ids = built(stream_models.STREAMS[stream]), tokens()
    seen = walk(model, ids)
    for block in range(LAYERS):
        with skipped(model, block):
            ended = model.stream.close(resumed(model, seen, block)[-1])
            assert torch.equal(model.logits(model.final_norm(ended)), model(ids))


# --- swaps ------------------------------------------------------------------------------------------------------------


def exchanged(model, stream: str, i: int, j: int):
    """The model with tensors i and j of the stream and of the layers exchanged by name, where both exist."""
    other, weights = built(stream), model.state_dict()
    names = {}

    def pair(left, right):
        if left in weights and right in weights:
            names.update({left: right, right: left})

    for name in weights:
        for prefix in (f"layers.{i}.", f"stream.depth_projections.{i}."):
            if name.startswith(prefix):
                pair(name, name.replace(f".{i}.", f".{j}.", 1))
    for t in (0, 1):
        a, b = 2 * i + t, 2 * j + t
        for name in weights:
            for kind in ("sublayers", "output_norms"):
                if name.startswith(f"stream.{kind}.{a}."):
                    pair(name, name.replace(f".{a}.", f".{b}.", 1))
        if a:
            pair(f"stream.post_norms.{a - 1}.weight", f"stream.post_norms.{b - 1}.weight")
    moved = {name: weights[names.get(name, name)].clone() for name in weights}
    if "stream.queries" in weights:
        for kind in ("queries", "key_gains"):
            rows = list(range(2 * LAYERS))
            # Row k - 1 is sub-layer k's: the MLP's of a block, and what stands at its right end.
            for t in (0, 1):
                rows[2 * i + t], rows[2 * j + t] = 2 * j + t, 2 * i + t
            moved[f"stream.{kind}"] = weights[f"stream.{kind}"][rows]
    other.load_state_dict(moved)
    return other


@pytest.mark.parametrize("stream", [name for name in TEN if name != "lns"])
@pytest.mark.parametrize(("i", "j"), [(0, 1), (0, 3), (1, 2)])
def test_swapped_blocks_compute_with_exchanged_weights_in_their_own_places(stream, i, j):
    model, ids = built(stream), tokens()
    whole = model(ids)
    with swapped(model, i, j):
        assert torch.equal(model(ids), exchanged(model, stream, 0, 0)(ids))
        found = model(ids)
    assert torch.equal(found, exchanged(model, stream, i, j)(ids))
    assert gap(found, whole) > 1e-6


@pytest.mark.parametrize("i", [0, 1])
def test_what_a_block_lacks_stays_in_place(i):
    keel, moda = built("keel"), built("moda")
    before = [norm.weight.clone() for norm in keel.stream.post_norms]
    with swapped(keel, i, 3):
        # Sub-layers 2 i and 6 (attention) and 2 i + 1 and 7 (MLP); norm k - 1 is sub-layer k's.
        after = [norm.weight for norm in keel.stream.post_norms]
        assert torch.equal(after[6], before[2 * i]) and torch.equal(after[2 * i], before[6])
        assert torch.equal(after[5], before[5 if i == 0 else 2 * i - 1])
    extra = [projection.weight.clone() for projection in moda.stream.depth_projections]
    with swapped(moda, i, 3):
        assert torch.equal(moda.stream.depth_projections[i].weight, extra[i])
    with swapped(moda, i, 2):
        assert torch.equal(moda.stream.depth_projections[i].weight, extra[2])


def test_the_factor_of_layer_norm_scaling_travels():
    model, ids = built("lns"), tokens()
    branch = Branches(model, ids)
    x = branch.embedded
    for block in (0, 3, 2, 1):
        for k in (2 * block, 2 * block + 1):
            x = x + branch(k, branch.norm(k)(x) * (block + 1) ** -0.5)
    with swapped(model, 1, 3):
        assert gap(model(ids), branch.logits(x)) < 1e-12


# --- what is left afterwards ------------------------------------------------------------------------------------------


@each
def test_swapping_twice_is_swapping_not_at_all_and_every_bit_comes_back(stream):
    model, ids = built(stream), tokens()
    whole, before = model(ids), bits(model)
    with swapped(model, 1, 3):
        assert bits(model) != before
        with swapped(model, 1, 3):
            assert bits(model) == before and torch.equal(model(ids), whole)
    assert bits(model) == before and torch.equal(model(ids), whole)


@each
def test_a_failure_inside_an_intervention_leaves_the_model_as_it_was(stream):
    model, ids = built(stream), tokens()
    whole, before = model(ids), bits(model)
    for intervention in (skipped(model, 1), swapped(model, 0, 2)):
        with pytest.raises(RuntimeError, match="half-way"), intervention:
            assert gap(model(ids), whole) > 1e-9
            raise RuntimeError("half-way")
        assert bits(model) == before and torch.equal(model(ids), whole)
    assert not {"sublayer"} & vars(model).keys() and not {"read", "mixed"} & vars(model.stream).keys()


def test_an_inner_replacement_gives_back_the_outer_one():
    model = built("pre_ln")
    with replaced(model, "sublayer", "outer"):
        with replaced(model, "sublayer", "inner"):
            assert model.sublayer == "inner"
        assert model.sublayer == "outer"
    assert callable(model.sublayer)


def test_a_block_that_does_not_exist_is_refused_in_a_line():
    model = built("pre_ln")
    for attempt in (
        lambda: skipped(model, 4),
        lambda: skipped(model, -1),
        lambda: swapped(model, 0, 4),
    ):
        with (
            pytest.raises(ValueError, match=r"block -?\d does not exist; the model has blocks 0 to 3"),
            attempt(),
        ):
            pass
    with pytest.raises(ValueError, match="cannot be swapped with itself"), swapped(model, 2, 2):
        pass
