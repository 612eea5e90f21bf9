"""Accuracy on a task without each block: the real lm-eval on made-up items, from the command line."""

from __future__ import annotations

import pytest
import torch

from respath.files import read_json
from respath.measure import items
from respath.measure.analyses import answers
from respath.measure.analyses.__main__ import main
from respath.measure.analyses.interventions import skipped
from respath.measure.suites import catalogue
from tests.unit import stream_models
from tests.unit.corpus import tiny_tokens
from tests.unit.finished_run import finished_run, scale_weights
from tests.unit.stream_models import tokens
from tests.unit.test_evaluation_items import write_lines

CONTEXT = 32


def test_a_change_is_the_accuracy_without_a_block_minus_the_accuracy():
    model = stream_models.perturbed(stream_models.STREAMS["hc"]).eval().requires_grad_(False)

    def accuracy():
        return float(torch.sigmoid(model(tokens()).mean()))

    whole, wanted = accuracy(), []
    for block in range(4):
        with skipped(model, block):
            wanted.append(accuracy() - whole)
    found = answers.measure(model, accuracy)
    assert found.series["change"] == wanted and len(set(wanted)) == 4
    assert found.scalars["whole"] == whole == accuracy()
    assert found.scalars["late_mean"] == pytest.approx(sum(wanted[1:]) / 3)
    assert answers.measure(model, "no items").reason == "no items"


def test_a_run_is_asked_arc_easy_without_each_block(tmp_path):
    pytest.importorskip("lm_eval")
    from respath.measure.lm import evaluate_run

    store = tiny_tokens(tmp_path / "store", vocab_size=300, validation_tokens=2000)
    train, manifest, checkpoints, _ = finished_run(tmp_path / "run", *store, context=CONTEXT)
    # Large enough that blocks decide between answers and not their tokens alone.
    scale_weights(train, checkpoints, 8.0)
    questions = [
        {
            "id": str(n),
            "query": f"Question: Which word comes after {n}?\nAnswer:",
            "choices": ["Mars", "eggs", "dogs", "rain"],
            "gold": n % 4,
        }
        for n in range(24)
    ]
    write_lines(tmp_path / "mine" / "arc_easy.test.jsonl", questions)
    collection = items.Collection("local", tmp_path / "mine", False, None, catalogue())
    items.collect("suite", collection, tmp_path / "items.json", ["arc_easy", "piqa"])
    given = {"train": train, "tokens": manifest, "checkpoints": checkpoints, "sequences": 2, "device": "cpu"}
    given |= {"modules": "answers,lens", "out": tmp_path / "analysis.json", "items": tmp_path / "items.json"}
    options = [text for key, value in given.items() for text in (f"--{key}", str(value))]
    assert main([*options, "--limit", "16"]) == 0
    found = read_json(tmp_path / "analysis.json")["modules"]["answers"]
    tokenizer = manifest.parent / read_json(manifest)["tokenizer"]["path"]
    alone = evaluate_run(train, checkpoints, tokenizer, tmp_path / "items.json", 16)["tasks"]["arc_easy"]
    assert found["scalars"]["whole"] == alone["metrics"]["acc_norm"]
    assert alone["items"] == 16 and len(found["series"]["change"]) == 3
    # A share of 16 items, and without some block another one.
    assert all((16 * change).is_integer() for change in found["series"]["change"])
    assert any(found["series"]["change"])
    assert main(options[:-2]) == 0
    assert "without the items" in read_json(tmp_path / "analysis.json")["modules"]["answers"]["reason"]
