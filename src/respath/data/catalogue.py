"""The embedded corpus as data: what ``sources.yaml`` says, checked; light enough for the Snakefile to import."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import yaml

from respath.errors import UserError, did_you_mean

DOMAINS = (
    "RedPajamaCommonCrawl",
    "RedPajamaC4",
    "RedPajamaGithub",
    "RedPajamaBook",
    "RedPajamaArXiv",
    "RedPajamaWikipedia",
    "RedPajamaStackExchange",
)
#: Which origins a corpus profile draws from. The profile's name is part of every run's specification.
PROFILES = {"embedded-pip": ("stdlib", "pip"), "embedded-debian": ("stdlib", "pip", "debian")}
ORIGINS = ("stdlib", "pip", "debian")
SOURCES_FILE = Path(__file__).with_name("sources.yaml")


@dataclasses.dataclass(frozen=True)
class Source:
    """One source of the embedded corpus.

    ``packages``: the one pinned package (pip), or the names under which releases of Debian ship it, newest last tried
    first come first served, or every one of them when ``every`` is set. ``include``/``exclude``: globs over member
    names, ``**`` crosses folders. ``options``: passed to the extractor by name.
    """

    id: str
    domain: str
    origin: str
    extractor: str
    document: str
    licence: str
    note: str
    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    options: dict = dataclasses.field(default_factory=dict)
    packages: tuple[str, ...] = ()
    every: bool = False
    version: str = ""
    kind: str = ""
    sha256: str = ""
    tag: str = ""

    @property
    def package(self) -> str:
        """The package's name as a person would ask for it; the interpreter's library for ``stdlib``."""
        if self.origin == "stdlib":
            return "python standard library"
        return ", ".join(self.packages) if self.every else self.packages[0]


def _source(raw: dict, archives: dict) -> Source:
    raw = dict(raw)
    archive = raw.pop("archive", None)
    if archive is not None:
        if archive not in archives:
            raise UserError(
                f"{SOURCES_FILE.name}: source {raw.get('id')!r}: no archive {archive!r}{did_you_mean(archive, archives)}"
            )
        pin = archives[archive]
        raw |= {
            "packages": [pin["package"]],
            "version": str(pin["version"]),
            "sha256": pin["sha256"],
            "kind": pin["kind"],
            "tag": pin.get("tag", ""),
        }
    for key in ("include", "exclude", "packages"):
        if key in raw:
            raw[key] = tuple(raw[key])
    try:
        return Source(**raw)
    except TypeError as error:
        raise UserError(f"{SOURCES_FILE.name}: source {raw.get('id')!r}: {error}") from None


@functools.cache
def _catalogue() -> tuple[Source, ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    raw = yaml.load(SOURCES_FILE.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 (a safe loader)
    sources = tuple(_source(entry, raw["archives"]) for entry in raw["sources"])
    problems = []
    seen = set()
    for source in sources:
        where = f"{SOURCES_FILE.name}: source {source.id!r}"
        if source.id in seen:
            problems.append(f"{where}: the id is used twice; rename one")
        seen.add(source.id)
        if source.domain not in DOMAINS:
            problems.append(
                f"{where}: unknown domain {source.domain!r}{did_you_mean(source.domain, DOMAINS)}"
            )
        if source.origin not in ORIGINS:
            problems.append(
                f"{where}: unknown origin {source.origin!r}{did_you_mean(source.origin, ORIGINS)}"
            )
        if source.origin == "pip" and len(source.sha256) != 64:
            problems.append(f"{where}: a pip source needs the sha256 of its archive")
    if problems:
        raise UserError(problems)
    return sources


def load_sources() -> list[Source]:
    """All sources, in the order of ``sources.yaml``. UserError on a malformed file."""
    return list(_catalogue())


def profile_sources(profile: str) -> list[Source]:
    """The sources of one corpus profile. UserError on an unknown profile."""
    if profile not in PROFILES:
        raise UserError(f"corpus: no embedded profile {profile!r}{did_you_mean(profile, PROFILES)}")
    return [source for source in _catalogue() if source.origin in PROFILES[profile]]


def source_ids(profile: str) -> list[str]:
    """Ids of a profile's sources; no import heavier than PyYAML, so fit for Snakemake's parse time."""
    return [source.id for source in profile_sources(profile)]


def source_named(identifier: str) -> Source:
    """The source with this id. UserError with the nearest name otherwise."""
    for source in _catalogue():
        if source.id == identifier:
            return source
    raise UserError(
        f"--source: no source {identifier!r}{did_you_mean(identifier, [s.id for s in _catalogue()])}"
    )
