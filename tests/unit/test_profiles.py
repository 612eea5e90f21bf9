"""The profiles that are shipped: settings that Snakemake knows, rules that exist, numbers that fit together."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from respath.settings import UserConfig
from tests.project_copy import ROOT

PROFILES = sorted(path.parent.name for path in (ROOT / "profiles").glob("*/profile.yaml"))
#: Settings that replacing the default profile must not lose.
ALWAYS = ("rerun-triggers", "rerun-incomplete", "keep-going", "show-failed-logs", "printshellcmds")


def profile(name: str) -> dict:
    return yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text())


def runtime(name: str) -> dict:
    return yaml.safe_load((ROOT / f"profiles/{name}/runtime.yaml").read_text())["runtime"]


@pytest.fixture(scope="module")
def options() -> set[str]:
    """Long options of this Snakemake and of its executors that are installed."""
    from snakemake.cli import get_argument_parser

    return {name[2:] for action in get_argument_parser()._actions for name in action.option_strings}


def test_there_are_profiles_for_a_laptop_a_workstation_and_a_cluster():
    assert PROFILES == ["default", "slurm", "workstation"]


@pytest.mark.parametrize("name", PROFILES)
def test_settings_are_options_of_snakemake(name, options):
    installed = any(option.startswith("slurm-") for option in options)
    unknown = {key for key in profile(name) if key not in options}
    assert unknown == set() if installed else all(key.startswith("slurm-") for key in unknown)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_keeps_what_the_default_one_guarantees(name):
    default, this = profile("default"), profile(name)
    assert {key: this.get(key) for key in ALWAYS} == {key: default[key] for key in ALWAYS}


@pytest.mark.parametrize("name", PROFILES)
def test_named_rules_exist(name):
    rules = set()
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        rules |= set(re.findall(r"^rule (\w+):", path.read_text(), re.MULTILINE))
    content = profile(name)
    assert {*content.get("set-resources", {}), *content.get("set-threads", {})} <= rules


@pytest.mark.parametrize("name", ["slurm", "workstation"])
def test_every_rule_that_runs_a_model_asks_for_a_gpu(name):
    runs = re.compile(r"python -m respath\.(training|measure\.(loss|lm|core|analyses))[ \"]")
    rules = set()
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        parts = re.split(r"^rule (\w+):", path.read_text(), flags=re.MULTILINE)
        rules |= {rule for rule, text in zip(parts[1::2], parts[2::2], strict=True) if runs.search(text)}
    assert {"train", "evaluate_loss", "evaluate_lm", "analyze", "analyze_checkpoint"} <= rules
    asked = profile(name)["set-resources"]
    assert {rule for rule in rules if not asked.get(rule, {}).get("gpu")} == set()
    if name == "slurm":
        assert {asked[rule]["slurm_partition"] for rule in rules} == {"gpu"}


@pytest.mark.parametrize("name", ["slurm", "workstation"])
def test_the_runtime_beside_a_profile_is_valid_and_fits_its_gpus(name):
    content = profile(name)
    assert content["configfile"] == f"profiles/{name}/runtime.yaml"
    settings = UserConfig.model_validate_json(json.dumps({"runtime": runtime(name)})).runtime
    assert content["set-resources"]["train"]["gpu"] == settings.processes * settings.nodes
