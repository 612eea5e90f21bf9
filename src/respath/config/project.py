"""The project: papers, scales and dials read together, cross-checked, and resolved to runs (imports no torch)."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from respath.analysis.catalogue import CATALOGUE
from respath.config.metrics import unknown_run_metric
from respath.config.request import Overrides, RunRequest
from respath.documents import Collector, check, load_yaml
from respath.errors import UserError, did_you_mean
from respath.papers.figures import Figure, Figures, Panels
from respath.papers.paper import AccountingDefaults, Corpora, Evaluation, Paper, Variant, Variants
from respath.papers.scales import MOST_COEFFICIENT_LR, Scale, ScalePaper
from respath.papers.tables import Column, Row, Table, Tables
from respath.settings import Settings, UserConfig
from respath.spec.data import Corpus, Data, Sample, tokens_id
from respath.spec.model import ModelSpec
from respath.spec.recipe import Muon, Recipe, summed_learning_rate
from respath.spec.run import RunSpec, run_hash, spec_text

#: Text kept per token of quota: more than any tokenizer here needs, so that the token quota is what stops.
BYTES_PER_TOKEN = 8

#: Metrics that exist only once a run has been trained.
TRAINED = ("loss.", "lm.", "train.", "analysis.")

#: What papers print of a backbone and a spec does not spell out.
PRINTED = {
    "llama": {"activation": "SwiGLU", "position_embedding": "RoPE"},
    "gpt2": {"activation": "GELU", "position_embedding": "learned"},
    "nanochat": {"activation": "ReLU squared", "position_embedding": "RoPE"},
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run at one scale, in the paper's terms and as a spec."""

    id: str
    spec: RunSpec
    paper: str
    size: str
    variant: str
    context: int
    seed: int
    scale: str

    @property
    def text(self) -> str:
        """The spec as canonical JSON."""
        return spec_text(self.spec)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """One table or figure of a paper; ``target`` is what a user asks Snakemake for."""

    paper: str
    id: str
    definition: Table | Figure

    @property
    def target(self) -> str:
        """Name of the Snakemake target, e.g. ``resformer_table3``."""
        return f"{self.paper}_{self.id}"

    @property
    def is_table(self) -> bool:
        """Is this a table (else a figure)?"""
        return isinstance(self.definition, Table)


@dataclasses.dataclass(frozen=True)
class PaperFolder:
    """Everything under ``papers/<id>/`` that the engine reads at parse time."""

    paper: Paper
    variants: dict[str, Variant]
    tables: dict[str, Table]
    figures: dict[str, Figure]
    path: Path


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


class Project:
    """Papers, scales and the user's dials. Raises UserError with every problem of every file at once."""

    def __init__(self, root: Path, config: Settings | Mapping[str, Any] | None = None):
        self.root = Path(root)
        collect = Collector()
        if not isinstance(config, Settings):
            settings = Settings()
            if config is None:
                collect(settings.add_file, self.root / "config.yaml", required=False)
            else:
                settings.add("settings", config)
            config = settings

        def place(keys: Sequence[str | int]) -> str:
            # Shown relative to the project where possible: short, and the same for everybody.
            return config.place(keys).replace(f"{self.root}{os.sep}", "")

        self.place = place
        self.config: UserConfig = collect(check, UserConfig, config.values, place) or UserConfig()
        self.scales = self._load_scales(collect)
        corpora = collect(self._document, Corpora, "papers/corpora.yaml")
        self.corpora: dict[str, Corpus] = corpora.corpora if corpora else {}
        known = sorted(p.parent.name for p in (self.root / "papers").glob("*/paper.yaml"))
        #: The papers whose targets exist; any other folder of papers/ is read when one of its models is asked for.
        self.folders: dict[str, PaperFolder] = {}
        self._others: dict[str, PaperFolder] = {}
        self._paired: dict[str, dict[str, None] | None] = {}
        self._runs: dict[tuple, Run] = {}
        self._measured: dict[str, list[tuple[str, RunRequest]]] = {}
        self.known = tuple(known)
        for paper in self.config.papers:
            if paper not in known:
                collect.lines.append(
                    f"papers/{paper}/paper.yaml: no such file"
                    if paper and (self.root / "papers" / paper).is_dir()
                    else f"{place(('papers',))}: papers: {paper!r} is not known{did_you_mean(paper, known)}"
                )
                continue
            folder = collect(self._load_paper, paper)
            if folder:
                self.folders[paper] = folder
        if self.config.scale not in self.scales:
            collect.lines.append(
                f"{place(('scale',))}: scale: {self.config.scale!r} is not known{did_you_mean(self.config.scale, self.scales)}"
            )
        if self.config.corpus is not None and self.config.corpus not in self.corpora:
            collect.lines.append(
                f"{place(('corpus',))}: corpus: {self.config.corpus!r} is not known"
                f"{did_you_mean(self.config.corpus, self.corpora)}"
            )
        collect.finish()
        self._cross_check(collect, self.folders)
        collect.finish()

    @classmethod
    def find(cls, start: str | Path | None = None) -> Project:
        """The project around ``start`` (the working folder by default), read once per process and root."""
        return _cached_project(find_root(start))

    # --- reading ---------------------------------------------------------------------------------------------------

    def _relative(self, name: str | Path) -> str:
        path = Path(name)
        return (
            str(path.relative_to(self.root))
            if path.is_absolute() and path.is_relative_to(self.root)
            else str(path)
        )

    def _document(self, model, name: str):
        path = self.root / name
        try:
            data = load_yaml(path)
            return check(model, data, path)
        except UserError as error:
            raise UserError([line.replace(f"{self.root}{os.sep}", "") for line in error.lines]) from None

    def _load_scales(self, collect: Collector) -> dict[str, Scale]:
        scales = {}
        for path in sorted((self.root / "scales").glob("*.yaml")):
            scale = collect(self._document, Scale, f"scales/{path.name}")
            if scale is None:
                continue
            if scale.id != path.stem:
                collect.lines.append(
                    f"scales/{path.name}: id: {scale.id!r} should be the file's name, {path.stem!r}"
                )
            scales[scale.id] = scale
        return scales

    def _load_paper(self, paper: str) -> PaperFolder:
        collect = Collector()
        base = f"papers/{paper}"
        main = collect(self._document, Paper, f"{base}/paper.yaml")
        variants = collect(self._document, Variants, f"{base}/variants.yaml")
        tables = figures = None
        if (self.root / base / "tables.yaml").exists():
            tables = collect(self._document, Tables, f"{base}/tables.yaml")
        if (self.root / base / "figures.yaml").exists():
            figures = collect(self._document, Figures, f"{base}/figures.yaml")
        if main and main.id != paper:
            collect.lines.append(f"{base}/paper.yaml: id: {main.id!r} should be the folder's name, {paper!r}")
        collect.finish()
        return PaperFolder(
            paper=main,
            variants=variants.variants,
            tables=tables.tables if tables else {},
            figures=figures.figures if figures else {},
            path=self.root / base,
        )

    def _cross_check(self, collect: Collector, folders: Mapping[str, PaperFolder]) -> None:
        """Names that point to nothing, impossible shapes, missing corpora: everything a schema cannot say."""
        for paper, folder in folders.items():
            base = f"papers/{paper}"
            if folder.paper.data.corpus not in self.corpora:
                collect.lines.append(
                    f"{base}/paper.yaml: data.corpus: {folder.paper.data.corpus!r} is not known"
                    f"{did_you_mean(folder.paper.data.corpus, self.corpora)}"
                )
            for scale in self.scales.values():
                changes = scale.papers.get(paper)
                if changes is None:
                    collect.lines.append(
                        f"scales/{scale.id}.yaml: papers: has no entry for {paper!r}; add one (it may be empty: {{}})"
                    )
                    continue
                if changes.data.corpus is not None and changes.data.corpus not in self.corpora:
                    collect.lines.append(
                        f"scales/{scale.id}.yaml: papers.{paper}.data.corpus: {changes.data.corpus!r} is not known"
                        f"{did_you_mean(changes.data.corpus, self.corpora)}"
                    )
                for size in changes.sizes:
                    if size not in folder.paper.sizes:
                        collect.lines.append(
                            f"scales/{scale.id}.yaml: papers.{paper}.sizes: {size!r} is not a size of the paper"
                            f"{did_you_mean(size, folder.paper.sizes)}"
                        )
                for variant in changes.variants:
                    if variant not in folder.variants:
                        collect.lines.append(
                            f"scales/{scale.id}.yaml: papers.{paper}.variants: {variant!r} is not a variant of the paper"
                            f"{did_you_mean(variant, folder.variants)}"
                        )
                for run_set in changes.paired or ():
                    for variant in run_set.variants:
                        try:
                            self.parse_ref(f"{paper}/{run_set.size}/{variant}")
                        except UserError as error:
                            where = f"scales/{scale.id}.yaml: papers.{paper}.paired"
                            collect.lines += [f"{where}: {line}" for line in error.lines]
                for name, one in changes.measured.items():
                    where = f"scales/{scale.id}.yaml: papers.{paper}.measured.{name}"
                    if problem := self.unknown_metric(paper, one.metric):
                        collect.lines.append(f"{where}: metric {problem}")
                    for request in (one.run, self.request(one.run, one.minus or RunRequest())):
                        try:
                            self.parse_ref(f"{paper}/{request.size}/{request.variant}")
                        except UserError as error:
                            collect.lines += [f"{where}: {line}" for line in error.lines]
                artifacts = [*folder.tables, *folder.figures]
                for name in changes.first:
                    if name not in artifacts:
                        collect.lines.append(
                            f"scales/{scale.id}.yaml: papers.{paper}.first: {name!r} is not a table or figure of the paper"
                            f"{did_you_mean(name, artifacts)}"
                        )
            baseline = folder.paper.accounting.baseline
            if baseline not in folder.variants:
                collect.lines.append(
                    f"{base}/paper.yaml: accounting.baseline: {baseline!r} is not a variant{did_you_mean(baseline, folder.variants)}"
                )
        if collect.lines:
            return
        for artifact in self.artifacts():
            if artifact.paper not in folders:
                continue
            where = (
                f"papers/{artifact.paper}/{'tables' if artifact.is_table else 'figures'}.yaml: {artifact.id}"
            )
            for key, request in self._requests(artifact):
                try:
                    for scale in {self.config.scale, "paper"} & set(self.scales):
                        self._spec(artifact.paper, request, seed=0, scale=scale)
                except UserError as error:
                    # A mistake in another file speaks for itself.
                    collect.lines += [
                        line if line.startswith("papers/") else f"{where}.{key}: {line}"
                        for line in error.lines
                    ]
            for metric in dict.fromkeys(metric for metric, _ in self.measured(artifact)):
                if problem := self.unknown_metric(artifact.paper, metric):
                    collect.lines.append(f"{where}: metric {problem}")
        for paper, folder in folders.items():
            for name, figure in folder.figures.items():
                for i, panel in enumerate(getattr(figure, "panels", ())):
                    for file in panel.reported_files():
                        if not (folder.path / "reported" / f"{file}.yaml").exists():
                            known = [path.stem for path in (folder.path / "reported").glob("*.yaml")]
                            collect.lines.append(
                                f"papers/{paper}/figures.yaml: {name}.panels.{i}: reported/{file}.yaml is not there"
                                f"{did_you_mean(file, known)}"
                            )
        for paper, folder in folders.items():
            # A variant that no table uses is still checked, on the first size that fits it.
            for name in folder.variants:
                errors = []
                for size in folder.paper.sizes:
                    try:
                        self.model_of(paper, size, name, "paper")
                        errors = []
                        break
                    except UserError as error:
                        errors = error.lines
                collect.lines += errors

    # --- names -----------------------------------------------------------------------------------------------------

    @property
    def scale(self) -> Scale:
        """The scale that the user chose."""
        return self.scales[self.config.scale]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of every run, or of those that the scale pairs: the user's, else the scale's."""
        return self.config.seeds or self.scale.seeds

    def runs_of(self, paper: str, request: RunRequest) -> tuple[Run, ...]:
        """The runs of a request at the chosen scale, one per seed.

        Where the scale lists ``paired`` runs, every other run has the scale's first seed alone; seeds that the user names
        go for every run.
        """
        run = self.resolve(paper, request, self.seeds[0])
        paired = self._paired_runs(paper)
        if paired is not None and run.id not in paired:
            return (run,)
        return (run, *(self.resolve(paper, request, seed) for seed in self.seeds[1:]))

    def _paired_runs(self, paper: str) -> dict[str, None] | None:
        """First-seed ids of the runs that take every seed, in order of importance; None when all do."""
        if paper not in self._paired:
            sets = self.scale.papers[paper].paired
            everything = sets is None or self.config.seeds is not None
            # Compared by id: a request that spells a default out is the same run.
            self._paired[paper] = (
                None
                if everything
                else dict.fromkeys(
                    self.resolve(paper, request, self.seeds[0]).id
                    for run_set in sets
                    for request in run_set.requests()
                )
            )
        return self._paired[paper]

    def folder(self, paper: str) -> PaperFolder:
        """The folder of a paper by id, chosen in config.yaml or not. Raises UserError with did-you-mean."""
        if paper in self.folders:
            return self.folders[paper]
        if paper not in self._others:
            if paper not in self.known:
                raise UserError(f"{paper!r} is not a paper of this project{did_you_mean(paper, self.known)}")
            self._others[paper] = self._load_paper(paper)
            collect = Collector()
            self._cross_check(collect, {paper: self._others[paper]})
            collect.finish()
        return self._others[paper]

    def artifacts(self, paper: str | None = None) -> list[Artifact]:
        """All tables and figures, in the order of the papers' files."""
        return [
            Artifact(name, key, definition)
            for name, folder in self.folders.items()
            if paper in (None, name)
            for key, definition in (*folder.tables.items(), *folder.figures.items())
        ]

    def artifact(self, target: str) -> Artifact:
        """The artifact behind a target name such as ``resformer_table3``."""
        known = {artifact.target: artifact for artifact in self.artifacts()}
        if target not in known:
            raise UserError(f"{target!r} is not a table or figure{did_you_mean(target, known)}")
        return known[target]

    # --- resolving -------------------------------------------------------------------------------------------------

    def scale_of(self, paper: str, scale: str | None = None) -> tuple[Scale, ScalePaper]:
        """A scale and what it changes of one paper. Raises UserError with did-you-mean."""
        name = scale or self.config.scale
        if name not in self.scales:
            raise UserError(f"scale {name!r} is not known{did_you_mean(name, self.scales)}")
        chosen = self.scales[name]
        return chosen, chosen.papers[paper]

    def model_of(self, paper: str, size: str, variant: str, scale: str | None = None) -> ModelSpec:
        """The model of (paper, size, variant) at a scale. Raises UserError naming the file and key to mend."""
        return _cached_model(self, paper, size, variant, scale or self.config.scale)

    def model_spec(self, ref: str, scale: str = "paper") -> ModelSpec:
        """The model behind ``paper/size/variant``."""
        return self.model_of(*self.parse_ref(ref), scale)

    def parse_ref(self, ref: str) -> tuple[str, str, str]:
        """Split and check ``paper/size/variant``. Raises UserError with did-you-mean for the part that is wrong."""
        parts = ref.split("/")
        if len(parts) != 3:
            example = f"{next(iter(self.folders), 'paper')}/82M/identity"
            raise UserError(f"{ref!r} is not a model; write paper/size/variant, e.g. {example}")
        paper, size, variant = parts
        folder = self.folder(paper)
        if size not in folder.paper.sizes:
            raise UserError(f"{ref!r}: {paper} has no size {size!r}{did_you_mean(size, folder.paper.sizes)}")
        if variant not in folder.variants:
            raise UserError(
                f"{ref!r}: {paper} has no variant {variant!r}{did_you_mean(variant, folder.variants)}"
            )
        return paper, size, variant

    def accounting_defaults(self, paper: str) -> AccountingDefaults:
        """The paper's conventions for FLOPs and KV bytes."""
        return self.folder(paper).paper.accounting

    def resolve(self, paper: str, request: RunRequest, seed: int, scale: str | None = None) -> Run:
        """One run from a request in the paper's terms. Raises UserError naming what is wrong or missing."""
        scale = scale or self.config.scale
        asked = (paper, request.size, request.variant, request.context, _freeze(request.recipe), seed, scale)
        if asked not in self._runs:
            self._runs[asked] = self._run(paper, request, seed, scale)
        return self._runs[asked]

    def _run(self, paper: str, request: RunRequest, seed: int, scale: str) -> Run:
        spec = self._spec(paper, request, seed, scale)
        usual = self.folder(paper).paper.recipe.context
        length = "" if request.context in (None, usual) else f"-T{request.context}"
        size, variant = _cached_names(self, paper, request.size, request.variant, scale)
        return Run(
            id=f"{paper}-{size}-{variant}{length}-s{seed}-{run_hash(spec)}",
            spec=spec,
            paper=paper,
            size=request.size,
            variant=request.variant,
            context=request.context or usual,
            seed=seed,
            scale=scale,
        )

    def _spec(self, paper: str, request: RunRequest, seed: int, scale: str) -> RunSpec:
        """The spec of a request, without the name that makes it a run."""
        folder = self.folder(paper)
        if request.size is None or request.variant is None:
            missing = "size" if request.size is None else "variant"
            raise UserError(
                f"names no {missing}; give `run: {{{missing}: ...}}` in the row, the column or the table"
            )
        self.parse_ref(f"{paper}/{request.size}/{request.variant}")
        chosen, _ = self.scale_of(paper, scale)
        variant = folder.variants[request.variant]
        overrides = {**variant.recipe, **folder.paper.sizes[request.size].recipe, **request.recipe}
        return RunSpec(
            model=self.model_of(paper, request.size, request.variant, chosen.id),
            recipe=self.recipe_of(
                paper, overrides, request.context, chosen.id, size=request.size, variant=request.variant
            ),
            data=self.data_of(paper, chosen.id),
            seed=seed,
        )

    def _canonical_variant(self, paper: str, size: str, variant: str, scale: str) -> str:
        """Variants that come to the same model and recipe at this size share a run, named after the first declared."""
        variants = self.folder(paper).variants
        model, kinds = self.model_of(paper, size, variant, scale), _kinds(self, paper, size, variant, scale)
        for name, other in variants.items():
            if name == variant:
                break
            # Models of different kinds differ: most variants need not be resolved to see it.
            if other.recipe == variants[variant].recipe and kinds == _kinds(self, paper, size, name, scale):
                try:
                    if self.model_of(paper, size, name, scale) == model:
                        return name
                except UserError:
                    continue  # that variant does not fit this size
        return variant

    def _canonical_size(self, paper: str, size: str, variant: str, scale: str) -> str:
        """Sizes of equal shape and recipe, which belong to two of the paper's suites, share runs likewise."""
        sizes = self.folder(paper).paper.sizes
        spelled = {"inferred", "note"}
        shape = sizes[size].model_dump(exclude=spelled)
        for name, other in sizes.items():
            if name == size:
                break
            if other.model_dump(exclude=spelled) == shape and self.model_of(
                paper, name, variant, scale
            ) == self.model_of(paper, size, variant, scale):
                return name
        return size

    def recipe_of(
        self,
        paper: str,
        overrides: Overrides,
        context: int | None = None,
        scale: str | None = None,
        *,
        size: str | None = None,
        variant: str | None = None,
    ) -> Recipe:
        """The recipe at a scale. ``overrides`` and ``context`` are in the paper's terms (its learning rates, its steps).

        ``size`` and ``variant`` say which model is trained; only where the paper fixes training FLOPs do steps depend on it.
        """
        return _cached_recipe(
            self, paper, _freeze(overrides), context, scale or self.config.scale, size, variant
        )

    def data_of(self, paper: str, scale: str | None = None) -> Data:
        """The token data of a paper at a scale."""
        return _cached_data(self, paper, scale or self.config.scale)

    def evaluation_of(self, paper: str, scale: str | None = None) -> Evaluation:
        """What runs of a paper are measured on at a scale."""
        base = self.folder(paper).paper.evaluation
        _, changes = self.scale_of(paper, scale)
        update = {key: value for key, value in changes.evaluation.model_dump().items() if value is not None}
        return base.model_copy(update=update)

    def request(self, *layers: RunRequest) -> RunRequest:
        """Merge requests; later ones win (table, then column, then row)."""
        merged: dict[str, Any] = {"recipe": {}}
        for layer in layers:
            merged["recipe"] = {**merged["recipe"], **layer.recipe}
            for key in ("size", "variant", "context"):
                if getattr(layer, key) is not None:
                    merged[key] = getattr(layer, key)
        return RunRequest(**merged)

    def _requests(self, artifact: Artifact) -> Iterator[tuple[str, RunRequest]]:
        """Every run that an artifact names, with the key that names it."""
        definition = artifact.definition
        if isinstance(definition, Table):
            if definition.kind == "domains":
                return
            for i, row in enumerate(definition.rows):
                for j, column in enumerate(definition.columns):
                    if row.metric or column.metric:
                        key = f"rows.{i}.run" if definition.kind == "runs" else f"columns.{j}.run"
                        yield key, self.request(definition.run, column.run, row.run)
                if row.minus is not None:
                    yield f"rows.{i}.minus", self.request(definition.run, row.minus)
        elif definition.kind == "curves":
            for i, variant in enumerate(definition.variants):
                yield f"variants.{i}", self.request(definition.run, RunRequest(variant=variant))
        else:
            for i, panel in enumerate(definition.panels):
                for wanted in panel.wanted():
                    yield f"panels.{i}.{wanted.key}", self.request(definition.run, *wanted.layers)

    def cell_request(self, table: Table, row: Row, column: Column) -> tuple[str, RunRequest]:
        """Metric and run of one table cell (text columns have no metric: an empty one)."""
        return (row.metric or column.metric or ""), self.request(table.run, column.run, row.run)

    def cell_reads(self, table: Table, row: Row, column: Column) -> tuple[tuple[str, RunRequest], ...]:
        """Metric and run of everything that a cell reads: in a column of differences two runs, or none."""
        metric, request = self.cell_request(table, row, column)
        if not column.difference:
            return ((metric, request),)
        if row.minus is None:
            return ()
        return ((metric, request), (metric, self.request(table.run, column.run, row.minus)))

    def excluded(self, row: Row) -> str | None:
        """Why a row's runs are not trained at this scale; None where they are."""
        return row.only.because if row.only and self.scale.id not in row.only.scales else None

    def common_context_of(self, run: Run) -> int | None:
        """Shorter length at which a run is scored too (``loss.common``), in this scale's tokens; None: at its own alone."""
        common = self.evaluation_of(run.paper, run.scale).common_context
        if common is None or common >= run.context:
            return None
        _, changes = self.scale_of(run.paper, run.scale)
        return max(2, common // changes.recipe.context_divisor)

    def measured(self, artifact: Artifact) -> list[tuple[str, RunRequest]]:
        """Every metric that an artifact reads, with the run that it is read of (cells of text have an empty metric)."""
        if artifact.target not in self._measured:
            self._measured[artifact.target] = list(self._readings(artifact))
        return self._measured[artifact.target]

    def unknown_metric(self, paper: str, metric: str) -> str:
        """Why no run of a paper can have this loss, accuracy or training metric; empty when one can."""
        folder = self.folder(paper).paper
        mixes = [folder.data.domains]
        for scale in self.scales.values():
            if (changes := scale.papers.get(paper)) and changes.data.domains:
                mixes.append(changes.data.domains)
        domains = dict.fromkeys(domain for mix in mixes for domain in mix)
        return unknown_run_metric(metric, domains, folder.evaluation.tasks)

    def _readings(self, artifact: Artifact) -> Iterator[tuple[str, RunRequest]]:
        definition = artifact.definition
        if isinstance(definition, Table):
            for row in definition.rows:
                for column in definition.columns:
                    if self.excluded(row) is None:
                        yield from self.cell_reads(definition, row, column)
            return
        if isinstance(definition, Panels):
            for wanted in (wanted for panel in definition.panels for wanted in panel.wanted()):
                request = self.request(definition.run, *wanted.layers)
                yield from ((metric, request) for metric in wanted.metrics)
            return
        for _, request in self._requests(artifact):
            yield "train.curve", request

    def _runs_behind(self, artifact: Artifact, kinds: tuple[str, ...]) -> Iterator[tuple[str, Run]]:
        """Metric and run, all seeds, for the metrics of these kinds."""
        for metric, request in self.measured(artifact):
            if metric.startswith(kinds):
                for run in self.runs_of(artifact.paper, request):
                    yield metric, run

    def trained_runs(self, artifact: Artifact) -> list[Run]:
        """The runs that must be trained for an artifact, all seeds, each once, in order."""
        return list({run.id: run for _, run in self._runs_behind(artifact, TRAINED)}.values())

    def metrics_of(self, artifact: Artifact) -> set[str]:
        """Which kinds of result an artifact reads: loss, lm, train, analysis, untrained, account, kv, spec, launch, sample."""
        return {metric.split(".")[0] for metric, _ in self.measured(artifact) if metric}

    def analyses_of(self, artifact: Artifact) -> dict[str, set[str]]:
        """Which analyses of which trained runs an artifact reads: run id -> names of modules."""
        wanted: dict[str, set[str]] = {}
        for metric, run in self._runs_behind(artifact, ("analysis.",)):
            wanted.setdefault(run.id, set()).add(metric.split(".")[1])
        return wanted

    def arrays_of(self, artifact: Artifact) -> dict[str, set[str]]:
        """Which arrays over token positions of which trained runs an artifact reads: run id -> ``<module>.<array>``."""
        wanted: dict[str, set[str]] = {}
        for metric, run in self._runs_behind(artifact, ("analysis.",)):
            _, module, name = metric.split(".", 2)
            if name in CATALOGUE[module].arrays:
                wanted.setdefault(run.id, set()).add(f"{module}.{name}")
        return wanted

    def untrained_of(self, artifact: Artifact) -> dict[str, tuple[Run, set[str]]]:
        """Which analyses of runs as they are before training an artifact reads (``untrained.<module>.<series>``)."""
        wanted: dict[str, tuple[Run, set[str]]] = {}
        for metric, run in self._runs_behind(artifact, ("untrained.",)):
            wanted.setdefault(run.id, (run, set()))[1].add(metric.split(".")[1])
        return wanted

    def checkpoints_of(self, artifact: Artifact) -> dict[str, set[str]]:
        """Which analyses of the user's ``hf_models`` an artifact reads: name -> names of modules."""
        panels = () if artifact.is_table else getattr(artifact.definition, "panels", ())
        modules = {panel.series.split(".")[0] for panel in panels if panel.kind == "checkpoints"}
        return {name: set(modules) for name in self.config.hf_models} if modules else {}

    def all_runs(self) -> dict[str, Run]:
        """Every run that some artifact needs, by id, in the order in which few cores should train them.

        First the runs that the scale pairs, one variant after the other with all its seeds, then those of its ``first``
        artifacts, then all others in the order of the papers' files.
        """
        wanted = {run.id: run for artifact in self.artifacts() for run in self.trained_runs(artifact)}
        ordered: dict[str, Run] = {}
        for paper in self.folders:
            changes = self.scale.papers[paper]
            for run_set in changes.paired or ():
                for request in run_set.requests():
                    ordered |= {run.id: run for run in self.runs_of(paper, request) if run.id in wanted}
        for paper in self.folders:
            for name in self.scale.papers[paper].first:
                ordered |= {run.id: run for run in self.trained_runs(self.artifact(f"{paper}_{name}"))}
        return {**ordered, **wanted}

    def data_sets(self) -> dict[str, Data]:
        """Token stores by id: one per distinct data spec of the papers."""
        stores = {}
        for paper in self.folders:
            data = self.data_of(paper)
            stores[tokens_id(data)] = data
        return stores

    def launch_of(self, paper: str, run: Run) -> dict[str, int]:
        """How the paper's machine runs a step (Table 13): GPUs, sequences per GPU, and their quotient."""
        folder = self.folder(paper).paper
        _, changes = self.scale_of(paper, run.scale)
        tokens = changes.recipe.micro_batch_tokens or folder.recipe.micro_batch_tokens
        per_gpu = max(1, tokens // run.spec.recipe.context)
        return {
            "gpus": folder.hardware.gpus,
            "per_gpu_sequences": per_gpu,
            "micro_batches": run.spec.recipe.batch_sequences // per_gpu,
        }

    def view_of(self, run: Run) -> dict[str, Any]:
        """A run's spec with the quantities that papers print but specs derive (activation, tokens per step, ...)."""
        view = run.spec.model_dump(mode="json")
        view["model"] |= PRINTED[run.spec.model.backbone]
        view["recipe"] |= {
            "tokens_per_step": run.spec.recipe.tokens_per_step,
            "summed_lr": (summed := summed_learning_rate(run.spec.recipe)),
            "coefficient_summed_lr": summed * run.spec.recipe.coefficient_lr_multiplier,
        }
        view["data"] |= {"tokens": sum(run.spec.data.train_tokens.values())}
        return view


def _freeze(value: Any) -> Any:
    """Hashable form of nested overrides (for caching)."""
    if isinstance(value, Mapping):
        return tuple((key, _freeze(item)) for key, item in value.items())
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


@functools.cache
def _cached_project(root: Path) -> Project:
    return Project(root)


def _fields(project: Project, paper: str, size: str, variant: str, scale: str) -> dict[str, Any]:
    """Model fields as the paper and the scale write them; the later ones of these six win."""
    folder = project.folder(paper)
    shape = folder.paper.sizes[size]
    _, changes = project.scale_of(paper, scale)
    return {
        **folder.paper.model,
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "ffn_width": shape.ffn_width,
        "kv_group": shape.kv_group,
        **changes.model,
        **changes.sizes.get(size, {}),
        **folder.variants[variant].model,
        **changes.variants.get(variant, {}),
    }


def _kinds(project: Project, paper: str, size: str, variant: str, scale: str) -> list[Any]:
    """Residual stream and value path of a variant, unchecked."""
    fields = _fields(project, paper, size, variant, scale)
    usual = {"stream": {"kind": "pre_ln"}, "values": {"kind": "own"}}
    chosen = [fields.get(part) or other for part, other in usual.items()]
    return [part.get("kind") if isinstance(part, Mapping) else part for part in chosen]


@functools.cache
def _cached_names(project: Project, paper: str, size: str, variant: str, scale: str) -> tuple[str, str]:
    """Size and variant that a run is named after."""
    return (
        project._canonical_size(paper, size, variant, scale),
        project._canonical_variant(paper, size, variant, scale),
    )


@functools.cache
def _cached_model(project: Project, paper: str, size: str, variant: str, scale: str) -> ModelSpec:
    fields = _fields(project, paper, size, variant, scale)
    if scale != "paper" and "paper" in project.scales:
        # What the paper's own shape refuses (8 blocks of 42 layers) is no model of a small scale either.
        project.model_of(paper, size, variant, "paper")
    group = fields.pop("kv_group", 1)
    heads = fields["heads"]
    if not isinstance(group, int) or group < 1 or (isinstance(heads, int) and heads % group):
        raise UserError(
            f"papers/{paper}/variants.yaml: {variant}.model.kv_group: {group!r} does not divide the {heads} heads of size "
            f"{size} at scale {scale}"
        )
    fields.setdefault("kv_heads", heads // group)
    if "ffn_multiple" in fields:
        # A feed-forward in widths, for variants that leave the size's own.
        fields["ffn_width"] = fields.pop("ffn_multiple") * fields["width"]
    where = project.folder(paper).path / "variants.yaml"
    try:
        return check(ModelSpec, fields, where, prefix=("variants", variant, "model"))
    except UserError as error:
        lines = [line.replace(f"{project.root}{os.sep}", "") for line in error.lines]
        raise UserError([f"{line} (size {size}, scale {scale})" for line in lines]) from None


def _thaw(value: Any) -> Any:
    """What ``_freeze`` made of a mapping of plain fields, as a mapping again."""
    pairs = isinstance(value, tuple) and all(isinstance(item, tuple) and len(item) == 2 for item in value)
    return {key: _thaw(item) for key, item in value} if pairs and value else value


def _flops_per_token(project: Project, paper: str, size: str, variant: str, scale: str, context: int) -> int:
    """Training FLOPs per token as the paper counts them."""
    from respath.spec.cost import training_flops_per_token

    model = project.model_of(paper, size, variant, scale)
    return training_flops_per_token(model, context, project.accounting_defaults(paper).attention)


@functools.cache
def _cached_recipe(
    project: Project,
    paper: str,
    overrides: tuple,
    context: int | None,
    scale: str,
    size: str | None = None,
    variant: str | None = None,
) -> Recipe:
    base = project.folder(paper).paper.recipe
    _, changes = project.scale_of(paper, scale)
    terms = base.model_dump() | dict(overrides)
    extra = {key: value for key, value in overrides if key not in type(base).model_fields}
    if unknown := [key for key in extra if key not in Recipe.model_fields]:
        raise UserError(
            [
                f"papers/{paper}: recipe.{key}: unknown key{did_you_mean(key, Recipe.model_fields)}"
                for key in unknown
            ]
        )
    small = changes.recipe
    steps = small.steps or terms["steps"]
    warmup = math.ceil(terms["warmup_steps"] * steps / terms["steps"]) if terms["warmup_steps"] else 0
    length = max(2, (context or terms["context"]) // small.context_divisor)
    tokens = small.micro_batch_tokens or terms["micro_batch_tokens"]
    batch_sequences = max(1, tokens // length) * (small.micro_batches or terms["micro_batches"])
    if terms["target_flops"] and size and variant:
        # Equal FLOPs: a small scale's steps are its baseline's. Warm-up stays as long as the baseline's.
        cost = _flops_per_token(project, paper, size, variant, scale, length)
        if small.steps:
            baseline = project.accounting_defaults(paper).baseline
            target = small.steps * _flops_per_token(project, paper, size, baseline, scale, length)
        else:
            target = terms["target_flops"] / (batch_sequences * length)
        steps = max(1, round(target / cost))
    fields: dict[str, Any] = {
        "steps": steps,
        "warmup_steps": min(warmup, steps - 1),
        "start_lr": terms["start_lr"] * small.lr_factor,
        "peak_lr": terms["peak_lr"] * small.lr_factor,
        "final_lr": terms["peak_lr"] * small.lr_factor * terms["final_lr_ratio"],
        **{
            key: terms[key]
            for key in (
                "beta1",
                "beta2",
                "adam_eps",
                "weight_decay",
                "grad_clip",
                "coefficient_weight_decay",
                "norm_weight_decay",
            )
        },
        "batch_sequences": batch_sequences,
        "context": length,
        "precision": dict(overrides).get("precision") or small.precision or terms["precision"],
    }
    if terms["optimizer"] != "adamw":
        groups, muon = _thaw(terms["groups"]), _thaw(terms["muon"])
        fields |= {"optimizer": terms["optimizer"], "muon": muon}
        fields["groups"] = {
            name: group | {"lr": float(f"{group['lr'] * small.lr_factor:.12g}")}
            for name, group in groups.items()
        }
        if muon and steps != terms["steps"] and small.steps:
            # 400 steps of momentum warm-up would outlast a short run, and its momentum would jump.
            paper_steps = muon.get("momentum_warmup_steps", Muon().momentum_warmup_steps)
            fields["muon"] = muon | {"momentum_warmup_steps": math.ceil(paper_steps * steps / terms["steps"])}
    if terms["schedule"] != "cosine":
        fields |= {"schedule": terms["schedule"], "warmdown_share": terms["warmdown_share"]}
    # Products such as 6e-4 * 5 carry rounding dust into ids and tables; twelve digits are what anybody means.
    fields = {
        key: float(f"{value:.12g}") if isinstance(value, float) else value for key, value in fields.items()
    }
    fields |= {
        key: [list(item) for item in value] if isinstance(value, tuple) else value
        for key, value in extra.items()
    }
    if "lr_multipliers" in fields:
        fields["lr_multipliers"] = dict(fields["lr_multipliers"])
    recipe = check(Recipe, fields, f"papers/{paper}", prefix=("recipe",))
    if small.coefficient_lr == "matched" and "coefficient_lr_multiplier" not in extra:
        full = _cached_recipe(project, paper, overrides, context, "paper")
        factor = min(summed_learning_rate(full) / summed_learning_rate(recipe), MOST_COEFFICIENT_LR)
        recipe = recipe.model_copy(update={"coefficient_lr_multiplier": float(f"{factor:.6g}")})
    return recipe


@functools.cache
def _cached_data(project: Project, paper: str, scale: str) -> Data:
    base = project.folder(paper).paper.data
    _, changes = project.scale_of(paper, scale)
    small = changes.data
    corpus = project.corpora[project.config.corpus or small.corpus or base.corpus]
    domains = small.domains or base.domains
    if corpus.domain_field is None and len(domains) > 1:
        if len(base.domains) > 1:
            raise UserError(
                f"corpus {corpus.name}: all its text is one domain, but {paper} mixes {len(base.domains)}; choose another corpus"
            )
        domains = base.domains
    total = small.train_tokens or base.train_tokens
    validation = small.validation_tokens or base.validation_tokens
    quotas = {name: round(total * domain.share) for name, domain in domains.items()}
    return Data(
        sample=Sample(
            corpus=corpus,
            domains=tuple(sorted(quotas)),
            train_bytes={name: tokens * BYTES_PER_TOKEN for name, tokens in quotas.items()},
            validation_bytes=validation * BYTES_PER_TOKEN,
            shards=small.shards or base.shards,
        ),
        tokenizer=small.tokenizer or base.tokenizer,
        train_tokens=quotas,
        validation_tokens=validation,
    )
