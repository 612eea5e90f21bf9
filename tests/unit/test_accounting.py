"""Closed forms against the real module, PyTorch's flop counter and the paper's printed sizes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from respath.accounting import account
from respath.accounting.__main__ import main
from respath.accounting.kv import main as kv_main
from respath.accounting.measure import measured_kv
from respath.documents import check
from respath.errors import UserError
from respath.model import build_model, parameter_roles
from respath.spec.cost import count_parameters, forward_flops
from respath.spec.document import identity
from respath.spec.model import ModelSpec
from tests.unit.model_cases import VARIANTS, spec_of

#: ResFormer, Table 14, with its vocabulary: layers, heads, width, feed-forward width, and our exact count.
PAPER_SIZES = {
    "82M": (8, 8, 512, 1792, 81_901_056),
    "180M": (12, 12, 768, 2688, 179_874_048),
    "468M": (24, 16, 1024, 3584, 467_921_920),
}


def paper_shape(size: str) -> dict:
    layers, heads, width, ffn, _ = PAPER_SIZES[size]
    return {
        "vocab_size": 50277, "layers": layers, "heads": heads, "kv_heads": heads, "width": width, "ffn_width": ffn,
    }  # fmt: skip


def assert_counts_match(spec: ModelSpec) -> None:
    model = build_model(spec, device="meta")
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    counted = count_parameters(spec)
    assert counted.total == sum(sizes.values()) == sum(counted.by_group.values())
    outside = ("embedding.", "head.", "final_norm.")
    assert counted.backbone == sum(n for name, n in sizes.items() if not name.startswith(outside))
    roles = parameter_roles(model)
    for group, role in (
        ("embedding", "embedding"),
        ("head", "head"),
        ("norms", "norm"),
        ("coefficients", "coefficient"),
    ):
        assert counted.by_group[group] == sum(n for name, n in sizes.items() if roles[name] == role)
    for group, part in (
        ("query", "q_proj"),
        ("key", "k_proj"),
        ("value", "v_proj"),
        ("output", "o_proj"),
        ("mlp", "mlp."),
    ):
        assert counted.by_group[group] == sum(n for name, n in sizes.items() if part in name)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [{}, {"layers": 7, "width": 48, "ffn_width": 100, "vocab_size": 301}])
def test_parameters_in_closed_form_equal_the_module(variant, shape):
    assert_counts_match(spec_of(variant, **shape))


@pytest.mark.parametrize("size", PAPER_SIZES)
def test_the_papers_sizes_come_out_to_the_last_parameter(size):
    spec = check(ModelSpec, paper_shape(size), size)
    assert_counts_match(spec)
    total = count_parameters(spec).total
    assert total == PAPER_SIZES[size][-1]
    v, d, n, f = spec.vocab_size, spec.width, spec.layers, spec.ffn_width
    assert total == 2 * v * d + n * (4 * d * d + 3 * d * f + 2 * d) + d


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [{}, {"layers": 5, "width": 48, "ffn_width": 100, "vocab_size": 301}])
def test_forward_flops_equal_pytorchs_counter(variant, shape):
    spec, time = spec_of(variant, **shape), 24
    ids = torch.zeros(1, time, dtype=torch.int64, device="meta")
    model = build_model(spec, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids)
    assert counter.get_total_flops() == sum(forward_flops(spec, time, "all", "full").values())


def test_flops_of_the_82m_baseline_by_hand():
    spec = check(ModelSpec, paper_shape("82M"), "82M")
    flops = account(spec, context=2048, logits="all", attention="causal").flops
    t, d = 2048, 512
    assert flops.by_component["attention"] == 8 * 2 * t * t * d
    assert flops.by_component["head"] == 2 * t * d * 50277
    assert flops.by_component["mlp"] == 8 * 6 * t * d * 1792
    assert flops.forward == sum(flops.by_component.values())
    assert flops.training_per_token == 3 * flops.forward // t and 3 * flops.forward % t == 0
    last = account(spec, context=2048, logits="last", attention="causal").flops
    assert flops.forward - last.forward == 2 * (t - 1) * d * 50277
    assert last.training_per_token == flops.training_per_token
    full = account(spec, context=2048, logits="all", attention="full").flops
    assert full.forward - flops.forward == 8 * 2 * t * t * d


def test_svformer_saves_its_value_projections_and_nothing_else():
    base, sv = account(spec_of("transformer"), context=100), account(spec_of("svformer"), context=100)
    assert sv.flops.extra_over_baseline == sv.flops.forward - base.flops.forward == -3 * 2 * 100 * 32 * 32
    assert base.parameters.total - sv.parameters.total == 3 * 32 * 32
    assert base.flops.extra_over_baseline == 0


def test_mixing_values_costs_no_counted_flops():
    for variant in ("identity", "learnable", "plus", "dense", "neutreno", "denseformer"):
        assert account(spec_of(variant), context=64).flops.extra_over_baseline == 0


def test_the_cache_is_counted_in_bf16_for_the_whole_batch_and_its_ratio_is_exact():
    kv = account(spec_of("svformer", layers=8), context=2048, batch=3).kv_cache
    assert kv.elements_per_token == 9 * 32 and kv.bytes == 9 * 32 * 2048 * 3 * 2
    assert kv.ratio_to_baseline == 0.5625
    assert account(spec_of("svformer", layers=24)).kv_cache.ratio_to_baseline == 25 / 48


def test_flops_are_per_sequence_whatever_the_batch():
    assert account(spec_of("identity"), batch=1).flops == account(spec_of("identity"), batch=8).flops


def test_a_baseline_can_be_named():
    own = account(spec_of("gqa2"), baseline=spec_of("gqa2"))
    assert (
        own.kv_cache.ratio_to_baseline == 1.0 and account(spec_of("gqa2")).kv_cache.ratio_to_baseline == 0.5
    )


def test_a_ref_takes_the_papers_conventions():
    result = account("resformer/82M/svformer-gqa4")
    assert result.ref == "resformer/82M/svformer-gqa4"
    assert (
        result.shape["context"] == 2048
        and result.shape["logits"] == "all"
        and result.shape["attention"] == "causal"
    )
    assert result.kv_cache.ratio_to_baseline == 0.140625
    short = account("resformer/82M/svformer-gqa4", context=512, attention="full")
    assert short.kv_cache.bytes * 4 == result.kv_cache.bytes
    assert short.flops.training_per_token == result.flops.training_per_token


def test_the_json_has_the_documented_keys():
    result = account(spec_of("learnable"), context=8).to_json()
    assert set(result) == {"ref", "shape", "parameters", "flops", "kv_cache", "saved"}
    assert set(result["parameters"]) == {
        *("total", "backbone", "embedding", "head", "live", "with_replaced", "by_group"),
    }
    assert set(result["flops"]) == {
        *("forward", "training_per_token", "saved_per_token", "extra_over_baseline", "by_component"),
    }
    assert set(result["kv_cache"]) == {"elements_per_token", "bytes", "ratio_to_baseline"}
    assert set(result["saved"]) == {"of_cache", "of_values", "of_cache_windows", "of_values_windows"}
    assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize(
    "option", [{"logits": "some"}, {"attention": "causl"}, {"context": -1}, {"batch": 0}, {"cache": "x"}]
)
def test_wrong_conventions_are_user_errors(option):
    with pytest.raises(UserError, match=next(iter(option))):
        account(spec_of("transformer"), **option)


def test_accounting_imports_no_torch():
    code = (
        "import sys; from respath.accounting import account; import respath.accounting.kv, "
        "respath.accounting.__main__; account('resformer/82M/plus'); sys.exit('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
    )


# --- measured caches and command lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["transformer", "svformer", "cla2", "plus"])
def test_the_measured_cache_equals_the_formula(variant):
    spec = spec_of(variant)
    measured = measured_kv(spec, 70, batch=2)
    assert measured == {"bytes": account(spec, context=70, batch=2).kv_cache.bytes, "filled": 64}


def test_a_cache_too_large_to_fill_is_measured_on_the_meta_device():
    spec = check(ModelSpec, paper_shape("468M"), "468M")
    assert measured_kv(spec, 2048) == {"bytes": 2 * 24 * 1024 * 2048 * 2, "filled": 0}


def test_the_accounts_stage_writes_one_account_per_entry(tmp_path, capsys):
    entries = [
        {"id": "a", "spec": identity(spec_of("svformer")), "baseline_spec": identity(spec_of("transformer")), "context": 64,
         "logits": "last", "attention": "full"},
        {"id": "b", "spec": identity(spec_of("gqa2")), "context": 32},
    ]  # fmt: skip
    (tmp_path / "entries.json").write_text(json.dumps(entries))
    assert main(["--entries", f"@{tmp_path / 'entries.json'}", "--out", str(tmp_path / "accounts.json")]) == 0
    written = json.loads((tmp_path / "accounts.json").read_text())
    assert written["kind"] == "accounts" and written["schema"] == 1
    expected = account(spec_of("svformer"), context=64, logits="last", attention="full").to_json()
    assert written["entries"]["a"] == expected and written["entries"]["b"]["shape"]["context"] == 32


def test_the_kv_stage_writes_formula_and_measurement(tmp_path):
    entries = [{"id": "sv", "spec": identity(spec_of("svformer")), "context": 40, "batch": 2}]
    assert kv_main(["--entries", json.dumps(entries), "--out", str(tmp_path / "kv.json")]) == 0
    (row,) = json.loads((tmp_path / "kv.json").read_text())["entries"]
    assert row["formula_bytes"] == row["measured_bytes"] == 5 * 32 * 40 * 2 * 2
    assert row["id"] == "sv" and row["elements_per_token"] == 160 and row["ratio_to_baseline"] == 0.625


def test_command_line_errors_name_what_is_wrong(tmp_path, capsys):
    assert main([]) == 2
    assert main(["--spec", "{"]) == 2
    assert main(["--spec", json.dumps({**identity(spec_of("transformer")), "layer": 3})]) == 2
    assert main(["--entries", '[{"id": "a"}, {"id": "a", "spec": {}}]', "--out", str(tmp_path / "x")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "give --spec or --entries" in lines[0] and "not valid JSON" in lines[1]
    assert "layer" in lines[2] and "did you mean" in lines[2]
    assert "entry 0: spec is missing" in lines[3] and "appears twice" in lines[4]
    assert not (tmp_path / "x").exists()


def test_one_spec_prints_its_account_with_the_measured_cache(capsys):
    text = json.dumps(identity(spec_of("cla2")))
    assert main(["--spec", text, "--context", "20", "--measure-kv"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["measured"]["measured_bytes"] == printed["kv_cache"]["bytes"] == 2 * 2 * 32 * 20 * 2
