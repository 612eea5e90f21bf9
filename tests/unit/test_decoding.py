"""Decoding without a cache of values, in every way: equal to the full forward pass, and counted as what it is. No test reads a clock."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

from respath.measure import decoding, system, timing
from respath.quantities.decoding import BATCHES, FIELDS, WAYS
from respath.spec.cost import cache_bytes
from tests.unit.cached_decoding import in_chunks, in_unequal_rows
from tests.unit.value_models import perturbed, some_ids, spec_of, values

EXACT = {"rtol": 0, "atol": 1e-11}
#: nanochat's backbone with smear and short windows of three tokens, and the plain one; learned and fixed coefficients; a shared table.
NANOCHAT = {"windows": {"pattern": "SSL", "short": 3}, "backbone": "nanochat"}
CASES = {
    "nanochat": values("table", "last-third", learnable=True) | NANOCHAT,
    "every-layer": values("table", "all", learnable=True) | NANOCHAT,
    "shared": values("table", "last-third", shared=True, learnable=True) | NANOCHAT,
    "fixed": values("table", "last-third", source=0.7) | NANOCHAT,
    "llama": values("table", "last-third", learnable=True),
}
LOOKED_UP = ("device", "folded", "host", "prefetch")


@pytest.mark.parametrize("way", LOOKED_UP)
@pytest.mark.parametrize("case", CASES)
def test_one_token_prompts_chunks_and_prompts_across_the_window_give_the_full_forward(case, way):
    model, ids = perturbed(CASES[case]), some_ids(2, 11)
    with torch.no_grad():
        full = model(ids)
        model = decoding.made(model, way)
        for chunks in ([1] * 11, [11], [2, 1, 1, 1, 6], [6, 1, 4], [4, 5, 2]):
            torch.testing.assert_close(in_chunks(model, ids, chunks), full, **EXACT)


@pytest.mark.parametrize("way", LOOKED_UP)
@pytest.mark.parametrize("case", CASES)
def test_rows_of_unequal_length_give_each_rows_full_forward(case, way):
    model, ids = perturbed(CASES[case]), some_ids(3, 12)
    with torch.no_grad():
        full = model(ids)
        model = decoding.made(model, way)
        calls = (([5, 1, 3], 5), ([2, 4, 0], 4), (None, 1), ([0, 3, 2], 3))
        for row, logits in enumerate(in_unequal_rows(model, ids, calls)):
            torch.testing.assert_close(logits, full[row, : len(logits)], **EXACT)


def test_a_folded_model_has_no_coefficient_left_and_the_same_tables():
    model = perturbed(CASES["nanochat"])
    tables = list(model.values.tables)
    folded = decoding.fold(model)
    assert not [name for name, _ in folded.values.named_parameters() if not name.startswith("tables")]
    assert all(one is other for one, other in zip(folded.values.tables, tables, strict=True))


def test_rows_from_the_host_are_counted_and_leave_no_table_on_the_device():
    model, ids = perturbed(CASES["llama"]), some_ids(2, 6)
    width, targets = model.spec.kv_width, len(model.values.targets)
    model = decoding.made(model, "prefetch")
    assert not [name for name, _ in model.values.named_parameters() if "tables" in name]
    with torch.no_grad():
        model(ids, cache=model.new_cache(2, 6))
    assert model.values.moved == targets * 2 * 6 * width * 8


# --- bytes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "read"),
    [
        (lambda x, w: x @ w, 4 * (8 + 32)),
        (lambda x, w: x[:1].expand(5, 4) + 1.0, 4 * 4),
        (lambda x, w: w.t().view(2, 4, 4).unbind(), 0),
        (lambda x, w: F.embedding(torch.tensor([1, 1, 3]), w), 3 * 8 + 3 * 4 * 8),
        (lambda x, w: w[:1].copy_(x[:1, :1]), 4),
    ],
    ids=["product", "expanded", "views", "gather", "copy"],
)
def test_operators_read_their_arguments_once_and_of_a_table_the_rows(call, read):
    x, w = torch.ones(2, 4), torch.ones(4, 8)
    with torch.inference_mode(), decoding.BytesRead() as counted:
        call(x, w)
    assert counted.total == read


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch):
    monkeypatch.setattr(decoding, "DECODED", 2)
    monkeypatch.setattr(system, "DECODED", 2)


def measured(model, baseline=None, **options):
    options = {"context": 24, "precision": "fp32", "device": "cpu", "turns": 1, "batches": (1,), **options}
    return decoding.measure(model, baseline or spec_of(NANOCHAT), **options)


def test_what_is_stored_and_saved_is_the_closed_form():
    model, plain = spec_of(CASES["nanochat"]), spec_of(NANOCHAT)
    found = measured(model, plain, batches=BATCHES)
    assert set(found["batches"]) == set(map(str, BATCHES))
    for batch, ways in found["batches"].items():
        assert set(ways) == set(WAYS)
        for way in ("host", "prefetch"):
            assert ways[way] == {
                "status": "not applicable",
                "reason": "not applicable: host and device memory are one on a CPU",
            }
        for way in ("device", "folded", "long"):
            entry = ways[way]
            assert set(FIELDS) < set(entry) and entry["peak_bytes"] is None
            # fp32 has twice the bytes of the closed form's bf16; ids have four.
            cache = cache_bytes(model, 24, int(batch), 4)
            table = 4 * len(model.values.layers) * model.vocab_size * model.kv_width
            assert (entry["cache_bytes"], entry["table_bytes"]) == (cache, table)
            assert (
                entry["saved_bytes"]
                == entry["formula_saved_bytes"]
                == cache_bytes(plain, 24, int(batch), 4) - cache - table
            )
    assert found["device"]["kind"] == "cpu"


def test_a_model_without_tables_is_measured_against_itself_and_nothing_is_folded():
    ways = measured(spec_of(NANOCHAT))["batches"]["1"]
    assert ways["device"]["bytes_read_ratio"] == ways["device"]["cache_ratio"] == 1.0
    assert ways["device"]["saved_bytes"] == ways["device"]["formula_saved_bytes"] == 0
    for way in ("folded", "host", "prefetch"):
        assert ways[way] == {"status": "not applicable", "reason": "no values are looked up"}
    assert measured(spec_of({}), spec_of({}))["batches"]["1"]["long"]["status"] == "not applicable"


def test_a_way_without_memory_says_so_and_the_others_stand(monkeypatch):
    def none(*arguments, **options):
        raise torch.OutOfMemoryError("too little")

    monkeypatch.setattr(timing.Decoder, "prefill", none)
    ways = measured(spec_of(CASES["nanochat"]))["batches"]["1"]
    assert ways["device"] == {"status": "out of memory"} and ways["host"]["status"] == "not applicable"


def test_a_short_window_reads_fewer_bytes_than_long_layers():
    ways = measured(spec_of(CASES["nanochat"]))["batches"]["1"]
    assert ways["device"]["bytes_read"] < ways["long"]["bytes_read"]


def test_the_command_writes_one_result(tmp_path, capsys):
    out = tmp_path / "decode.json"
    texts = [json.dumps(spec_of(case).model_dump(mode="json")) for case in (CASES["nanochat"], NANOCHAT)]
    arguments = ["--model", texts[0], "--baseline", texts[1], "--name", "S/table", "--context", "8"]
    assert decoding.main([*arguments, "--turns", "1", "--device", "cpu", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    assert (content["kind"], content["model"], content["context"]) == ("decode", "S/table", 8)
    assert "batch 1, host: not applicable" in capsys.readouterr().out
