"""Samples: one metric of one subject over seeds, read the same way for every kind of result."""

from __future__ import annotations

import math

import numpy as np
import pytest

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.files import read_json
from respath.papers import needs
from respath.quantities import metrics
from respath.quantities.core import SUITES
from respath.quantities.derived import DERIVED
from respath.quantities.kinds import KINDS, Names, factor
from respath.quantities.quantity import Checkpoint, Domain, Quantity, Reading, missing
from respath.quantities.sample import Sample
from respath.results.reader import Results
from tests.golden.synthetic_analyses import analysis_record
from tests.golden.synthetic_results import write_json
from tests.golden.toy import LOSSES, run_id, toy

MIX, BASE = (RunRequest(size="S", variant=variant) for variant in ("mix", "base"))

#: A metric of every kind, its subject, and what the made-up results hold (None: a series).
EXAMPLES = {
    "train": ("train.loss.final", MIX, 2.951, "nats/token"),
    "loss": ("loss.mean", MIX, 2.951, "nats/token"),
    "lm": ("lm.wikitext.word_perplexity", MIX, ..., ""),
    "core": ("core.squad.centred", MIX, 0.5, "1"),
    "nll": ("nll.coding", MIX, 2.5, "nats/token"),
    "analysis": ("analysis.pca.components", MIX, None, ""),
    "untrained": ("untrained.importance.uniform_entropy", MIX, ..., ""),
    "checkpoint": ("checkpoint.importance.uniform_entropy", Checkpoint("theirs"), 3.0, ""),
    "ngrams": ("ngrams.bigram.mean", MIX, 5.5, "nats/token"),
    "bench": ("bench.device.name", MIX, "a device", ""),
    "decode": ("decode.b8.folded.token_seconds", MIX.model_copy(update={"context": 256}), 0.25, "s"),
    "account": ("account.parameters.total", MIX, ..., "parameters"),
    "cache": ("cache.measured_bytes", BASE, 131072, "bytes"),
    "spec": ("spec.recipe.steps", MIX, 100, ""),
    "launch": ("launch.gpus", MIX, 2, ""),
    "sample": ("sample.proportion", Domain("Prose"), 0.7, "1"),
}


def core_record(run, right, guessing, absent=(), suites=("core21",)):
    """core.json in which every task of each suite has the same answers."""
    share = right.count("1") / len(right)
    later = guessing + 0.1
    done = {"status": "done", "accuracy": share, "right": right, "items": len(right), "of_items": 9}
    done |= {"guessing": guessing, "guessing_later": later, "centred": (share - guessing) / (1 - guessing)}
    done |= {"centred_later": (share - later) / (1 - later)}
    gone = {"status": "not run", "reason": "no file"}
    found = {
        suite: {"tasks": {task: gone if task in absent else done for task in SUITES[suite]}}
        for suite in suites
    }
    return {"schema": 1, "kind": "core", "run": run.id, "status": "done", "suites": found}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The toy at scale paper with three seeds and a file of every kind."""
    folder = tmp_path_factory.mktemp("quantities")
    project, results = toy(folder, "paper")
    for run in project.runs("toy", MIX):
        for name, trained in (("analysis", True), ("untrained", False)):
            document, arrays = analysis_record(run, trained=trained)
            write_json(folder / "analyses" / run.id / f"{name}.json", document)
            np.savez(folder / "analyses" / run.id / f"{'arrays' if trained else name}.npz", **arrays)
        orders = {"bigram": {"mean_loss": 5.5, "domains": {"Prose": {"loss": 5.0}}}}
        ngrams = {"schema": 1, "kind": "ngrams", "run": run.id, "status": "done", "orders": orders}
        write_json(folder / "evals" / run.id / "ngrams.json", ngrams)
        write_json(folder / "evals" / run.id / "core.json", core_record(run, "11001", guessing=0.2))
        sets = {name: {"status": "done", "nll": nll} for name, nll in (("mbpp", 2.0), ("humaneval", 3.0))}
        likelihood = {"schema": 1, "kind": "nll", "run": run.id, "status": "done", "sets": sets}
        write_json(folder / "evals" / run.id / "nll.json", likelihood)
    device = {"schema": 1, "kind": "bench", "device": {"name": "a device"}, "phases": {}}
    write_json(folder / "bench/paper/toy/S/mix.json", device)
    ways = {
        "folded": {"status": "done", "token_seconds": 0.25},
        "host": {"status": "not applicable", "reason": "no GPU"},
    }
    decoded = {"schema": 1, "kind": "decode", "device": {"name": "a device"}, "batches": {"8": ways}}
    write_json(folder / "decode/paper/toy/S/mix/256.json", decoded)
    module = {"scalars": {"uniform_entropy": 3.0}, "series": {}}
    write_json(
        folder / "analyses/checkpoint-theirs-paper/analysis.json",
        {"schema": 1, "kind": "analysis", "status": "done", "modules": {"importance": module}},
    )
    return project, results


def test_there_is_an_example_of_every_kind():
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_kind_is_read_by_one_call_in_its_one_unit(made, kind):
    _, results = made
    metric, subject, expected, unit = EXAMPLES[kind]
    sample = results.sample("toy", Quantity(metric, subject))
    assert (sample.state, sample.unit, sample.reason) == ("measured", unit, "")
    seeds = {1, 2, 3} if KINDS[kind].of in ("run", "start") else {None}
    assert set(sample.by_seed) == seeds and len(sample.runs) == (3 if None not in seeds else 0)
    first = sample.by_seed[min(seeds, key=str)].value
    if expected is None:
        assert metrics.is_series(metric) and len(first) == 5
    elif expected is not ...:
        assert first == (expected if isinstance(expected, str) else pytest.approx(expected))
    else:
        assert math.isfinite(first)


def test_an_array_is_read_like_a_number(made):
    _, results = made
    sample = results.sample("toy", Quantity("analysis.norms.value", MIX))
    assert sample.mean_array().shape == (4, 128)
    np.testing.assert_allclose(
        sample.mean_array(), np.mean([np.float64(v) for v in sample.values.values()], 0)
    )


def test_exact_and_measured_metrics_meet_in_one_sample(made):
    _, results = made
    loss = results.sample("toy", Quantity("loss.mean", MIX))
    layers = results.sample("toy", Quantity("spec.model.layers", MIX))
    assert layers.exact and not loss.exact
    # What has no seeds pairs with every one.
    assert loss.minus(layers).numbers == {seed: value - 4 for seed, value in loss.numbers.items()}
    assert set(layers.minus(loss).by_seed) == {1, 2, 3}


def test_a_difference_is_paired_over_the_seeds_that_both_have(tmp_path):
    project, _ = toy(tmp_path / "none", "paper")
    project, results = toy(tmp_path / "made", "paper", skip={run_id(project, "S", "base", 2)})
    sample = results.sample("toy", Quantity("loss.mean", MIX, BASE))
    expected = {seed: LOSSES["mix"][seed - 1] - LOSSES["base"][seed - 1] for seed in (1, 3)}
    assert sample.numbers == pytest.approx(expected) and sample.value == pytest.approx(
        sum(expected.values()) / 2
    )
    assert sample.reason == "seed 2 missing: not trained" and sample.state == "measured"
    left, right = sample.sides
    assert set(left.measured) == {1, 2, 3} and set(right.measured) == {1, 3}


def test_a_diverged_seed_makes_the_sample_diverged(tmp_path):
    project, _ = toy(tmp_path / "none", "paper")
    project, results = toy(tmp_path / "made", "paper", diverged={run_id(project, "S", "mix", 1)})
    for metric in ("loss.mean", "train.loss.final", "train.curve", "curve.early", "lm.hellaswag.acc"):
        sample = results.sample("toy", Quantity(metric, MIX))
        assert sample.state == "diverged" and sample.by_seed[1].state == "diverged", metric
    assert results.sample("toy", Quantity("train.status", MIX)).by_seed[1].value == "diverged"


def test_a_diverged_run_ranks_where_its_metric_is_worst():
    ranks = {
        "loss.mean": 1,
        "curve.early": 1,
        "train.loss.final": 1,
        "lm.wikitext.word_perplexity": 1,
        "lm.mean.acc": -1,
    }
    ranks |= {"curve.critical_step": 0, "train.steps": 0, "analysis.pca.components_mean_from_layer2": 0}
    assert {metric: metrics.worst(metric) for metric in ranks} == ranks


def test_shares_of_tasks_are_per_cent_everywhere(made):
    project, results = made
    run = project.runs("toy", MIX)[0]
    written = results.of_run("lm", run.id)["tasks"]["hellaswag"]["metrics"]
    sample = results.sample("toy", Quantity("lm.hellaswag.acc", MIX))
    assert sample.unit == "%" and sample.by_seed[1].value == 100 * written["acc"]
    assert sample.by_seed[1].stderr == 100 * written["acc_stderr"]


def test_a_unit_converts_only_to_what_it_can_be():
    assert factor("1", "%") == 100 and factor("parameters", "M") == 1e-6 and factor("bytes", "") == 1
    with pytest.raises(UserError, match="'M' does not fit a metric that comes in nats/token"):
        factor("nats/token", "M")
    with pytest.raises(UserError, match="has no unit; leave the unit out"):
        factor("", "%")


def test_sums_per_document_and_scores_per_item_come_with_the_reading(tmp_path):
    project, _ = toy(tmp_path, "paper")
    run = project.runs("toy", MIX)[0]
    path = tmp_path / "evals" / run.id / "loss.json"
    document = read_json(path)
    for name, entry in document["domains"].items():
        entry["documents"] = {f"{name}-{k}": [2.5 * k, k] for k in (1, 2)}
    write_json(path, document)
    path = tmp_path / "evals" / run.id / "lm.json"
    tasks = read_json(path)
    tasks["tasks"]["hellaswag"]["scores"] = {"acc": {"item-1": 1.0, "item-2": 0.0}}
    write_json(path, tasks)
    results = Results(project, tmp_path)
    whole = results.sample("toy", Quantity("loss.mean", MIX)).by_seed[1].items
    assert set(whole) == {"Prose", "Code"} and whole["Code"]["Code-2"] == [5.0, 2]
    assert set(results.sample("toy", Quantity("loss.Code", MIX)).by_seed[1].items) == {"Code"}
    assert results.sample("toy", Quantity("loss.mean", MIX)).by_seed[2].items is None
    scores = results.sample("toy", Quantity("lm.hellaswag.acc", MIX)).by_seed[1].items
    assert scores == {"hellaswag": {"item-1": (100.0, 1), "item-2": (0.0, 1)}}


def test_bits_per_byte_come_with_bits_and_bytes_of_each_document(tmp_path):
    project, _ = toy(tmp_path, "paper")
    run = project.runs("toy", MIX)[0]
    path = tmp_path / "evals" / run.id / "loss.json"
    document = read_json(path)
    nats = math.log(2)
    sums = {"Prose": {"0": [6 * nats, 4, 5], "3": [2 * nats, 4, 4]}, "Code": {"0": [1 * nats, 8, 9]}}
    for name, entry in document["domains"].items():
        entry |= {"text_of_documents": sums[name]}
    write_json(path, document | {"bits_per_byte": 9 / 16, "bits_per_byte_legacy": 0.5})

    def read(metric: str) -> Reading:
        return Results(project, tmp_path).sample("toy", Quantity(metric, MIX)).by_seed[1]

    def mean(items) -> float:
        ratios = [
            sum(s for s, _ in part.values()) / sum(size for _, size in part.values())
            for part in items.values()
        ]
        return sum(ratios) / len(ratios)

    whole, legacy = read("loss.bits_per_byte"), read("loss.bits_per_byte_legacy")
    assert set(whole.items) == {"text"} and set(whole.items["text"]) == {"Prose/0", "Prose/3", "Code/0"}
    # What a bootstrap recomputes from the documents is the value itself.
    assert mean(whole.items) == pytest.approx(whole.value) == 9 / 16
    assert mean(legacy.items) == pytest.approx(legacy.value) == 0.5
    assert mean(read("loss.mean_bits_per_byte").items) == pytest.approx((1 + 1 / 8) / 2)
    assert metrics.unit_of("loss.bits_per_byte_legacy") == "bits/byte"


def test_padded_documents_are_a_metric_of_their_own(tmp_path):
    project, _ = toy(tmp_path, "paper")
    run = project.runs("toy", MIX)[0]
    path = tmp_path / "evals" / run.id / "loss.json"
    document = read_json(path)
    quantity = Quantity("loss.padded", MIX)
    before = Results(project, tmp_path).sample("toy", quantity).by_seed[1]
    assert before.state == "not run" and "padded: true" in before.reason
    entry = {"loss": 4.0, "stderr": 0.1, "documents": {"0": [8.0, 2]}}
    write_json(path, document | {"padded": {"domains": {"Prose": entry}, "mean_loss": 4.0}})
    reading = Results(project, tmp_path).sample("toy", quantity).by_seed[1]
    assert (reading.value, reading.items) == (4.0, {"Prose": {"0": [8.0, 2]}})


@pytest.mark.parametrize("metric", DERIVED)
def test_every_derived_metric_names_what_it_is_computed_from(made, metric):
    project, _ = made
    derived = DERIVED[metric]
    along = tuple(RunRequest(size=size) for size in "SML") if derived.along else ()
    quantity = Quantity(metric, MIX, BASE if derived.compares else None, along)
    read = list(needs.reads(project, "toy", [quantity]))
    assert read and all(kind.name in KINDS for kind, _, _ in read)
    found = needs.needs_of(project, "toy", [quantity])
    variants = {run.variant for run in found.trained.values()}
    alone = metric == "curve.early" or metric.startswith("coefficients.")
    assert variants == ({"mix"} if alone else {"mix", "base"})
    assert {run.size for run in found.trained.values()} == (set("SML") if along else {"S"})


def test_parameters_saved_are_those_of_a_quadratic_through_the_sizes(made):
    _, results = made
    along = tuple(RunRequest(size=size) for size in "SML")
    sample = results.sample("toy", Quantity("scaling.parameter_saving", MIX, BASE, along))
    assert set(sample.numbers) == {1, 2, 3} and all(0 < saved < 100 for saved in sample.numbers.values())
    two = results.sample("toy", Quantity("scaling.parameter_saving", MIX, BASE, along[:2]))
    assert two.state == "not run" and two.reason == "a quadratic needs three different sizes"


def test_p_value_and_interval_say_the_same():
    quantity = Quantity("loss.mean", MIX, BASE)
    sample = Sample(
        quantity, {seed: Reading(value) for seed, value in {1: -0.05, 2: -0.047, 3: -0.052}.items()}
    )
    assert sample.interval.high < 0 and sample.p_value < 0.05
    wide = Sample(quantity, {1: Reading(-0.05), 2: Reading(0.047), 3: missing("not trained")})
    assert wide.interval.low < 0 < wide.interval.high and wide.p_value > 0.05
    assert Sample(quantity, {1: Reading(-0.05)}).p_value is None


def test_what_no_run_can_have_is_refused_by_name(made):
    _, results = made
    with pytest.raises(UserError, match=r"account\.parameters\.totl.*unknown.*did you mean 'total'"):
        results.sample("toy", Quantity("account.parameters.totl", MIX))
    with pytest.raises(UserError, match="is no metric of a runrequest"):
        results.sample("toy", Quantity("sample.proportion", MIX))


def test_n_grams_are_read_by_order_and_domain(made):
    _, results = made
    assert results.sample("toy", Quantity("ngrams.bigram.Prose", MIX)).value == 5.0
    names = Names(domains=("Prose",))
    assert not metrics.unknown("ngrams.trigram.Prose", names) and not metrics.unknown(
        "ngrams.unigram.mean", names
    )
    assert "did you mean 'bigram'" in metrics.unknown("ngrams.bigrams.mean", names)
    assert "did you mean 'Prose'" in metrics.unknown("ngrams.bigram.Pros", names)


def test_losses_on_the_way_are_a_series_of_the_training(made, tmp_path):
    project, _ = toy(tmp_path, "paper")
    assert metrics.is_series("train.validation")
    path = tmp_path / "runs" / run_id(project, "S", "mix", 1) / "train.json"
    record = read_json(path)
    write_json(path, record | {"validation": {"step": [5, 10], "tokens": [50, 100], "loss": [4.0, 3.0]}})
    path = tmp_path / "runs" / run_id(project, "S", "mix", 2) / "train.json"
    write_json(path, read_json(path) | {"validation": None})
    by_seed = Results(project, tmp_path).sample("toy", Quantity("train.validation", MIX)).by_seed
    assert by_seed[1].value["loss"] == [4.0, 3.0]
    assert by_seed[2].state == "not run"


def test_what_a_device_did_is_read_at_this_scale_and_enters_no_verdict(tmp_path):
    project, results = toy(tmp_path, "smoke")
    done = {"status": "done", "ratio": 1.25, "seconds": 0.5, "peak_bytes": None}
    document = {
        "schema": 1,
        "kind": "bench",
        "device": {"name": "a device", "clock_mhz": None},
        "phases": {"step": done, "prefill": done, "decode": {"status": "out of memory"}},
    }
    needed = needs.needs_of(project, "toy", [Quantity("bench.step.ratio", MIX)])
    assert needed.paths(trained=False) == ["bench/smoke/toy/S/mix.json"] and not needed.trained
    write_json(tmp_path / needed.paths()[0], document)

    def read(name):
        return results.sample("toy", Quantity(f"bench.{name}", MIX))

    assert (read("step.ratio").value, read("step.ratio").unit, read("step.ratio").exact) == (1.25, "1", False)
    assert read("device.name").value == "a device"
    assert read("decode.ratio").reason == "out of memory"
    assert read("step.peak_bytes").reason == "step has no peak_bytes on this device"
    assert "did you mean 'prefill'" in metrics.unknown("bench.prefil.ratio", Names())


# --- CORE ----------------------------------------------------------------------------------------------------------


def core_results(folder, left, right):
    """The toy with one core.json per variant."""
    project, results = toy(folder, "paper")
    for variant, record in (("mix", left), ("base", right)):
        for run in project.runs("toy", RunRequest(size="S", variant=variant)):
            write_json(folder / "evals" / run.id / "core.json", record(run))
    return results


def test_core_is_the_mean_of_centred_accuracies_and_of_a_whole_suite_alone(tmp_path):
    whole, part = (
        lambda run, absent=absent: core_record(run, "11001", 0.2, absent, SUITES)
        for absent in ((), ("coqa", "squad"))
    )
    results = core_results(tmp_path, whole, part)
    values = {
        "core21": (0.6 - 0.2) / 0.8,
        "core22": (0.6 - 0.2) / 0.8,
        "core21.later": (0.6 - 0.3) / 0.7,
        "core22.copa.accuracy": 0.6,
        "hellaswag_zeroshot.accuracy": 0.6,
    }
    for name, value in values.items():
        reading = results.sample("toy", Quantity(f"core.{name}", MIX)).by_seed[1]
        assert reading.value == pytest.approx(value), name
    sample = results.sample("toy", Quantity("core.core22", BASE))
    assert sample.state == "not run"
    assert sample.reason == "not CORE, 2 of 22 tasks not run (squad, coqa: no file)"
    assert results.sample("toy", Quantity("core.copa.accuracy", BASE)).value == 0.6


def test_a_difference_in_core_is_paired_over_items(tmp_path):
    """Both sides right on the same items but one: the error is that of the one, not of two independent samples."""
    results = core_results(
        tmp_path,
        lambda run: core_record(run, "1100100000", 0.2),
        lambda run: core_record(run, "1000100000", 0.2),
    )
    sample = results.sample("toy", Quantity("core.core21", MIX, BASE))
    assert sample.value == pytest.approx(0.1 / 0.8)
    items = sample.sides[0].by_seed[1].items
    assert set(items) == set(SUITES["core21"]) and items["copa"]["0"] == (1.0, 1)
    # Each of 21 tasks: ten differences of which one is 1 / 0.8; its mean has this error, and their mean a root of 21 less.
    one = np.std([1.25, *[0.0] * 9], ddof=1) / math.sqrt(10)
    # A bootstrap's own error is 2 %; two samples taken for independent would give more than twice as much.
    assert sample.text_error.stderr == pytest.approx(one / math.sqrt(21), rel=0.08)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("core21", ""), ("core21.later", ""), ("squad.accuracy", ""), ("core21.squad.centred", ""),
        ("core22", "evaluates no such suite"), ("hellaswag_zeroshot.accuracy", "did you mean 'hellaswag'"),
        ("coka.accuracy", "did you mean 'coqa'"), ("squad", "take squad.accuracy"), ("core21.squad", "take core21.squad.accuracy"),
        ("squad.centered", "did you mean 'centred'"), ("core21.late", "did you mean 'later'"),
    ],
)  # fmt: skip
def test_names_of_core_are_refused_with_the_nearest(name, problem):
    said = metrics.unknown(f"core.{name}", Names(suites=("core21",)))
    assert problem in said and bool(said) == bool(problem), said


# --- decoding ------------------------------------------------------------------------------------------------------


def test_decoding_is_read_by_length_batch_and_way_with_the_reason_of_what_is_not_there(made):
    project, results = made
    long = MIX.model_copy(update={"context": 256})
    reasons = [
        (long, "b8.host.token_seconds", "no GPU"),
        (long, "b1.device.token_seconds", "not measured on this machine"),
        (long, "b8.folded.peak_bytes", "no peak_bytes on this device"),
        (MIX, "b8.folded.token_seconds", "not measured on this machine"),
    ]
    for subject, name, reason in reasons:
        sample = results.sample("toy", Quantity(f"decode.{name}", subject))
        assert (sample.state, sample.reason) == ("not run", reason)
    files = needs.needs_of(
        project, "toy", [Quantity("decode.b8.host.host_bytes", one) for one in (MIX, long)]
    ).files
    # A length that none names is the paper's own.
    assert list(files) == [f"decode/paper/toy/S/mix/{length}.json" for length in (128, 256)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("b1.device.token_ratio", ""), ("device.name", ""), ("b3.device.token_ratio", "take b1 or b8"),
        ("b1.hosts.token_ratio", "did you mean 'host'"), ("b1.host.token_ration", "did you mean 'token_ratio'"),
        ("device.nam", "did you mean 'name'"),
    ],
)  # fmt: skip
def test_names_of_decoding_are_refused_with_the_nearest(name, problem):
    said = metrics.unknown(f"decode.{name}", Names())
    assert problem in said and bool(said) == bool(problem), said
