"""Optimizer and schedule of a recipe are documents of their own, in files and in ids."""

from __future__ import annotations

import json

import pytest

from respath.documents import check
from respath.errors import UserError
from respath.spec.document import identity
from respath.spec.recipe import Recipe
from tests.unit.training_runs import MUON

STEPS = {
    "steps": 24,
    "warmup_steps": 3,
    "peak_lr": 3e-3,
    "final_lr": 3e-4,
    "batch_sequences": 8,
    "context": 32,
}
GROUPS, SETTINGS = MUON["optimizer"]["groups"], MUON["optimizer"]["muon"]

RECIPES = {
    "AdamW as usual": {},
    "other settings of AdamW": {
        "optimizer": {"kind": "adamw", "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.0}
    },
    "a schedule alone": {"schedule": {"kind": "constant_linear", "warmdown_share": 0.5}},
    "Muon": {"optimizer": {"kind": "muon_adamw", "muon": SETTINGS, "groups": GROUPS, "beta1": 0.8}},
    "Muon with its usual settings": {"optimizer": {"kind": "muon_adamw", "muon": {}, "groups": GROUPS}},
}


@pytest.mark.parametrize("fields", RECIPES.values(), ids=RECIPES)
def test_a_recipe_is_read_back_from_its_identity_which_holds_no_defaults(fields):
    recipe = check(Recipe, STEPS | fields, "recipe")
    written = identity(recipe)
    assert Recipe.model_validate_json(json.dumps(written)) == recipe
    assert set(written) == {*STEPS, *fields}


def test_what_an_optimizer_lacks_or_does_not_know_is_said_at_its_key():
    for fields, message in (
        ({"optimizer": {"kind": "muon_adamw"}}, "recipe: optimizer.muon: is missing"),
        ({"schedule": {"kind": "constant_linear"}}, "recipe: schedule.warmdown_share: is missing"),
        (
            {"schedule": {"kind": "cosine", "warmdown_share": 0.5}},
            "recipe: schedule.warmdown_share: unknown key",
        ),
        ({"beta1": 0.9}, "recipe: beta1: unknown key"),
        ({"optimizer": {"beta1": 0.9}}, "recipe: optimizer: has no `kind`"),
        ({"optimizer": {"kind": "adamw", "momentum": 0.9}}, "recipe: optimizer.momentum: unknown key"),
        (
            {"optimizer": {"kind": "muon_adamw", "muon": {}, "groups": {"hat": GROUPS["head"]}}},
            "groups ['hat']",
        ),
    ):
        with pytest.raises(UserError) as raised:
            check(Recipe, STEPS | fields, "recipe")
        assert any(message in line for line in raised.value.lines), raised.value.lines
