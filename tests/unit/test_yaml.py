"""Our reading of YAML: PyYAML's own values, numbers such as 6e-4, and mistakes with their line."""

import datetime

import pytest
import yaml

from respath.documents import load_yaml
from respath.errors import UserError

TEXT = """\
plain: text
quoted: "6e-4"
numbers: [1, 0x10, 1_000, -2.5, .inf]
nothing: ~
yes: true
date: 2026-01-31
base: &base {width: 64, deep: {kind: own, list: [a, b]}}
same: *base
merged: {<<: *base, width: 32}
merged_twice: {<<: [{a: 1, b: 1}, {b: 2, c: 2}], c: 3}
? 7
: numeric key
"""


def read(folder, text: str):
    path = folder / "some.yaml"
    path.write_text(text)
    return load_yaml(path)


def test_values_are_those_of_pyyaml(tmp_path):
    ours = read(tmp_path, TEXT)
    assert ours == yaml.safe_load(TEXT)
    assert ours["date"] == datetime.date(2026, 1, 31) and ours["merged"]["width"] == 32


def test_a_number_with_an_exponent_needs_no_point_and_a_quoted_one_stays_text(tmp_path):
    assert read(tmp_path, 'rate: 6e-4\nother: 1E+3\ntext: "6e-4"\n') == {
        "rate": 6e-4,
        "other": 1e3,
        "text": "6e-4",
    }


def test_an_empty_file_is_nothing(tmp_path):
    assert read(tmp_path, "# only a comment\n") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", r"some.yaml:3: key 'a' appears twice \(first in line 1\)"),
        ("a:\n  b: {c: 1,\n     c: 2}\n", r"some.yaml:3: key 'c' appears twice \(first in line 2\)"),
        ("a: &loop [1, *loop]\n", "some.yaml:1: is part of itself"),
        ("? [a, b]\n: 1\n", "some.yaml:1: a key is a name or a number"),
        ("a: !!python/object/apply:os.getcwd []\n", "some.yaml:1: could not determine a constructor"),
        ("a: [1\nb: 2\n", "some.yaml:2: "),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, text)


def test_many_aliases_of_one_part_are_read_once(tmp_path):
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    data = read(tmp_path, f"l0: &l0 [x]\n{levels}\n")
    assert data["l11"][0] is data["l11"][8] is data["l10"]
