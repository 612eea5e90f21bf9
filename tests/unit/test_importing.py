"""Weights from elsewhere as the result of a run: equal losses without training, and every misfit said at once."""

from __future__ import annotations

import copy
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.files import read_json, sha256_file, write_json
from respath.importing import import_run
from respath.measure.loss import evaluate, token_losses, unweighted_mean
from respath.measure.weights import load_trained
from respath.model import build_model
from respath.model.export import export
from respath.papers.check import open_papers
from respath.papers.resolve import Resolver, Run
from respath.quantities.kinds import imported
from respath.spec.document import identity
from respath.training.checkpoint import save_tensors_atomically
from respath.training.lease import Lease, LeaseHeld
from tests.project_copy import ROOT
from tests.unit.corpus import tiny_tokens


@pytest.fixture(scope="module")
def papers() -> Resolver:
    return open_papers(ROOT, {"scale": "smoke"})


@pytest.fixture
def project(papers, tmp_path) -> Resolver:
    """The papers at scale smoke, with results in a folder of their own."""
    project = copy.copy(papers)
    project.root = tmp_path / "project"
    return project


def run_of(project: Resolver, variant: str, size: str = "82M", **recipe) -> Run:
    return project.paper("resformer").run(RunRequest(size=size, variant=variant, recipe=recipe), 1)


def model_of(run: Run, seed: int = 5) -> torch.nn.Module:
    """A model of the run's spec, with other weights than the run starts from."""
    return build_model(run.spec.model, seed=seed).eval()


def result_of(project: Resolver, run: Run):
    return project.root / "results" / "runs" / run.id / "train.json"


def folder_of(project: Resolver, run: Run):
    return project.root / "checkpoints" / run.id


def assert_has(project: Resolver, run: Run, model: torch.nn.Module) -> None:
    """The run's trained model, as evaluations load it, is ``model``."""
    found, _ = load_trained(result_of(project, run), folder_of(project, run))
    expected, state = model.state_dict(), found.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def refused(project: Resolver, run: Run, given, **options) -> list[str]:
    with pytest.raises(UserError) as error:
        import_run(project, run, given, **options)
    assert not result_of(project, run).exists() and not folder_of(project, run).exists()
    return error.value.lines


# --- what comes in -------------------------------------------------------------------------------------------------


def test_an_exported_model_comes_in_as_its_run_and_has_the_same_loss_without_training(project, tmp_path):
    from respath.data.loader import validation_rows

    run = run_of(project, "identity")
    model = model_of(run)
    export(model, tmp_path / "exported")
    done = import_run(project, run, tmp_path / "exported")
    assert done["status"] == "imported" and done["format"] == "respath" and done["dtypes"] == ["float32"]
    assert_has(project, run, model)
    manifest, _ = tiny_tokens(tmp_path / "tokens")
    found = evaluate(result_of(project, run), manifest, folder_of(project, run), sequences=2)
    rows = validation_rows(manifest, run.spec.recipe.context, 2)
    expected = {name: {"loss": float(token_losses(model, ids).mean())} for name, ids in rows.items()}
    assert found["status"] == "done" and len(expected) == 7
    assert found["mean_loss"] == unweighted_mean(expected, "loss")


def test_the_record_invents_nothing_and_names_no_place(project, tmp_path):
    run = run_of(project, "identity")
    export(model_of(run), tmp_path / "theirs")
    import_run(project, run, tmp_path / "theirs")
    text = result_of(project, run).read_text()
    assert str(tmp_path) not in text and str(ROOT) not in text
    record = json.loads(text)
    assert record["spec"] == identity(run.spec) and record["status"] == "finished"
    assert record["loss"] == {"final": None, "window": None} and record["cost"] == {}
    assert record["steps"] is record["tokens"] is record["manifest_sha256"] is None
    assert not any(record["curve"].values())
    origin = imported(record)
    assert origin["name"] == "theirs" and set(record["provenance"]) == {"imported"}
    assert origin["files"] == {
        name: sha256_file(tmp_path / "theirs" / name) for name in ("model.safetensors", "config.json")
    }


def test_final_weights_of_another_checkout_come_in_byte_for_byte(project, tmp_path):
    run = run_of(project, "learnable")
    model = model_of(run)
    there = tmp_path / "other" / "final" / "model.safetensors"
    digest = save_tensors_atomically(there, dict(model.named_parameters()))
    for given in (there, there.parent, there.parent.parent):
        import_run(project, run, given, replace=True)
        final = folder_of(project, run) / "final" / "model.safetensors"
        assert sha256_file(final) == digest == read_json(result_of(project, run))["weights"]["sha256"]


@pytest.mark.parametrize("variant", ["transformer", "gpt2-transformer"])
def test_a_hugging_face_folder_comes_back_as_it_went(project, tmp_path, variant):
    run = run_of(project, variant)
    model = model_of(run)
    assert export(model, tmp_path / "hf")["format"] == "hugging_face"
    # As transformers writes it: without our spec, and without what is its default anyway.
    config = read_json(tmp_path / "hf" / "config.json")
    for key in ("respath", "hidden_act", "activation_function", "rope_scaling", "n_inner"):
        config.pop(key, None)
    write_json(tmp_path / "hf" / "config.json", config)
    done = import_run(project, run, tmp_path / "hf")
    assert done["format"] == "hugging_face"
    assert_has(project, run, model)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["transformer", "gpt2-transformer"])
def test_what_transformers_itself_saves_comes_in_whole_or_in_parts(project, tmp_path, variant):
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    run = run_of(project, variant)
    model = model_of(run)
    export(model, tmp_path / "ours")
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    for name, options in (("whole", {}), ("parts", {"max_shard_size": "200KB"})):
        peer.config.__dict__.pop("respath", None)
        peer.save_pretrained(tmp_path / name, **options)
        assert "respath" not in read_json(tmp_path / name / "config.json")
        import_run(project, run, tmp_path / name, replace=True)
        assert_has(project, run, model)
    assert len(imported(read_json(result_of(project, run)))["files"]) > 2


def test_older_buffers_and_names_without_a_prefix_are_no_obstacle(project, tmp_path):
    run = run_of(project, "gpt2-transformer")
    model = model_of(run)
    export(model, tmp_path / "hf")
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    weights = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    weights["h.0.attn.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    save_file(weights, tmp_path / "hf" / "model.safetensors")
    import_run(project, run, tmp_path / "hf")
    assert_has(project, run, model)


def test_bf16_weights_stay_bf16_and_are_evaluated_in_fp32(project, tmp_path):
    run = run_of(project, "transformer")
    model = model_of(run).to(torch.bfloat16)
    export(model, tmp_path / "hf")
    assert import_run(project, run, tmp_path / "hf")["dtypes"] == ["bfloat16"]
    assert_has(project, run, model.float())


def test_the_manifest_of_its_training_is_recorded_and_no_other_evaluates_it(project, tmp_path):
    run = run_of(project, "identity")
    export(model_of(run), tmp_path / "exported")
    manifest, _ = tiny_tokens(tmp_path / "tokens")
    assert (
        "describes other data than the run's"
        in refused(project, run, tmp_path / "exported", manifest=manifest)[0]
    )
    content = read_json(manifest)
    (tmp_path / "theirs").mkdir()
    write_json(tmp_path / "theirs" / "manifest.json", content | {"spec": identity(run.spec.data)})
    import_run(project, run, tmp_path / "exported", tmp_path / "theirs" / "manifest.json")
    with pytest.raises(UserError, match="is not the manifest"):
        evaluate(result_of(project, run), manifest, folder_of(project, run), sequences=2)


# --- what is there already -----------------------------------------------------------------------------------------


def test_the_same_weights_again_change_nothing_and_others_need_to_be_meant(project, tmp_path):
    run = run_of(project, "identity")
    for seed in (5, 6):
        export(model_of(run, seed), tmp_path / str(seed))
    import_run(project, run, tmp_path / "5")
    before = result_of(project, run).stat().st_mtime_ns
    assert import_run(project, run, tmp_path / "5")["status"] == "already imported"
    assert result_of(project, run).stat().st_mtime_ns == before
    with pytest.raises(UserError, match="was imported from 5, whose files have other hashes; give --replace"):
        import_run(project, run, tmp_path / "6")
    assert import_run(project, run, tmp_path / "6", replace=True)["moved_to"] is None
    assert_has(project, run, model_of(run, 6))
    (folder_of(project, run) / "final" / "model.safetensors").unlink()
    assert import_run(project, run, tmp_path / "6")["status"] == "imported", "lost weights come back"


def test_a_training_is_not_overwritten_and_with_replace_moved_but_never_deleted(project, tmp_path):
    run = run_of(project, "identity")
    export(model_of(run), tmp_path / "exported")
    folder = folder_of(project, run)
    (folder / "step-00000004").mkdir(parents=True)
    (folder / "step-00000004" / "DONE").write_text("{}")
    with pytest.raises(UserError, match="has been begun, and its checkpoints would be lost; give --replace"):
        import_run(project, run, tmp_path / "exported")
    (folder / "history.jsonl").write_text("a step\n")
    write_json(result_of(project, run), {"kind": "train", "status": "finished", "provenance": {}})
    with pytest.raises(UserError, match=r"is already there \(finished\); give --replace"):
        import_run(project, run, tmp_path / "exported")
    done = import_run(project, run, tmp_path / "exported", replace=True)
    aside = folder.with_name(f"{folder.name}.replaced-1")
    assert done["moved_to"] == str(aside)
    assert sorted(path.name for path in aside.iterdir()) == ["history.jsonl", "step-00000004", "train.json"]
    assert [path.name for path in folder.iterdir() if not path.name.startswith("lease.")] == ["final"]
    assert_has(project, run, model_of(run))


def test_while_a_trainer_is_at_work_nothing_is_imported(project, tmp_path, monkeypatch):
    run = run_of(project, "identity")
    export(model_of(run), tmp_path / "exported")
    # A lock of this process would be its own: one that another holds is pretended.
    monkeypatch.setattr(Lease, "_try_lock", lambda self: False)
    with pytest.raises(LeaseHeld, match="another trainer is at work"):
        import_run(project, run, tmp_path / "exported")
    assert not result_of(project, run).exists()


# --- what is refused -----------------------------------------------------------------------------------------------


def test_only_safetensors_are_read(project, tmp_path):
    run = run_of(project, "identity")
    torch.save({}, tmp_path / "model.pt")
    assert "only safetensors are read" in refused(project, run, tmp_path / "model.pt")[0]
    (tmp_path / "folder").mkdir()
    shutil.copy(tmp_path / "model.pt", tmp_path / "folder" / "pytorch_model.bin")
    assert "pytorch_model.bin can run code and is not read" in refused(project, run, tmp_path / "folder")[0]
    shutil.copy(tmp_path / "model.pt", tmp_path / "folder" / "model.safetensors")
    assert "is no whole safetensors file" in refused(project, run, tmp_path / "folder")[0]
    assert "no such file or folder" in refused(project, run, tmp_path / "nowhere")[0]


def test_a_cut_file_is_refused(project, tmp_path):
    run = run_of(project, "identity")
    export(model_of(run), tmp_path / "exported")
    path = tmp_path / "exported" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "is no whole safetensors file" in refused(project, run, tmp_path / "exported")[0]


def test_names_shapes_and_numbers_that_do_not_fit_are_told_together(project, tmp_path):
    run = run_of(project, "identity")
    weights = dict(model_of(run).named_parameters())
    weights = {name: tensor.detach() for name, tensor in weights.items()}
    for n in range(run.spec.model.layers):
        weights[f"layers.{n}.attention.q.weight"] = weights.pop(f"layers.{n}.attention.q_proj.weight")
    weights["layers.2.mlp.up_proj.weight"] = torch.zeros(3, 4)
    weights["head.weight"] = weights["head.weight"].to(torch.int32)
    weights["unheard_of"] = torch.zeros(2)
    save_file(weights, tmp_path / "model.safetensors")
    lines = refused(project, run, tmp_path / "model.safetensors")
    where = f"{tmp_path / 'model.safetensors'}: "
    assert all(line.startswith(where) for line in lines)
    assert sorted(line.removeprefix(where) for line in lines) == sorted(
        [
            "layers.0..7.attention.q_proj.weight: is missing (shape 64 x 64)",
            "layers.0..7.attention.q.weight: is no parameter of this model (did you mean 'layers.N.attention.q_proj.weight'?)",
            "layers.2.mlp.up_proj.weight: has shape 3 x 4, this model has 224 x 64",
            "head.weight: holds I32 numbers; weights are float32, bfloat16, float16",
            "unheard_of: is no parameter of this model",
        ]
    )


def test_weights_that_are_not_finite_are_refused(project, tmp_path):
    run = run_of(project, "identity")
    model = model_of(run)
    with torch.no_grad():
        model.layers[3].mlp.up_proj.weight[0, 0] = float("nan")
    export(model, tmp_path / "exported")
    (line,) = refused(project, run, tmp_path / "exported")
    assert "layers.3.mlp.up_proj.weight: holds numbers that are not finite" in line


def test_an_export_of_another_model_is_told_by_its_spec(project, tmp_path):
    other = run_of(project, "identity", size="180M")
    export(model_of(other), tmp_path / "exported")
    lines = refused(project, run_of(project, "identity"), tmp_path / "exported")
    assert any("respath.spec.width: is 80, the run's model has 64" in line for line in lines)
    export(model_of(run_of(project, "svformer")), tmp_path / "another")
    lines = refused(project, run_of(project, "identity"), tmp_path / "another")
    assert any("respath.spec.values.kind: is 'reuse', the run's model has 'mix'" in line for line in lines)


def test_a_hugging_face_config_that_computes_something_else_is_told_key_by_key(project, tmp_path):
    run = run_of(project, "transformer")
    export(model_of(run), tmp_path / "hf")
    config = read_json(tmp_path / "hf" / "config.json")
    del config["respath"]
    wrong = {
        "num_attention_heads": 4,
        "rms_norm_eps": 1e-3,
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "yarn"},
    }
    write_json(tmp_path / "hf" / "config.json", config | wrong)
    lines = refused(project, run, tmp_path / "hf")
    told = {line.split(": ")[1] for line in lines}
    assert told == {"num_attention_heads", "rms_norm_eps", "rope_theta", "rope_scaling"}
    write_json(tmp_path / "hf" / "config.json", config | {"auto_map": {"AutoModel": "x.Y"}})
    assert "names code of its own" in refused(project, run, tmp_path / "hf")[0]
    write_json(tmp_path / "hf" / "config.json", config)
    (line,) = refused(project, run_of(project, "identity"), tmp_path / "hf")
    assert "transformers has no class for the value path mix" in line
    (line,) = refused(project, run_of(project, "gpt2-transformer"), tmp_path / "hf")
    assert "is 'llama', the run's model is a gpt2" in line


def test_an_index_that_leaves_its_folder_or_names_absent_files_is_refused(project, tmp_path):
    run = run_of(project, "transformer")
    index = tmp_path / "model.safetensors.index.json"
    for name in ("../secret.safetensors", "/etc/passwd", "a.bin"):
        write_json(index, {"weight_map": {"lm_head.weight": name}})
        assert "is no safetensors file of this folder" in refused(project, run, tmp_path)[0]
    write_json(index, {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})
    assert [line.split(": ")[1] for line in refused(project, run, tmp_path)] == [
        "is missing (model.safetensors.index.json names it)"
    ] * 2
    write_json(index, {"weight_map": []})
    assert "names no files" in refused(project, run, tmp_path)[0]


# --- on the command line, and afterwards ---------------------------------------------------------------------------


def test_the_command_says_what_it_did_and_what_reads_it(tmp_path, monkeypatch, capsys):
    from respath import cli

    for part in ("papers", "scales"):
        (tmp_path / part).symlink_to(ROOT / part)
    monkeypatch.setenv("RESPATH_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    project = open_papers(tmp_path, {"scale": "smoke"})
    run = run_of(project, "identity")
    export(model_of(run), tmp_path / "exported")

    def respath(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["respath", *arguments])
        code = cli.main()
        said = capsys.readouterr()
        return code, said.out, said.err

    common = ("--scale", "smoke", "--from", str(tmp_path / "exported"))
    code, out, _ = respath("import", "resformer/82M/identity", *common)
    assert code == 0 and f"{run.id}: imported" in out and f"results/evals/{run.id}/loss.json" in out
    code, out, _ = respath("import", run.id, *common, "--json")
    assert code == 0 and json.loads(out)["status"] == "already imported"
    code, out, _ = respath("import", "resformer/82M/identity", "--seed", "9", *common)
    assert code == 0 and "note: no table or figure at scale smoke reads this run" in out and run.id in out
    code, _, err = respath("import", "resformer/82M/identty", *common)
    assert code == 2 and "did you mean 'identity'" in err
    code, _, err = respath("import", run.id[:-1], *common)
    assert code == 2 and f"did you mean {run.id!r}" in err
    code, _, err = respath("import", run.id, "--seed", "3", *common)
    assert code == 2 and "--seed is for a model" in err
    code, out, _ = respath("list", "runs", "--scale", "smoke", "--json")
    assert [row["run"] for row in json.loads(out) if row["done"]] == [run.id]
