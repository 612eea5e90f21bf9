"""What a user can get wrong in config.yaml, in the papers and in result files: one line with file, key and remedy each."""

import errno
import os
import shutil
import subprocess
import sys

import pytest

from respath.cli import amount, main
from respath.comparison.diff import compare
from respath.documents import check
from respath.errors import UserError, explain_os_error
from respath.files import read_json, write_json
from respath.jobs import check_writable
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.results.reader import Results
from respath.settings import Settings, UserConfig
from respath.spec.document import identity
from respath.training.clean import main as clean
from respath.training.folders import ELSEWHERE
from respath.training.results import earlier_result
from tests.golden.toy import ROOT as TOY
from tests.golden.toy import run_id, toy, toy_project
from tests.project_copy import ROOT, ProjectCopy, clean_environment


def problems(function, *arguments) -> str:
    with pytest.raises(UserError) as error:
        function(*arguments)
    return "\n".join(error.value.lines)


@pytest.fixture
def copied(tmp_path):
    """The toy project, to be edited."""
    return shutil.copytree(TOY, tmp_path / "toy")


@pytest.mark.parametrize("text", ["- smoke\n", "smoke\n", "3\n"])
def test_a_config_that_is_no_mapping_is_refused(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert "config.yaml: is no mapping" in problems(Settings().add_file, tmp_path / "config.yaml")


@pytest.mark.parametrize("text", [None, "", "# all comments\n"])
def test_a_config_may_be_empty_or_absent(tmp_path, text):
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    settings = Settings()
    settings.add_file(tmp_path / "config.yaml", required=False)
    assert settings.values == {}


@pytest.mark.parametrize("text", ["- smoke\n", "scale: [smoke\n"])
def test_the_command_line_says_a_broken_config_in_one_line(copied, text):
    (copied / "config.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "respath.cli", "list"], cwd=copied, capture_output=True, text=True,
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "config.yaml" in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [("- smoke\n", 2, "error: config.yaml: is no mapping"), ("scale: [smoke\n", 2, "error: config.yaml:2:"), ("", 0, "")],
    ids=["a list", "malformed", "empty"],
)  # fmt: skip
def test_snakemake_says_a_broken_config_in_our_words_and_takes_an_empty_one(tmp_path, text, code, expected):
    copy = ProjectCopy(tmp_path)
    (copy.path / "config.yaml").write_text(text)
    done = copy.snakemake("-n", "resformer_table13")
    assert done.returncode == code
    assert expected in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"seeds": [-1]}, "seeds: -1 is no seed"),
        ({"seeds": [1, 1]}, "seeds: seed 1 is given twice"),
        ({"seeds": []}, "seeds: is empty"),
        ({"papers": []}, "papers: is empty"),
    ],
)
def test_settings_that_mean_nothing_are_refused(chosen, expected):
    assert expected in problems(open_papers, TOY, {"papers": ["toy"], **chosen})


def test_a_paper_without_its_file_names_the_file(copied):
    (copied / "papers/toy/paper.yaml").unlink()
    assert "papers/toy/paper.yaml: no such file" in problems(open_papers, copied, {"papers": ["toy"]})


def test_an_empty_file_says_what_it_needs(copied):
    (copied / "papers/toy/paper.yaml").write_text("")
    assert "papers/toy/paper.yaml: is empty; it needs id, " in problems(
        open_papers, copied, {"papers": ["toy"]}
    )


@pytest.mark.parametrize("number", [".nan", ".inf"])
def test_a_number_that_is_none_is_refused(copied, number):
    path = copied / "papers/toy/paper.yaml"
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "peak_lr:" in line)
    lines[at] = lines[at].split("peak_lr:")[0] + f"peak_lr: {number}"
    path.write_text("\n".join(lines))
    assert "recipe.peak_lr: input should be a finite number" in problems(
        open_papers, copied, {"papers": ["toy"]}
    )


@pytest.mark.parametrize(
    ("kind", "name", "absent"),
    [("train", "runs/{run}/train.json", "status"), ("loss", "evals/{run}/loss.json", "domains"),
     ("lm_eval", "evals/{run}/lm.json", "tasks"), ("kv", "kv/toy.json", "entries")],
)  # fmt: skip
def test_a_result_without_what_it_is_for_is_named(tmp_path, kind, name, absent):
    project, _ = toy(tmp_path)
    run = run_id(toy_project(), "S", "base", 1)
    write_json(tmp_path / name.format(run=run), {"schema": 1, "kind": kind, "run": run})
    said = problems(compare, project, Results(project, tmp_path))
    assert name.format(run=run) in said and absent in said and "delete it" in said


@pytest.mark.parametrize("value", [0, -4, True, 2.5, "big", None])
def test_a_micro_batch_that_is_none_is_named_by_its_key(value):
    said = problems(check, UserConfig, {"runtime": {"micro_batch": value}}, "--config")
    assert (
        said
        == f"--config: runtime.micro_batch: {value!r} is neither auto nor a number of sequences, 1 or more"
    )


def test_a_tokenizer_that_is_not_published_is_named_with_the_nearest():
    said = problems(check, UserConfig, {"tokenizers": {"neo": "/data"}}, "--config")
    assert said == "--config: tokenizers.neo: 'neo' is not known (did you mean 'neox'?)"


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_is_not_ours_is_said_before_snakemake_fails_in_it(tmp_path, monkeypatch, there):
    if there:
        (tmp_path / ".snakemake").mkdir()
    assert check_writable(tmp_path) is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    said = problems(check_writable, tmp_path)
    assert said.startswith(f"{tmp_path / '.snakemake' if there else tmp_path}: not writable for this user")


def test_a_full_disk_names_what_to_set_instead_where_something_can_be_set():
    full = OSError(errno.ENOSPC, "No space left on device", "checkpoints/x")
    assert "`checkpoints:` in config.yaml" in explain_os_error(full, ELSEWHERE)
    assert "checkpoints:" not in explain_os_error(full)


@pytest.mark.parametrize("path", ["plain", "plain/below"])
def test_a_file_where_a_folder_is_needed_is_named_with_a_remedy(tmp_path, path):
    (tmp_path / "plain").write_text("")
    with pytest.raises(OSError) as raised:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    said = explain_os_error(raised.value)
    assert str(tmp_path / path) in said and "file" in said and "move it away or choose another" in said


@pytest.mark.parametrize("absent", ["status", "weights"])
def test_a_training_result_without_status_or_weights_is_named(tmp_path, absent):
    project = toy_project()
    run = next(iter(needs.all_runs(project).values()))
    record = {
        "kind": "train",
        "spec": identity(run.spec),
        "manifest_sha256": "0",
        "status": "finished",
        "weights": None,
    }
    del record[absent]
    write_json(tmp_path / "train.json", record)
    said = problems(earlier_result, tmp_path / "train.json", tmp_path / "run", run.spec, "0")
    assert f"train.json: has no {absent}" in said and "delete it" in said


def test_nothing_to_clean_is_no_error(tmp_path, capsys):
    assert clean(["--checkpoints", str(tmp_path / "absent"), "--runs", str(tmp_path)]) == 0
    assert "nothing to clean" in capsys.readouterr().err


def test_amounts_of_bytes_carry_the_usual_prefixes():
    assert amount(531e9, "B") == "531 GB" and amount(2.5e6, "B") == "2.5 MB" and amount(20e9) == "20 B"


def test_a_plan_in_a_log_keeps_a_target_and_its_title_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["respath", "plan", "--scale", "paper"])
    assert main() == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("resformer_table3 "))
    assert open_papers(find_root(), {}).artifact("resformer_table3").definition.title in line


def test_a_wrong_command_has_one_guess(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["respath", "lst"])
    assert main() == 2
    assert (
        capsys.readouterr().err == "error: No such command 'lst' (did you mean 'list'?); see respath --help\n"
    )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_result_file_with_a_number_that_is_not_finite_is_refused_in_one_line(tmp_path, number):
    project, _ = toy(tmp_path)
    path = tmp_path / "evals" / run_id(toy_project(), "S", "base", 1) / "loss.json"
    record = read_json(path)
    path.write_text(path.read_text().replace(str(record["mean_loss"]), number))
    said = problems(compare, project, Results(project, tmp_path))
    assert said == f"{path}: holds {number}, which is no result; delete it and run the same command again"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": float("inf")})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("bpe, vocab_size: 300", "bpe, vocab_size: 400", "the tokenizer has 400 entries, the model only 300"),
        ("train_tokens: 2000", "train_tokens: 1", "have a quota of no tokens"),
        ("width: 16,", "width: 17,", "width 17 is not a multiple of heads 2 (size S, variant base)"),
    ],
    ids=["tokenizer", "quota", "shape"],
)
def test_what_is_wrong_at_a_scale_is_one_line_at_the_scale(copied, old, new, expected):
    path = copied / "papers/toy/scales/smoke.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    said = problems(open_papers, copied, {"papers": ["toy"]})
    assert "\n" not in said and said.startswith("papers/toy/scales/smoke.yaml") and said.endswith(expected)
