"""The papers as data: what their folders resolve to, and what must not change when they grow."""

from __future__ import annotations

import pytest

from respath.accounting import account
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.model import build_model
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.papers.reported import load_reported
from respath.papers.resolve import Resolver
from respath.spec.recipe import learning_rate

ROOT = find_root()


@pytest.fixture(scope="module")
def project() -> Resolver:
    return open_papers(ROOT, {"scale": "smoke"})


def run_of(project, ref: str, scale: str = "paper", **request):
    paper, size, variant = ref.split("/")
    return project.at(scale).paper(paper).run(RunRequest(size=size, variant=variant, **request), 1)


# --- identity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "variant", "run"),
    [
        ("smoke", "transformer", "resformer-82M-transformer-s1-1926f2d8"),
        ("mini", "plus", "resformer-82M-plus-s1-39fbbb53"),
        ("paper", "transformer", "resformer-82M-transformer-s1-db2114ee"),
        ("paper", "plus", "resformer-82M-plus-s1-9e1eb0ab"),
    ],
)
def test_ids_of_existing_runs_stay_as_they_are(project, scale, variant, run):
    # A field that is added with a default changes none of these; a deliberate change of a scale changes that scale's.
    assert run_of(project, f"resformer/82M/{variant}", scale).id == run


def test_no_scale_asks_coefficients_for_more_than_ten_times_the_rate(project):
    factors = {
        (scale, paper): project.at(scale).paper(paper).recipe({}).coefficient_lr_multiplier
        for scale in project.library.scales
        for paper in ("resformer", "depthbench")
    }
    assert all(0 < factor <= 10 for factor in factors.values()), factors
    # Where matching takes less, it is exact, also where rates sum to more than the paper's; smoke asks for more and gets the most.
    assert factors["mini", "resformer"] == 0.250034 and factors["smoke", "resformer"] == 10


def test_a_shape_of_two_suites_is_one_run(project):
    both = [run_of(project, f"depthbench/{size}/hc").id for size in ("400M-L24", "fixed-L24")]
    assert both[0] == both[1] and "400M-L24" in both[0]
    assert run_of(project, "depthbench/fixed-L16/hc").id != run_of(project, "depthbench/400M-L16/hc").id


def test_a_variant_of_equal_model_and_another_recipe_is_another_run(project):
    plain, low = (run_of(project, f"depthbench/400M-L16/{v}").id for v in ("pre-ln", "pre-ln-bf16-params"))
    assert plain != low and "bf16-params" in low


# --- papers that config.yaml does not choose -------------------------------------------------------------------------


def test_models_of_a_paper_that_is_not_chosen_resolve_and_have_no_targets():
    project = open_papers(ROOT, {"papers": ["resformer"]})
    assert project.at("paper").model("bov/d12/bov").backbone == "nanochat"
    assert project.at("smoke").model("depthbench/400M-L16/hc").stream.kind == "hc"
    assert set(project.chosen) == {"resformer"} and {a.paper for a in project.artifacts()} == {"resformer"}


def test_a_wrong_paper_is_told_from_all_that_exist(project):
    with pytest.raises(UserError, match=r"did you mean.*depthbench"):
        project.at("paper").model("depthbnch/400M-L16/hc")


def test_the_names_of_the_plan_exist(project):
    bov = [
        "baseline",
        "scaled-v",
        "v1-all",
        "v1-every-2",
        "v1-last-third",
        "v1-last-third-fixed",
        "x0wv-last-third",
        "x0wv-last-third-fixed",
        "x0wv-every-2",
        "v-plus-v1-last-third",
        "v-plus-v1-last-third-fixed",
        "v-plus-x0wv-last-third",
        "v-plus-x0wv-last-third-fixed",
        "bov",
        "bov-every-layer",
        "bov-shared",
        "bov-fixed",
        "v-plus-table",
        "v-plus-table-gated",
    ]
    depthbench = [
        "pre-ln",
        "sandwich-ln",
        "lns",
        "deepnorm",
        "keel",
        "hc",
        "mhc",
        "full-attnres",
        "block-attnres",
        "moda",
        "hc-no-transport",
        "mhc-near-uniform",
        "block-attnres-4",
        "moda-post",
    ]
    assert set(bov) <= set(project.folder("bov").variants)
    assert set(depthbench) <= set(project.folder("depthbench").variants)
    sizes = {f"400M-L{n}" for n in (16, 20, 24, 28, 32, 42, 70)} | {
        f"fixed-L{n}" for n in (16, 24, 32, 42, 70, 84)
    }
    sizes |= {f"200M-L{n}" for n in (12, 18, 24)} | {f"300M-L{n}" for n in (14, 21, 28)}
    sizes |= {f"500M-L{n}" for n in (17, 26, 34)} | {f"1.6B-L{n}" for n in (28, 40, 54)}
    assert set(project.folder("depthbench").paper.sizes) == sizes
    assert set(project.folder("bov").paper.sizes) == {"d12", "d24"}


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_depthbench_widths_follow_the_papers_rule_at_every_scale(project):
    for scale in project.library.scales:
        for size in project.folder("depthbench").paper.sizes:
            spec = project.at(scale).paper("depthbench").model(size, "pre-ln")
            grouped = size.startswith("1.6B")
            ffn = 3 * spec.width if grouped else -(-8 * spec.width // 48) * 16
            assert spec.ffn_width == ffn and spec.head_dim % 2 == 0, (scale, size)
            assert spec.heads // spec.kv_heads == (2 if grouped else 1)
            assert spec.heads == 16 or scale != "paper"


@pytest.mark.parametrize("scale", ["smoke", "mini"])
def test_small_shapes_keep_block_lengths_and_the_order_of_aspect_ratios(project, scale):
    for layers in (16, 20, 24, 28, 32):
        large, small = (
            project.at(s).paper("depthbench").model(f"400M-L{layers}", "block-attnres")
            for s in ("paper", scale)
        )
        assert large.stream.length == small.stream.length == layers // 4
    tiers = {}
    for size in project.folder("depthbench").paper.sizes:
        large, small = (project.at(s).paper("depthbench").model(size, "pre-ln") for s in ("paper", scale))
        tiers.setdefault(size.split("-")[0], []).append(
            (large.width / large.layers, small.width / small.layers)
        )
    for pairs in tiers.values():
        assert [small for _, small in sorted(pairs)] == sorted(small for _, small in pairs)


@pytest.mark.parametrize("scale", ["smoke", "mini"])
def test_small_totals_stay_equal_within_a_suite(project, scale):
    totals = [
        account(f"depthbench/400M-L{n}/pre-ln", scale=scale).parameters.total
        for n in (16, 20, 24, 28, 32, 42, 70)
    ]
    assert max(totals) / min(totals) < 1.1
    if scale == "smoke":
        return  # there the suite of equal backbones takes these shapes over
    backbones = [
        account(f"depthbench/fixed-L{n}/pre-ln", scale=scale).parameters.backbone
        for n in (16, 24, 32, 42, 70, 84)
    ]
    assert max(backbones) / min(backbones) < 1.1


def test_tiers_that_share_a_shape_at_smoke_share_its_runs_and_no_others(project):
    def named(size, variant="hc", scale="smoke"):
        return run_of(project, f"depthbench/{size}/{variant}", scale).id

    for size, shape in (("200M-L12", "400M-L16"), ("500M-L26", "400M-L24"), ("fixed-L42", "400M-L42")):
        assert named(size) == named(shape) and shape in named(size)
        assert len({named(size, scale=scale) for scale in ("mini", "paper")} | {named(size)}) == 3
        assert named(size, scale="paper") != named(shape, scale="paper")
    # Equal blocks fit 84 layers and not the 70 whose small shape is the same.
    assert "fixed-L84" in named("fixed-L84", "block-attnres")
    # Grouped queries and another rate: runs of their own.
    assert len({named(size) for size in ("1.6B-L28", "400M-L28")}) == 2


def test_the_fixed_suite_has_equal_backbones_within_three_per_cent(project):
    for layers in (16, 24, 32, 42, 70, 84):
        backbone = account(f"depthbench/fixed-L{layers}/pre-ln").parameters.backbone
        assert round(100 * abs(backbone / 302.43e6 - 1)) <= 3, layers


def test_bov_keeps_an_exact_last_third_at_every_scale(project):
    for scale in project.library.scales:
        for size in ("d12", "d24"):
            spec = project.at(scale).paper("bov").model(size, "bov")
            assert spec.layers % 3 == 0 and len(spec.values.layers) * 3 == spec.layers
            assert (
                spec.width % spec.layers == 0
                and spec.heads * 2 == spec.layers
                and spec.ffn_width == 4 * spec.width
            )
    paper = {
        size: project.at("paper").paper("bov").model(size, "bov").values.layers for size in ("d12", "d24")
    }
    assert paper == {"d12": (9, 10, 11, 12), "d24": tuple(range(17, 25))}
    assert project.at("paper").paper("bov").model("d12", "x0wv-every-2").values.layers == (2, 4, 6, 8, 10, 12)
    assert project.at("paper").paper("bov").model("d12", "v1-all").values.layers == tuple(range(2, 13))
    assert project.at("paper").paper("bov").model("d12", "bov-every-layer").values.layers == tuple(
        range(1, 13)
    )


def test_small_windows_keep_their_share_of_the_context(project):
    for scale in project.library.scales:
        run = run_of(project, "bov/d12/baseline", scale)
        assert run.spec.model.windows.short * 4 == run.spec.recipe.context


@pytest.mark.parametrize(
    "ref", ["bov/d12/bov", "bov/d24/v-plus-table-gated", "depthbench/400M-L70/hc", "depthbench/1.6B-L54/moda"]
)
def test_small_models_build(ref):
    model = build_model(ref, scale="smoke", device="meta")
    assert model.spec.vocab_size == 1024


# --- recipes ---------------------------------------------------------------------------------------------------------


def test_learning_rates_of_depthbench_are_the_variants_below_1_6b_and_the_sizes_at_1_6b(project):
    peak = {
        v: run_of(project, f"depthbench/400M-L24/{v}").spec.recipe.peak_lr
        for v in ("pre-ln", "deepnorm", "lns")
    }
    assert peak == {"pre-ln": 2e-3, "deepnorm": 1e-3, "lns": 1e-2}
    assert {run_of(project, f"depthbench/1.6B-L28/{v}").spec.recipe.peak_lr for v in peak} == {5e-4}


def test_steps_and_warm_up_of_depthbench_grow_with_the_tier(project):
    steps = {
        s: run_of(project, f"depthbench/{s}/pre-ln").spec.recipe
        for s in ("200M-L24", "300M-L28", "400M-L24", "500M-L34", "1.6B-L28")
    }
    assert [r.steps for r in steps.values()] == [3800, 5700, 7600, 9500, 30400]
    for recipe in steps.values():
        assert recipe.warmup_steps * 10 == recipe.steps and recipe.tokens_per_step == 2**20
        assert (
            learning_rate(recipe, 0) == 0.0 and learning_rate(recipe, recipe.warmup_steps) == recipe.peak_lr
        )


def test_complete_p_follows_the_depth_and_is_pre_ln_at_24_layers(project):
    deep, base = (run_of(project, f"depthbench/400M-L{n}/pre-ln-complete-p").spec for n in (32, 24))
    assert deep.recipe.eps_multipliers == {"layers.*": 0.75} and deep.recipe.lr_multipliers == {}
    assert base.recipe.eps_multipliers == {} and base.model.stream.multiplier(24) == 1
    assert deep.model.stream.multiplier(32) == 0.75
    for scale in ("smoke", "mini"):
        small = project.at(scale).paper("depthbench").model("400M-L32", "pre-ln-complete-p")
        assert small.stream.multiplier(small.layers) == 0.75


def test_a_search_takes_a_part_of_the_steps_where_a_scale_says_so_and_is_the_run_itself_elsewhere(project):
    def runs(scale):
        return [run_of(project, "depthbench/400M-L24/hc", scale, recipe=r) for r in ({}, {"sweep": True})]

    main, search = runs("mini")
    assert (main.spec.recipe.steps, main.spec.recipe.warmup_steps) == (2000, 200)
    assert (search.spec.recipe.steps, search.spec.recipe.warmup_steps) == (500, 50)
    for scale in ("paper", "smoke"):
        assert len({run.id for run in runs(scale)}) == 1


def test_rates_and_decay_of_bov_follow_nanochats_rules(project):
    """Bank of Values, Table 8: AdamW rates fall with width, all but smear grow with the batch, decay falls with the size."""
    for size, width, matrices, batch in (("d12", 768, 110_100_480, 2**19), ("d24", 1536, 729_808_896, 2**20)):
        recipe = run_of(project, f"bov/{size}/baseline").spec.recipe
        of_batch, of_width = (batch / 2**19) ** 0.5, (width / 768) ** -0.5
        expected = {
            "head": 0.008 * of_batch * of_width, "embedding": 0.3 * of_batch * of_width, "tables": 0.15 * of_batch * of_width,
            "coefficients": 0.5 * of_batch, "own_coefficients": 0.005 * of_batch, "smear": 0.2,
        }  # fmt: skip
        assert {name: group.lr for name, group in recipe.optimizer.groups.items()} == pytest.approx(expected)
        assert recipe.peak_lr == pytest.approx(0.02 * of_batch)
        assert recipe.optimizer.weight_decay == pytest.approx(0.28 * of_batch * 110_100_480 / matrices)
        assert recipe.tokens_per_step == batch and recipe.grad_clip is None
    printed = run_of(project, "bov/d24/baseline").spec.recipe
    assert (
        f"{printed.peak_lr:.4f} {printed.optimizer.weight_decay:.4f} {printed.optimizer.groups['coefficients'].lr:.3f}"
        == "0.0283 0.0597 0.707"
    )


def test_the_rate_of_bov_warms_up_holds_and_falls_to_five_per_cent(project):
    recipe = run_of(project, "bov/d12/baseline").spec.recipe
    rates = [learning_rate(recipe, step) / recipe.peak_lr for step in range(recipe.steps)]
    assert rates[0] == pytest.approx(1 / 40) and rates[39] == 1.0
    warmdown = round(0.65 * recipe.steps)
    assert set(rates[39 : recipe.steps - warmdown + 1]) == {1.0}
    assert rates[recipe.steps - warmdown + 1] < 1.0
    assert rates[-1] == pytest.approx(0.05 + 0.95 / warmdown)


def test_small_scales_spend_equal_flops_too(project):
    base = run_of(project, "bov/d12/baseline", "smoke").spec
    bov = run_of(project, "bov/d12/v1-all", "smoke").spec
    cost = [
        account(spec.model, context=spec.recipe.context, attention="full").flops.training_per_token
        for spec in (base, bov)
    ]
    assert base.recipe.steps == 80 and bov.recipe.steps == round(80 * cost[0] / cost[1]) > 80
    assert base.recipe.optimizer.muon.momentum_warmup_steps < base.recipe.steps


def test_muon_without_its_settings_is_refused(project):
    with pytest.raises(UserError, match=r"recipe\.optimizer\.muon: is missing"):
        run_of(project, "depthbench/400M-L24/pre-ln", recipe={"optimizer": {"kind": "muon_adamw"}})


# --- data ------------------------------------------------------------------------------------------------------------


def test_one_domain_is_a_whole_mix(project):
    for paper, corpus, domain in (
        ("bov", "climbmix", "ClimbMix"),
        ("depthbench", "fineweb-edu-100bt", "FineWebEdu"),
    ):
        data = project.at("paper").paper(paper).data
        assert data.sample.corpus.name == corpus and data.sample.corpus.domain_field is None
        assert data.weights == {domain: 1.0}


def test_papers_share_the_sample_at_smoke_and_the_token_store_where_they_tokenize_alike(project):
    at = {paper: project.at("smoke").paper(paper).data for paper in ("resformer", "depthbench", "bov")}
    assert at["depthbench"] == at["resformer"]
    assert at["bov"].sample == at["resformer"].sample and at["bov"] != at["resformer"]


def test_rows_are_packed_at_the_length_that_a_scale_trains_on(project):
    for scale, row, long in (("smoke", 128, "split"), ("mini", 256, "split"), ("paper", 2048, "crop")):
        paper = project.at(scale).paper("bov")
        packing = paper.data.packing
        assert (packing.kind, packing.row_tokens, packing.long_documents) == ("best_fit", row, long)
        assert paper.recipe({}).context == row and paper.data.tokenizer.split == "nanochat"
        assert project.at(scale).paper("resformer").data.packing.kind == "concatenate"


def test_a_corpus_of_one_domain_replaces_the_stand_ins_mix_and_not_a_papers_own():
    project = open_papers(ROOT, {"corpus": "climbmix", "papers": ["bov"]})
    assert project.at("smoke").paper("bov").data.weights == {"ClimbMix": 1.0}
    with pytest.raises(UserError, match="all its text is one domain, but resformer mixes 7"):
        _ = project.at("smoke").paper("resformer").data


# --- engines ---------------------------------------------------------------------------------------------------------


def test_muon_is_refused_under_deepspeed_in_one_line(project):
    from respath.config.runtime import Runtime
    from respath.training.runtime import refuse_engine

    with pytest.raises(
        UserError, match="the recipe's muon_adamw needs whole ones; use engine: torch"
    ) as caught:
        refuse_engine(Runtime(engine="deepspeed"), run_of(project, "bov/d12/baseline", "smoke").spec.recipe)
    assert len(caught.value.lines) == 1
    refuse_engine(Runtime(), run_of(project, "bov/d12/baseline", "smoke").spec.recipe)
    refuse_engine(Runtime(engine="deepspeed"), run_of(project, "depthbench/400M-L24/hc", "smoke").spec.recipe)


def test_every_printed_cell_of_a_table_has_its_place(project):
    """A row or column that is renamed on one side only must not drop out of the comparison in silence."""
    for artifact in project.artifacts():
        if not artifact.is_table or artifact.definition.reported is None:
            continue
        table = artifact.definition
        folder = project.folder(artifact.paper).path
        reported = load_reported(folder / "reported" / f"{table.reported}.yaml")
        rows = {row.id for row in table.rows}
        columns = {column.reported or column.id for column in table.columns}
        lost = [
            (cell.row, cell.column)
            for cell in reported.cells
            if cell.row not in rows or cell.column not in columns
        ]
        assert not lost, f"{artifact.target} has no place for {lost}"
