"""What a rendered artifact is made of beside result files: one text per file or key, so that a dry run names what changed.

A stamp is a name and a hash, ``papers/toy/tables.yaml: table3 1f0c2a44``. Labels, titles and printed numbers render again what
shows them, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from respath.files import content_hash
from respath.papers import needs
from respath.papers.library import Artifact
from respath.papers.resolve import Resolver

#: Settings that change neither what is rendered nor from which results.
RESOURCES = (
    *("papers", "runtime", "checkpoints", "locations", "items", "items_location", "core_bundle"),
    "tokenizers",
)
#: Keys of ``of_artifact`` and of ``of_paper``.
ARTIFACT = ("definition", "printed", "variants", "paper", "scale")
PAPER = ("paper", "variants", "tables", "figures", "claims", "decisions", "reported", "scale")


def stamp(name: str, value: Any) -> str:
    """A name and the hash of what stands under it."""
    return f"{name} {content_hash(value)}"


def of_files(root: Path, names: Iterable[str]) -> str:
    """Stamps of files, and of whole folders each as one; what is not there has none."""
    found = []
    for name in names:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        content = [
            (file.relative_to(root).as_posix(), file.read_bytes().hex())
            for file in files
            if file.is_file() and "__pycache__" not in file.parts
        ]
        if content:
            found.append(stamp(name, content))
    return "; ".join(found)


def of_scale(project: Resolver, paper: str) -> str:
    """Stamps of the files of the chosen scale and of the paper's own."""
    scales = dict.fromkeys(("paper", project.settings.scale))
    return of_files(
        project.root,
        [f"{at}/{scale}.yaml" for at in ("scales", f"papers/{paper}/scales") for scale in scales],
    )


def of_settings(project: Resolver) -> dict[str, str]:
    """A stamp for each setting that can change what is rendered."""
    settings = project.settings.model_dump(mode="json")
    return {key: f"config.yaml: {key}: {value}" for key, value in settings.items() if key not in RESOURCES}


def of_artifact(project: Resolver, artifact: Artifact) -> dict[str, str]:
    """Stamps of the paper's files as far as one table or figure shows them."""
    base, folder = f"papers/{artifact.paper}", project.folder(artifact.paper)
    definition = artifact.definition.model_dump(mode="json")
    printed = [
        name
        for name in dict.fromkeys(_texts(definition))
        if (folder.path / f"reported/{name}.yaml").is_file()
    ]
    requests = [request for _, quantity in needs.named(artifact) for _, request in needs.requests(quantity)]
    used = sorted({r.variant for r in requests if r.variant} | {folder.paper.accounting.baseline})
    return {
        "definition": stamp(
            f"{base}/{'tables' if artifact.is_table else 'figures'}.yaml: {artifact.id}", definition
        ),
        "printed": of_files(project.root, [f"{base}/reported/{name}.yaml" for name in printed]),
        "variants": "; ".join(
            stamp(f"{base}/variants.yaml: {name}", folder.variants[name].model_dump(mode="json"))
            for name in used
            if name in folder.variants
        ),
        "paper": stamp(f"{base}/paper.yaml", folder.paper.model_dump(mode="json")),
        "scale": of_scale(project, artifact.paper),
    }


def of_paper(project: Resolver, paper: str) -> dict[str, str]:
    """Stamps of all of a paper's files."""
    base = f"papers/{paper}"
    files = {key: f"{base}/{key}{'' if key == 'reported' else '.yaml'}" for key in PAPER if key != "scale"}
    return {
        **{key: of_files(project.root, [name]) for key, name in files.items()},
        "scale": of_scale(project, paper),
    }


def _texts(value: Any) -> Iterator[str]:
    """All texts in a document that could be a file's name."""
    if isinstance(value, str):
        if value.replace("_", "").replace("-", "").isalnum():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
