"""What is read is data: no source of ours can run code that comes with it, and no secret of the environment is written down."""

from __future__ import annotations

import ast

import pytest

from respath.measure.loss import main as evaluate_loss
from tests.project_copy import ROOT
from tests.unit.corpus import tiny_tokens
from tests.unit.training_runs import Run, tiny_spec

SOURCES = sorted((ROOT / "src").rglob("*.py"))
#: Calls that run what they are given, and settings that let a library do so.
CALLS = {
    "eval",
    "exec",
    "__import__",
    "torch.load",
    "os.system",
    "os.popen",
    "yaml.unsafe_load",
    "yaml.full_load",
}
SETTINGS = {"shell": True, "trust_remote_code": True, "allow_pickle": True, "weights_only": False}
MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}


def dangers(text: str) -> list[str]:
    """What in a source could run code that is read, by line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: import {name}" for name in names if name.split(".")[0] in MODULES]
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS:
                found.append(f"{node.lineno}: {called}")
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if keyword.arg in SETTINGS and value is SETTINGS[keyword.arg]:
                    found.append(f"{node.lineno}: {keyword.arg}={value}")
    return found


def test_no_source_runs_what_it_reads():
    assert len(SOURCES) > 100
    found = {str(path.relative_to(ROOT)): dangers(path.read_text()) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from dill import loads",
        "torch.load(f)",
        "eval(x)",
        "run(c, shell=True)",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_each_danger_would_be_found(text):
    assert len(dangers(text)) == 1


def test_a_token_of_the_environment_is_in_no_file_that_training_and_evaluation_write(
    tmp_path, monkeypatch, capfd
):
    secret = "hf_NotARealTokenOfAnybody0123456789"
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.setenv(name, secret)
    manifest, data = tiny_tokens(tmp_path / "tokens")
    run = Run(tmp_path / "run", tiny_spec(data, steps=4), manifest)
    assert run.here(checkpoint_steps=2) == 0
    places = ["--train", run.out, "--tokens", manifest, "--checkpoints", run.checkpoints, "--sequences", 2]
    assert evaluate_loss([*map(str, places), "--device", "cpu", "--out", str(tmp_path / "loss.json")]) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20 and not [path for path in files if secret.encode() in path.read_bytes()]
    said = capfd.readouterr()
    assert secret not in said.out + said.err
