"""From a request in a paper's terms to a run at a scale: model, recipe, data, and the id that they hash to."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from respath.config.request import Overrides, RunRequest
from respath.documents import Place, assembled, findings, line_at
from respath.errors import UserError, did_you_mean
from respath.files import canonical_json
from respath.papers.library import Artifact, Library, PaperFolder, find_root
from respath.papers.paper import Evaluation, PaperRecipe, Size
from respath.papers.scales import MOST_COEFFICIENT_LR, Scale
from respath.papers.scaling import RULES
from respath.settings import UserConfig
from respath.spec.cost import weights_of_matrices
from respath.spec.data import Data, Sample
from respath.spec.model import ModelSpec
from respath.spec.recipe import CosineSpec, Recipe, RecipeTerms, summed_learning_rate
from respath.spec.run import RunSpec, run_hash, spec_text

#: Text kept per token of quota: more than any tokenizer here needs, so that the token quota is what stops.
BYTES_PER_TOKEN = 8

#: What papers print of a backbone and a spec does not spell out.
PRINTED = {
    "llama": {"activation": "SwiGLU", "position_embedding": "RoPE"},
    "gpt2": {"activation": "GELU", "position_embedding": "learned"},
    "nanochat": {"activation": "ReLU squared", "position_embedding": "RoPE"},
}

OPTIMIZERS = {"adamw": "AdamW", "muon_adamw": "Muon + AdamW"}


def _schedule(recipe: Recipe) -> str:
    """A schedule in a configuration table's words (Bank of Values, Table 8)."""
    schedule = recipe.schedule
    if isinstance(schedule, CosineSpec):
        return "cosine"
    final = recipe.final_lr / recipe.peak_lr
    warmdown = f"warmdown from {schedule.warmdown_share:g}"
    return f"warmup {recipe.warmup_steps} steps; {warmdown}; final frac. {final:.3g}"


#: The scale whose models are the papers' own.
PAPER_SCALE = "paper"


RecipeKind = TypeVar("RecipeKind", bound=RecipeTerms)


def _checked(kind: type[RecipeKind], fields: Mapping[str, Any]) -> RecipeKind:
    """Fields as a recipe. Raises UserError with a line per key that is wrong."""
    found, recipe = findings(kind, fields)
    if recipe is None:
        raise UserError([f"{'.'.join(map(str, ['recipe', *keys]))}: {message}" for keys, message in found])
    return recipe


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

    @functools.cached_property
    def view(self) -> dict[str, Any]:
        """The spec with the quantities that papers print but specs derive (activation, tokens per step, ...)."""
        recipe = self.spec.recipe
        view = self.spec.model_dump(mode="json")
        view["model"] |= PRINTED[self.spec.model.backbone]
        view["model"] |= {"aspect_ratio": self.spec.model.width / self.spec.model.layers}
        view["recipe"]["optimizer"]["title"] = OPTIMIZERS[recipe.optimizer.kind]
        view["recipe"]["schedule"]["title"] = _schedule(recipe)
        view["recipe"] |= {
            "tokens_per_step": recipe.tokens_per_step,
            "tokens": recipe.tokens,
            "tokens_per_weight": recipe.tokens / weights_of_matrices(self.spec.model),
            "summed_lr": (summed := summed_learning_rate(recipe)),
            "coefficient_summed_lr": summed * recipe.coefficient_lr_multiplier,
        }
        view["data"] |= {"tokens": sum(self.spec.data.train_tokens.values())}
        return view


@dataclasses.dataclass(frozen=True)
class Layer:
    """What one place of a file says of a model; later layers win."""

    file: str
    keys: tuple[str, ...]
    fields: Mapping[str, Any]


class PaperAtScale:
    """One paper at one scale. Raises UserError naming the file and key to mend."""

    def __init__(
        self, library: Library, paper: str, scale: Scale, corpus: str | None, full: PaperAtScale | None
    ):
        self.folder: PaperFolder = library.folder(paper)
        self.scale = scale
        self.changes = self.folder.scales[scale.id]
        #: The paper at its own scale.
        self.full = full or self
        self._library, self._corpus = library, corpus
        self._models: dict[tuple[str, str], ModelSpec] = {}
        self._terms: dict[str, PaperRecipe] = {}
        self._recipes: dict[tuple, Recipe] = {}
        self._kinds_of: dict[tuple[str, str], list[Any]] = {}
        self._names: dict[tuple, tuple[str, str]] = {}
        self._specs: dict[tuple, RunSpec] = {}
        self._runs: dict[tuple, Run] = {}

    @property
    def _place(self) -> Place:
        """Where parts of a spec meet that are right by themselves: the scale's file, or the paper's own."""
        name = "paper" if self.full is self else f"scales/{self.scale.id}"
        return self._library.place(f"papers/{self.folder.id}/{name}.yaml")

    # --- model -----------------------------------------------------------------------------------------------------

    def model(self, size: str, variant: str) -> ModelSpec:
        """The model of a size and variant."""
        if (size, variant) not in self._models:
            if self.full is not self:
                # What the paper's own shape refuses (8 blocks of 42 layers) is no model of a small scale either.
                self.full.model(size, variant)
            layers = self._layers(size, variant)
            found, spec = _model(layers)
            if spec is None:
                raise UserError(
                    [self._refusal(keys, message, layers, size, variant) for keys, message in found]
                )
            self._models[size, variant] = spec
        return self._models[size, variant]

    def _layers(self, size: str, variant: str) -> list[Layer]:
        """Model fields as the paper and the scale write them; the later ones win."""
        folder, changes = self.folder, self.changes
        main, own, scale = (
            f"papers/{folder.id}/{name}.yaml" for name in ("paper", "variants", f"scales/{self.scale.id}")
        )
        return [
            Layer(main, ("model",), folder.paper.model),
            Layer(main, ("sizes", size), _shape_of(folder.paper.sizes[size])),
            Layer(scale, ("model",), changes.model),
            Layer(scale, ("sizes", size), changes.sizes.get(size, {})),
            Layer(own, ("variants", variant, "model"), folder.variants[variant].model),
            Layer(scale, ("variants", variant), changes.variants.get(variant, {})),
        ]

    def _refusal(self, keys: list, message: str, layers: list[Layer], size: str, variant: str) -> str:
        """One problem, said where it comes from: at what the scale changes (the paper's own model was fine), else at the
        first place that the problem comes with."""
        problem = (keys, message)
        changes = [layer for layer in layers if layer.file.endswith(f"scales/{self.scale.id}.yaml")]
        cures = [
            (layer, key)
            for layer in changes
            for key in layer.fields
            if problem not in _model(_without(layers, layer, key))[0]
        ]
        if self.full is not self and cures:
            layer, key = next((cure for cure in cures if _names(cure[1], *problem)), cures[0])
            note = f" (size {size}, variant {variant})"
        else:
            upto = (n for n in range(1, len(layers)) if problem in _model(layers[:n])[0])
            layer = layers[next(upto, len(layers) - 1) - 1]
            key = next((name for name in layer.fields if _names(name, *problem)), "")
            note = f" (size {size}, scale {self.scale.id})"
        place = (*layer.keys, *(keys if not key or keys[:1] == [key] else [key]))
        return line_at(self._library.place(layer.file), place, message + note)

    def canonical(self, request: RunRequest) -> tuple[str, str]:
        """Size and variant that a run is named after: of those that come to the same spec, the first declared."""
        asked = _asked(request)
        if asked not in self._names:
            size, variant = str(request.size), str(request.variant)
            self._names[asked] = (self._first_size(request), self._first_variant(size, variant))
        return self._names[asked]

    def _first_variant(self, size: str, variant: str) -> str:
        variants = self.folder.variants
        model, kinds = self.model(size, variant), self._kinds(size, variant)
        for name, other in variants.items():
            if name == variant:
                break
            # Models of different kinds differ: most variants need not be resolved to see it.
            if other.recipe == variants[variant].recipe and kinds == self._kinds(size, name):
                try:
                    if self.model(size, name) == model:
                        return name
                except UserError:
                    continue  # that variant does not fit this size
        return variant

    def _kinds(self, size: str, variant: str) -> list[Any]:
        """Residual stream and value path of a variant, unchecked."""
        if (size, variant) not in self._kinds_of:
            fields = _merged_fields(self._layers(size, variant))
            chosen = [
                fields.get(part) or {"kind": usual}
                for part, usual in (("stream", "pre_ln"), ("values", "own"))
            ]
            kinds = [part.get("kind") if isinstance(part, Mapping) else part for part in chosen]
            self._kinds_of[size, variant] = kinds
        return self._kinds_of[size, variant]

    def _first_size(self, request: RunRequest) -> str:
        """Sizes that this scale gives one shape share the runs whose recipe is one too."""
        size = str(request.size)
        for name in self.folder.paper.sizes:
            if name == size:
                break
            # Most sizes differ in shape: their specs need not be resolved to see it.
            if self._shape(name) == self._shape(size):
                try:
                    if self.accept(request.model_copy(update={"size": name})) == self.accept(request):
                        return name
                except UserError:
                    continue  # the variant does not fit that size in the paper's own shape
        return size

    def _shape(self, size: str) -> dict[str, Any]:
        """What a size says of a model at this scale, unchecked."""
        return {**_shape_of(self.folder.paper.sizes[size]), **self.changes.sizes.get(size, {})}

    # --- recipe ----------------------------------------------------------------------------------------------------

    def recipe(
        self,
        overrides: Overrides,
        context: int | None = None,
        *,
        size: str | None = None,
        variant: str | None = None,
    ) -> Recipe:
        """The recipe. ``overrides`` and ``context`` are in the paper's terms (its learning rates, its steps).

        ``size`` and ``variant`` say which model is trained; only where the paper fixes training FLOPs do steps depend on it.
        """
        asked = (canonical_json(overrides), context, size, variant)
        if asked not in self._recipes:
            self._recipes[asked] = self._recipe(overrides, context, size, variant)
        return self._recipes[asked]

    def _recipe(
        self, overrides: Overrides, context: int | None, size: str | None, variant: str | None
    ) -> Recipe:
        small = self.changes.recipe
        usual = self.terms(size)
        terms = _checked(PaperRecipe, usual.changed(overrides))
        # A request for more or fewer steps than the size's own recipe gets as many times the scale's.
        steps = max(1, round(small.steps * terms.steps / usual.steps)) if small.steps else terms.steps
        warmup = math.ceil(terms.warmup_steps * (small.steps or usual.steps) / usual.steps)
        if terms.sweep:
            steps = max(2, round(steps * small.sweep_share))
            warmup = math.ceil(warmup * small.sweep_share)
        length = max(2, (context or terms.context) // small.context_divisor)
        tokens = small.micro_batch_tokens or terms.micro_batch_tokens
        batch_sequences = max(1, tokens // length) * (small.micro_batches or terms.micro_batches)
        warmed = steps
        if terms.target_flops and size and variant:
            # Equal FLOPs: a small scale's steps are its baseline's. Warm-up stays as long as the baseline's.
            cost, longer = self._flops_per_token(size, variant, length), 1.0
            target: float
            if small.steps:
                # A longer budget than the size's own is as many times longer here; nothing warms up for longer by it.
                longer = terms.target_flops / (usual.target_flops or terms.target_flops)
                target = steps * self._flops_per_token(size, self.folder.paper.accounting.baseline, length)
            else:
                target = terms.target_flops / (batch_sequences * length)
            warmed, steps = (round(budget / cost) for budget in (target, longer * target))
            if not steps:
                raise UserError(
                    f"recipe.target_flops: {terms.target_flops:g} give no step of {size}/{variant}, which costs "
                    f"{self._flops_per_token(size, variant, length) * batch_sequences * length:g}; raise it"
                )
            warmed = max(1, warmed)
        optimizer = terms.optimizer.scaled(
            small.lr_factor, warmed if small.steps else terms.steps, terms.steps
        )
        # Products such as 6e-4 * 5 carry rounding dust into ids and tables; twelve digits are what anybody means.
        rates = {
            "start_lr": terms.start_lr * small.lr_factor,
            "peak_lr": terms.peak_lr * small.lr_factor,
            "final_lr": terms.peak_lr * small.lr_factor * terms.final_lr_ratio,
        }
        recipe = _checked(
            Recipe,
            {
                **terms.model_dump(mode="json", include=set(RecipeTerms.model_fields)),
                **{name: float(f"{rate:.12g}") for name, rate in rates.items()},
                "optimizer": optimizer.model_dump(mode="json"),
                "steps": steps,
                "warmup_steps": min(warmup, steps - 1),
                "batch_sequences": batch_sequences,
                "context": length,
                "precision": overrides.get("precision") or small.precision or terms.precision,
            },
        )
        if small.coefficient_lr == "matched" and "coefficient_lr_multiplier" not in overrides:
            ratio = summed_learning_rate(self.full.recipe(overrides, context)) / summed_learning_rate(recipe)
            factor = min(ratio, MOST_COEFFICIENT_LR)
            recipe = recipe.model_copy(update={"coefficient_lr_multiplier": float(f"{factor:.6g}")})
        return recipe

    def terms(self, size: str | None) -> PaperRecipe:
        """The paper's recipe at a size, in its own terms: by its rule, then as the size says itself."""
        paper = self.folder.paper
        if size is None:
            return paper.recipe
        if size not in self._terms:
            terms, own = paper.recipe, paper.sizes[size].recipe
            scaling = terms.scaling
            if scaling is not None and size != scaling.size:
                base, model = (
                    self.full.model(one, paper.accounting.baseline) for one in (scaling.size, size)
                )
                per_gpu = own.get("micro_batch_tokens", terms.micro_batch_tokens)
                terms = _checked(PaperRecipe, terms.changed(RULES[scaling.rule](terms, base, model, per_gpu)))
            self._terms[size] = _checked(PaperRecipe, terms.changed(own))
        return self._terms[size]

    def _flops_per_token(self, size: str, variant: str, context: int) -> int:
        """Training FLOPs per token as the paper counts them."""
        from respath.spec.cost import training_flops_per_token

        return training_flops_per_token(
            self.model(size, variant), context, self.folder.paper.accounting.attention
        )

    # --- data and evaluation ---------------------------------------------------------------------------------------

    @functools.cached_property
    def data(self) -> Data:
        """The token data."""
        base, small = self.folder.paper.data, self.changes.data
        name = self._corpus or small.corpus or base.corpus
        if name not in self._library.corpora:
            # Which file says so is the check's to say: the paper, its scale or the settings.
            raise UserError(f"corpus {name!r} is not known{did_you_mean(name, self._library.corpora)}")
        corpus = self._library.corpora[name]
        domains = small.domains or base.domains
        if corpus.domain_field is None and len(domains) > 1:
            if len(base.domains) > 1:
                raise UserError(
                    f"corpus {corpus.name}: all its text is one domain, but {self.folder.id} mixes {len(base.domains)}; "
                    "choose another corpus"
                )
            domains = base.domains
        total = small.train_tokens or base.train_tokens
        validation = small.validation_tokens or base.validation_tokens
        quotas = {name: round(total * domain.share) for name, domain in domains.items()}
        return assembled(
            Data,
            self._place,
            ("data",),
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
            packing=(small.packing or base.packing).of(self.recipe({}).context),
        )

    @functools.cached_property
    def evaluation(self) -> Evaluation:
        """What runs are measured on."""
        changes = self.changes.evaluation.model_dump(exclude_none=True)
        return self.folder.paper.evaluation.model_copy(update=changes)

    @property
    def prompt(self) -> int:
        """Tokens of a prompt whose prefill is measured: as many as accounts count, at this scale."""
        return max(2, self.folder.paper.accounting.context // self.changes.recipe.context_divisor)

    def common_context(self, run: Run) -> int | None:
        """Shorter length at which a run is scored too (``loss.common``), in this scale's tokens; None: at its own alone."""
        common = self.evaluation.common_context
        if common is None or common >= run.context:
            return None
        return max(2, common // self.changes.recipe.context_divisor)

    # --- runs ------------------------------------------------------------------------------------------------------

    def spec(self, request: RunRequest, seed: int) -> RunSpec:
        """The spec of a request, without the name that makes it a run."""
        return self.accept(request).model_copy(update={"seed": seed})

    def accept(self, request: RunRequest) -> RunSpec:
        """The spec at seed 0. Raises UserError for a request that has no run."""
        asked = _asked(request)
        if asked not in self._specs:
            self._specs[asked] = self._spec(request)
        return self._specs[asked]

    def _spec(self, request: RunRequest) -> RunSpec:
        sizes, variants = self.folder.paper.sizes, self.folder.variants
        size, variant = request.model
        if size not in sizes:
            raise UserError(f"{self.folder.id} has no size {size!r}{did_you_mean(size, sizes)}")
        if variant not in variants:
            raise UserError(f"{self.folder.id} has no variant {variant!r}{did_you_mean(variant, variants)}")
        model = self.model(size, variant)
        of_variant, of_size = variants[variant].recipe, sizes[size].recipe
        overrides = {**model.stream.recipe(model), **of_variant, **of_size, **request.recipe}
        return assembled(
            RunSpec,
            self._place,
            model=model,
            recipe=self.recipe(overrides, request.context, size=size, variant=variant),
            data=self.data,
            seed=0,
        )

    def run(self, request: RunRequest, seed: int) -> Run:
        """One run."""
        asked = (*_asked(request), seed)
        if asked not in self._runs:
            spec = self.spec(request, seed)
            usual = self.folder.paper.recipe.context
            length = "" if request.context in (None, usual) else f"-T{request.context}"
            size, variant = self.canonical(request)
            self._runs[asked] = Run(
                id=f"{self.folder.id}-{size}-{variant}{length}-s{seed}-{run_hash(spec)}",
                spec=spec,
                paper=self.folder.id,
                size=request.model[0],
                variant=request.model[1],
                context=request.context or usual,
                seed=seed,
                scale=self.scale.id,
            )
        return self._runs[asked]

    def launch(self, run: Run) -> dict[str, int]:
        """How the paper's machine runs a step: GPUs, sequences per GPU, micro-batches over all GPUs, and those of each."""
        gpus = self.folder.paper.hardware.gpus
        tokens = self.changes.recipe.micro_batch_tokens or self.terms(run.size).micro_batch_tokens
        per_gpu = max(1, tokens // run.spec.recipe.context)
        micro_batches = run.spec.recipe.batch_sequences // per_gpu
        return {
            "gpus": gpus,
            "per_gpu_sequences": per_gpu,
            "micro_batches": micro_batches,
            "accumulation": max(1, micro_batches // gpus),
        }


def _shape_of(size: Size) -> dict[str, int]:
    """The model fields of a size."""
    names = ("layers", "width", "heads", "ffn_width", "kv_group")
    return {name: getattr(size, name) for name in names}


def _asked(request: RunRequest) -> tuple:
    """A request as a key."""
    return (
        request.size,
        request.variant,
        request.context,
        canonical_json(request.recipe) if request.recipe else "",
    )


def _merged_fields(layers: list[Layer]) -> dict[str, Any]:
    return {name: value for layer in layers for name, value in layer.fields.items()}


def _model(layers: list[Layer]) -> tuple[list[tuple[list, str]], ModelSpec | None]:
    """The spec that layers make, or what is wrong with it: key-value heads come from their group, a feed-forward from widths."""
    fields = _merged_fields(layers)
    group, heads = fields.pop("kv_group", 1), fields.get("heads")
    if not isinstance(group, int) or group < 1 or (isinstance(heads, int) and heads % group):
        return [(["kv_group"], f"{group!r} does not divide the {heads} heads")], None
    if isinstance(heads, int):
        fields.setdefault("kv_heads", heads // group)
    if "ffn_multiple" in fields:
        fields["ffn_width"] = fields.pop("ffn_multiple") * fields["width"]
    return findings(ModelSpec, fields)


def _without(layers: list[Layer], layer: Layer, key: str) -> list[Layer]:
    fields = {name: value for name, value in layer.fields.items() if name != key}
    return [dataclasses.replace(layer, fields=fields) if one is layer else one for one in layers]


def _names(key: str, keys: list, message: str) -> bool:
    """Is a problem about this key: at its place, or by its message?"""
    return keys[:1] == [key] or re.search(rf"\b{re.escape(key)}\b", message) is not None


class Resolver:
    """The papers that a user chose, at one scale, with the user's seeds and corpus."""

    def __init__(
        self, library: Library, settings: UserConfig, place: Place = "config.yaml", scale: str | None = None
    ):
        self.library, self.settings = library, settings
        #: Where a setting was given.
        self.place = place
        self.root = library.root
        self.scale = library.scale(scale or settings.scale)
        self.chosen = settings.papers or library.with_tables()
        #: Seeds of every run, or of those that the scale pairs: the user's, else the scale's.
        self.seeds = settings.seeds or self.scale.seeds
        self._papers: dict[str, PaperAtScale] = {}
        self._scales = {self.scale.id: self}
        #: What each table and figure needs, by target, once ``respath.papers.needs`` has worked it out.
        self.needs: dict[str, Any] = {}
        self._paired: dict[str, dict[str, int]] = {}

    def at(self, scale: str) -> Resolver:
        """The same at another scale."""
        if scale not in self._scales:
            other = Resolver(self.library, self.settings, self.place, scale)
            other._scales = self._scales
            self._scales[scale] = other
        return self._scales[scale]

    def paper(self, paper: str) -> PaperAtScale:
        """A paper at this scale, chosen or not."""
        if paper not in self._papers:
            full = None
            if self.scale.id != PAPER_SCALE and PAPER_SCALE in self.library.scales:
                full = self.at(PAPER_SCALE).paper(paper)
            self._papers[paper] = PaperAtScale(self.library, paper, self.scale, self.settings.corpus, full)
        return self._papers[paper]

    def folder(self, paper: str) -> PaperFolder:
        """The folder of a paper, chosen or not."""
        return self.library.folder(paper)

    def model(self, ref: str) -> ModelSpec:
        """The model behind ``paper/size/variant`` at this scale."""
        paper, size, variant = self.library.parse_ref(ref)
        return self.paper(paper).model(size, variant)

    def folders(self) -> Iterator[PaperFolder]:
        """The folders of the chosen papers."""
        return map(self.library.folder, self.chosen)

    def artifacts(self, paper: str | None = None) -> list[Artifact]:
        """All tables and figures of the chosen papers, or of one, in the order of their files."""
        return [
            artifact
            for folder in self.folders()
            if paper in (None, folder.id)
            for artifact in folder.artifacts()
        ]

    def artifact(self, target: str) -> Artifact:
        """The artifact behind a target's name. Raises UserError with did-you-mean."""
        known = {artifact.target: artifact for artifact in self.artifacts()}
        if target not in known:
            raise UserError(f"{target!r} is not a table or figure{did_you_mean(target, known)}")
        return known[target]

    def runs(self, paper: str, request: RunRequest) -> tuple[Run, ...]:
        """The runs of a request, one per seed.

        Where the scale lists ``paired`` runs, each takes as many of its seeds as its entry says, and every other run takes
        the first ``others``; seeds that the user names go for every run.
        """
        at = self.paper(paper)
        run, changes = at.run(request, self.seeds[0]), at.changes
        count = len(self.seeds)
        if changes.paired is not None and self.settings.seeds is None:
            count = self._paired_runs(paper).get(run.id, changes.others)
        return (run, *(at.run(request, seed) for seed in self.seeds[1:count]))

    def _paired_runs(self, paper: str) -> dict[str, int]:
        """First-seed id of each run that the scale pairs -> how many seeds it takes."""
        if paper not in self._paired:
            at = self.paper(paper)
            counts: dict[str, int] = {}
            for one in at.changes.paired or ():
                for request in one.requests():
                    # Compared by id: a request that spells a default out is the same run.
                    id = at.run(request, self.seeds[0]).id
                    counts[id] = max(counts.get(id, 0), one.seeds or len(self.seeds))
            self._paired[paper] = counts
        return self._paired[paper]


@functools.cache
def _papers_at(root: Path, scale: str) -> Resolver:
    return Resolver(Library(root), UserConfig(), scale=scale)


def papers_at(scale: str) -> Resolver:
    """The papers around the working folder at a scale, without anybody's settings: what a ref means for everybody."""
    return _papers_at(find_root(), scale)
