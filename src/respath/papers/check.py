"""What a schema cannot say: names that point to nothing, shapes that no model has, printed numbers that contradict themselves."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from respath.config.request import RunRequest
from respath.documents import Collector, check
from respath.errors import UserError, did_you_mean
from respath.papers import needs
from respath.papers.claims import Claim, Test
from respath.papers.library import Artifact, Library, PaperFolder
from respath.papers.resolve import PAPER_SCALE, Resolver
from respath.papers.subjects import Resolved
from respath.papers.tables import Table
from respath.quantities import metrics
from respath.quantities.kinds import Names
from respath.quantities.quantity import Quantity
from respath.settings import Settings, UserConfig


def open_papers(root: str | Path, given: Settings | Mapping[str, Any] | None = None) -> Resolver:
    """The papers that a user works on, at the chosen scale. Raises UserError with every problem of settings and papers.

    ``given``: the settings, where they are not those of config.yaml.
    """
    collect = Collector()
    settings = given if isinstance(given, Settings) else Settings()
    if given is None:
        collect(settings.add_file, Path(root) / "config.yaml", required=False)
    elif not isinstance(given, Settings):
        settings.add("settings", given)

    def place(keys: Sequence[str | int]) -> str:
        return settings.place(keys).replace(f"{root}{os.sep}", "")

    user = collect(check, UserConfig, settings.values, place)
    library = collect(Library, root)
    if user and library:
        corpus = [user.corpus] if user.corpus is not None else []
        # A folder without paper.yaml is another mistake than a misspelt name.
        papers = [
            paper
            for paper in user.papers or ()
            if not (library.root / "papers" / paper).is_dir() or not paper
        ]
        for key, names, known in (
            ("scale", [user.scale], library.scales),
            ("corpus", corpus, library.corpora),
            ("papers", papers, library.known),
        ):
            collect.lines += _unknown(f"{place((key,))}: {key}", names, known, "known")
    collect.finish()
    resolver = Resolver(library, user, place)
    check_papers(resolver)
    return resolver


def check_papers(resolver: Resolver) -> None:
    """Raises UserError with every problem of the chosen papers' files, each said once where it comes from."""
    collect = Collector()
    folders = [folder for paper in resolver.chosen if (folder := collect(resolver.library.folder, paper))]
    for folder in folders:
        collect.lines += _names(resolver, folder)
    collect.finish()
    for folder in folders:
        for artifact in folder.artifacts():
            collect.lines += _artifact(resolver, folder, artifact)
        for claim in folder.claims:
            where = f"papers/{folder.id}/claims.yaml: {claim.id}."
            collect.lines += [_at(where, line) for line in _claim(resolver, folder, claim)]
        collect.lines += _unused_variants(resolver, folder)
    collect.lines = _once_a_place(collect.lines)
    collect.finish()


def _at(where: str, line: str) -> str:
    """A problem with the place that asks for it; a mistake in another file speaks for itself."""
    return line if line.startswith("papers/") else f"{where}{line}"


def _once_a_place(lines: list[str]) -> list[str]:
    """A value that a scale gets wrong is wrong for every variant: the first is enough."""
    first: dict[str, str] = {}
    for line in lines:
        place = ": ".join(line.split(": ")[:2]) if "/scales/" in line.partition(": ")[0] else line
        first.setdefault(place, line)
    return list(first.values())


# --- names ---------------------------------------------------------------------------------------------------------------


def _unknown(where: str, names: Collection[str], known: Collection[str], what: str) -> Iterator[str]:
    for name in names:
        if name not in known:
            yield f"{where}: {name!r} is not {what}{did_you_mean(name, known)}"


def _names(resolver: Resolver, folder: PaperFolder) -> Iterator[str]:
    """Sizes, variants, corpora, decisions and artifacts that one file names and another should have."""
    base, paper, corpora = f"papers/{folder.id}", folder.paper, resolver.library.corpora
    yield from _unknown(f"{base}/paper.yaml: data.corpus", [paper.data.corpus], corpora, "known")
    yield from _unknown(
        f"{base}/paper.yaml: accounting.baseline", [paper.accounting.baseline], folder.variants, "a variant"
    )
    if (scaling := paper.recipe.scaling) is not None:
        where = f"{base}/paper.yaml: recipe.scaling.size"
        yield from _unknown(where, [scaling.size], paper.sizes, "a size of the paper")
    artifacts = [*folder.tables, *folder.figures]
    yield from _unknown(f"{base}/paper.yaml: demo", paper.demo, artifacts, "a table or figure of the paper")
    yield from _unknown(
        f"{base}/paper.yaml: shown_size", [folder.shown_size], paper.sizes, "a size of the paper"
    )
    for scale, changes in folder.scales.items():
        where = f"{base}/scales/{scale}.yaml"
        if changes.data.corpus is not None:
            yield from _unknown(f"{where}: data.corpus", [changes.data.corpus], corpora, "known")
        yield from _unknown(f"{where}: sizes", changes.sizes, paper.sizes, "a size of the paper")
        yield from _unknown(f"{where}: variants", changes.variants, folder.variants, "a variant of the paper")
        for one in changes.paired or ():
            yield from _unknown(f"{where}: paired", [one.size], paper.sizes, "a size of the paper")
            yield from _unknown(f"{where}: paired", one.variants, folder.variants, "a variant of the paper")
            if one.seeds is not None and one.seeds > len(resolver.library.scale(scale).seeds):
                yield f"{where}: paired: {one.seeds} seeds of {', '.join(one.variants)}, but scales/{scale}.yaml lists {len(resolver.library.scale(scale).seeds)}"
        yield from _unknown(f"{where}: first", changes.first, artifacts, "a table or figure of the paper")
    for decision in folder.decisions:
        where = f"{base}/decisions.yaml: {decision.id}"
        yield from _unknown(where, decision.variants(), folder.variants, "a variant of the paper")
    decisions = {decision.id for decision in folder.decisions}
    for claim in folder.claims:
        where = f"{base}/claims.yaml: {claim.id}"
        yield from _unknown(f"{where}.decisions", claim.decisions, decisions, "in decisions.yaml")
        yield from _unknown(f"{where}.judged_at", claim.judged_at, resolver.library.scales, "a scale")


def _no_quantity(resolver: Resolver, folder: PaperFolder, quantity: Quantity, **wanted: bool) -> str:
    """Why a quantity cannot exist; empty when it does, or when its run is refused anyway."""
    mixes = [folder.paper.data.domains, *(changes.data.domains or {} for changes in folder.scales.values())]
    domains = dict.fromkeys(domain for mix in mixes for domain in mix)
    evaluation = folder.paper.evaluation
    names = Names(domains, evaluation.tasks, evaluation.core)
    if problem := metrics.unknown(quantity.metric, names, **wanted):
        return problem
    for kind, name, one in needs.reads(resolver, folder.id, [quantity]):
        if kind.compute is None:
            continue
        resolved = Resolved(resolver.paper(folder.id).full, one.subject)
        try:
            document = kind.compute(resolved)
        except UserError:
            continue
        try:
            kind.value(document, name, resolved)
        except UserError as error:
            return error.lines[0].removeprefix("metric ")
    return ""


# --- tables and figures --------------------------------------------------------------------------------------------------


def _artifact(resolver: Resolver, folder: PaperFolder, artifact: Artifact) -> Iterator[str]:
    where, definition = artifact.where, artifact.definition
    for kind, parts in ((kind, getattr(definition, kind, ())) for kind in ("rows", "panels")):
        for i, part in enumerate(parts):
            if part.only is not None:
                at = f"{where}.{kind}.{i}.only.scales"
                yield from _unknown(at, part.only.scales, resolver.library.scales, "a scale")
    named = list(needs.named(artifact))
    for key, quantity in named:
        for side, request in needs.requests(quantity):
            at = f"{where}.{key}.{side}" if artifact.is_table else f"{where}.{key}"
            yield from (_at(f"{at}: ", line) for line in _refused(resolver, folder, request))
    for metric, quantity in {quantity.metric: quantity for _, quantity in named}.items():
        series = not artifact.is_table and metrics.is_series(metric)
        if problem := _no_quantity(resolver, folder, quantity, series=series):
            yield f"{where}: metric {problem}"
    names = (
        [definition.reported]
        if isinstance(definition, Table) and definition.reported
        else [file for panel in getattr(definition, "panels", ()) for file in panel.reported_files()]
    )
    for name in dict.fromkeys(names):
        if name not in folder.reported:
            yield f"{where}: reported/{name}.yaml is not there{did_you_mean(name, folder.reported)}"
        elif isinstance(definition, Table):
            yield from _misspelt(folder, definition, where)


def _refused(resolver: Resolver, folder: PaperFolder, request: RunRequest) -> Iterator[str]:
    """Why a request has no run, at the chosen scale and at the paper's own."""
    at = resolver.paper(folder.id)
    for one in (at, at.full) if at is not at.full else (at,):
        try:
            one.accept(request)
        except UserError as error:
            yield from error.lines


def _misspelt(folder: PaperFolder, table: Table, where: str) -> Iterator[str]:
    """A row or column that has one name here and nearly the same among the printed numbers: neither would find the other."""
    reported = folder.reported[str(table.reported)]
    for what, printed, own in (
        ("row", set(reported.rows), {row.id for row in table.rows}),
        ("column", set(reported.columns), {column.reported or column.id for column in table.columns}),
    ):
        for name in sorted(own - printed):
            if near := difflib.get_close_matches(name, printed - own, n=1, cutoff=0.8):
                yield f"{where}: {what} {name!r} is not in reported/{table.reported}.yaml (did you mean {near[0]!r}?)"


def _unused_variants(resolver: Resolver, folder: PaperFolder) -> Iterator[str]:
    """A variant that no table uses is still checked, on the first size that fits it."""
    if PAPER_SCALE not in resolver.library.scales:
        return
    at = resolver.at(PAPER_SCALE).paper(folder.id)
    for name in folder.variants:
        errors: list[str] = []
        for size in folder.paper.sizes:
            try:
                at.model(size, name)
                errors = []
                break
            except UserError as error:
                errors = error.lines
        yield from errors


# --- claims --------------------------------------------------------------------------------------------------------------


def _claim(resolver: Resolver, folder: PaperFolder, claim: Claim) -> Iterator[str]:
    """Problems of a claim, each from the key on."""
    for key, quantity in needs.claimed(claim):
        for side, request in needs.requests(quantity):
            at = key if side == "run" else f"{key}.minus"
            yield from (_at(f"{at}: ", line) for line in dict.fromkeys(_refused(resolver, folder, request)))
    for name, tests in claim.readings():
        for test in tests if name else ():
            if problem := _no_comparison(resolver, folder, test):
                yield f"alternatives.{name}: {problem}"
    for test in claim.tests:
        if problem := _no_comparison(resolver, folder, test):
            yield f"metric: {problem}"
        try:
            printed = folder.printed(test)
        except UserError as error:
            yield from (f"printed_from: {line}" for line in error.lines)
            continue
        if not _agrees(test, printed):
            shown = ", ".join(f"{side} {value}" for side, value in printed.items())
            yield (
                f"printed_from: the printed numbers ({shown}) contradict what is expected of {test.metric}; "
                "correct the number, the place or `expect`"
            )


def _no_comparison(resolver: Resolver, folder: PaperFolder, test: Test) -> str:
    """Why a comparison cannot be read; empty when it can."""
    if test.metric.startswith(("bench.", "decode.")):
        return f"{test.metric!r} is measured on one device and enters no verdict"
    if test.right is None and (problem := metrics.unknown(test.metric, pair=False)):
        return problem
    problems = (_no_quantity(resolver, folder, quantity) for quantity in test.sides())
    return next(filter(None, problems), "")


def _agrees(test: Test, printed: dict) -> bool:
    """Do the paper's own numbers say what it claims? True where it prints too few of them to tell."""
    expect, left = test.expect, printed.get("left")
    value = printed.get("difference")
    if expect.of_left_alone:
        value = left
    elif value is None and left is not None and printed.get("right") is not None:
        value = left - printed["right"]
    if not isinstance(value, int | float) or expect.exact or expect.rounds_to_million:
        return True
    low, high = expect.region()
    return low < value < high
