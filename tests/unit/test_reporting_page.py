"""The HTML page: self-contained, escaped, complete, and readable without colour."""

import re
from html.parser import HTMLParser

import pytest

from respath.comparison.cells import STATUSES
from respath.papers.resolve import papers_at
from respath.quantities.verdicts import VERDICTS
from respath.reporting.mathematics import text_html
from respath.reporting.page import CHIPS, chip, main, page
from tests.golden.toy import ROOT, run_id, toy, toy_project

_VOID = {"meta", "img", "br", "link", "input", "hr"}


class _Balance(HTMLParser):
    """Open elements, and what an element links to or loads."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.links, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in _VOID:
            self.open.append(tag)
        if tag in ("script", "link", "iframe", "object"):
            self.loads.append(tag)
        if "src" in attrs:
            self.loads.append(attrs["src"])
        if tag == "a":
            self.links.append(attrs["href"])
        if "id" in attrs:
            self.ids.append(attrs["id"])

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    project = toy_project()
    toy_run = toy(folder / "results", diverged={run_id(project, "S", "mix")})
    return page(*toy_run, "toy", folder)


def parsed(text):
    parser = _Balance()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_the_page_is_well_formed_and_loads_nothing(smoke):
    found = parsed(smoke)
    assert all(load.startswith("data:image/png;base64,") for load in found.loads)
    assert "url(" not in smoke.replace("url(#", "") and "@import" not in smoke
    assert len(found.ids) == len(set(found.ids))


def test_every_link_inside_the_page_has_its_target(smoke):
    found = parsed(smoke)
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)


def test_every_artifact_claim_and_decision_is_there(smoke):
    for name in ("table1", "table2", "table3", "table4", "kv", "fig1", "fig2"):
        assert f'<article id="{name}">' in smoke
    assert 'id="claim-mix-beats-base"' in smoke and 'id="decision-mixing"' in smoke
    assert "variant mix, recipe {&#39;optimizer&#39;: {&#39;weight_decay&#39;: 0.0}}" in smoke


def test_what_comes_from_data_is_escaped(smoke):
    assert "Is &lt;layer 1&gt; mixed?" in smoke
    assert "a_b&amp;c%$(x)" in smoke
    assert "A Toy of 100% &amp; More" in smoke


def test_the_scale_is_the_first_thing_said(smoke):
    banner = smoke.index("Scale smoke: not a replication.")
    assert banner < smoke.index("<article")
    assert "stands in for the paper" in smoke


def test_every_status_and_verdict_has_its_own_words_and_a_shape():
    for name in (*STATUSES, *VERDICTS):
        assert CHIPS[name][0] and chip(name)["text"]
    assert chip("match")["symbol"] != chip("off")["symbol"]
    assert chip("1 match, 1 off")["kind"] == "warn"


def test_a_page_is_the_same_bytes_again_whatever_token_the_environment_holds(tmp_path, monkeypatch):
    toy(tmp_path / "results", "paper")
    arguments = [
        "--project-root",
        str(ROOT),
        "--results",
        str(tmp_path / "results"),
        "--scale",
        "paper",
        "--paper",
        "toy",
    ]
    for name in ("a", "b"):
        monkeypatch.setenv("HF_TOKEN", f"hf_NotARealTokenOfAnybody{name}")
        assert main([*arguments, "--out", str(tmp_path / name / "index.html")]) == 0
    assert (tmp_path / "a" / "index.html").read_bytes() == (tmp_path / "b" / "index.html").read_bytes()


def test_a_page_without_results_shows_what_is_missing(tmp_path):
    arguments = ["--project-root", str(ROOT), "--results", str(tmp_path / "none"), "--paper", "toy"]
    assert main([*arguments, "--out", str(tmp_path / "index.html")]) == 0
    text = (tmp_path / "index.html").read_text()
    parsed(text)
    assert "not trained" in text


def test_an_unknown_paper_gets_a_hint(capsys):
    assert main(["--project-root", str(ROOT), "--paper", "tov"]) == 2
    assert "did you mean 'toy'" in capsys.readouterr().err


# --- mathematics ---


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("$V_1$", "<i>V</i><sub>1</sub>"),
        ("$V'_n$", "<i>V</i>′<sub><i>n</i></sub>"),
        ("$x^{n-1}$", "<i>x</i><sup><i>n</i> − 1</sup>"),
        ("$6 \\le n$", "6 ≤ <i>n</i>"),
        ("$\\mathrm{softmax}(0)$", "softmax(0)"),
        ("$\\sum_{i=1}^{n} V_i$", '∑<span class="limits"><sup><i>n</i></sup><sub><i>i</i> = 1</sub></span>'),
    ],
)
def test_formulas_become_html(source, shown):
    assert shown in text_html(source)


@pytest.mark.parametrize("source", ["$x}$", "$_$", "$^{a$", "$\\foo$", "$<b>$", "5 $ & <b>", "$$", ""])
def test_odd_formulas_neither_fail_nor_let_markup_through(source):
    html = str(text_html(source))
    assert "<b>" not in html
    parsed(html)


def test_formulas_of_every_paper_leave_no_command_behind():
    project = papers_at("smoke")
    for artifact in project.artifacts():
        for row in getattr(artifact.definition, "rows", ()):
            for text in row.text.values():
                assert not re.search(r"\\[a-z]", text_html(text)), text
