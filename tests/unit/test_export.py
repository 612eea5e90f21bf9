"""Exports: what transformers loads computes equal logits; our own format otherwise; refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from respath.errors import UserError
from respath.files import sha256_file
from respath.model.export import READ_AT_LEAST, export, load_exported, why_not_hugging_face
from respath.papers.library import find_root
from tests.unit.backbone_models import BACKBONES, PATHS, perturbed, some_ids, spec_of

ROOT = Path(__file__).parents[2]

LOADED = [
    ("llama", {}),
    ("llama", {"kv_heads": 2}),
    ("llama", {"tie_embeddings": True, "rope_theta": 50_000.0}),
    ("gpt2", {}),
    ("gpt2-tied", {}),
    ("gpt2", {"dropout": 0.1}),
]


@pytest.mark.parametrize(("backbone", "fields"), LOADED)
def test_transformers_loads_the_plain_models_and_computes_equal_logits(backbone, fields, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    model, ids = perturbed(backbone, dtype=torch.float32, norm_eps=1e-5, **fields), some_ids(time=40)
    report = export(model, tmp_path, context=64)
    assert report["format"] == "hugging_face" and report["note"] is None
    peer, loading = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        expected = model(ids)
        torch.testing.assert_close(
            peer.eval()(ids).logits, expected, rtol=0, atol=1e-4 * expected.abs().max().item()
        )
        torch.testing.assert_close(load_exported(tmp_path)(ids), expected, rtol=1e-5, atol=1e-5)
    dropped = fields.get("dropout", 0.0)
    assert backbone != "gpt2" or {
        peer.config.embd_pdrop,
        peer.config.attn_pdrop,
        peer.config.resid_pdrop,
    } == {dropped}


@pytest.mark.parametrize(
    ("backbone", "value_path", "words"),
    [
        ("nanochat", "own", "the nanochat backbone"),
        ("llama-windows", "own", "windows"),
        ("llama", "mix", "the value path mix"),
        ("llama", "reuse", "the value path reuse"),
        ("llama", "share", "layers that share"),
        ("llama", "hc", "the residual stream hc"),
        ("llama", "attention-residual", "an attention residual"),
        ("gpt2", "gqa2", "grouped keys and values in gpt2"),
        ("nanochat", "table", "the nanochat backbone"),
    ],
)
def test_other_variants_say_what_transformers_lacks_and_are_written_all_the_same(
    backbone, value_path, words, tmp_path
):
    model, ids = perturbed(backbone, value_path, dtype=torch.float32), some_ids()
    report = export(model, tmp_path)
    assert report["format"] == "respath" and f"no class for {words}" in report["note"]
    assert "\n" not in report["note"] and set(report["files"]) == {"model.safetensors", "config.json"}
    assert "model_type" not in json.loads((tmp_path / "config.json").read_text())
    found = load_exported(tmp_path)
    assert all(torch.equal(tensor, found.state_dict()[name]) for name, tensor in model.state_dict().items())
    torch.testing.assert_close(found(ids), model(ids), rtol=1e-5, atol=1e-5)


def test_every_spec_is_either_loadable_or_explained():
    for backbone in BACKBONES:
        for value_path in PATHS:
            if value_path == "attention-residual" and "windows" in BACKBONES[backbone]:
                continue
            plain = backbone in ("llama", "gpt2", "gpt2-tied") and value_path == "own"
            grouped = backbone == "llama" and value_path == "gqa2"
            assert (why_not_hugging_face(spec_of(backbone, value_path)) is None) == (plain or grouped)


@pytest.mark.parametrize("backbone", ["llama", "gpt2", "nanochat"])
def test_equal_weights_make_equal_bytes_and_a_second_export_replaces_the_first(backbone, tmp_path):
    first, second = (export(perturbed(backbone, dtype=torch.float32), tmp_path / name) for name in "ab")
    assert first["files"] == second["files"]
    export(perturbed(backbone, dtype=torch.float32, init_std=0.1), tmp_path / "a")
    again = export(perturbed(backbone, dtype=torch.float32), tmp_path / "a")
    assert again["files"] == first["files"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["config.json", "model.safetensors"]


def test_a_tokenizer_travels_along_and_transformers_reads_it(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is an extra")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        ["a small text of a small test"],
        trainers.BpeTrainer(vocab_size=259, special_tokens=["<|endoftext|>"]),
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    export(
        perturbed("llama", dtype=torch.float32),
        tmp_path / "out",
        tokenizer=tmp_path / "tokenizer.json",
        end_id=0,
    )
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded("a small test")["input_ids"] == tokenizer.encode("a small test").ids
    assert loaded.eos_token == "<|endoftext|>" and loaded.eos_token_id == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["eos_token_id"] == 0
    # Not the length that was trained on: lm-eval's readers of such a folder would refuse longer items.
    assert loaded.model_max_length >= READ_AT_LEAST > 64


def test_a_folder_that_is_no_export_or_is_damaged_is_refused_in_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="no key 'respath'"):
        load_exported(tmp_path)
    export(perturbed("llama", dtype=torch.float32), tmp_path)
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="export the model again"):
        load_exported(tmp_path)
    export(perturbed("llama", dtype=torch.float32), tmp_path)
    other = export(perturbed("llama", dtype=torch.float32, layers=5), tmp_path / "other")
    assert other["format"] == "hugging_face"
    (tmp_path / "other" / "config.json").replace(tmp_path / "config.json")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be read"):
        load_exported(tmp_path)


def respath(*arguments, root=None):
    """The command line in a process of its own, in a project."""
    root = str(root or find_root())
    return subprocess.run(
        [sys.executable, "-m", "respath.cli", *map(str, arguments)],
        cwd=root,
        env={**os.environ, "RESPATH_ROOT": root, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )


def test_the_command_writes_an_untrained_model_of_a_ref(tmp_path):
    done = respath(
        "export",
        "resformer/82M/transformer",
        "--scale",
        "smoke",
        "--seed",
        3,
        "--to",
        tmp_path / "out",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["weights"] == "untrained, seed 3" and report["format"] == "hugging_face"
    assert report["files"]["model.safetensors"] == sha256_file(tmp_path / "out" / "model.safetensors")
    from respath.model import build_model

    expected = build_model("resformer/82M/transformer", scale="smoke", seed=3).state_dict()
    found = load_exported(tmp_path / "out").state_dict()
    assert expected.keys() == found.keys() and all(
        torch.equal(expected[name], found[name]) for name in expected
    )


def test_the_command_writes_a_finished_runs_weights_and_says_what_is_missing(tmp_path):
    import shutil

    from tests.unit.corpus import tiny_tokens
    from tests.unit.finished_run import finished_run

    manifest, data = tiny_tokens(tmp_path / "tokens")
    record, _, checkpoints, model = finished_run(tmp_path / "run", manifest, data)
    for part in ("papers", "scales"):
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / "project" / part)
    (tmp_path / "project/results/runs/a-run").mkdir(parents=True)
    shutil.copy(record, tmp_path / "project/results/runs/a-run/train.json")
    missing = respath("export", "a-run", "--to", tmp_path / "out", root=tmp_path / "project")
    assert missing.returncode == 2 and "final weights of run a-run are missing" in missing.stderr
    assert len(missing.stderr.strip().splitlines()) == 1 and not (tmp_path / "out").exists()
    shutil.copytree(checkpoints, tmp_path / "project/checkpoints/a-run")
    done = respath("export", "a-run", "--to", tmp_path / "out", "--json", root=tmp_path / "project")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["weights"] == "trained" and "value path mix" in report["note"]
    found, expected = load_exported(tmp_path / "out").state_dict(), model.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-run"], "is no finished run"),
        (["no-such-run", "--seed", "1"], "are for an untrained model"),
        (["resformer/82M/transfromer"], "did you mean 'transformer'"),
    ],
)
def test_the_command_refuses_in_one_line(arguments, words, tmp_path):
    done = respath("export", *arguments, "--to", tmp_path / "out")
    assert done.returncode == 2 and words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not (tmp_path / "out").exists()
