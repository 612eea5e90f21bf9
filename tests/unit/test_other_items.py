"""Accuracies and the items that they stand on: what counts as other items, and when that is looked into."""

from __future__ import annotations

import os

import pytest

from respath.files import write_json
from respath.results.items import evaluated_before, other_items

LISTED = {"tasks": {"piqa": {"status": "done", "sha256": "a"}, "wikitext": {"status": "not run"}}}


def evaluated(key="tasks", **tasks):
    return {"status": "done", key: {name: {"items_sha256": digest} for name, digest in tasks.items()}}


@pytest.mark.parametrize("key", ["tasks", "sets"])
def test_items_are_the_same_where_every_listed_task_has_the_hash_on_record(key):
    assert other_items(evaluated(key, piqa="a"), LISTED) == []
    # What is not in the list, such as a set from the user's own folder, is not compared.
    assert other_items(evaluated(key, piqa="a", gpqa_diamond="z"), LISTED) == []
    assert other_items(evaluated(key, piqa="b"), LISTED) == ["piqa"]
    assert other_items(evaluated(key), LISTED) == ["piqa"]
    assert other_items(evaluated(key, piqa="a", wikitext="c"), LISTED) == ["wikitext"]


def test_a_diverged_run_stands_on_no_items():
    assert other_items({"status": "diverged", "tasks": {"piqa": {"status": "diverged"}}}, LISTED) == []


def test_results_are_opened_only_where_the_items_are_newer(tmp_path):
    result, items = tmp_path / "lm.json", tmp_path / "items.json"
    assert not evaluated_before(result, items)
    write_json(result, evaluated(piqa="b"))
    write_json(items, LISTED)
    for newer, expected in ((-10, False), (10, True)):
        time = result.stat().st_mtime + newer
        os.utime(items, (time, time))
        assert evaluated_before(result, items) is expected
    write_json(result, evaluated(piqa="a"))
    os.utime(result, (0, 0))
    assert not evaluated_before(result, items)
    result.write_text("cut")
    os.utime(result, (0, 0))
    assert evaluated_before(result, items)
