"""The likelihood suite: prompts and targets, sums over target tokens, and a gated set of which nothing is kept."""

from __future__ import annotations

import csv
import json

import pytest
import torch

from respath.errors import UserError
from respath.files import read_json
from respath.measure import items, nll
from respath.measure.harness import RespathLM
from respath.measure.suites import catalogue
from respath.quantities.kinds import KINDS
from respath.quantities.likelihood import SETS
from tests.unit.corpus import tiny_tokens
from tests.unit.finished_run import finished_run
from tests.unit.model_cases import perturbed

#: Made up, in the schemas in which the sets are published.
ROWS = {
    "mbpp": {
        "text": "Double it.",
        "code": "def f(x):\n    return 2 * x",
        "test_list": ["assert f(1) == 2"],
        "task_id": 1,
    },
    "humaneval": {"prompt": "def g(x):\n", "canonical_solution": "    return x\n", "task_id": "HumanEval/0"},
    "sciq": {
        "question": "What falls?",
        "correct_answer": "a stone",
        "support": "Stones fall.",
        "distractor1": "a cloud",
    },
    "gsm8k": {"question": "2 and 3?", "answer": "2+3=<<2+3=5>>5\n#### 5"},
    "math500": {"problem": "Solve $x=1$.", "solution": "$x=\\boxed{1}$", "answer": "1"},
}
FILES = {
    "mbpp": "mbpp.test.jsonl",
    "humaneval": "HumanEval.jsonl",
    "sciq": "sciq.test.jsonl",
    "gsm8k": "gsm8k_test.jsonl",
    "math500": "math500_test.jsonl",
}
GATED = {
    "Record ID": "recMadeUp1",
    "Question": " Which zorblat is green? ",
    "Correct Answer": "quibbix ",
    "Incorrect Answer 1": "one",
    "Incorrect Answer 2": "two",
    "Incorrect Answer 3": "three",
    "Explanation": "Because frandles are.",
}


def gated_file(folder, **changes):
    with (folder / "gpqa_diamond.csv").open("w", newline="", encoding="utf-8") as stream:
        row = {key: value for key, value in {**GATED, **changes}.items() if value is not None}
        writer = csv.DictWriter(stream, row)
        writer.writeheader()
        writer.writerow(row)


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """items.json of the five open sets, from files of the user's own."""
    folder = tmp_path_factory.mktemp("own")
    for name, file in FILES.items():
        (folder / file).write_text("".join(json.dumps(ROWS[name]) + "\n" for _ in range(3)))
    collection = items.Collection("local", folder, False, None, catalogue())
    out = folder / "results" / "items.json"
    items.collect("likelihood", collection, out, list(FILES))
    return out


def test_prompts_and_targets_are_those_of_the_authors_script():
    expected = {
        "mbpp": (
            "You are an expert Python programmer, and here is your task: Double it. Your code should pass these tests:"
            "\n\nassert f(1) == 2\n\n\n[BEGIN]\n",
            "def f(x):\n    return 2 * x\n",
        ),
        "humaneval": ("def g(x):\n", "    return x\n"),
        "sciq": ("Question: What falls?\nAnswer:", " a stone\nExplanation: Stones fall."),
        "gsm8k": ("Question: 2 and 3?\nAnswer:", " 2+3=<<2+3=5>>5\n#### 5"),
        "math500": ("Problem:\nSolve $x=1$.\n\nSolution:", " $x=\\boxed{1}$"),
    }
    assert {name: nll.PAIRS[name](row) for name, row in ROWS.items()} == expected
    prompt, target = nll.PAIRS["gpqa_diamond"](GATED)
    assert target == " quibbix\nExplanation: Because frandles are."
    head, *choices, last = prompt.splitlines()
    assert (head, choices[0], last) == ("Question: Which zorblat is green?", "Choices:", "Answer:")
    # The first eight bytes of the id's SHA-256, as a number, seed the shuffle.
    assert choices[1:] == ["A. quibbix", "B. three", "C. two", "D. one"]
    assert nll.PAIRS["gpqa_diamond"]({**GATED, "Explanation": ""})[1] == " quibbix"


def test_a_score_is_the_sum_over_the_targets_tokens_read_one_by_one():
    model = perturbed("identity", torch.float64)
    lm = RespathLM(model, lambda text: list(text.encode()), lambda ids: bytes(ids).decode(), 256, context=64)
    pairs = [nll.PAIRS["gsm8k"](ROWS["gsm8k"]), ("x:", " yes")]
    for (total, count), (prompt, target) in zip(nll.score(lm, pairs), pairs, strict=True):
        ids = list((prompt + target).encode())
        with torch.inference_mode():
            logs = model(torch.tensor([ids])).log_softmax(-1)[0]
        first = len(prompt.encode())
        plain = -sum(float(logs[at - 1, ids[at]]) for at in range(first, len(ids)))
        assert count == len(target.encode()) and total == pytest.approx(plain, rel=1e-9)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train, manifest, checkpoints, _ = finished_run(
        folder, *tiny_tokens(folder / "tokens", vocab_size=300, validation_tokens=100), context=64
    )
    return train, checkpoints, manifest.parent / read_json(manifest)["tokenizer"]["path"]


def test_all_six_sets_are_scored_where_the_user_has_access_and_no_gated_row_is_kept(
    run, collected, tmp_path, capsys
):
    gated_file(tmp_path)
    train, checkpoints, tokenizer = run
    out = tmp_path / "nll.json"
    options = ["--train", train, "--checkpoints", checkpoints, "--tokenizer", tokenizer, "--items", collected]
    options += ["--limit", "2", "--location", tmp_path, "--device", "cpu", "--out", out]
    assert nll.main(list(map(str, options))) == 0
    content = read_json(out)
    assert set(content["sets"]) == set(SETS) and content["status"] == "done"
    assert {name: entry["items"] for name, entry in content["sets"].items()} == dict.fromkeys(SETS, 2) | {
        "gpqa_diamond": 1
    }
    for entry in content["sets"].values():
        assert entry["nll"] == entry["nll_sum"] / entry["tokens"]
    assert set(content["sets"]["gpqa_diamond"]) == {"status", "items", "of_items", "nll_sum", "tokens", "nll"}
    kept = (
        out.read_text() + capsys.readouterr().out + "".join(p.read_text() for p in collected.parent.iterdir())
    )
    assert not any(word in kept for word in ("zorblat", "quibbix", "frandles", "recMadeUp1"))


def test_a_domain_is_the_mean_of_its_two_sets_and_nothing_without_one(run, collected):
    content = nll.evaluate_run(*run, collected, None)
    read = KINDS["nll"].read
    values = {name: entry.get("nll") for name, entry in content["sets"].items()}
    assert read(content, "coding", None).value == pytest.approx((values["mbpp"] + values["humaneval"]) / 2)
    assert read(content, "math500", None).value == values["math500"]
    assert read(content, "mathematics", None).items["gsm8k"]["0"][1] > 0
    stem = read(content, "stem", None)
    assert (stem.state, stem.reason) == ("not run", nll.NO_GPQA)
    assert "did you mean 'stem'" in KINDS["nll"].unknown("stemm", None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Question": None}, "row 1 has no 'Question'"),
        ({"Incorrect Answer 3": " "}, "row 1 has no 'Incorrect Answer 3'"),
    ],
)
def test_a_gated_file_of_another_schema_is_one_line_that_shows_no_row(tmp_path, changes, said):
    gated_file(tmp_path, **changes)
    with pytest.raises(UserError) as error:
        nll.gpqa_rows(tmp_path, False)
    (line,) = error.value.lines
    assert (
        line.startswith(f"{tmp_path / 'gpqa_diamond.csv'}: {said}; give the file") and "zorblat" not in line
    )


def test_a_file_of_another_schema_is_named_with_its_line_and_key(tmp_path):
    (tmp_path / "HumanEval.jsonl").write_text(json.dumps({"prompt": "def f():"}) + "\n")
    collection = items.Collection("local", tmp_path, False, None, catalogue())
    with pytest.raises(UserError, match=r"HumanEval\.jsonl:1: key 'canonical_solution' is missing"):
        items.collect("likelihood", collection, tmp_path / "out" / "items.json", ["humaneval"])
