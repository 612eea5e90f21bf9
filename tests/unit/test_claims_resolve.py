"""Every model that a paper's claims and decisions name is one of its variants, at every scale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.resolve import papers_at

PROJECT = papers_at("smoke")
#: Names that stand for a run in an entry of claims.yaml or decisions.yaml.
VARIANT_KEYS = ("default_arm",)


def requests(node: Any, size: str | None = None) -> Iterator[tuple[str | None, str]]:
    """(size, variant) of every run that a part of a claim or decision names."""
    if isinstance(node, dict):
        if isinstance(node.get("variant"), str):
            yield node.get("size", size), node["variant"]
        for key, value in node.items():
            if key in VARIANT_KEYS and isinstance(value, str):
                yield size, value
            elif key in ("arms", "variants") and isinstance(value, list):
                yield from ((size, arm) for arm in value if isinstance(arm, str))
                yield from (one for arm in value if not isinstance(arm, str) for one in requests(arm, size))
            else:
                yield from requests(value, size)
    elif isinstance(node, list):
        for item in node:
            yield from requests(item, size)


def named(paper: str) -> list[tuple[str, str | None, str]]:
    """(id of the entry, size, variant) for all that a paper's claims and decisions name."""
    found = []
    for name in ("claims.yaml", "decisions.yaml"):
        path = Path(PROJECT.folder(paper).path) / name
        if path.exists():
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            for entry in content if isinstance(content, list) else content["claims"]:
                found += [(entry["id"], size, variant) for size, variant in requests(entry)]
    return found


@pytest.mark.parametrize("paper", sorted(PROJECT.chosen))
@pytest.mark.parametrize("scale", ["paper", "mini", "smoke"])
def test_every_model_that_claims_and_decisions_name_resolves(paper, scale):
    refused = []
    for entry, size, variant in sorted(set(named(paper)), key=str):
        sizes = [size] if size else list(PROJECT.folder(paper).paper.sizes)
        errors = []
        for one in sizes:
            try:
                PROJECT.at(scale).paper(paper).model(one, variant)
                break
            except UserError as error:
                errors += error.lines
        else:
            refused.append((entry, variant, errors))
    assert not refused


def test_the_resformer_paper_names_runs_at_all():
    assert len({variant for _, _, variant in named("resformer")}) >= 48


def test_every_row_of_a_reported_table_of_models_names_a_variant():
    folder = PROJECT.folder("resformer")
    for table in (1, 3, 4, 5, 6, 7, 10, 11):
        path = Path(folder.path) / "reported" / f"table{table}.yaml"
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))["rows"]
        assert [row for row in rows if row not in folder.variants] == []


def test_the_gpt2_baseline_has_the_size_that_its_script_is_named_after():
    from respath.model import build_model

    model = build_model("resformer/82M/gpt2-transformer", device="meta")
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 78
    assert model.head is not None and model.spec.dropout == 0


@pytest.mark.parametrize("scale", ["paper", "mini", "smoke"])
def test_every_resformer_variant_fits_its_82m_model_at_every_scale(scale):
    for variant in PROJECT.folder("resformer").variants:
        PROJECT.at(scale).paper("resformer").model("82M", variant)


def sides(claim):
    """Every run that the tests of a claim compare, one request per size."""
    for test in claim.tests:
        for side in (test.left, test.right):
            if side is not None:
                yield test.metric, [side.request(size) for size in side.sizes or (side.size,)]


@pytest.mark.parametrize("scale", ["mini", "paper"])
def test_every_run_that_a_claim_compares_is_trained_for_some_target(scale):
    project = open_papers(PROJECT.root, {"scale": scale, "papers": ["resformer"]})
    trained = set(needs.all_runs(project))
    absent = {
        f"{claim.id}: {run.id}"
        for claim in project.folder("resformer").claims
        if claim.needs_seeds and scale in claim.judged_at
        for _, requests in sides(claim)
        for request in requests
        for run in project.runs("resformer", request)
        if run.id not in trained
    }
    assert not absent
