"""Folded text and shared runs of words, against their definitions in plain Python."""

from __future__ import annotations

import re
import unicodedata
from pydoc_data.topics import topics

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from respath.data import runs_of_words as module
from respath.data.runs_of_words import WORDS, Found, folded, runs_of_words

PARTS = [*"ab", "A", "word", "Word", "_", "7", "é", "e\u0301", "É", "ß", "“", "\u00a0", *" \n\t.,-\r"]
#: Few different words, so that texts share runs of them.
PAIRS = st.tuples(st.sampled_from(["a", "A", "ab", "é"]), st.sampled_from([" ", ", ", "\n", "”"]))
TEXTS = st.lists(st.sampled_from(PARTS), max_size=120).map("".join) | st.lists(PAIRS, max_size=40).map(
    lambda pairs: "".join(word + mark for word, mark in pairs).rstrip()
)


def words(text: str) -> list[str]:
    """The definition: words of letters, digits and underscores, composed and in lower case."""
    return re.findall(r"\w+", unicodedata.normalize("NFC", text).lower())


def runs(text: str) -> list[tuple[str, ...]]:
    found = words(text)
    return [tuple(found[i : i + WORDS]) for i in range(len(found) - WORDS + 1)]


@settings(deadline=None, max_examples=300)
@given(TEXTS, TEXTS)
def test_hashes_are_equal_where_the_words_are(one, other):
    for a, b in ((one, other), (one, one + other), (one, other + " " + one.upper())):
        expected = [run in set(runs(b)) for run in runs(a)]
        assert np.isin(runs_of_words(a), runs_of_words(b)).tolist() == expected


def test_real_prose_has_one_hash_for_each_run(monkeypatch):
    text = "\n".join(topics[name] for name in sorted(topics))
    expected = runs(text)
    whole = runs_of_words(text)
    assert len(whole) == len(expected) and len(np.unique(whole)) == len(set(expected))
    monkeypatch.setattr(module, "_BLOCK", 1000)
    assert np.array_equal(runs_of_words(text), whole), "read block by block"


@given(TEXTS)
def test_folded_text_has_single_spaces_and_folding_it_again_changes_nothing(text):
    once = folded(text)
    assert folded(once) == once and once == once.strip() and not re.search(r"\s\s|[^\S ]", once)
    assert folded(f" {text}\r\n") == once
    assert folded(unicodedata.normalize("NFD", text)) == once


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=4))
def test_what_is_found_elsewhere_is_what_a_search_finds(texts, others):
    found = Found(map(runs_of_words, texts))
    seen = found.nothing()
    elsewhere = set()
    for text in others:
        found.see(runs_of_words(text), seen)
        elsewhere |= set(runs(text))
    assert found.kept.tolist() == [len(set(runs(text))) for text in texts]
    assert found.counts(seen).tolist() == [len(set(runs(text)) & elsewhere) for text in texts]


def test_of_a_long_text_a_random_part_is_remembered():
    text = " ".join(topics[name] for name in sorted(topics))
    half = text[: len(text) // 2]
    found = Found([runs_of_words(text)], most=2000)
    seen = found.nothing()
    found.see(runs_of_words(half), seen)
    assert found.kept.tolist() == [2000] and 0.4 < found.counts(seen)[0] / 2000 < 0.6
