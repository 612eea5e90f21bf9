"""CORE: the few-shot tasks of DCLM on a trained run, from the files of the published evaluation bundle.

``python -m respath.measure.core --train results/runs/RUN/train.json --checkpoints checkpoints/RUN --tokenizer tokenizer.json
--bundle FOLDER --suite core21 --out results/evals/RUN/core.json``

A task is one of three kinds (DCLM, arXiv 2406.11794; nanochat's evaluation gives the details):

* ``multiple_choice``: one context, several continuations. Scored are the tokens from the first at which the encoded choices
  differ; the lowest score wins.
* ``schema``: several contexts, one continuation. Scored is the common end of the encoded choices; the lowest score wins.
* ``language_modeling``: right when every token of the continuation is the most likely one.

A score is the mean loss per token, or the summed loss over the UTF-8 bytes of the decoded span (at least one), as the suite
says. Contexts of language-modeling items are trimmed and the prompt without its continuation is stripped. Examples are joined by
blank lines; they are other items of the same file, drawn with a generator seeded by 1234 plus the item's place after the file
has been shuffled with seed 1337. Every prompt begins with the tokenizer's document separator.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from respath.documents import check, load_yaml
from respath.errors import UserError, did_you_mean, guard
from respath.files import sha256_file, write_json
from respath.measure.lm import read_train, text_codec
from respath.measure.weights import NotFinite, chosen_device, load_trained
from respath.spec.document import Document
from respath.startup import slow_imports

if TYPE_CHECKING:
    from respath.measure.harness import Piece, RespathLM

SCHEMA = 1
SUITES_FILE = Path(__file__).with_name("core.yaml")
SHUFFLE_SEED, SHOTS_SEED = 1337, 1234

Item = dict[str, Any]


class Task(Document):
    """One task: its file in the bundle and how its items become prompts."""

    kind: Literal["multiple_choice", "schema", "language_modeling"]
    file: str
    items: int
    guessing: float = Field(ge=0, lt=1)
    guessing_later: float | None = None
    delimiter: str = " "
    sha256: str | None = None


class Suite(Document):
    """Tasks with their numbers of examples, and what a choice is scored by."""

    score: Literal["token", "byte"]
    shots: dict[str, int]


class Suites(Document):
    """core.yaml."""

    suites: dict[str, Suite]
    tasks: dict[str, Task]


@functools.cache
def catalogue() -> Suites:
    """Suites and tasks as they are shipped."""
    return check(Suites, load_yaml(SUITES_FILE), SUITES_FILE)


def select(suite: str, names: Sequence[str] = ()) -> tuple[Suite, dict[str, Task]]:
    """A suite and its tasks, all or those named. UserError with did-you-mean for an unknown one."""
    known = catalogue()
    if suite not in known.suites:
        raise UserError(f"--suite {suite!r} is not known{did_you_mean(suite, known.suites)}")
    chosen = known.suites[suite]
    unknown = [name for name in names if name not in chosen.shots]
    if unknown:
        raise UserError(
            [f"--tasks: {name!r} is no task of {suite}{did_you_mean(name, chosen.shots)}" for name in unknown]
        )
    return chosen, {name: known.tasks[name] for name in chosen.shots if not names or name in names}


# --- items ---------------------------------------------------------------------------------------------------------

_KEYS = {
    "multiple_choice": {"query": str, "choices": list, "gold": int},
    "schema": {"context_options": list, "continuation": str, "gold": int},
    "language_modeling": {"context": str, "continuation": str},
}


def _problem(kind: str, row: Any) -> str:
    """Why a row is no item of this kind; empty when it is one."""
    if not isinstance(row, dict):
        return "is no JSON object"
    for key, wanted in _KEYS[kind].items():
        if not isinstance(row.get(key), wanted) or isinstance(row.get(key), bool):
            return f"{key}: is missing or no {wanted.__name__}"
    if kind == "language_modeling":
        return "" if row["continuation"] else "continuation: is empty"
    options = row["choices" if kind == "multiple_choice" else "context_options"]
    if len(options) < 2 or not all(isinstance(option, str) for option in options):
        return "has fewer than two choices, or one that is no text"
    return "" if 0 <= row["gold"] < len(options) else f"gold: {row['gold']} is no choice"


def read_task(bundle: Path, name: str, task: Task) -> tuple[list[Item], str]:
    """The items of a task, in the order of the file, and the file's SHA-256.

    UserError, all problems at once: no such file, another hash or number of items than the bundle's, a row of another schema.
    """
    path = bundle / task.file
    if not path.is_file():
        raise UserError(f"{path}: is not there; --bundle is the folder of the published evaluation bundle")
    digest = sha256_file(path)
    if task.sha256 is not None and digest != task.sha256:
        raise UserError(
            f"{path}: SHA-256 {digest} is not that of the bundle's file ({task.sha256}); copy it again"
        )
    items, problems = [], []
    with path.open(encoding="utf-8", errors="surrogateescape") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                problems.append(f"{path}:{number}: not valid JSON; copy the file again")
                continue
            if problem := _problem(task.kind, row):
                problems.append(f"{path}:{number}: {problem}")
            items.append(row)
    if not problems and len(items) != task.items:
        problems.append(
            f"{path}: {len(items)} items, not {task.items}; the file of {name} was cut or is another"
        )
    if problems:
        more = [f"... and {len(problems) - 5} more rows"] if len(problems) > 5 else []
        raise UserError([*problems[:5], *more])
    return items, digest


def shuffled(items: Sequence[Item]) -> list[Item]:
    """The order in which items have their places."""
    order = list(items)
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def examples_of(items: Sequence[Item], place: int, shots: int) -> list[Item]:
    """The solved examples before the item at ``place``: drawn from all others, the same on every machine."""
    others = [other for other in range(len(items)) if other != place]
    return [items[k] for k in random.Random(SHOTS_SEED + place).sample(others, shots)]


# --- prompts -------------------------------------------------------------------------------------------------------


def prompts_of(task: Task, item: Item, examples: Sequence[Item]) -> list[str]:
    """Texts to encode: one per choice; for language modeling the prompt without and with its continuation."""

    def solved(row: Item) -> str:
        if task.kind == "multiple_choice":
            return f"{row['query']}{task.delimiter}{row['choices'][row['gold']]}"
        if task.kind == "schema":
            return f"{row['context_options'][row['gold']]}{task.delimiter}{row['continuation']}"
        return f"{row['context'].strip()}{task.delimiter}{row['continuation']}"

    before = "".join(f"{solved(example)}\n\n" for example in examples)
    if task.kind == "multiple_choice":
        return [f"{before}{item['query']}{task.delimiter}{choice}" for choice in item["choices"]]
    if task.kind == "schema":
        return [
            f"{before}{context}{task.delimiter}{item['continuation']}" for context in item["context_options"]
        ]
    # Stripped, or the delimiter's blank would be a token that the continuation never follows.
    return [f"{before}{item['context'].strip()}{task.delimiter}".strip(), f"{before}{solved(item)}"]


def common_length(rows: Sequence[Sequence[int]], *, from_the_end: bool = False) -> int:
    """Tokens that all rows share at their beginning, or at their end."""
    shortest = min(map(len, rows))
    for offset in range(shortest):
        place = -1 - offset if from_the_end else offset
        if any(row[place] != rows[0][place] for row in rows[1:]):
            return offset
    return shortest


@dataclass(frozen=True)
class Question:
    """An item in tokens: what is scored of each choice, and which choice is right (-1: all tokens must be the likeliest)."""

    pieces: tuple[Piece, ...]
    spans: tuple[tuple[int, ...], ...]
    gold: int


def question(
    task: Task, item: Item, examples: Sequence[Item], encode: Callable[[str], list[int]], begin: int
):
    """The item as a ``Question``. ValueError where it cannot be scored with this tokenizer."""
    from respath.measure.harness import Piece

    rows = [(begin, *encode(text)) for text in prompts_of(task, item, examples)]
    if task.kind == "language_modeling":
        without, full = rows
        start = len(without)
        if full[:start] != without or start == len(full):
            raise ValueError("the prompt's tokens are not the first of the tokens with the continuation")
        return Question((Piece(full[:-1], full[start:]),), (full[start:],), -1)
    if task.kind == "multiple_choice":
        if any(row == rows[item["gold"]] for k, row in enumerate(rows) if k != item["gold"]):
            raise ValueError("another choice encodes like the right one")
        starts = [common_length(rows)] * len(rows)
    else:
        shared = common_length(rows, from_the_end=True)
        if not shared:
            raise ValueError("the choices share no token at their end")
        # The separator has nothing before it, so that it is never scored.
        starts = [max(1, len(row) - shared) for row in rows]
    spans = tuple(row[start:] for row, start in zip(rows, starts, strict=True))
    pieces = tuple(Piece(row[:-1], span) for row, span in zip(rows, spans, strict=True))
    return Question(pieces, spans, item["gold"])


# --- scores --------------------------------------------------------------------------------------------------------


def answers(
    questions: Sequence[Question], lm: RespathLM, decode: Callable[[list[int]], str], score: str
) -> list[bool]:
    """Whether each question is answered right; all pieces of all questions are batched together.

    A span without tokens (a choice that begins another) has loss 0, and by bytes at least one byte, as in the source.
    """
    pieces = [piece for one in questions for piece in one.pieces if piece.targets]
    scores = iter(lm.score(pieces))
    right = []
    for one in questions:
        found = [next(scores) if piece.targets else (0.0, True) for piece in one.pieces]
        if one.gold < 0:
            right.append(found[0][1])
            continue
        sizes = [
            max(1, len(decode(list(span)).encode()) if score == "byte" else len(span)) for span in one.spans
        ]
        losses = [-value / size for (value, _), size in zip(found, sizes, strict=True)]
        right.append(losses.index(min(losses)) == one.gold)
    return right


def centred(accuracy: float, guessing: float) -> float:
    """(accuracy - guessing) / (1 - guessing): 0 is a guess, 1 is perfect."""
    return (accuracy - guessing) / (1 - guessing)


def evaluate_task(
    bundle: Path,
    name: str,
    task: Task,
    shots: int,
    score: str,
    lm: RespathLM,
    decode: Callable[[list[int]], str],
    limit: int | None = None,
) -> dict[str, Any]:
    """Entry of one task: raw and centred accuracy and, in the order of the places, which items were right.

    ``limit``: the first places after the shuffle, a fixed sample; examples still come from the whole file. A task that
    cannot be scored is "not run", with the reason.
    """
    items, digest = read_task(bundle, name, task)
    items = shuffled(items)
    count = min(limit or len(items), len(items))
    if len(items) <= shots:
        return _not_run(f"{len(items)} items are too few for {shots} examples beside the item itself")
    questions = []
    for place in range(count):
        try:
            shown = examples_of(items, place, shots)
            questions.append(question(task, items[place], shown, lm.tok_encode, lm.eos_id))
        except ValueError as error:
            return _not_run(f"{bundle / task.file}: item at place {place}: {error}")
    limits = getattr(lm.model.spec, "max_positions", None)
    longest = max(len(piece.inputs) for one in questions for piece in one.pieces)
    if limits is not None and longest > limits:
        return _not_run(f"a prompt has {longest} tokens, the model has {limits} positions")
    right = answers(questions, lm, decode, score)
    accuracy = sum(right) / count
    entry = {
        "status": "done",
        "kind": task.kind,
        "shots": shots,
        "accuracy": accuracy,
        "centred": centred(accuracy, task.guessing),
        "guessing": task.guessing,
        "items": count,
        "of_items": len(items),
        "right": "".join("01"[answer] for answer in right),
        "file_sha256": digest,
        "empty_spans": sum(not span for one in questions for span in one.spans),
    }
    if task.guessing_later is not None:
        entry["centred_later"] = centred(accuracy, task.guessing_later)
    return entry


def _not_run(reason: str) -> dict[str, Any]:
    return {"status": "not run", "reason": reason}


def aggregate(tasks: dict[str, dict[str, Any]], suite: Suite) -> dict[str, Any]:
    """CORE where every task of the suite was run, else null with the absent tasks; the mean over those run has its own name."""
    done = {name: entry for name, entry in tasks.items() if entry["status"] == "done"}
    absent = [name for name in suite.shots if name not in done]
    mean = sum(entry["centred"] for entry in done.values()) / len(done) if done else None
    later = [entry.get("centred_later", entry["centred"]) for entry in done.values()]
    return {
        "core": None if absent else mean,
        "core_later_guessing": None if absent else sum(later) / len(later),
        "mean_of_run_tasks": mean,
        "absent": absent,
    }


def evaluate(
    lm: RespathLM,
    decode: Callable[[list[int]], str],
    bundle: Path,
    suite_name: str,
    names: Sequence[str] = (),
    limit: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """All tasks of a suite (or those named) on one model. Files are checked before anything is scored."""
    suite, chosen = select(suite_name, names)
    there = {name: task for name, task in chosen.items() if (bundle / task.file).is_file()}
    problems = []
    for name, task in there.items():
        try:
            read_task(bundle, name, task)
        except UserError as error:
            problems += error.lines
    if not there:
        problems.append(
            f"--bundle {bundle}: holds no file of {suite_name}; give the folder of the published bundle"
        )
    if problems:
        raise UserError(problems)
    tasks: dict[str, dict[str, Any]] = {}
    for name, task in chosen.items():
        if name not in there:
            tasks[name] = _not_run(f"{task.file} is not in the bundle")
            continue
        tasks[name] = evaluate_task(bundle, name, task, suite.shots[name], suite.score, lm, decode, limit)
        entry = tasks[name]
        say(f"{name}: {entry['accuracy']:.4f}" if "accuracy" in entry else f"{name}: {entry['reason']}")
    return {
        "suite": suite_name,
        "score": suite.score,
        "limit": limit,
        "tasks": tasks,
        **aggregate(tasks, suite),
    }


def evaluate_run(
    train_json: Path,
    checkpoints: Path,
    tokenizer: Path,
    bundle: Path,
    suite: str,
    names: Sequence[str] = (),
    limit: int | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Content of core.json for one run."""
    record = read_train(train_json)
    content = {"schema": SCHEMA, "kind": "core", "run": record["run"]}
    if record["status"] == "diverged":
        return {**content, **_diverged(suite, record.get("reason"))}
    from respath.measure.harness import RespathLM

    model, spec = load_trained(train_json, checkpoints, device)
    encode, decode, separator = text_codec(tokenizer)
    lm = RespathLM(model, encode, decode, separator, spec.recipe.context, device)
    content["weights_sha256"] = record["weights"]["sha256"]
    try:
        found = evaluate(lm, decode, bundle, suite, names, limit, say=lambda line: print(line, flush=True))
    except NotFinite as error:
        return {**content, **_diverged(suite, str(error))}
    return {**content, "status": "done", **found}


def _diverged(suite: str, reason: str | None) -> dict[str, Any]:
    return {"status": "diverged", "reason": reason or "training diverged", "suite": suite, "tasks": {}}


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.core", description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True, help="checkpoint folder of this run")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument(
        "--bundle", type=Path, required=True, help="folder of the published evaluation bundle"
    )
    parser.add_argument("--suite", required=True, help="core22 or core21")
    parser.add_argument(
        "--tasks", nargs="*", default=(), help="only these tasks; the mean is then not called CORE"
    )
    parser.add_argument("--limit", type=int, help="items per task, a fixed sample; all without it")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    select(given.suite, given.tasks)
    with slow_imports():
        import respath.model  # noqa: F401 (and torch with it)
    content = evaluate_run(
        given.train,
        given.checkpoints,
        given.tokenizer,
        given.bundle,
        given.suite,
        given.tasks,
        given.limit,
        chosen_device(given.device),
    )
    write_json(given.out, content)
    absent = content.get("absent")
    print(
        "diverged"
        if absent is None
        else f"not CORE: {len(absent)} tasks absent"
        if absent
        else f"CORE {content['core']:.4f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
