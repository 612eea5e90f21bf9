"""Markup to text and archives to documents, on small real snippets."""

from __future__ import annotations

import bz2
import gzip
import json
from collections import Counter

import pytest

from respath.data.extract import EXTRACTORS, cut_at_headings
from respath.data.markup import html_to_text, markdown_to_text, pod_to_text, rst_to_text, wikitext_to_text


def run(extractor, files, **options):
    refused = Counter()
    return list(EXTRACTORS[extractor](files, refused, **options)), refused


def plain(text):
    return "\n".join(line[2:] if line.startswith("\x01") else line for line in text.split("\n"))


def test_rst_loses_its_directives_and_keeps_its_words():
    page = """\
.. _topic-caching:

========================
Django's cache framework
========================

.. currentmodule:: django.core.cache

A fundamental trade-off in *dynamic* websites is, well, they're **dynamic**. See
:doc:`the settings </ref/settings>`, :class:`~django.http.HttpRequest`, :setting:`CACHES`
and the `memcached site <https://memcached.org/>`_.

.. versionadded:: 5.0

    Support for pools.

.. code-block:: python
    :emphasize-lines: 1

    cache.set("my_key", x**2 * y**2)

.. note::

    It is *optional*.
"""
    text = plain(rst_to_text(page))
    assert text.startswith("Django's cache framework\n")
    assert (
        "in dynamic websites is, well, they're dynamic. See\nthe settings, HttpRequest, CACHES\nand the memcached site."
        in text
    )
    assert '    cache.set("my_key", x**2 * y**2)' in text, "code stays verbatim"
    assert "New in version 5.0 Support for pools." in text
    assert "Note: It is optional." in text
    for gone in ("..", "::", "currentmodule", "topic-caching", ":emphasize-lines:", "====", "<https"):
        assert gone not in text


def test_formulas_survive_as_tex():
    text = plain(
        rst_to_text(
            "The sum :math:`\\sum_i x_i^2` is `n`.\n\n.. math ::\n\n    e^{i\\pi} = -1\n",
            backtick_is_math=True,
        )
    )
    assert "The sum $\\sum_i x_i^2$ is $n$." in text
    assert "$$\ne^{i\\pi} = -1\n$$" in text


def test_headings_cut_a_page_into_questions():
    page = "FAQ: Installation\n=================\n\nHow do I get started?\n---------------------\n\nRun it.\n\nUpgrading\n---------\n\nAgain.\n"
    pieces = cut_at_headings(rst_to_text(page), 2)
    assert pieces == [
        "FAQ: Installation",
        "How do I get started?\n\nRun it.",
        "FAQ: Installation: Upgrading\n\nAgain.",
    ]


def test_html_keeps_reading_order_preformatted_text_and_table_cells():
    page = (
        "<html><head><title>x</title><script>if (a < b) {}</script></head><body><nav><a>Home</a><nav>deep</nav></nav>"
        "<h1>SELECT</h1><p>Reads   <b>rows</b>&nbsp;&amp; more.</p><pre>SELECT *\n  FROM t;</pre>"
        "<ul><li><p>one</p></li><li>two</li></ul><table><tr><th>Type</th><td>integer</td></tr></table>"
        "<div class='toc noprint'>menu<br>of links</div><p>End</p></body></html>"
    )
    assert html_to_text(page, drop_classes=("toc",)) == (
        "SELECT\n\nReads rows & more.\n\nSELECT *\n  FROM t;\n\n- one\n\n- two\n\nType  integer\n\nEnd"
    )


def test_navigation_and_single_page_copies_are_dropped():
    def page(body):
        return f"<p>The Manual</p><p>Next</p><p>{body}</p><p>Copyright 2020</p>".encode()

    bodies = [
        f"Chapter {n} tells how the tool number {n} is used, with all of its options and what they are good for, in detail."
        for n in range(8)
    ]
    files = {f"{n}.html": page(body) for n, body in enumerate(bodies)}
    files["single.html"] = page("</p><p>".join(bodies))
    found, refused = run("html", files)
    texts = dict(found)
    assert texts["3.html"] == bodies[3]
    assert texts["single.html"] == ""
    assert refused["paragraph seen on another page"] == 8


def test_wikitext_becomes_prose():
    source = (
        "{{Infobox person|name={{nowrap|A. B.}}}}\n'''Anarchism''' is a [[political philosophy|philosophy]].<ref name=\"a\">x {{cite}}</ref> "
        'See [http://example.org the site].<!-- no -->\n[[File:X.jpg|thumb|A [[photo]]]]\n== History ==\n* One\n{| class="t"\n| cell\n|}\n'
        "== References ==\n{{reflist}}\n[[Category:Politics]]"
    )
    assert wikitext_to_text(source) == "Anarchism is a philosophy. See the site.\n\nHistory\n\n- One"


def test_a_wiki_dump_gives_articles_and_counts_what_it_refuses():
    page = "<page><title>{}</title><ns>{}</ns>{}<revision><text>{}</text></revision></page>"
    xml = (
        "<mediawiki>"
        + page.format("A", 0, "", "'''A''' is.")
        + page.format("B", 0, "<redirect/>", "#REDIRECT [[A]]")
    )
    xml += page.format("Talk:A", 1, "", "hm") + "<page><title>cut off"  # a shortened dump ends in the middle
    found, refused = run("wiki_dump", {"d.bz2": bz2.compress(xml.encode())})
    assert found == [("d.bz2#A", "A\n\nA is.")]
    assert refused == {"redirect or not an article": 2}


def test_pod_entities_links_and_code_are_plain():
    text = pod_to_text(
        "=head1 NAME\n\nperlfaq - B<bold> C<< $a->b >> E<lt>x> L<the docs|perlfunc>\n\n  verbatim B<x>\n\n=cut\n\nnot pod\n"
    )
    assert plain(text) == "NAME\n\nperlfaq - bold $a->b <x> the docs\n\n  verbatim B<x>"


def test_only_the_questions_of_perls_faq_become_documents():
    page = b"=head1 NAME\n\nperlfaq1\n\n=head2 What is Perl?\n\nA language.\n\n=head1 AUTHOR\n\nMany.\n"
    found, refused = run("pod_questions", {"perlfaq1.pod": page})
    assert [text for _, text in found] == ["What is Perl?\n\nA language."]
    assert refused == {"no question": 2}


def test_markdown_links_inside_a_site_become_words():
    text = plain(
        markdown_to_text(
            "(label)=\n# Solve It\n\nUse {func}`~.solve` or [the guide](guide.md), see [site](https://a.b).\n"
        )
    )
    assert text == "Solve It\n\nUse .solve or the guide, see [site](https://a.b)."


def test_docstrings_lose_their_interactive_sessions():
    module = b'r"""Bessel functions `J_n`.\n\nExamples\n========\n\n>>> 1 + 1\n2\n\nThey solve \\alpha `x^2 y\'\'` as is known since long ago.\n"""\n'
    found, _ = run("docstrings", {"m.py": module, "broken.py": b"def ("}, backtick_is_math=True)
    assert [name for name, _ in found] == ["m.py"]
    assert ">>>" not in found[0][1] and "Examples" not in found[0][1]
    assert "$J_n$" in found[0][1] and "$x^2 y''$" in found[0][1]


def test_web_service_models_give_operations_of_the_newest_version():
    model = {
        "metadata": {"serviceFullName": "Toy Service"},
        "documentation": "<p>Toys.</p>",
        "operations": {"MakeToy": {"documentation": "<p>Makes a <i>toy</i>.</p>", "input": {"shape": "In"}}},
        "shapes": {"In": {"members": {"Name": {"documentation": "<p>Its name.</p>"}, "Silent": {}}}},
    }
    old = {**model, "documentation": "<p>Old.</p>"}
    files = {
        f"botocore/data/toy/{day}/service-2.json.gz": json.dumps(m).encode()
        for day, m in (("2020-01-01", old), ("2021-01-01", model))
    }
    found, _ = run("aws_services", files)
    assert [text for _, text in found] == [
        "Toy Service\n\nToys.",
        "Toy Service: MakeToy\n\nMakes a toy.\n\nRequest\n\nName: Its name.",
    ]


def test_a_dictionary_is_cut_into_entries():
    data = gzip.compress(
        b"00-database-short\n     about\nabacus\n     A {frame} with beads.\n\nabstract\n     Not concrete.\n"
    )
    found, _ = run("dictd", {"d.dz": data})
    assert [text for _, text in found] == ["abacus\nA frame with beads.\n", "abstract\nNot concrete.\n"]


def test_a_linter_message_reads_as_question_and_answer():
    folder = "p-1/doc/data/messages/b/bad-quotes/"
    found, refused = run("pylint_messages", {folder + "bad.py": b"x = ''\n", folder + "good.py": b'x = ""\n', folder + "details.rst": b"Be *kind*.\n",
                                             "p-1/doc/data/messages/e/empty/bad.py": b"y\n"})  # fmt: skip
    assert len(found) == 1 and refused == {"no answer": 1}
    text = found[0][1]
    assert text.startswith("How do I fix the pylint warning `bad-quotes`?")
    assert text.index("x = ''") < text.index("Be kind.") < text.index('x = ""')


@pytest.mark.parametrize(
    "extractor", ["plain", "code", "rst", "markdown", "pod", "html", "latex", "docstrings"]
)
def test_binary_members_are_refused_and_counted(extractor):
    found, refused = run(extractor, {"a.txt": b"\0\1\2"})
    assert found == [] and refused == {"not text": 1}


def test_latex_without_english_prose_is_refused():
    prose = b"\\section{A} The sum of the terms is in the set and that is it. " * 4
    found, refused = run("latex", {"a.tex": prose, "listing.tex": b"\\begin{tabular} 1 & 2 \\end{tabular}"})
    assert [name for name, _ in found] == ["a.tex"] and refused == {"not prose": 1}


def test_a_long_text_is_sliced_at_blank_lines():
    text = "\n\n".join(f"Paragraph {n} " + "x" * 50 for n in range(10))
    found, _ = run("plain", {"a.txt": text.encode()}, slice_chars=200)
    assert len(found) == 3
    assert "".join(piece for _, piece in found).strip() == text
