"""Paths as users write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from respath.data.documents import main
from respath.data.tokenizer import obtain
from respath.errors import UserError
from respath.files import read_json, user_path


def test_a_users_path_means_what_it_means_in_a_shell(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("DATA", "/big")
    monkeypatch.setenv("ODD", "/with $DATA in it")
    assert user_path("~", "here") == Path("/home/me")
    assert user_path("~/x", "here") == Path("/home/me/x")
    assert user_path("$DATA/x-$DATA", "here") == Path("/big/x-/big")
    assert user_path("${DATA}x", "here") == Path("/bigx")
    assert user_path("$ODD/x", "here") == Path("/with $DATA in it/x")
    assert user_path("a~/b$/c", "here") == Path("a~/b$/c")
    assert user_path(tmp_path, "here") == tmp_path


@pytest.mark.parametrize("text", ["$NOWHERE/x", "${NOWHERE}", "$EMPTY/data", "~nobody-of-this-name/x"])
def test_a_name_that_stands_for_nothing_is_refused_with_the_key(monkeypatch, text):
    monkeypatch.delenv("NOWHERE", raising=False)
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(UserError) as error:
        user_path(text, "config.yaml: locations: mine")
    (line,) = error.value.lines
    assert line.startswith(f"config.yaml: locations: mine: {text}: ") and line.endswith("write the path out")


def test_a_local_corpus_and_a_tokenizer_are_found_below_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("{}\n")
    corpus = json.dumps({"name": "mine", "kind": "local", "train_files": ["*.jsonl"]})
    assert main(["--corpus", corpus, "--location", "~/data", "--out", str(tmp_path / "source.json")]) == 0
    assert read_json(tmp_path / "source.json")["root"] == str(tmp_path / "data")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert obtain("neox", "~/tokenizer.json") == ("{}", "local file")
