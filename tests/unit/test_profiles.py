"""The profiles that are shipped: settings that Snakemake knows, rules that exist, numbers that fit together."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import tomllib

import pytest
import yaml

from respath.accounting import account
from respath.accounting.asking import asked
from respath.accounting.plan import PEAK_FLOPS
from respath.config.request import RunRequest
from respath.config.runtime import Runtime
from respath.errors import UserError
from respath.papers import needs
from respath.papers.check import open_papers
from respath.settings import UserConfig
from tests.project_copy import ROOT, ProjectCopy

PROFILES = sorted(path.parent.name for path in (ROOT / "profiles").glob("*/profile.yaml"))
#: Settings that replacing the default profile must not lose.
ALWAYS = ("rerun-triggers", "rerun-incomplete", "keep-going", "show-failed-logs", "printshellcmds")


def profile(name: str) -> dict:
    return yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text())


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
    runs = re.compile(r"python -m respath\.(training|measure\.(loss|lm|core|nll|analyses))[ \"]")
    rules = set()
    for path in (ROOT / "workflow/rules").glob("*.smk"):
        parts = re.split(r"^rule (\w+):", path.read_text(), flags=re.MULTILINE)
        rules |= {rule for rule, text in zip(parts[1::2], parts[2::2], strict=True) if runs.search(text)}
    named = {"train", "evaluate_loss", "evaluate_lm", "evaluate_core", "analyze", "analyze_checkpoint"}
    assert named <= rules
    asked = profile(name)["set-resources"]
    # On Slurm the number of a training's GPUs follows from its run.
    own = {"train"} if name == "slurm" else set()
    assert {rule for rule in rules if not asked.get(rule, {}).get("gpu")} == own
    if name == "slurm":
        assert {asked[rule]["slurm_partition"] for rule in rules} == {"gpu"}


def settings_of(path: str) -> UserConfig:
    return UserConfig.model_validate_json(json.dumps(yaml.safe_load((ROOT / path).read_text())))


@pytest.mark.parametrize("name", ["slurm", "workstation"])
def test_the_runtime_beside_a_profile_is_valid_and_fits_its_gpus(name):
    content = profile(name)
    assert content["configfile"] == f"profiles/{name}/runtime.yaml"
    runtime, train = settings_of(content["configfile"]).runtime, content["set-resources"]["train"]
    if name == "workstation":
        assert runtime.gpu is None and train["gpu"] == runtime.processes * runtime.nodes
    else:
        # What follows from the run would be hidden by a number of the profile's.
        assert runtime.gpu in PEAK_FLOPS and not {"gpu", "mem_mb", "runtime"} & set(train)


def test_the_trial_of_the_queue_is_at_the_smallest_scale_on_one_gpu_with_the_engine_of_the_authors():
    trial = settings_of("profiles/slurm/trial.yaml")
    assert (trial.scale, trial.runtime.engine, trial.runtime.processes) == ("smoke", "deepspeed", 1)
    assert asked(smoke().spec, "causal", trial.runtime).processes == 1


def smoke():
    return next(iter(needs.all_runs(open_papers(ROOT, {"scale": "smoke", "papers": ["resformer"]})).values()))


def run_of(size: str, tokens_of: str = "paper"):
    project = open_papers(ROOT, {"scale": tokens_of, "papers": ["resformer"]})
    return project.paper("resformer").run(RunRequest(size=size, variant="transformer"), 1)


def test_gpus_memory_and_minutes_of_a_training_follow_from_its_run_and_the_gpu():
    runtime = Runtime(gpu="a100", processes=8)
    small, large = (asked(run_of(size).spec, "causal", runtime) for size in ("82M", "468M"))
    for run, found in ((run_of("82M"), small), (run_of("468M"), large)):
        entry = account(run.spec.model, context=run.spec.recipe.context, logits="all", attention="causal")
        mfu = pytest.approx(0.45, abs=0.01) if run.size == "468M" else pytest.approx(0.30, abs=0.01)
        flops = entry.flops.training_per_token * run.spec.recipe.tokens
        assert flops / (found.hours * 3600 * found.processes * 312e12) == mfu
        assert found.hours <= 24 and found.minutes == min(1440, 15 + math.ceil(2 * 60 * found.hours))
        halved = dataclasses.replace(found, processes=found.processes // 2)
        assert found.processes == 1 or 2 * halved.hours > 24
        assert 8_000 * found.processes < found.memory_mb < 8_000 * found.processes + 20_000
    assert small.processes < large.processes
    assert asked(run_of("468M").spec, "causal", Runtime(gpu="b200", processes=8)).processes < large.processes


def test_the_numbers_of_a_training_are_bounded_by_the_batch_the_machine_and_the_queue():
    spec = run_of("468M").spec
    few = asked(spec, "causal", Runtime(gpu="a100", processes=8, finish_hours=0.01, longest_minutes=60))
    assert (few.processes, few.minutes) == (8, 60)
    odd = spec.model_copy(update={"recipe": spec.recipe.model_copy(update={"batch_sequences": 6})})
    assert asked(odd, "causal", Runtime(gpu="a100", processes=8, finish_hours=0.01)).processes == 2
    assert asked(spec, "causal", Runtime(gpu="a100", processes=8, nodes=2)).processes == 8
    plain = asked(spec, "causal", Runtime())
    assert (plain.processes, plain.memory_mb, plain.minutes) == (1, 8000, 2880)
    with pytest.raises(UserError, match=r"runtime.gpu: 'a10' is not known .did you mean 'a100'"):
        asked(spec, "causal", Runtime(gpu="a10"))


def test_a_job_asks_for_what_follows_from_its_run_and_the_trainer_is_told_as_many_processes(tmp_path):
    copy = ProjectCopy(tmp_path)
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles", dirs_exist_ok=True)
    target = f"results/runs/{run_of('82M').id}/train.json"
    settings = ["--configfile", "profiles/slurm/runtime.yaml", "--config", "scale=paper"]
    planned = copy.snakemake("-n", "-p", target, *settings)
    assert planned.returncode == 0, planned.stderr
    said = planned.stdout + planned.stderr
    job = said[said.index("rule train:") :]
    found = dict(re.findall(r"(\w+)=(\S+?)(?:,|\n)", job))
    expected = asked(run_of("82M").spec, "causal", settings_of("profiles/slurm/runtime.yaml").runtime)
    numbers = tuple(int(found[name]) for name in ("gpu", "mem_mb", "runtime"))
    assert numbers == (expected.processes, expected.memory_mb, expected.minutes)
    told = json.loads((tmp_path / found["runtime_options"].removeprefix("@")).read_text())
    assert told["processes"] == expected.processes


def test_the_slurm_line_of_the_readme_stands_behind_the_install_that_it_needs():
    text = (ROOT / "README.md").read_text()
    line = text.index("snakemake --workflow-profile profiles/slurm")
    assert "pip install -c requirements.lock -e '.[slurm" in text[:line]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any("snakemake-executor-plugin-slurm" in entry for entry in extras["slurm"])
