"""Our reading of YAML: the values of YAML 1.2, words of two meanings refused, and mistakes with their line."""

import pytest
import yaml

from respath.documents import load_yaml
from respath.errors import UserError
from tests.project_copy import ROOT

TEXT = """\
plain: text
quoted: "6e-4"
numbers: [1, 0x10, 1_000, -2.5, .inf]
nothing: ~
true: yes_or_no
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
    assert ours == yaml.safe_load(TEXT) | {"date": "2026-01-31"}
    assert ours["merged"]["width"] == 32


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
        ("a: [1", "some.yaml:2: did not find"),
        ("a:\n\t- b\n", "some.yaml:2: a tab where YAML takes only spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "some.yaml:3: a tab where YAML takes only spaces"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        read(tmp_path, text)


def test_many_aliases_of_one_part_are_read_once(tmp_path):
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    data = read(tmp_path, f"l0: &l0 [x]\n{levels}\n")
    assert data["l11"][0] is data["l11"][8] is data["l10"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("on", "on"), ("off", "off"), ("1e1", 10.0), ("1.5e3", 1500.0), ("1_000", 1000), ("0x10", 16), ("-0", 0), (".5", 0.5),
     ("None", "None"), ("", None), ("2026-01-31", "2026-01-31"), ("=", "="), (".", "."), ("'010'", "010"), ('"no"', "no"), ("y", "y")],
)  # fmt: skip
def test_a_plain_word_means_what_yaml_1_2_says(tmp_path, text, value):
    read_value = read(tmp_path, f"a: {text}\n")["a"]
    assert read_value == value and type(read_value) is type(value)


def test_every_word_of_two_meanings_is_refused_with_line_key_and_remedy(tmp_path):
    with pytest.raises(UserError) as error:
        read(tmp_path, "seeds: [7, 010]\nhours:\n  limit: 1:30\nno: 0b1\nwanted: Yes\n")
    wanted = [
        ("some.yaml:1: seeds.1: 010 ", "without the leading 0"),
        ("some.yaml:3: hours.limit: 1:30 ", "write a decimal number"),
        ("some.yaml:4: no: no ", "write true or false, or 'no' in quotes"),
        ("some.yaml:4: no: 0b1 ", "without the leading 0"),
        ("some.yaml:5: wanted: Yes ", "write true or false"),
    ]
    assert len(error.value.lines) == len(wanted)
    for line, (start, remedy) in zip(error.value.lines, wanted, strict=True):
        assert start in line and remedy in line


def test_no_file_of_a_paper_says_what_yaml_1_1_reads_otherwise_except_numbers_with_an_exponent():
    def plain(value):
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        try:
            return float(value) if isinstance(value, str) else value
        except ValueError:
            return value

    def read_1_1(path):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - a safe loader

    for path in [*ROOT.glob("papers/*/*.yaml"), *ROOT.glob("scales/*.yaml")]:
        assert plain(load_yaml(path)) == plain(read_1_1(path)), path
