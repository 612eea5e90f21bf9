"""Documents of claims: sides that are differences, margins, alternatives, primary claims, and the hash of what is judged."""

import json
import math
import shutil

import pytest
import yaml

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.papers.check import open_papers
from respath.papers.claims import Claim, Expect
from respath.papers.needs import claimed, requests
from tests.golden.toy import toy_project

ENTRY = {
    "id": "a",
    "title": "A",
    "source": {"table": 1},
    "metric": "loss.mean",
    "left": {"size": "S", "variant": "mix"},
    "right": {"size": "S", "variant": "base"},
    "expect": {"direction": "lower", "min_effect": 0.0},
    "judged_at": ["paper"],
    "needs_seeds": 3,
}


def claim(**changes):
    return Claim.model_validate_json(json.dumps({**ENTRY, **changes}))


def broken_claims(tmp_path, change):
    """The toy with changed claims, in a project of its own."""
    root = tmp_path / "project"
    shutil.copytree(toy_project().root, root)
    path = root / "papers" / "toy" / "claims.yaml"
    content = yaml.safe_load(path.read_text())
    change(content["claims"])
    path.write_text(yaml.safe_dump(content))
    return open_papers(root, {"papers": ["toy"]})


def changed(tmp_path, index, **changes):
    return broken_claims(tmp_path, lambda claims: claims[index].update(changes)).folder("toy").claims[index]


def test_a_side_may_be_a_difference_of_its_own(tmp_path):
    other = {"size": "S", "variant": "odd", "minus": {"variant": "base", "recipe": {"steps": 7}}}
    claim = changed(tmp_path, 0, right=other)
    assert claim.tests[0].right.subtracted() == RunRequest(size="S", variant="base", recipe={"steps": 7})
    assert claim.tests[0].left.subtracted() is None
    named = {key: [run.variant for _, run in requests(quantity)] for key, quantity in claimed(claim)}
    assert named == {"left": ["mix"], "right": ["odd", "base"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left": {"size": "S", "variant": "mix", "minus": {}}}, "`minus` names nothing that differs"),
        ({"left": {"sizes": ["S"], "variant": "mix", "minus": {"variant": "base"}}}, "one `size` and not"),
        ({"left": {"size": "S", "variant": "mix", "minus": {"variant": "bas"}}}, "mean 'base'"),
        ({"alternatives": [{"name": "a"}]}, "changes `metric`, `left`, `right` or `expect`"),
        ({"alternatives": [{"name": "a", "metric": "loss.meen"}]}, r"alternatives\.a: .*'loss\.meen'"),
        ({"expect": {"direction": "none", "max_effect": 0.1, "margin": 0.1}}, "`margin` goes with"),
        ({"primary": True, "needs_seeds": 0}, "is primary, but needs no seeds"),
        ({"given": ["grond"]}, "given: there is no claim 'grond'"),
    ],
)
def test_what_contradicts_itself_in_a_claim_is_one_line(tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        changed(tmp_path, 0, **changes)
    assert len(caught.value.lines) == 1 and caught.value.lines[0].startswith("papers/toy/claims.yaml")


def test_more_than_six_primary_claims_are_refused(tmp_path):
    def seven(claims):
        claims += [{**claims[0], "id": f"more-{k}", "primary": True} for k in range(6)]

    with pytest.raises(UserError, match=r"7 claims are primary .* at most 6 may be"):
        broken_claims(tmp_path, seven)


@pytest.mark.parametrize(
    ("expect", "region", "matters"),
    [
        ({"direction": "lower", "min_effect": 0.0}, (-math.inf, 0.0), None),
        ({"direction": "lower", "min_effect": 0.0, "margin": 0.01}, (-math.inf, 0.0), 0.01),
        ({"direction": "higher", "min_effect": 0.02}, (0.02, math.inf), 0.02),
        ({"direction": "not_higher", "max_effect": 0.01}, (-math.inf, 0.01), None),
        ({"direction": "not_lower", "max_effect": 0.01}, (-0.01, math.inf), None),
        ({"direction": "none", "max_effect": 0.01}, (-0.01, 0.01), None),
    ],
)
def test_an_expectation_is_a_region_and_a_margin(expect, region, matters):
    found = Expect(**expect)
    assert (found.region(), found.matters) == (region, matters)


def test_a_claims_hash_changes_with_what_is_judged_and_with_nothing_else(tmp_path):
    before = claim()
    for key, value in {"title": "x", "note": "x", "source": {"table": 9}, "decisions": ["x"]}.items():
        assert claim(**{key: value}).sha256 == before.sha256, key
    place = {"reported": "table1", "column": "loss", "left": "mix"}
    assert claim(printed_from=place).sha256 == before.sha256
    other = {"size": "S", "variant": "odd"}
    changes = [{"right": other}, {"metric": "loss.Prose"}, {"primary": True}, {"judged_at": ("mini",)}]
    changes += [
        {"expect": {"direction": "lower", "min_effect": 0.1}},
        {"alternatives": ({"name": "a", "left": other},)},
    ]
    hashes = {claim(**change).sha256 for change in changes}
    assert len(hashes) == len(changes) and before.sha256 not in hashes
