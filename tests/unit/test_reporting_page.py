"""The HTML page: self-contained, escaped, complete, and readable without colour."""

import re
from html.parser import HTMLParser

import pytest

from respath.comparison.report import Report
from respath.papers import needs
from respath.papers.resolve import papers_at
from respath.quantities.verdicts import VERDICTS
from respath.reporting.mathematics import text_html
from respath.reporting.page import GROUPS, MARKS, inline_svg, main, page
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
    assert [load for load in found.loads if load != "link"] == [] and 'href="data:,"' in smoke
    assert "base64" not in smoke and "<script" not in smoke and "@import" not in smoke
    assert len(found.ids) == len(set(found.ids))


def test_every_link_inside_the_page_has_its_target(smoke):
    found = parsed(smoke)
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)


def test_every_artifact_claim_and_decision_is_there(smoke):
    for name in ("table1", "table2", "table3", "table4", "kv", "fig1", "fig2"):
        assert f'id="{name}">' in smoke
    assert 'id="claim-mix-beats-base"' in smoke and 'id="decision-mixing"' in smoke
    assert "variant mix, recipe {&#39;optimizer&#39;: {&#39;weight_decay&#39;: 0.0}}" in smoke


def test_what_comes_from_data_is_escaped(smoke):
    assert "Is &lt;layer 1&gt; mixed?" in smoke
    assert "a_b&amp;c%$(x)" in smoke
    assert "A Toy of 100% &amp; More" in smoke


def test_every_verdict_has_its_words_a_mark_and_a_group():
    assert set(MARKS) == set(GROUPS) == set(VERDICTS) and len(set(MARKS.values())) == len(VERDICTS)


def first_screen(text):
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", "", text[text.index('class="lead"') : text.index("</ul>")]))


def test_the_first_sentence_is_of_the_results_whatever_there_is(tmp_path):
    full = Report(*toy(tmp_path / "full", "paper"), "toy")
    assert full.found.startswith("Of 3 measured claims, 2 are supported, 0 contradicted, 1 undecided.")
    assert (
        "“Mix has a lower loss than Base”, is supported: difference −0.0497 [−0.0559, −0.0434]" in full.found
    )
    project = toy_project("paper")
    none = Report(*toy(tmp_path / "none", "paper", skip=set(needs.all_runs(project))), "toy")
    assert none.found.startswith("Nothing has been run at scale paper: 3 measured claims wait for 21 runs")
    assert "snakemake toy_table1 --cores all --config scale=paper" in none.found
    assert none.tally["not run"] == 3
    smoke = Report(*toy(tmp_path / "smoke"), "toy")
    assert smoke.found.startswith(
        "7 of 7 runs have ended. Scale smoke shows that everything runs; it judges none"
    )
    losses = {"base": (3.0, 3.1, 2.9), "mix": (3.1, 3.0, 2.8), "odd": (2.9, 3.3, 2.9)}
    noisy = toy(tmp_path / "noisy", "paper", loss_of=lambda run: losses[run.variant][run.seed - 1])
    undecided = Report(*noisy, "toy")
    assert undecided.found.startswith("Of 3 measured claims, 0 are supported, 0 contradicted, 3 undecided.")
    assert "is undecided: its mean has the claimed sign, its interval includes zero." in undecided.found
    for report in (full, none, smoke, undecided):
        assert len(report.found.split()) <= 60 and len(report.sure.split()) <= 60


def test_settings_counts_and_measured_numbers_are_counted_apart_and_each_printed_number_once(tmp_path):
    report = Report(*toy(tmp_path, "paper"), "toy")
    counts = report.counts
    # Layers 4; tokens, activation and tying once for both sizes; two proportions of which one differs, two token counts.
    assert counts.settings == 7
    differ = ("Code, Proportion (%): printed 35, ours 30", "Layers, M: printed 5, ours 4")
    assert counts.differ["settings"] == differ
    printed = [c for g in report.grids.values() for c in g.compared() if c.printed is not None]
    assert counts.settings + len(differ) + sum(counts.measured.values()) < len(printed)
    assert "7 agree, 2 differ" in " ".join(counts.texts())
    assert (
        "7" not in first_screen(page(report.project, report.results, "toy", tmp_path)).split("supported")[0]
    )


def test_from_a_value_links_lead_to_its_runs_their_state_and_their_command(smoke):
    value = re.search(r'<a href="#(table1-odd)">', smoke)[1]
    row = smoke[smoke.index(f'<tr id="{value}">') :]
    run = re.search(r'<a href="#(run-[^"]+)">', row)[1]
    assert re.search(
        rf'<tr id="{re.escape(run)}"><th scope="row"><code>[^<]+</code></th><td>1</td><td>finished</td>',
        smoke,
    )
    assert "respath show RUN --scale smoke" in smoke and "results/runs/RUN/train.json" in smoke


def test_what_has_no_measured_value_is_one_line_with_its_command(tmp_path):
    project = toy_project("paper")
    text = page(*toy(tmp_path, "paper", skip=set(needs.all_runs(project))), "toy", tmp_path)
    line = next(line for line in text.splitlines() if line.startswith('<p id="table1">'))
    assert (
        "Not run: 3 values; 9 runs" in line
        and "snakemake toy_table1 --cores all --config scale=paper" in line
    )
    assert '<article id="table1">' not in text and "<svg" in text


def test_settings_fold_to_a_count_and_the_rows_that_differ(smoke):
    article = smoke[smoke.index('<article id="table3">') :]
    shown, folded = article.split("<details><summary>Full table</summary>")[:2]
    assert "<b>7 of 8 equal</b>" in shown and "Layers" in shown and "Activation" not in shown
    assert "Activation" in folded


def test_a_figures_own_identifiers_stay_apart_from_those_of_others():
    svg = '<?xml version="1.0"?><svg xmlns="s"><metadata>x</metadata><g id="a"/><use href="#a" clip-path="url(#b)"/></svg>'
    assert inline_svg(svg, "fig1") == (
        '<svg xmlns="s"><g id="fig1-a"/><use href="#fig1-a" clip-path="url(#fig1-b)"/></svg>'
    )


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
    assert "Nothing has been run" in text or "judges none" in text


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
