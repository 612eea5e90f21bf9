"""The page on architectures is what the docstrings and the accounts say now."""

from __future__ import annotations

from respath.papers.library import find_root
from respath.papers.resolve import papers_at
from respath.reporting.architectures import PAGE, equation, page, settings

#: The papers of this repository; a user's own folder beside them is for the user to add to the page.
PAPERS = ("bov", "depthbench", "resformer")


def test_the_page_is_in_step_with_docstrings_and_accounts():
    text = (find_root() / PAGE).read_text(encoding="utf-8")
    assert text == page(find_root(), PAPERS), "run python -m respath.reporting.architectures"


def test_every_variant_of_every_paper_has_a_row():
    text = (find_root() / PAGE).read_text(encoding="utf-8")
    project = papers_at("smoke")
    for paper in PAPERS:
        section = text.split(f"(`{paper}/")[1].split("\n### ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        assert [row.split("`")[1] for row in rows] == list(project.folder(paper).variants)


def test_an_equation_is_what_follows_the_name():
    assert equation("Pre-LN: x' = x + f(norm(x)).\n\nMore: text.") == "x' = x + f(norm(x))"
    assert equation("A norm and a sum.") == "A norm and a sum"
    aligned = "Streams: several.\n\nPer token\n\n    beta        = b + c\n    x = sum_s H_s     the branch's input\n\nState: H."
    assert equation(aligned) == "beta = b + c; x = sum_s H_s"


def test_settings_are_what_differs_from_the_defaults():
    project = papers_at("smoke")
    shown = {
        ref: settings(project.at("paper").model(ref).values)
        for ref in ("resformer/82M/sparse-5-6to8", "bov/d12/bov", "bov/d12/x0wv-every-2")
    }
    assert shown == {
        "resformer/82M/sparse-5-6to8": "layers 6-8, source 5, own 1",
        "bov/d12/bov": "layers 9-12, learned",
        "bov/d12/x0wv-every-2": "layers 2, 4, 6, 8, 10, 12, learned",
    }
