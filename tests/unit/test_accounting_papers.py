"""The accounts of Bank of Values and DepthBench against the numbers that the papers print, and against each other."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from respath.accounting import account
from respath.cli import main
from respath.config.request import RunRequest
from respath.model.resolve import resolve_spec
from respath.papers.library import find_root
from respath.papers.resolve import papers_at
from respath.spec.cost import count_parameters
from respath.spec.layout import layout
from respath.spec.model import ModelSpec
from respath.spec.streams.block_attnres import depth_sources, depth_sources_as_printed


def stored_with_replaced_projections(spec: ModelSpec) -> int:
    """Parameters of a checkpoint that keeps the W^V which a variant replaces, as Bank of Values' public code does."""
    missing = spec.layers - len(layout(spec).value_projections)
    return count_parameters(spec).total + missing * spec.width * spec.kv_width


# --- DepthBench ------------------------------------------------------------------------------------------------------

#: Table 3: layers -> backbone and total in millions, as printed and as its configurations give them.
TABLE_3 = {
    16: (284, 407, "284.25", "406.53"),
    20: (301, 414, "301.46", "414.09"),
    24: (302, 405, "302.43", "405.41"),
    28: (310, 406, "309.71", "406.25"),
    32: (309, 399, "309.26", "399.36"),
    42: (324, 404, "323.70", "404.15"),
    70: (345, 409, "344.87", "409.23"),
}

#: Table 6 at 24 layers: printed in millions, and the exact number.
TABLE_6 = {
    "pre-ln": ("405.41", 405_406_720),
    "full-attnres": ("405.51", 405_505_024),
    "block-attnres": ("405.51", 405_505_024),
    "hc": ("405.70", 405_702_880),
    "mhc": ("410.13", 410_126_608),
    "moda": ("453.64", 453_641_216),
}

#: Prefill of 4,096 tokens: layers -> TFLOPs with last logits, with all, with last and the full square of attention; then GFLOPs
#: that HC, mHC, Full and Block AttnRes add (Block: the paper's count, the code's); gigabytes of cache; its ratio to 16 layers.
PREFILL = {
    16: ("2.981", "3.482", "3.634", "15.3", "38.3", "11.2", "3.6", "3.5", "0.319", "1.00"),
    24: ("3.302", "3.724", "4.126", "19.3", "48.3", "20.5", "4.5", "4.4", "0.403", "1.26"),
    32: ("3.495", "3.864", "4.457", "22.5", "56.4", "31.5", "5.3", "5.2", "0.470", "1.47"),
}


@pytest.mark.parametrize("layers", TABLE_3)
def test_depthbench_table_3_comes_out_to_every_printed_digit(layers):
    backbone, total, exact_backbone, exact_total = TABLE_3[layers]
    counted = account(f"depthbench/400M-L{layers}/pre-ln").parameters
    assert (round(counted.backbone / 1e6), round(counted.total / 1e6)) == (backbone, total)
    assert (f"{counted.backbone / 1e6:.2f}", f"{counted.total / 1e6:.2f}") == (exact_backbone, exact_total)


@pytest.mark.parametrize("variant", TABLE_6)
def test_depthbench_table_6_comes_out_to_every_printed_digit(variant):
    printed, exact = TABLE_6[variant]
    total = account(f"depthbench/400M-L24/{variant}").parameters.total
    assert total == exact and f"{total / 1e6:.2f}" == printed


def test_norms_that_a_post_norm_adds_are_counted():
    layers, width, plain = 24, 1024, TABLE_6["pre-ln"][1]
    extra = {
        v: account(f"depthbench/400M-L24/{v}").parameters.total - plain
        for v in ("sandwich-ln", "keel", "lns", "deepnorm")
    }
    assert extra == {
        "sandwich-ln": 2 * layers * width, "keel": (2 * layers - 1) * width, "lns": 0, "deepnorm": 0,
    }  # fmt: skip


def test_hc_without_transport_stores_what_hc_stores_and_uses_less():
    hc, broken = (account(f"depthbench/400M-L24/{v}").parameters for v in ("hc", "hc-no-transport"))
    assert hc.total == broken.total == hc.live
    assert broken.total - broken.live == 48 * (4 * 4 + 4 * 1024)


@pytest.mark.parametrize("layers", PREFILL)
def test_depthbench_prefill_has_the_counts_of_appendix_d(layers):
    size = f"depthbench/400M-L{layers}"
    plain = account(f"{size}/pre-ln")
    shown = [
        f"{plain.flops.forward / 1e12:.3f}",
        f"{account(f'{size}/pre-ln', logits='all').flops.forward / 1e12:.3f}",
        f"{account(f'{size}/pre-ln', attention='full').flops.forward / 1e12:.3f}",
    ]
    shown += [
        f"{account(f'{size}/{variant}').flops.extra_over_baseline / 1e9:.1f}"
        for variant in ("hc", "mhc", "full-attnres")
    ]
    block = account(f"{size}/block-attnres").flops
    shown += [
        f"{count / 1e9:.1f}"
        for count in (block.by_component["depth_by_the_papers_count"], block.extra_over_baseline)
    ]
    shallow = account("depthbench/400M-L16/pre-ln").kv_cache.bytes
    shown += [f"{plain.kv_cache.bytes / 1e9:.3f}", f"{plain.kv_cache.bytes / shallow:.2f}"]
    assert tuple(shown) == PREFILL[layers]


def test_depthbench_forward_is_the_formula_of_appendix_d_plus_the_papers_extra_terms():
    t, vocab = 4096, 50_280
    for layers, d, ffn in ((16, 1216, 3248), (70, 640, 1712)):
        size = f"depthbench/400M-L{layers}"
        assert account(f"{size}/pre-ln").flops.forward == (
            layers * (8 * t * d * d + 6 * t * d * ffn + 2 * t * t * d) + 2 * d * vocab
        )
        extra = {
            v: account(f"{size}/{v}").flops.extra_over_baseline for v in ("hc", "mhc", "full-attnres", "moda")
        }
        assert extra == {
            "hc": 192 * t * d * layers,
            "mhc": 480 * t * d * layers,
            "full-attnres": 4 * t * d * layers * (2 * layers + 3),
            "moda": 4 * t * d * d * (layers - 1) + 4 * t * d * layers * (layers - 1),
        }


def test_prefill_grows_from_2_98_to_4_33_teraflops_and_the_cache_2_30_times():
    shallow, deep = (account(f"depthbench/400M-L{layers}/pre-ln") for layers in (16, 70))
    assert f"{shallow.flops.forward / 1e12:.2f}" == "2.98" and f"{deep.flops.forward / 1e12:.2f}" == "4.33"
    assert Fraction(deep.kv_cache.bytes, shallow.kv_cache.bytes) == Fraction(70 * 640, 16 * 1216)
    assert f"{deep.kv_cache.bytes / shallow.kv_cache.bytes:.2f}" == "2.30"
    # The rounded 4.4 of the text is HC's or Full AttnRes', which alone were trained at 70 layers.
    assert {
        f"{account(f'depthbench/400M-L70/{v}').flops.forward / 1e12:.1f}" for v in ("hc", "full-attnres")
    } == {"4.4"}


@pytest.mark.parametrize("layers", [16, 20, 24, 28, 32, 84])
def test_the_papers_count_of_block_sources_is_seven_too_many(layers):
    length = 2 * layers // 8
    assert depth_sources_as_printed(layers, length) - depth_sources(layers, length) == 7


def test_blocks_of_one_sub_layer_are_full_attention_residuals():
    full = resolve_spec("depthbench/400M-L16/full-attnres")
    block = resolve_spec(full, overrides={"stream": {"kind": "block_attnres", "length": 1}})
    assert account(full).flops.forward == account(block).flops.forward
    assert account(full).parameters.total == account(block).parameters.total


def test_the_400m_run_costs_the_papers_training_budget():
    run = papers_at("paper").paper("depthbench").run(RunRequest(size="400M-L24", variant="pre-ln"), 1)
    assert run.spec.recipe.tokens == 7600 * 2**20
    cost = account("depthbench/400M-L24/pre-ln").flops.training_per_token * run.spec.recipe.tokens
    assert f"{cost:.1e}" == "1.9e+19"


# --- Bank of Values --------------------------------------------------------------------------------------------------


def test_bov_labels_are_the_baselines_parameters():
    totals = {size: account(f"bov/{size}/baseline").parameters.total for size in ("d12", "d24")}
    assert totals == {"d12": 135_266_329, "d24": 780_140_569}


@pytest.mark.parametrize(
    ("size", "checkpoint", "live"), [("d12", "235.9", "233.6"), ("d24", "1182.8", "1163.9")]
)
def test_bov_stores_tables_and_its_public_checkpoints_dead_projections_too(size, checkpoint, live):
    spec = resolve_spec(f"bov/{size}/bov")
    counted = count_parameters(spec)
    assert f"{counted.live / 1e6:.1f}" == live and counted.total == counted.live
    assert f"{stored_with_replaced_projections(spec) / 1e6:.1f}" == checkpoint
    targets = len(spec.values.layers)
    assert stored_with_replaced_projections(spec) - counted.total == targets * spec.width**2
    assert counted.by_group["tables"] == targets * 32_768 * spec.width


def test_v1_everywhere_stores_what_the_baseline_stores_in_public_checkpoints():
    for size in ("d12", "d24"):
        baseline = count_parameters(resolve_spec(f"bov/{size}/baseline")).total
        assert stored_with_replaced_projections(resolve_spec(f"bov/{size}/v1-all")) == baseline


#: (size, variant) -> training FLOPs per token and iterations at equal FLOPs.
BUDGET = {
    ("d12", "baseline"): (759_693_312, 3_766),
    ("d24", "baseline"): (4_775_215_104, 7_809),
    ("d12", "bov"): (759_693_312 - 14_155_776, 3_838),
    ("d24", "bov"): (4_661_968_896, 7_998),
    ("d12", "v1-all"): (759_693_312 - 11 * 6 * 768**2, 3_969),
    ("d24", "v1-all"): (4_775_215_104 - 23 * 6 * 1536**2, 8_380),
}


@pytest.mark.parametrize(("size", "variant"), BUDGET)
def test_bov_iterations_come_out_as_integers_from_the_flops_budget(size, variant):
    per_token, iterations = BUDGET[size, variant]
    assert account(f"bov/{size}/{variant}").flops.training_per_token == per_token
    recipe = papers_at("paper").paper("bov").run(RunRequest(size=size, variant=variant), 1).spec.recipe
    assert recipe.steps == iterations
    assert recipe.tokens_per_step == {"d12": 2**19, "d24": 2**20}[size]


def test_bov_tokens_and_flops_round_to_what_table_8_prints():
    shown = {}
    for size in ("d12", "d24"):
        recipe = papers_at("paper").paper("bov").run(RunRequest(size=size, variant="baseline"), 1).spec.recipe
        flops = account(f"bov/{size}/baseline").flops.training_per_token * recipe.tokens
        shown[size] = (f"{recipe.tokens / 1e9:.2f}", f"{flops:.2e}")
    assert shown == {"d12": ("1.97", "1.50e+18"), "d24": ("8.19", "3.91e+19")}
    bov = papers_at("paper").paper("bov").run(RunRequest(size="d24", variant="bov"), 1).spec.recipe
    assert f"{bov.tokens / 1e9:.2f}" == "8.39"


@pytest.mark.parametrize(("variant", "printed", "target", "steps"), [("baseline", "4.78e+20", 4.775e20, 95_363), ("bov", "4.66e+20", 4.662e20, 95_368)])  # fmt: skip
def test_the_100b_token_runs_cost_what_table_2_prints(variant, printed, target, steps):
    per_token = account(f"bov/d24/{variant}").flops.training_per_token
    assert f"{per_token * 1e11:.2e}" == printed
    recipe = {"target_flops": target}
    run = papers_at("paper").paper("bov").run(RunRequest(size="d24", variant=variant, recipe=recipe), 1)
    assert run.spec.recipe.steps == steps


def test_the_saving_in_training_flops_is_2_37_per_cent_and_not_the_2_51_of_rounded_figures():
    plain, bov = (account(f"bov/d24/{v}").flops.training_per_token for v in ("baseline", "bov"))
    assert plain - bov == 113_246_208
    assert f"{100 * (plain - bov) / plain:.4f}" == "2.3715"


def test_equal_tokens_are_asked_for_by_leaving_the_flops_budget_out():
    request = RunRequest(size="d24", variant="bov", recipe={"target_flops": None})
    assert papers_at("paper").paper("bov").run(request, 1).spec.recipe.steps == 7_809


def test_a_sum_with_the_embedding_projects_twice_and_a_gated_table_pays_for_its_gate():
    d, layers, t = 768, 12, 2048
    extra = {
        variant: account(f"bov/d12/{variant}").flops.extra_over_baseline
        for variant in ("scaled-v", "x0wv-last-third", "v-plus-v1-last-third", "v-plus-table", "v-plus-x0wv-last-third", "v-plus-table-gated", "bov-every-layer", "bov-shared")
    }  # fmt: skip
    projection = 2 * t * d * d
    assert extra == {
        "scaled-v": 0,
        "x0wv-last-third": 0,
        "v-plus-v1-last-third": 0,
        "v-plus-table": 0,
        "v-plus-x0wv-last-third": 4 * projection,
        "v-plus-table-gated": 6 * 2 * t * 12 * 6,
        "bov-every-layer": -layers * projection,
        "bov-shared": -4 * projection,
    }


def test_bov_keeps_token_ids_instead_of_the_values_of_eight_layers():
    plain, bov = (account(f"bov/d24/{v}").kv_cache for v in ("baseline", "bov"))
    assert bov.elements_per_token == (24 + 16) * 1536 and plain.elements_per_token == 48 * 1536
    assert bov.bytes == 2048 * ((24 + 16) * 1536 * 2 + 4)
    assert bov.ratio_to_baseline == bov.bytes / plain.bytes


@pytest.mark.parametrize(("context", "cache", "saving"), [(2048, "full", -245_760), (2048, "window", -254_976), (32_768, "full", 0), (32_768, "window", -193_536)])  # fmt: skip
def test_what_bov_saves_pays_for_its_tables_at_the_vocabularys_length_only_without_windows(
    context, cache, saving
):
    plain, bov = (account(f"bov/d24/{v}", context=context, cache=cache).kv_cache for v in ("baseline", "bov"))
    # Layer 20 and 24 are long, so that ids are kept whole.
    values = (plain.bytes - (bov.bytes - 4 * context)) // (2 * 1536)
    assert values - 8 * 32_768 == saving


def test_a_windowed_cache_keeps_what_the_longest_reader_sees():
    spec = resolve_spec("bov/d24/baseline")
    full, window = (account(spec, context=4096, cache=cache).kv_cache for cache in ("full", "window"))
    assert window.bytes * 48 * 4096 == full.bytes * 2 * (6 * 4096 + 18 * 512)
    assert window.elements_per_token == 2 * (6 * 4096 + 18 * 512) * 1536 / 4096
    # Layer 1 is short, but long layers read its values.
    reused = account("bov/d24/v1-all", context=4096, cache="window").kv_cache.bytes
    assert reused == (6 * 4096 + 18 * 512 + 4096) * 1536 * 2


# --- what is stored and not used -------------------------------------------------------------------------------------


def unused(size: str, **overrides) -> int:
    counted = count_parameters(resolve_spec(f"resformer/{size}/transformer", overrides=overrides))
    return counted.total - counted.live


def test_a_projection_behind_a_fixed_zero_is_stored_and_not_live():
    d = 512
    mix = {"kind": "mix", "layers": "all", "coefficients": {"source": 1.0, "own": 0.0}}
    assert unused("82M", values=mix) == 7 * d * d
    # With the layer before as the source, every value but the last layer's is used by the next.
    assert unused("82M", values={**mix, "source": "previous"}) == d * d
    assert unused("82M", values={**mix, "source": "previous", "cache": "post_mix"}) == 7 * d * d
    assert unused("82M", values={**mix, "coefficients": {"source": 1.0, "own": 0.0, "learnable": True}}) == 0
    assert (
        unused("82M", values={"kind": "identity_map", "layers": [8], "source": 1.0, "own": 0.0}) == 3 * d * d
    )
    assert (
        unused("82M", attention_residual={"of": "query", "layers": "all", "source": 1.0, "own": 0.0})
        == 7 * d * d
    )
    assert (
        unused("82M", attention_residual={"of": "attention", "layers": [8], "source": 1.0, "own": 0.0})
        == 2 * d * d
    )
    assert unused("82M") == 0


# --- the command line ------------------------------------------------------------------------------------------------

#: Flags of the command and what they are called in Python.
FLAGS = [
    ([], {}),
    (["--context", "512", "--batch", "3"], {"context": 512, "batch": 3}),
    (["--logits", "last", "--attention", "causal"], {"logits": "last", "attention": "causal"}),
    (["--cache", "window", "--scale", "smoke"], {"cache": "window", "scale": "smoke"}),
]


@pytest.fixture
def command(monkeypatch, capsys):
    """``respath account`` with arguments: exit code, output and errors."""
    monkeypatch.chdir(find_root())

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["respath", "account", *arguments])
        return main(), *capsys.readouterr()

    return run


@pytest.mark.parametrize(("flags", "options"), FLAGS)
def test_the_command_prints_the_account_that_its_flags_ask_for(command, flags, options):
    expected = account("bov/d12/bov", **options)
    code, printed, _ = command("bov/d12/bov", "--json", *flags)
    assert code == 0 and json.loads(printed) == expected.to_json()
    code, printed, _ = command("bov/d12/bov", *flags)
    assert code == 0 and f"{expected.parameters.total:,}" in printed


def test_a_wrong_ref_or_context_is_one_line(command):
    for arguments, words in (
        (["bov/d12/bow"], "did you mean 'bov'"),
        (["bov/d12/bov", "--context", "0"], "--context"),
    ):
        code, _, said = command(*arguments)
        assert code == 2 and words in said and len(said.splitlines()) == 1
