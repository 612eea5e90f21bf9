"""Optimizer and schedule are documents of their own; what is stored keeps the flat keys that ids were made of."""

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

#: What is stored, and what it means.
PAIRS = {
    "the usual optimizer and schedule": ({}, {}),
    "other settings of AdamW": (
        {"beta2": 0.98, "adam_eps": 1e-10, "weight_decay": 0.0},
        {"optimizer": {"kind": "adamw", "beta2": 0.98, "eps": 1e-10, "weight_decay": 0.0}},
    ),
    "a schedule alone": (
        {"schedule": "constant_linear", "warmdown_share": 0.5},
        {"schedule": {"kind": "constant_linear", "warmdown_share": 0.5}},
    ),
    "Muon": (
        {"optimizer": "muon_adamw", "muon": SETTINGS, "groups": GROUPS, "beta1": 0.8, "weight_decay": 0.2},
        {
            "optimizer": {
                "kind": "muon_adamw",
                "muon": SETTINGS,
                "groups": GROUPS,
                "beta1": 0.8,
                "weight_decay": 0.2,
            }
        },
    ),
    "Muon with its usual settings": (
        {"optimizer": "muon_adamw", "muon": {}, "groups": GROUPS},
        {"optimizer": {"kind": "muon_adamw", "muon": {}, "groups": GROUPS}},
    ),
}


@pytest.mark.parametrize(("flat", "documents"), PAIRS.values(), ids=PAIRS)
def test_flat_keys_and_documents_are_one_recipe_with_one_identity(flat, documents):
    stored, written = (check(Recipe, STEPS | fields, "recipe") for fields in (flat, documents))
    assert stored == written
    assert identity(written) == STEPS | flat
    assert Recipe.model_validate_json(json.dumps(identity(written))) == written


def test_what_an_optimizer_lacks_or_does_not_know_is_said_at_its_key():
    for fields, message in (
        ({"optimizer": "muon_adamw"}, "recipe: optimizer.muon: is missing"),
        ({"schedule": "constant_linear"}, "recipe: schedule.warmdown_share: is missing"),
        ({"warmdown_share": 0.5}, "recipe: schedule.warmdown_share: unknown key"),
        ({"optimizer": {"kind": "adamw", "momentum": 0.9}}, "recipe: optimizer.momentum: unknown key"),
        (
            {"optimizer": {"kind": "muon_adamw", "muon": {}, "groups": {"hat": GROUPS["head"]}}},
            "groups ['hat']",
        ),
    ):
        with pytest.raises(UserError) as raised:
            check(Recipe, STEPS | fields, "recipe")
        assert any(message in line for line in raised.value.lines), raised.value.lines
