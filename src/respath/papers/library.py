"""Papers and scales, read from their folders and typed. What two files say of each other is checked in ``check``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from respath.documents import Collector, Model, Place, load, load_list, where
from respath.errors import UserError, did_you_mean
from respath.papers.claims import Claim, Claims, Test
from respath.papers.decisions import Decision
from respath.papers.figures import Figures, Panels
from respath.papers.paper import Corpora, Paper, Variant, Variants
from respath.papers.reported import PrintedCell, Reported, load_reported
from respath.papers.scales import Scale, ScalePaper
from respath.papers.tables import Table, Tables
from respath.spec.data import Corpus


def find_root(start: str | Path | None = None) -> Path:
    """The folder that holds ``papers/`` and ``scales/``: RESPATH_ROOT, the working folder or one above, or the checkout."""
    if os.environ.get("RESPATH_ROOT"):
        return Path(os.environ["RESPATH_ROOT"]).resolve()
    here = Path(start or os.getcwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if (folder / "papers").is_dir() and (folder / "scales").is_dir():
            return folder
    raise UserError(
        f"{here}: no project here (no papers/ and scales/); go into a checkout or set RESPATH_ROOT"
    )


#: Documents that say their own id.
Identified = TypeVar("Identified", Paper, Scale)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """One table or figure of a paper; ``target`` is what a user asks Snakemake for."""

    paper: str
    id: str
    definition: Table | Panels

    @property
    def target(self) -> str:
        """Name of the Snakemake target: paper and id, joined by an underscore."""
        return f"{self.paper}_{self.id}"

    @property
    def is_table(self) -> bool:
        """Is this a table (else a figure)?"""
        return isinstance(self.definition, Table)

    @property
    def where(self) -> str:
        """File and key that define it, for messages."""
        return f"papers/{self.paper}/{'tables' if self.is_table else 'figures'}.yaml: {self.id}"


@dataclasses.dataclass(frozen=True)
class PaperFolder:
    """Everything under ``papers/<id>/``; ``scales`` by the id of the scale, ``reported`` by the name of the file."""

    id: str
    path: Path
    paper: Paper
    variants: dict[str, Variant]
    tables: dict[str, Table]
    figures: dict[str, Panels]
    claims: tuple[Claim, ...]
    variance: str
    given: tuple[str, ...]
    decisions: tuple[Decision, ...]
    reported: dict[str, Reported]
    scales: dict[str, ScalePaper]

    @property
    def shown_size(self) -> str:
        """The size that stands for the paper where one is shown."""
        return self.paper.shown_size or next(iter(self.paper.sizes))

    def artifacts(self) -> list[Artifact]:
        """Tables, then figures, in the order of the files."""
        definitions: list[tuple[str, Table | Panels]] = [*self.tables.items(), *self.figures.items()]
        return [Artifact(self.id, name, definition) for name, definition in definitions]

    def printed(self, test: Test) -> dict[str, Any]:
        """What the paper prints of a comparison: side -> value. Raises UserError for a place that does not exist."""
        places = test.printed_from.places() if test.printed_from else {}
        return {side: self.printed_at(place) for side, place in places.items()}

    def printed_at(self, place: PrintedCell) -> Any:
        """The value printed at a place. Raises UserError with did-you-mean."""
        if place.reported not in self.reported:
            raise UserError(
                f"reported/{place.reported}.yaml is not there{did_you_mean(place.reported, self.reported)}"
            )
        return self.reported[place.reported].value(place.row, place.column)


class Library:
    """The papers, scales and corpora of a project. Raises UserError with every problem of every file that is read."""

    def __init__(self, root: str | Path):
        self.root = Path(root)
        collect = Collector()
        #: The id of every paper; a folder is read when it is asked for.
        self.known = tuple(sorted(path.parent.name for path in (self.root / "papers").glob("*/paper.yaml")))
        paths = sorted((self.root / "scales").glob("*.yaml"))
        scales = [collect(self._named, Scale, f"scales/{path.name}", path.stem) for path in paths]
        self.scales: dict[str, Scale] = {scale.id: scale for scale in scales if scale}
        corpora = collect(self._document, Corpora, "papers/corpora.yaml")
        self.corpora: Mapping[str, Corpus] = corpora.corpora if corpora else {}
        self._folders: dict[str, PaperFolder] = {}
        collect.finish()

    def folder(self, paper: str) -> PaperFolder:
        """The folder of a paper. Raises UserError with did-you-mean, or with every problem of its files."""
        if paper not in self._folders:
            if (self.root / "papers" / paper).is_dir() and paper and paper not in self.known:
                raise UserError(f"papers/{paper}/paper.yaml: no such file")
            if paper not in self.known:
                raise UserError(f"{paper!r} is not a paper of this project{did_you_mean(paper, self.known)}")
            self._folders[paper] = self._read(paper)
        return self._folders[paper]

    def with_tables(self) -> tuple[str, ...]:
        """The papers that have tables."""
        return tuple(id for id in self.known if (self.root / "papers" / id / "tables.yaml").exists())

    def scale(self, name: str) -> Scale:
        """A scale. Raises UserError with did-you-mean."""
        if name not in self.scales:
            raise UserError(f"scale {name!r} is not known{did_you_mean(name, self.scales)}")
        return self.scales[name]

    def parse_ref(self, ref: str) -> tuple[str, str, str]:
        """Split and check ``paper/size/variant``. Raises UserError with did-you-mean for the part that is wrong."""
        parts = ref.split("/")
        if len(parts) != 3:
            raise UserError(f"{ref!r} is not a model; write paper/size/variant, e.g. {self._example()}")
        paper, size, variant = parts
        folder = self.folder(paper)
        if size not in folder.paper.sizes:
            raise UserError(f"{ref!r}: {paper} has no size {size!r}{did_you_mean(size, folder.paper.sizes)}")
        if variant not in folder.variants:
            raise UserError(
                f"{ref!r}: {paper} has no variant {variant!r}{did_you_mean(variant, folder.variants)}"
            )
        return paper, size, variant

    def _example(self) -> str:
        folder = self.folder((*self.with_tables(), *self.known)[0])
        return f"{folder.id}/{folder.shown_size}/{folder.paper.accounting.baseline}"

    def place(self, file: str) -> Place:
        """A file of the project, for messages: its path from the root, with the line of a value."""
        return lambda keys: where(self.root / file, keys).replace(f"{self.root}{os.sep}", "")

    # --- reading ---------------------------------------------------------------------------------------------------

    def _short(self, read, *arguments):
        """Call; messages show paths from the project's root: short, and the same for everybody."""
        try:
            return read(*arguments)
        except UserError as error:
            raise UserError([line.replace(f"{self.root}{os.sep}", "") for line in error.lines]) from None

    def _document(self, model: type[Model], name: str) -> Model:
        return self._short(load, model, self.root / name)

    def _named(self, model: type[Identified], name: str, id: str) -> Identified:
        """A document that says its own id."""
        document = self._document(model, name)
        if document.id != id:
            raise UserError(f"{name}: id: {document.id!r} should be {id!r}, as its file or folder is called")
        return document

    def _read(self, paper: str) -> PaperFolder:
        collect, base = Collector(), f"papers/{paper}"

        def optional(read, name, *arguments):
            path = self.root / base / name
            return (collect(self._short, read, *arguments, path) if path.exists() else None) or ()

        main = collect(self._named, Paper, f"{base}/paper.yaml", paper)
        variants = collect(self._document, Variants, f"{base}/variants.yaml")
        tables, figures = optional(load, "tables.yaml", Tables), optional(load, "figures.yaml", Figures)
        claims = optional(load, "claims.yaml", Claims)
        decisions = optional(load_list, "decisions.yaml", Decision)
        files = sorted((self.root / base / "reported").glob("*.yaml"))
        reported = {path.stem: collect(self._short, load_reported, path) for path in files}
        scales = {}
        for scale in self.scales:
            name = f"{base}/scales/{scale}.yaml"
            if (self.root / name).exists():
                scales[scale] = collect(self._document, ScalePaper, name)
            else:
                collect.lines.append(
                    f"{name}: no such file; write what scale {scale} changes (it may be empty)"
                )
        for path in sorted((self.root / base / "scales").glob("*.yaml")):
            if path.stem not in self.scales:
                near = did_you_mean(path.stem, self.scales)
                collect.lines.append(f"{base}/scales/{path.name}: {path.stem!r} is not a scale{near}")
        collect.finish()
        return PaperFolder(
            id=paper,
            path=self.root / base,
            paper=main,
            variants=variants.variants,
            tables=tables.tables if tables else {},
            figures=figures.figures if figures else {},
            claims=claims.claims if claims else (),
            variance=claims.variance if claims else "own",
            given=claims.given if claims else (),
            decisions=decisions,
            reported=reported,
            scales=scales,
        )
