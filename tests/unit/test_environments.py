"""One set of versions: the lock, the conda environments of the rules, and what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.project_copy import ROOT


def locked() -> dict[str, str]:
    """Package -> exact version of requirements.lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def test_the_lock_pins_exact_versions_and_names_each_package_once():
    lines = [
        line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0] != "#"
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*", line) for line in lines)
    assert len(lines) == len(locked())


def test_the_lock_satisfies_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pins = locked()
    locked_extras = ("test", "report", "deepspeed", "slurm", "tensorboard")
    asked = [*project["dependencies"], *(text for name in locked_extras for text in extras[name])]
    for text in asked:
        requirement = Requirement(text)
        if requirement.name == "pip":
            continue  # every virtual environment brings its own
        assert canonicalize_name(requirement.name) in pins, text
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


@pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.yaml")), ids=lambda path: path.stem)
def test_environments_name_the_locks_versions(path):
    dependencies = yaml.safe_load(path.read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    pins = locked()
    for text in pip:
        name, version = text.split("==")
        assert pins[canonicalize_name(name)] == version, text


def test_the_training_environment_has_what_its_engines_import():
    (pip,) = [
        e["pip"]
        for e in yaml.safe_load((ROOT / "envs/train.yaml").read_text())["dependencies"]
        if isinstance(e, dict)
    ]
    assert {"torch", "deepspeed", "safetensors", "numpy"} <= {text.split("==")[0] for text in pip}


def test_both_containers_install_the_same_from_the_lock():
    docker = (ROOT / "containers/Dockerfile").read_text()
    apptainer = (ROOT / "containers/respath.def").read_text()
    base = re.search(r"^FROM (\S+)$", docker, re.M).group(1)
    assert f"From: {base}\n" in apptainer
    python = re.search(r"python:(\d+\.\d+)", base).group(1)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {python}" in classifiers

    def installs(text: str) -> list[str]:
        return [line.strip() for line in re.findall(r"(?:pip|apt-get) install [^\n\\&]*", text)]

    assert installs(docker) == installs(apptainer) != []
    assert "--constraint /opt/respath/requirements.lock" in docker
    copied = re.search(r"^COPY (.*) /opt/respath/$", docker, re.M).group(1).split()
    assert all((ROOT / name).exists() for name in copied)
    assert [
        line.split()[0] for line in re.search(r"%files\n(.*?)\n\n", apptainer, re.S).group(1).splitlines()
    ] == [*copied, "src"]
    extras = set(re.search(r"/opt/respath\[(.*?)\]", docker).group(1).split(","))
    assert extras <= set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
