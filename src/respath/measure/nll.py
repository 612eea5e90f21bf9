"""Likelihood of reference answers: code, science and mathematics. Nothing is generated, and nothing executed.

``python -m respath.measure.nll --train results/runs/RUN/train.json --checkpoints checkpoints/RUN --tokenizer
tokenizer.json --items results/likelihood_items/items.json --limit 32 --out results/evals/RUN/nll.json``

Per set: - sum over items of log p(target | prompt) / number of target tokens, nats per token; prompts and targets below, tokens as
lm-eval splits a pair. Targets that are longer than the model's context are scored in windows, prompts lose tokens on their left.
Source: DepthBench (arXiv 2609.32534), Figure 4, and its eval/run_nll_eval_coding_stem_math.py.

GPQA asks its readers to keep its questions out of training text. Its rows are read where they are needed, from the user's own file or
account, and none is written, shown or hashed here: results hold the set's sum and number of tokens alone.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respath.data.paths import inside
from respath.errors import UserError, guard
from respath.files import write_json
from respath.fingerprint import measured_by
from respath.measure.lm import at_most, keyed_sample, read_items, text_codec
from respath.measure.weights import NotFinite, add_accept_code, chosen_device, load_trained, read_train
from respath.quantities.likelihood import SETS
from respath.spec.model import ModelSpec
from respath.startup import slow_imports

if TYPE_CHECKING:
    from respath.measure.harness import RespathLM

SCHEMA = 1
GPQA = "gpqa_diamond"
_GPQA_FILES = ("gpqa_diamond.csv", "gpqa_diamond.jsonl", "gpqa_diamond.parquet")
_ANSWERS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
#: Why the gated set is not there, with the remedy.
NO_GPQA = (
    "gpqa_diamond is gated: accept its terms on the hub, then put gpqa_diamond.csv below items_location, or set items: hub "
    "with your HF_TOKEN"
)

Row = dict[str, Any]
Pair = tuple[str, str]

# --- prompts and targets -----------------------------------------------------------------------------------------------


def _joined(prompt: str, target: str) -> Pair:
    """One space between them where neither side has white space."""
    apart = prompt[-1:].isspace() or target[:1].isspace() or not target
    return prompt, target if apart else f" {target}"


def mbpp(row: Row) -> Pair:
    """The task and three tests; the reference code, which ends with a line break."""
    tests = (*row["test_list"], "", "", "")[:3]
    prompt = (
        f"You are an expert Python programmer, and here is your task: {row['text']} Your code should pass these tests:\n\n"
        f"{tests[0]}\n{tests[1]}\n{tests[2]}\n[BEGIN]\n"
    )
    return prompt, row["code"] if row["code"].endswith("\n") else f"{row['code']}\n"


def humaneval(row: Row) -> Pair:
    """Both as they are: the prompt ends where the function's body begins."""
    return row["prompt"], row["canonical_solution"]


def sciq(row: Row) -> Pair:
    """The question; the answer and its support."""
    answer = f"{row['correct_answer']}\nExplanation: {row['support']}"
    return _joined(f"Question: {row['question']}\nAnswer:", answer)


def gpqa_diamond(row: Row) -> Pair:
    """The question with its choices in an order that the record's id decides; the answer and its explanation."""
    choices = [str(row[key]).strip() for key in _ANSWERS]
    digest = hashlib.sha256(str(row.get("Record ID") or row["Question"]).encode()).digest()
    random.Random(int.from_bytes(digest[:8], "big")).shuffle(choices)
    lettered = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=True))
    answer, explanation = str(row[_ANSWERS[0]]).strip(), str(row.get("Explanation") or "").strip()
    target = f"{answer}\nExplanation: {explanation}" if explanation else answer
    return _joined(f"Question: {str(row['Question']).strip()}\nChoices:\n{lettered}\nAnswer:", target)


def gsm8k(row: Row) -> Pair:
    """The question; the solution with its result."""
    return _joined(f"Question: {row['question']}\nAnswer:", row["answer"])


def math500(row: Row) -> Pair:
    """The problem; the solution."""
    return _joined(f"Problem:\n{row['problem']}\n\nSolution:", row["solution"])


PAIRS: dict[str, Callable[[Row], Pair]] = {
    function.__name__: function for function in (mbpp, humaneval, sciq, gpqa_diamond, gsm8k, math500)
}

# --- the gated set -----------------------------------------------------------------------------------------------------


def gpqa_rows(location: Path | None, hub: bool) -> list[Row]:
    """Rows of GPQA-diamond from the user's file below ``location`` or from the hub.

    Raises UserError without access, or for a file of another schema; neither message shows a row.
    """
    files = [path for name in _GPQA_FILES for path in sorted(location.rglob(name))] if location else []
    if files:
        return _complete(_read(files[0]), str(files[0]))
    if not hub:
        raise UserError(NO_GPQA)
    from datasets import load_dataset

    try:
        table = load_dataset("Idavidrein/gpqa", GPQA, split="train")
    except Exception as error:  # the hub's clients raise many unrelated types
        raise UserError(f"{NO_GPQA} ({type(error).__name__})") from None
    return _complete(list(table), "Idavidrein/gpqa")


def _read(path: Path) -> list[Row]:
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(path).to_pylist()
        with path.open(encoding="utf-8", newline="") as stream:
            if path.suffix == ".csv":
                return list(csv.DictReader(stream))
            return [json.loads(line) for line in stream if line.strip()]
    except (OSError, ValueError, csv.Error):
        # What the parser found may be a question.
        raise UserError(f"{path}: cannot be read as {path.suffix[1:]}; download it again") from None


def _complete(rows: list[Row], where: str) -> list[Row]:
    for number, row in enumerate(rows, 1):
        for key in ("Question", *_ANSWERS):
            if not isinstance(row, dict) or not str(row.get(key) or "").strip():
                raise UserError(
                    f"{where}: row {number} has no {key!r}; give the file of gpqa_diamond as it is published"
                )
    if not rows:
        raise UserError(f"{where}: holds no row; give the file of gpqa_diamond as it is published")
    return rows


# --- scoring -----------------------------------------------------------------------------------------------------------


def score(lm: RespathLM, pairs: Sequence[Pair]) -> list[tuple[float, int]]:
    """Of each pair the target's negative log-likelihood in nats, and its number of tokens."""
    encoded = [lm._encode_pair(*pair) for pair in pairs]
    scored = lm._score_groups([lm.pieces(prompt, target) for prompt, target in encoded])
    return [(-value, len(target)) for (value, _), (_, target) in zip(scored, encoded, strict=True)]


def _entry(name: str, results: Sequence[tuple[float, int]], of_items: int) -> dict[str, Any]:
    total, tokens = sum(value for value, _ in results), sum(count for _, count in results)
    entry = {
        "status": "done",
        "items": len(results),
        "of_items": of_items,
        "nll_sum": total,
        "tokens": tokens,
    }
    if name != GPQA:
        entry["documents"] = {str(place): list(result) for place, result in enumerate(results)}
    return entry | {"nll": total / tokens}


def evaluate_sets(
    make_lm: Callable[[], RespathLM], items: Path, limit: int | None, location: Path | None, hub: bool
) -> tuple[dict[str, Any], RespathLM | None]:
    """Entry per set: sum, tokens and mean on ``limit`` of its items (all when None), or why it was not run; and the model."""
    known, sets, lm = read_items(items)["tasks"], {}, None
    for name in SETS:
        try:
            if name == GPQA:
                rows, more = gpqa_rows(location, hub), {}
                lines = [json.dumps(row, default=str) for row in rows]
            else:
                entry = known[name]
                if entry["status"] != "done":
                    raise UserError(f"{name}: {entry['reason']}")
                path = inside(items.parent, str(entry["file"]))
                lines = path.read_text(encoding="utf-8").splitlines()
                more = {key: entry[key] for key in ("source", "split")} | {"items_sha256": entry["sha256"]}
        except UserError as error:
            sets[name] = {"status": "not run", "reason": "; ".join(error.lines)}
            continue
        chosen = [PAIRS[name](json.loads(line)) for line in keyed_sample(lines, name, limit)]
        lm = lm or make_lm()
        sets[name] = _entry(name, score(lm, chosen), len(lines)) | more
    return sets, lm


def evaluate_run(
    train_json: Path,
    checkpoints: Path,
    tokenizer: Path,
    items: Path,
    limit: int | None,
    location: Path | None = None,
    hub: bool = False,
    device: str = "cpu",
    accept_code: bool = False,
) -> dict[str, Any]:
    """Content of nll.json for one run."""
    record = read_train(train_json)
    content = {"schema": SCHEMA, "kind": "nll", "run": record["run"], "limit": limit}
    if record["status"] == "diverged":
        return {**content, **_diverged(record.get("reason"))}
    model_spec = ModelSpec.model_validate_json(json.dumps(record["spec"]["model"]))
    content["code"] = measured_by(record, model_spec, "respath.measure.nll")
    content["weights_sha256"] = record["weights"]["sha256"]

    def make_lm() -> RespathLM:
        from respath.measure.harness import RespathLM

        model, spec = load_trained(train_json, checkpoints, device, accept_code=accept_code)
        encode, decode, eos_id = text_codec(tokenizer)
        return RespathLM(model, encode, decode, eos_id, spec.recipe.context, device)

    try:
        sets, lm = evaluate_sets(make_lm, items, limit, location, hub)
    except NotFinite as error:
        return {**content, **_diverged(str(error))}
    counts = dataclasses.asdict(lm.counts) if lm else {}
    counts.pop("tokens_read", None)
    return {**content, "status": "done", "sets": sets, "counts": counts}


def _diverged(reason: str | None) -> dict[str, Any]:
    return {"status": "diverged", "reason": reason or "training diverged", "sets": {}}


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.nll", description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True, help="checkpoint folder of this run")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument("--items", type=Path, required=True, help="items.json of respath.measure.items")
    parser.add_argument(
        "--limit", type=at_most, required=True, help="items per set, a fixed sample, or none for all"
    )
    parser.add_argument("--location", default="", help="folder that holds your file of GPQA-diamond")
    parser.add_argument(
        "--hub", action="store_true", help="ask the hub for GPQA-diamond, with your own access"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    add_accept_code(parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    with slow_imports():
        import respath.model  # noqa: F401 (and torch with it)
    content = evaluate_run(
        given.train,
        given.checkpoints,
        given.tokenizer,
        given.items,
        given.limit,
        Path(given.location) if given.location else None,
        given.hub,
        chosen_device(given.device),
        given.accept_code,
    )
    write_json(given.out, content)
    for name, entry in content["sets"].items():
        print(f"{name}: {entry['nll']:.4f}" if "nll" in entry else f"{name}: {entry['reason']}")
    if content["status"] == "diverged":
        print(f"diverged: {content['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
