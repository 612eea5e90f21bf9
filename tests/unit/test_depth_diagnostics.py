"""Each diagnostic of depth against its definition, a law or a hand-made model, for all ten architectures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from respath.errors import UserError
from respath.files import canonical_json
from respath.measure.analyses import angular, causal, lens, paths, permutation, pruning, reads, transport
from respath.measure.analyses.inputs import Inputs
from respath.measure.analyses.interventions import skipped, swapped
from respath.measure.analyses.late import THRESHOLDS, first_late, late_scores, share_above
from respath.measure.analyses.probes import probe_of
from respath.measure.analyses.replacing import listening
from respath.measure.analyses.stage import OF_BLOCKS, analyse_model
from respath.measure.analyses.walk import walk
from respath.model import build_model
from respath.quantities.analyses import CATALOGUE
from tests.unit import stream_models
from tests.unit.stream_models import Branches, tokens
from tests.unit.test_interventions import LAYERS, TEN, bits, built, each

POST_NORM = ("deepnorm", "keel")
NEW = (*OF_BLOCKS, "transport")
#: Two batches, so that sums over tokens are not means of means.
BATCHES = [tokens(3, 9, seed=3), tokens(1, 9, seed=4)]


def at_start(stream, **fields):
    """A model as it begins, with embeddings large enough that the norms' epsilon does not matter."""
    chosen = TEN.get(stream, stream) if isinstance(stream, str) else stream
    return stream_models.model(chosen, **fields).eval().requires_grad_(False)


def silenced(model, *blocks):
    """The model with blocks whose branches are zero."""
    for block in blocks:
        model.layers[block].attention.o_proj.weight.zero_()
        model.layers[block].mlp.down_proj.weight.zero_()
    return model


# --- all of them ------------------------------------------------------------------------------------------------------


@each
def test_diagnostics_change_no_weight_and_give_the_same_bytes_twice(stream):
    model = build_model({**stream_models.SHAPE, "stream": TEN[stream]}, seed=3).eval()
    rows = {"one": tokens(3, 12, seed=1).numpy(), "two": tokens(2, 12, seed=2).numpy()}
    inputs, seen = Inputs(rows, rows, 5), []
    for _ in range(2):
        for name in NEW:
            before = bits(model)
            found = analyse_model(model, inputs, [name])
            assert bits(model) == before, name
            seen.append(canonical_json(found[name].as_dict()))
    assert seen[: len(NEW)] == seen[len(NEW) :]
    for name, text in zip(NEW, seen, strict=False):
        alone, together = text, canonical_json(analyse_model(model, inputs, NEW)[name].as_dict())
        assert alone == together, "a diagnostic changed what a later one sees"


@each
def test_a_diagnostic_has_the_names_of_the_catalogue_and_says_what_it_lacks(stream):
    model = built(stream)
    rows = {"one": tokens(3, 12, seed=1).numpy()}
    for name, found in analyse_model(model, Inputs(rows, rows, 5), NEW).items():
        scalars, series = set(CATALOGUE[name].scalars), set(CATALOGUE[name].series)
        assert set(found.scalars) <= scalars and set(found.series) <= series
        lacking = (scalars - set(found.scalars)) | (series - set(found.series))
        assert not lacking or found.reason, (name, lacking)


# --- angular distance -------------------------------------------------------------------------------------------------


def test_angles_of_known_states_are_known():
    states = [torch.tensor([[1.0, 0.0], [2.0, 2.0]]), torch.tensor([[5.0, 5.0], [0.0, 3.0]])]
    states.append(torch.tensor([[-1.0, 0.0], [-1.0, -1.0]]))
    found = angular.named(angular.summed_angles(states) / 2)
    assert found.series["step"] == pytest.approx([0.25, 0.75])
    assert found.series["by_distance"] == [pytest.approx([0.25, 0.75]), pytest.approx([1.0])]


@each
def test_distances_are_means_of_angles_over_the_tokens_of_all_batches(stream):
    model = built(stream)
    found, probe = angular.measure(model, BATCHES), probe_of(model)
    passes = [walk(model, ids) for ids in BATCHES]
    for suffix, mixes in (("", False), ("_mixes", True)):
        if f"step{suffix}" not in found.series:
            assert stream != "block_attnres"
            continue
        rows = found.series[f"by_distance{suffix}"]
        assert [len(row) for row in rows] == [4, 3, 2, 1]
        for a, b in itertools.combinations(range(LAYERS + 1), 2):
            left, right = (
                torch.cat([probe.geometry(seen.states[n], n, mixes).flatten(0, 1) for seen in passes])
                for n in (a, b)
            )
            wanted = (F.cosine_similarity(left, right, dim=-1).arccos() / math.pi).mean()
            assert rows[b - a - 1][a] == pytest.approx(float(wanted), rel=1e-9)
    late = [value for row in found.series["by_distance"] for value in row[1:]]
    assert found.scalars["late_mean"] == pytest.approx(sum(late) / len(late))
    assert found.scalars["late_step_mean"] == pytest.approx(sum(found.series["step"][1:]) / 3)


@pytest.mark.parametrize("stream", ["pre_ln", "sandwich_ln", "lns", "moda"])
def test_a_model_whose_branches_are_zero_turns_nothing(stream):
    found = angular.measure(silenced(built(stream), *range(LAYERS)), BATCHES)
    assert found.scalars["late_mean"] == pytest.approx(0, abs=1e-8)


def test_hyper_connections_turn_as_pre_ln_at_the_start():
    # All streams are equal then, and side by side they turn as one does.
    plain, hc = at_start("pre_ln"), at_start("hc")
    missing = hc.load_state_dict(plain.state_dict(), strict=False)
    assert not missing.unexpected_keys
    for one, other in zip(
        angular.measure(plain, BATCHES).series["by_distance"],
        angular.measure(hc, BATCHES).series["by_distance"],
        strict=True,
    ):
        assert one == pytest.approx(other, rel=1e-9)


# --- causal score -----------------------------------------------------------------------------------------------------


def test_the_score_of_a_two_layer_model_is_the_mean_of_the_ratio_of_its_second_update():
    model = built("pre_ln", layers=2)
    ratios, changes, sizes = [], [], []
    for ids in BATCHES:

        def update(z, ids=ids):
            branch = Branches(model, ids)
            middle = z + branch(2, branch.norm(2)(z))
            return middle + branch(3, branch.norm(3)(middle)) - z

        whole, first = update(walk(model, ids).states[1]), update(model.embedding(ids))
        changes.append((first - whole).norm(dim=-1).flatten())
        sizes.append(whole.norm(dim=-1).flatten())
        ratios.append(changes[-1] / sizes[-1])
    score = causal.measure(model, BATCHES).series["score"]
    wanted = float(torch.cat(ratios).mean())
    assert score == [[None, pytest.approx(wanted, rel=1e-10)], [None, None]]
    assert abs(wanted - float(torch.cat(changes).mean() / torch.cat(sizes).mean())) > 1e-3 * wanted


@each
def test_scores_are_those_of_whole_passes_without_a_block(stream):
    model, (ids, *_) = built(stream), BATCHES
    found, probe = causal.measure(model, [ids]), probe_of(model)

    def updates(mixes):
        states = [probe.geometry(state, n, mixes) for n, state in enumerate(walk(model, ids).states)]
        return [after - before for before, after in itertools.pairwise(states)]

    ways = {"score": (False, False), "score_corrected": (True, False), "score_mixes": (False, True)}
    assert ("score_corrected" in found.series) == (stream in ("full_attnres", "block_attnres", "moda"))
    assert ("score_mixes" in found.series) == (stream == "block_attnres")
    for name, (corrected, mixes) in ways.items():
        for s in range(LAYERS) if name in found.series else ():
            whole = updates(mixes)
            with skipped(model, s, corrected):
                without = updates(mixes)
            row = [None] * (s + 1) + [
                float(((there - here).norm(dim=-1) / here.norm(dim=-1)).mean())
                for here, there in zip(whole[s + 1 :], without[s + 1 :], strict=True)
            ]
            assert found.series[name][s] == [None if v is None else pytest.approx(v, rel=1e-9) for v in row]


@pytest.mark.parametrize("stream", ["pre_ln", "sandwich_ln", "lns"])
def test_a_block_that_adds_nothing_causes_nothing_and_its_skip_costs_nothing(stream):
    model = silenced(built(stream), 1)
    assert causal.measure(model, BATCHES).series["score"][1] == [None, None, 0.0, 0.0]
    assert pruning.measure(model, BATCHES).series["increase"][1] == 0.0


@each
def test_corrected_scores_differ_where_the_artefact_is_and_nowhere_else(stream):
    series = causal.measure(built(stream), BATCHES).series
    if "score_corrected" in series:
        differ = [a != b for a, b in zip(series["score"], series["score_corrected"], strict=True)]
        # The last block that anything can follow is number 2 of 0 to 3.
        assert differ == ([True, True, True, False] if stream == "moda" else [True, False, False, False])


# --- late pairs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "pairs"), [(16, 66), (24, 153), (32, 276), (4, 3), (2, 0)])
def test_late_pairs_are_as_many_as_the_paper_has(layers, pairs):
    assert len(late_scores([[0.0] * layers] * layers)) == pairs
    assert first_late(layers) == math.ceil(layers / 4)


def test_a_share_counts_scores_above_its_threshold_and_an_impossible_one_is_refused():
    assert share_above([0.45, 0.46, 0.1, 0.9], 0.45) == 0.5
    assert share_above([], 0.45) is None
    for wrong in (-0.1, 1.5, math.nan):
        with pytest.raises(UserError, match="is not between 0 and 1"):
            share_above([0.5], wrong)


def test_shares_counts_and_the_sweep_are_of_the_same_late_pairs():
    for module, threshold in ((causal, 0.45), (permutation, 0.15)):
        found = module.measure(built("full_attnres"), BATCHES)
        scores = [v for row in found.series["score"][1:] for v in row if v is not None]
        assert found.scalars["late_pairs"] == len(scores) == 3
        assert found.scalars["late_above"] == sum(score > threshold for score in scores)
        assert found.scalars["late_share"] == found.scalars["late_above"] / 3
        assert found.series["thresholds"] == list(THRESHOLDS)
        assert found.series["late_shares"] == [sum(s > t for s in scores) / 3 for t in THRESHOLDS]
        assert found.scalars["late_mean"] == pytest.approx(sum(scores) / 3)


# --- permutation score ------------------------------------------------------------------------------------------------


def losses(model, ids):
    """Cross entropy of each next token, (batch, time - 1)."""
    return -model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def loss_over(model, batches):
    """Mean over the tokens of all batches."""
    return float(torch.cat([losses(model, ids).flatten() for ids in batches]).mean())


@each
def test_a_permutation_score_is_the_relative_change_of_the_loss_with_its_sign(stream):
    model = built(stream)
    found, whole = permutation.measure(model, BATCHES), loss_over(model, BATCHES)
    assert found.scalars["loss"] == pytest.approx(whole, rel=1e-12)
    for i, j in itertools.product(range(LAYERS), repeat=2):
        signed, score = found.series["signed"][i][j], found.series["score"][i][j]
        if j <= i:
            assert signed is None and score is None
            continue
        with swapped(model, i, j):
            wanted = (loss_over(model, BATCHES) - whole) / whole
        assert signed == pytest.approx(wanted, rel=1e-9, abs=1e-14) and score == abs(signed)


@each
def test_blocks_with_equal_weights_are_interchangeable(stream):
    model = built(stream)
    probe = probe_of(model)
    for j in range(1, LAYERS):
        for left, right in probe.travelling(0, j):
            right.copy_(left)
    if stream == "keel":
        for norm in model.stream.post_norms:
            norm.weight.copy_(model.stream.post_norms[0].weight)
    scores = [v for row in permutation.measure(model, BATCHES).series["score"] for v in row if v is not None]
    # The factor of a block's number makes two blocks differ that are equal otherwise.
    assert all(v > 1e-9 for v in scores) if stream == "lns" else scores == [0.0] * 6


# --- pruning ----------------------------------------------------------------------------------------------------------


@each
def test_pruning_is_the_loss_without_a_block_minus_the_loss(stream):
    model = built(stream)
    found, whole = pruning.measure(model, BATCHES), loss_over(model, BATCHES)
    for name, corrected in (("increase", False), ("increase_corrected", True)):
        for block in range(LAYERS) if name in found.series else ():
            with skipped(model, block, corrected):
                wanted = loss_over(model, BATCHES) - whole
            assert found.series[name][block] == pytest.approx(wanted, rel=1e-8, abs=1e-12)
    assert found.scalars["first"] == found.series["increase"][0]
    assert found.scalars["late_max"] == max(found.series["increase"][1:])


# --- logit lens -------------------------------------------------------------------------------------------------------


@each
def test_the_lens_ends_with_the_models_own_prediction(stream):
    model = built(stream)
    found = lens.measure(model, BATCHES)
    assert found.series["kl"][-1] == 0.0 and found.series["top5"][-1] == 1.0
    assert len(found.series["kl"]) == LAYERS + 1 and min(found.series["kl"][:-1]) > 0
    assert found.series["exit_loss"][-1] == found.scalars["final_loss"]
    assert found.scalars["final_loss"] == pytest.approx(loss_over(model, BATCHES), rel=1e-12)


@each
def test_the_lens_is_the_divergence_of_each_readout(stream):
    model, (ids, *_) = built(stream), BATCHES
    found, seen, probe = lens.measure(model, [ids]), walk(model, ids[:, :-1]), probe_of(model)
    final = model(ids[:, :-1]).softmax(-1)
    for n, state in enumerate(seen.states):
        logits = model.logits(model.final_norm(probe.readout(state, n)))
        wanted = F.kl_div(logits.log_softmax(-1), final, reduction="none").sum(-1).mean()
        assert found.series["kl"][n] == pytest.approx(float(wanted), rel=1e-9, abs=1e-12)
        shares = [
            len({*a} & {*b}) / 5
            for a, b in zip(
                logits.topk(5).indices.flatten(0, 1).tolist(),
                final.topk(5).indices.flatten(0, 1).tolist(),
                strict=True,
            )
        ]
        assert found.series["top5"][n] == pytest.approx(sum(shares) / len(shares))
    rises = [b - a for a, b in itertools.pairwise(found.series["kl"])]
    assert found.scalars["rises"] == sum(rise > 0 for rise in rises)
    assert found.scalars["largest_rise"] == max(0.0, *rises)


# --- path weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [name for name in stream_models.STREAMS if name.split("-")[0] not in (*POST_NORM, "denseformer")],
)
def test_path_weights_rebuild_what_every_reader_sees(stream):
    model, ids = built(stream_models.STREAMS[stream]), tokens()
    probe, stream_of = probe_of(model), model.stream
    if probe.no_paths:
        assert paths.measure(model, BATCHES).reason == probe.no_paths
        return
    added, seen = [], []

    def written(arguments, result):
        _, k, y, _ = arguments
        added.append(stream_of.output_norms[k](y) if stream == "sandwich_ln" else y)

    def read(arguments, result):
        seen.append((arguments[2], result[0]))

    with listening(stream_of, "write", written), listening(stream_of, "read", read):
        hidden = model.hidden(ids)
    seen.append((model.final_norm, hidden))
    sources = torch.stack([model.embedding(ids), *added], -1)
    weights = probe.path_weights(ids)
    assert len(weights) == len(seen) == 2 * LAYERS + 1
    for k, (norm, x) in enumerate(seen):
        assert weights[k].shape[-1] == k + 1
        rebuilt = norm((sources[..., : k + 1] * weights[k][..., None, :]).sum(-1))
        scaled = rebuilt * (k // 2 + 1) ** -0.5 if stream == "lns" and k < 2 * LAYERS else rebuilt
        torch.testing.assert_close(scaled, x, rtol=1e-9, atol=1e-11)


@each
def test_path_weights_are_means_over_tokens_of_per_token_weights(stream):
    model = built(stream)
    found = paths.measure(model, BATCHES)
    if stream in POST_NORM:
        assert not found.series and "norm after the sum" in found.reason
        return
    parts = [probe_of(model).path_weights(ids) for ids in BATCHES]
    for k, row in enumerate(found.series["weights"]):
        wanted = torch.cat([part[k].flatten(0, 1) for part in parts]).mean(0)
        assert row == pytest.approx(wanted.tolist(), rel=1e-12, abs=1e-14)
    assert found.scalars["newest_mean"] == pytest.approx(
        sum(row[-1] for row in found.series["weights"][1:]) / (2 * LAYERS)
    )


def test_path_weights_of_hyper_connections_at_the_start_are_those_of_pre_ln():
    rows = paths.measure(at_start("hc"), BATCHES).series["weights"]
    # The head sums four equal streams.
    assert rows[:-1] == [pytest.approx([1.0] * (k + 1), abs=1e-12) for k in range(2 * LAYERS)]
    assert rows[-1] == pytest.approx([4.0] * (2 * LAYERS + 1), abs=1e-12)
    rows = paths.measure(at_start("mhc"), BATCHES).series["weights"]
    # sigmoid(8) + 3 sigmoid(-8), and the epsilon of the Sinkhorn rounds.
    assert rows[:-1] == [pytest.approx([1 + 2 * math.exp(-8)] * (k + 1), rel=2e-5) for k in range(2 * LAYERS)]
    assert rows[-1] == pytest.approx([1.0] * (2 * LAYERS + 1), rel=2e-5)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_attention_residuals_at_the_start_read_all_sources_alike(length):
    model = at_start({"kind": "block_attnres", "length": length})
    for k, row in enumerate(paths.measure(model, BATCHES).series["weights"]):
        count = 1 + math.ceil(k / length)
        assert row == pytest.approx([1 / count] * (k + 1), rel=1e-6)


# --- reads of attention residuals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_newest_source_is_the_running_sum_or_the_one_just_finished(length):
    model = built({"kind": "block_attnres", "length": length})
    found = reads.measure(model, BATCHES).series
    weights = paths.measure(model, BATCHES).series["weights"]
    # The newest branch is in the newest source.
    assert found["newest"] == pytest.approx([row[-1] for row in weights[1:]])
    assert found["embedding"] == pytest.approx([row[0] for row in weights[1:]])
    start = reads.measure(at_start({"kind": "block_attnres", "length": length}), BATCHES).series
    wanted = [1 / (1 + math.ceil(k / length)) for k in range(1, 2 * LAYERS + 1)]
    assert start["newest"] == pytest.approx(wanted, rel=1e-6)


def test_unread_layers_are_counted_from_the_first_on():
    # Reader 1 is layer 1's, readers 2 and 3 layer 2's, 4 and 5 layer 3's, and so on; the last is the head.
    newest = [0.01, 0.02, 0.04, 0.2, 0.01, 0.0, 0.0, 0.5]
    assert reads.unread_layers(newest, 0.05) == 2
    assert reads.unread_layers(newest, 0.01) == 0
    assert reads.unread_layers(newest, 0.9) == 4
    assert reads.measure(built("pre_ln"), BATCHES).reason


# --- transport --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_the_rank_of_the_identity_is_the_number_of_streams(streams):
    found = transport.measure(at_start({"kind": "hc", "streams": streams}), BATCHES, None)
    for suffix in ("", "_low", "_high"):
        assert found.scalars[f"effective_rank{suffix}"] == pytest.approx(streams, abs=1e-12)
        assert found.scalars[f"overlap{suffix}"] == pytest.approx(0, abs=1e-12)
    assert found.series["spectrum"] == pytest.approx([1.0] * streams)
    assert found.series["off_diagonal_along"] == [0.0]


def test_ranks_and_overlaps_of_known_matrices():
    values = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.float64)
    assert transport.effective_rank(values).tolist() == pytest.approx([4, 2, 1])
    equal, eye = torch.ones(4, 4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    half = torch.tensor([[1.0, 0.0], [-1.0, -1.0]], dtype=torch.float64)
    assert float(transport.overlap(equal)) == pytest.approx(1)
    assert float(transport.overlap(eye)) == 0
    assert float(transport.overlap(half)) == pytest.approx(0.5**0.5)


def test_gap_8_keeps_the_streams_apart_and_uniform_transport_makes_them_one():
    # Over 64 sub-layers, as the facts give it: diagonal 0.99899, off-diagonal 0.000336.
    model = at_start("mhc", layers=32, width=8, heads=2, kv_heads=1, ffn_width=16)
    found = transport.measure(model, [tokens(2, 3)], None)
    assert found.scalars["effective_rank"] == pytest.approx(3.997, abs=5e-4)
    assert found.series["off_diagonal_along"] == [pytest.approx(0.000336, abs=1e-6)]
    assert (found.series["gates_along"], found.series["static_along"]) == ([pytest.approx(0.01)], [-8.0])
    uniform = at_start("mhc", layers=32, width=8, heads=2, kv_heads=1, ffn_width=16)
    for connection in uniform.stream.sublayers:
        connection.bias.zero_()
    found = transport.measure(uniform, [tokens(2, 3)], None)
    assert found.scalars["effective_rank"] == pytest.approx(1, abs=1e-3)
    assert found.scalars["overlap"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("stream", ["hc", "hc-unmixed", "hc-three", "mhc", "mhc-near-uniform"])
def test_the_product_is_that_of_every_tokens_own_transports(stream):
    model, ids = built(stream_models.STREAMS[stream]), tokens()
    product, off = probe_of(model).transport(ids)
    m, moved = model.stream.streams, []

    def read(arguments, result):
        before, k = arguments[0][0], arguments[1]
        mixes, _ = model.stream.sublayers[k](before)
        step = mixes[..., 1:, :] if model.stream.transports else torch.eye(m, dtype=torch.float64)
        # What waits for the branch's output is the transported streams.
        torch.testing.assert_close(result[1][0], step @ before)
        moved.append(step.expand(*ids.shape, m, m))

    with listening(model.stream, "read", read):
        model.hidden(ids)
    for b, t in itertools.product(range(2), range(9)):
        wanted = torch.linalg.multi_dot([step[b, t] for step in reversed(moved)])
        torch.testing.assert_close(product[b, t], wanted, rtol=1e-10, atol=1e-12)
    outside = torch.stack(moved)[..., ~torch.eye(m, dtype=torch.bool)].abs().mean((0, -1))
    torch.testing.assert_close(off, outside)


def test_documents_end_with_their_last_token_and_none_goes_on_in_another_row():
    rows = torch.tensor([[1, 9, 2, 9, 3], [4, 5, 6, 7, 8]])
    numbers = transport.document_numbers(rows, 9)
    assert numbers.tolist() == [[0, 0, 1, 1, 2], [5, 5, 5, 5, 5]]
    assert len(set(transport.document_numbers(rows, None).flatten().tolist())) == 2


def test_the_interval_is_over_documents_and_not_over_tokens():
    generator = np.random.default_rng(1)
    means, sizes = generator.normal(size=40), generator.integers(5, 50, 40)
    values, documents = np.repeat(means, sizes), np.repeat(np.arange(40), sizes)
    mean, low, high = transport.document_interval(values, documents)
    assert mean == pytest.approx(values.mean()) and low < mean < high
    # Of equal values within a document the error is that of forty draws, not of a thousand.
    spread = math.sqrt(float((((means - mean) * sizes) ** 2).sum())) / sizes.sum()
    assert (high - low) / 2 == pytest.approx(1.96 * spread, rel=0.15)
    assert transport.document_interval(values, documents) == (mean, low, high)
    assert transport.document_interval(np.ones(10), np.arange(10)) == (1.0, 1.0, 1.0)


def test_one_document_is_too_few_and_the_remedy_is_told():
    with pytest.raises(UserError, match=r"hold 1 document .* needs 2; raise --sequences"):
        transport.measure(built("hc"), [tokens(1, 9)], None)
    assert "only hyper-connections" in transport.measure(built("pre_ln"), [tokens(1, 9)], None).reason


def test_steps_along_training_come_before_the_end_in_order():
    middle = stream_models.perturbed(TEN["hc"], 0.05).eval().requires_grad_(False)
    last, marks = built("hc"), [(0, at_start("hc")), (5, middle)]
    found = transport.measure(last, BATCHES, None, step=20, marks=marks)
    alone = [transport.measure(model, BATCHES, None).scalars for model in (marks[0][1], marks[1][1], last)]
    assert found.series["steps"] == [0, 5, 20]
    for name in ("effective_rank", "overlap"):
        for suffix in ("", "_low", "_high"):
            assert found.series[f"{name}_along{suffix}"] == [one[f"{name}{suffix}"] for one in alone]
            assert found.scalars[f"{name}{suffix}"] == alone[-1][f"{name}{suffix}"]
