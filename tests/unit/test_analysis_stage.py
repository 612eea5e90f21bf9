"""The analysis stage from the command line to the readers: frozen inputs, equal bytes, and refusals in a line."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from respath.data.loader import validation_rows
from respath.files import canonical_json, read_json, sha256_file, write_json
from respath.measure.analyses.__main__ import main
from respath.measure.analyses.inputs import Inputs, document_rows
from respath.quantities.analyses import CATALOGUE, unknown_series
from respath.quantities.metrics import unknown
from tests.unit.corpus import tiny_tokens
from tests.unit.finished_run import finished_run, scale_weights

CONTEXT = 32
ALL = ",".join(CATALOGUE)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_tokens(tmp_path_factory.mktemp("tokens"), vocab_size=300, validation_tokens=2000)


@pytest.fixture(scope="module")
def trained(store, tmp_path_factory):
    """(train.json, manifest, checkpoint folder, model)."""
    return finished_run(tmp_path_factory.mktemp("run"), *store, context=CONTEXT)


def options(trained, out, modules=ALL, **changes):
    train, manifest, checkpoints, _ = trained
    given = {"train": train, "tokens": manifest, "checkpoints": checkpoints, "sequences": 2}
    given |= {"modules": modules, "device": "cpu", "out": out, **changes}
    return [text for key, value in given.items() if value is not None for text in (f"--{key}", str(value))]


@pytest.fixture(scope="module")
def analysed(trained, tmp_path_factory):
    """Folder of a run's analyses."""
    folder = tmp_path_factory.mktemp("analyses")
    out, arrays = folder / "analysis.json", folder / "arrays.npz"
    assert main(options(trained, out, arrays=arrays)) == 0
    return folder


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_packed_inputs_are_the_first_validation_rows(store):
    inputs = Inputs.read(store[0], CONTEXT, 3)
    for domain, rows in validation_rows(store[0], CONTEXT, 3).items():
        assert np.array_equal(inputs.packed[domain], rows)


def test_sequences_of_documents_begin_after_an_end_and_do_not_overlap(store):
    manifest = read_json(store[0])
    end, several = manifest["tokenizer"]["eos_id"], 0
    for domain, rows in document_rows(store[0], CONTEXT, 4).items():
        (shard,) = manifest["splits"]["validation"][domain]["shards"]
        tokens = np.fromfile(store[0].parent / shard["path"], dtype=manifest["dtype"]).astype(int)
        places = [
            [b for b in range(len(tokens) - CONTEXT + 1) if np.array_equal(tokens[b : b + CONTEXT], row)]
            for row in rows
        ]
        begins = sorted(found[0] for found in places)
        assert all(begin == 0 or tokens[begin - 1] == end for begin in begins)
        assert all(b - a >= CONTEXT for a, b in itertools.pairwise(begins))
        assert 1 <= len(rows) <= 4
        several += len(rows) > 1
    assert several


def test_more_sequences_begin_with_the_fewer(store):
    few, many = (document_rows(store[0], CONTEXT, count) for count in (1, 4))
    assert all(np.array_equal(many[domain][:1], rows) for domain, rows in few.items())


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_run_goes_from_its_weights_to_numbers_series_and_arrays(trained, analysed):
    content = read_json(analysed / "analysis.json")
    assert (content["kind"], content["status"], content["run"]) == ("analysis", "done", "a-run")
    assert content["input"]["context"] == CONTEXT and content["input"]["sequences"] == 14
    assert 7 <= content["input"]["document_starts"]["sequences"] <= 14
    assert content["weights_sha256"] == read_json(trained[0])["weights"]["sha256"]
    assert set(content["modules"]) == set(CATALOGUE)
    for name, wanted in CATALOGUE.items():
        found = content["modules"][name]
        assert set(found["scalars"]) <= set(wanted.scalars) and set(found["series"]) <= set(wanted.series)
        assert set(found.get("arrays", {})) == set(wanted.arrays)
    with np.load(analysed / "arrays.npz", allow_pickle=False) as archive:
        for name, entry in content["modules"].items():
            for key, shape in entry.get("arrays", {}).items():
                assert list(archive[f"{name}.{key}"].shape) == shape == [3, CONTEXT]
                assert archive[f"{name}.{key}"].dtype == np.float32


def test_the_numbers_are_those_of_the_trained_weights(trained, analysed):
    from respath.measure.loss import token_losses

    *_, manifest, _, model = trained
    rows = np.concatenate(list(validation_rows(manifest, CONTEXT, 2).values()))
    found = read_json(analysed / "analysis.json")["modules"]
    expected = token_losses(model.eval(), rows).mean()
    assert found["removal"]["scalars"]["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["gradients"]["scalars"]["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["coefficients"]["series"]["source"] == [None, *model.values.source.tolist()]


def test_the_same_command_writes_the_same_bytes(trained, analysed, tmp_path):
    assert main(options(trained, tmp_path / "again.json")) == 0
    assert (tmp_path / "again.json").read_bytes() == (analysed / "analysis.json").read_bytes()
    assert (tmp_path / "again.npz").read_bytes() == (analysed / "arrays.npz").read_bytes()


def test_only_what_is_asked_for_is_made_and_the_archive_may_be_empty(trained, analysed, tmp_path):
    out = tmp_path / "analysis.json"
    assert main(options(trained, out, "pca,coefficients")) == 0
    modules, whole = (read_json(path)["modules"] for path in (out, analysed / "analysis.json"))
    assert modules == {name: whole[name] for name in ("coefficients", "pca")}
    with np.load(tmp_path / "analysis.npz") as archive:
        assert archive.files == []


def test_positions_are_measured_on_document_starts_and_beside_them_on_packed_rows(analysed):
    series = read_json(analysed / "analysis.json")["modules"]["importance"]["series"]
    assert series["entropy"] != series["entropy_packed"]
    assert len(series["top"]) == len(series["top_packed"]) == 3


def test_a_diverged_run_has_a_result_without_modules(trained, tmp_path):
    train = tmp_path / "train.json"
    write_json(
        train, {**read_json(trained[0]), "status": "diverged", "reason": "loss is nan", "weights": None}
    )
    out = tmp_path / "analysis.json"
    assert main(options((train, *trained[1:]), out)) == 0
    content = read_json(out)
    assert (content["status"], content["reason"], content["modules"]) == ("diverged", "loss is nan", {})


def test_finite_weights_whose_scores_are_not_finite_are_a_diverged_run(store, tmp_path):
    run = finished_run(tmp_path, *store, context=CONTEXT)
    scale_weights(run[0], run[2], 1e20)
    out = tmp_path / "analysis.json"
    assert main(options(run, out)) == 0
    content = read_json(out)
    assert (content["status"], content["modules"]) == ("diverged", {}) and "not finite" in content["reason"]


def test_transport_is_followed_through_the_weights_that_a_run_kept(store, tmp_path):
    run = finished_run(tmp_path, *store, context=CONTEXT, stream={"kind": "hc"}, kept=(1, 2, 4))
    assert main(options(run, tmp_path / "a.json", "transport,lens")) == 0
    found = read_json(tmp_path / "a.json")["modules"]["transport"]
    # 0 is drawn from the run's seed; the weights of the last step are the final ones.
    assert found["series"]["steps"] == [0, 1, 2, 4]
    assert found["series"]["effective_rank_along"][0] == pytest.approx(4, abs=1e-9)
    assert found["series"]["effective_rank_along"][-1] == found["scalars"]["effective_rank"]
    kept = run[2] / "weights"
    (kept / "step-00000001.safetensors").unlink()
    (kept / "step-00000002.safetensors").write_bytes(b"other weights")
    assert main(options(run, tmp_path / "b.json", "transport")) == 0
    assert read_json(tmp_path / "b.json")["modules"]["transport"]["series"]["steps"] == [0, 4]


def test_the_weights_before_training_are_those_that_the_spec_and_seed_draw(trained, tmp_path):
    from respath.model import build_model
    from respath.spec.document import identity
    from respath.spec.run import RunSpec
    from respath.training.checkpoint import save_tensors_atomically

    record = read_json(trained[0])
    spec = RunSpec.model_validate_json(canonical_json(record["spec"]))
    common = {"train": None, "checkpoints": None, "spec": canonical_json(identity(spec)), "run": "a-run"}
    arguments = options(trained, tmp_path / "untrained.json", "importance,similarity", **common)
    assert main(["--untrained", *arguments]) == 0
    found = read_json(tmp_path / "untrained.json")
    assert found["untrained"] is True and found["status"] == "done" and found["weights_sha256"] is None
    # The same numbers as a run that ended where it began.
    weights = tmp_path / "checkpoints" / "final" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    save_tensors_atomically(weights, build_model(spec.model, seed=spec.seed).state_dict())
    train = tmp_path / "train.json"
    write_json(train, {**record, "weights": {"path": "x", "sha256": sha256_file(weights)}})
    run = (train, trained[1], tmp_path / "checkpoints", None)
    assert main(options(run, tmp_path / "analysis.json", "importance,similarity")) == 0
    assert read_json(tmp_path / "analysis.json")["modules"] == found["modules"]


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(capsys, arguments) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err.strip()


def test_an_unknown_module_is_named_with_the_nearest_known_one(trained, tmp_path, capsys):
    lines = refused(capsys, options(trained, tmp_path / "x.json", "similarty,pca,norm")).splitlines()
    assert lines == [
        "error: --modules: 'similarty' is no analysis (did you mean 'similarity'?)",
        "error: --modules: 'norm' is no analysis (did you mean 'norms'?)",
    ]
    assert "names no analysis" in refused(capsys, options(trained, tmp_path / "x.json", ","))


def test_missing_weights_are_one_line_with_the_remedy(trained, tmp_path, capsys):
    line = refused(capsys, options(trained, tmp_path / "x.json", "pca", checkpoints=tmp_path))
    assert line.count("\n") == 0 and "are missing" in line and "the run goes on from" in line
    assert not (tmp_path / "x.json").exists()


def test_the_weights_of_another_run_are_refused(trained, tmp_path, capsys):
    train = tmp_path / "train.json"
    record = read_json(trained[0])
    write_json(train, {**record, "weights": {**record["weights"], "sha256": "0" * 64}})
    line = refused(capsys, options((train, *trained[1:]), tmp_path / "x.json", "pca"))
    assert line.count("\n") == 0 and "differs from" in line


def test_another_token_store_than_the_runs_is_refused(trained, tmp_path, capsys):
    train = tmp_path / "train.json"
    write_json(train, {**read_json(trained[0]), "manifest_sha256": "0" * 64})
    line = refused(capsys, options((train, *trained[1:]), tmp_path / "x.json", "pca"))
    assert line.count("\n") == 0 and "is not the manifest" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--train", "t"], "--train needs --checkpoints"),
        (["--untrained"], "--untrained needs --spec"),
        (["--hf", "d"], "--hf needs --context"),
        ([], "give exactly one of --train, --untrained and --hf"),
        (["--train", "t", "--checkpoints", "c", "--untrained", "--spec", "{}"], "give exactly one of"),
        (["--hf", "d", "--context", "1"], "--context at least 2"),
    ],
)
def test_options_that_name_no_model_are_refused(arguments, said, capsys):
    common = ["--tokens", "m", "--sequences", "1", "--modules", "pca", "--out", "o"]
    assert said in refused(capsys, [*arguments, *common])


# --- names ------------------------------------------------------------------------------------------------------------


def test_metrics_and_series_are_checked_by_name():
    assert not unknown("analysis.pca.components_mean_from_layer2")
    assert "did you mean 'entropy_mean'" in unknown("analysis.importance.entropy_men")
    assert "did you mean 'importance'" in unknown("analysis.importanc.entropy_mean")
    assert "compares two runs" in unknown("analysis.gradients.value_ratio_layer1", pair=False)
    assert not unknown("analysis.gradients.value_ratio_layer1")
    assert unknown_series("similarity.hidden_layers") is None
    assert "did you mean 'token_importance'" in unknown_series("importance.token_importence")


def test_every_module_has_its_ratios_of_its_own_scalars():
    for outputs in CATALOGUE.values():
        assert set(outputs.ratios.values()) <= set(outputs.scalars)
        assert not set(outputs.ratios) & set(outputs.scalars)


# --- checkpoints from elsewhere ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def backbone(request):
    return request.param


@pytest.fixture(scope="module")
def exported(backbone, trained, tmp_path_factory):
    """(folder in Hugging Face's form, the same run's train.json and checkpoints) of a plain Transformer."""
    from respath.model import build_model
    from respath.model.export import export
    from respath.spec.document import identity
    from respath.spec.model import ModelSpec
    from respath.training.checkpoint import save_tensors_atomically
    from tests.unit.noise import with_noise

    folder = tmp_path_factory.mktemp("exported")
    own = {
        "llama": {"kv_heads": 2},
        "gpt2": {"backbone": "gpt2", "kv_heads": 4, "max_positions": 2 * CONTEXT},
    }[backbone]
    spec = ModelSpec(vocab_size=300, layers=3, width=32, heads=4, ffn_width=64, **own)
    model = with_noise(build_model(spec, seed=7), 0.1).eval()
    export(model, folder / backbone, context=CONTEXT)
    weights = folder / "checkpoints" / "final" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    save_tensors_atomically(weights, model.state_dict())
    record = read_json(trained[0])
    record |= {
        "spec": {**record["spec"], "model": identity(spec)},
        "weights": {"path": "x", "sha256": sha256_file(weights)},
    }
    write_json(folder / "train.json", record)
    return folder


def test_an_exported_transformer_has_the_numbers_of_our_own(backbone, trained, exported, tmp_path):
    pytest.importorskip("transformers")
    ours = (exported / "train.json", trained[1], exported / "checkpoints", None)
    assert main(options(ours, tmp_path / "ours.json", "importance,similarity")) == 0
    theirs = {"train": None, "checkpoints": None, "hf": exported / backbone, "context": CONTEXT}
    assert main(options(trained, tmp_path / "theirs.json", "importance,similarity", **theirs)) == 0
    ours, theirs = (read_json(tmp_path / f"{name}.json") for name in ("ours", "theirs"))
    assert theirs["input"] == ours["input"] and theirs["run"].startswith(f"{backbone}-")
    for module in ("importance", "similarity"):
        for kind in ("scalars", "series"):
            for name, expected in ours["modules"][module][kind].items():
                found = theirs["modules"][module][kind][name]
                if expected is None:  # two layers have no earlier half but the first
                    assert found is None and name == "token_value_before_rise"
                    continue
                np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_any_llama_folder_is_analysed_with_its_own_tokenizer(trained, tmp_path):
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    folder = tmp_path / "tiny"
    transformers.LlamaForCausalLM(config).save_pretrained(folder, safe_serialization=True)
    characters = {chr(code): code for code in range(128)}
    tokenizer = Tokenizer(models.BPE(vocab=characters, merges=[], unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    theirs = {"train": None, "checkpoints": None, "hf": folder, "context": 16}
    assert main(options(trained, tmp_path / "out.json", "importance", **theirs)) == 0
    content = read_json(tmp_path / "out.json")
    assert content["input"]["context"] == 16 and content["input"]["document_starts"]["sequences"] > 3
    entropies = content["modules"]["importance"]["series"]["entropy"]
    assert len(entropies) == 2 and all(0 < nats < np.log(16) for nats in entropies)


def test_a_folder_that_cannot_or_must_not_be_read_is_refused(backbone, trained, exported, tmp_path, capsys):
    pytest.importorskip("transformers")

    def said(folder, modules="importance", context=CONTEXT):
        theirs = {"train": None, "checkpoints": None, "hf": folder, "context": context}
        return refused(capsys, options(trained, tmp_path / "x.json", modules, **theirs))

    assert "no config.json" in said(tmp_path)
    write_json(tmp_path / "pickled" / "config.json", {"model_type": "llama"})
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"")
    assert "they can run code" in said(tmp_path / "pickled")
    config = read_json(exported / backbone / "config.json")
    write_json(tmp_path / "code" / "config.json", {**config, "auto_map": {"AutoModelForCausalLM": "x.Y"}})
    (tmp_path / "code" / "model.safetensors").write_bytes(b"")
    assert "is not run here" in said(tmp_path / "code")
    write_json(tmp_path / "damaged" / "config.json", config)
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"no tensors")
    assert "transformers cannot read it" in said(tmp_path / "damaged")
    assert "pca cannot be made of a --hf folder" in said(exported / backbone, "pca,importance")
    if backbone == "gpt2":  # its positions are learned, and end
        assert "reads 64 tokens at most, and sequences of 65" in said(exported / backbone, context=65)
