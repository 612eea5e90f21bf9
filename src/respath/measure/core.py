"""CORE: the few-shot tasks of DCLM on a trained run, from the files of the published evaluation bundle.

``python -m respath.measure.core --train results/runs/RUN/train.json --checkpoints checkpoints/RUN --tokenizer tokenizer.json
--bundle FOLDER --suites core21 core22 --out results/evals/RUN/core.json``

``FOLDER`` is one that ``respath.measure.core_bundle`` collected, or the published bundle's ``eval_data``.

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
from respath.files import read_json, sha256_file, write_json
from respath.fingerprint import measured_by
from respath.measure.lm import at_most, text_codec
from respath.measure.weights import NotFinite, add_accept_code, chosen_device, load_trained, read_train
from respath.quantities.core import SUITES
from respath.spec.document import Document
from respath.spec.model import ModelSpec
from respath.startup import slow_imports

if TYPE_CHECKING:
    from respath.measure.harness import Piece, RespathLM

SCHEMA = 1
SUITES_FILE = Path(__file__).with_name("core.yaml")
SHUFFLE_SEED, SHOTS_SEED = 1337, 1234
#: Items whose prompts are held at once: ten thousand of ten examples each, with eleven choices, would be gigabytes.
ITEMS_AT_ONCE = 512
#: What ``respath.measure.core_bundle`` writes beside the task files.
BUNDLE_FILE = "bundle.json"

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


def select(suites: Sequence[str], names: Sequence[str] = ()) -> dict[str, dict[str, Task]]:
    """Suites with their tasks, all or those named. UserError with did-you-mean for everything unknown."""
    known = catalogue()
    problems = [
        f"--suites: {suite!r} is not known{did_you_mean(suite, known.suites)}"
        for suite in suites
        if suite not in known.suites
    ]
    tasks = dict.fromkeys(
        task for suite in suites if suite in known.suites for task in known.suites[suite].shots
    )
    if not problems:
        problems = [
            f"--tasks: {name!r} is no task of {' or '.join(suites)}{did_you_mean(name, tasks)}"
            for name in names
            if name not in tasks
        ]
    if problems:
        raise UserError(problems)
    return {
        suite: {name: known.tasks[name] for name in known.suites[suite].shots if not names or name in names}
        for suite in suites
    }


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


def _no_text(row: Item) -> str:
    """Why a row cannot be encoded: bytes that are not UTF-8, or half of a surrogate pair."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "holds bytes that are no text"
    return ""


def read_task(bundle: Path, name: str, task: Task) -> tuple[list[Item], str]:
    """The items of a task, in the order of the file, and the file's SHA-256.

    UserError, all problems at once: another hash or number of items than the bundle's, a row of another schema.
    """
    path = bundle / task.file
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
            if problem := _problem(task.kind, row) or _no_text(row):
                problems.append(f"{path}:{number}: {problem}")
            items.append(row)
    if not problems and len(items) != task.items:
        problems.append(
            f"{path}: {len(items)} items, not the {task.items} of {name}; the file was cut or is another, copy it again"
        )
    if problems:
        more = [f"{path}: and {len(problems) - 5} more rows"] if len(problems) > 5 else []
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


@dataclass(frozen=True)
class Scored:
    """A question's choices: summed losses (nats), tokens and UTF-8 bytes of the spans, and whether the span is the likeliest.

    A span without tokens (a choice that begins another) has loss 0, and at least one byte, as in the source.
    """

    losses: tuple[float, ...]
    tokens: tuple[int, ...]
    bytes: tuple[int, ...]
    likeliest: bool
    gold: int

    def right(self, score: str) -> bool:
        """Whether the right choice has the lowest loss per token or per byte; without choices, whether its tokens are the likeliest."""
        if self.gold < 0:
            return self.likeliest
        sizes = self.bytes if score == "byte" else self.tokens
        means = [loss / max(1, size) for loss, size in zip(self.losses, sizes, strict=True)]
        return means.index(min(means)) == self.gold


def scored(questions: Sequence[Question], lm: RespathLM, decode: Callable[[list[int]], str]) -> list[Scored]:
    """The choices of each question; all pieces of all questions are batched together."""
    found = iter(lm.score([piece for one in questions for piece in one.pieces if piece.targets]))
    results = []
    for one in questions:
        pieces = [next(found) if piece.targets else (0.0, True) for piece in one.pieces]
        results.append(
            Scored(
                tuple(-value for value, _ in pieces),
                tuple(map(len, one.spans)),
                tuple(len(decode(list(span)).encode()) for span in one.spans),
                pieces[0][1],
                one.gold,
            )
        )
    return results


def centred(accuracy: float, guessing: float) -> float:
    """(accuracy - guessing) / (1 - guessing): 0 is a guess, 1 is perfect."""
    return (accuracy - guessing) / (1 - guessing)


def score_task(
    bundle: Path,
    name: str,
    task: Task,
    shots: int,
    lm: RespathLM,
    decode: Callable[[list[int]], str],
    limit: int | None = None,
) -> dict[str, Any] | tuple[list[Scored], dict[str, Any]]:
    """The items of a task as they were scored, in the order of their places, with what an entry says of them.

    ``limit``: the first places after the shuffle, a fixed sample; examples still come from the whole file. A task that
    cannot be scored is an entry "not run", with the reason.
    """
    items, digest = read_task(bundle, name, task)
    items = shuffled(items)
    count = min(limit or len(items), len(items))
    if len(items) <= shots:
        return _not_run(f"{len(items)} items are too few for {shots} examples beside the item itself")
    limits = getattr(lm.model.spec, "max_positions", None)
    found: list[Scored] = []
    empty = 0
    for start in range(0, count, ITEMS_AT_ONCE):
        questions = []
        for place in range(start, min(start + ITEMS_AT_ONCE, count)):
            try:
                shown = examples_of(items, place, shots)
                questions.append(question(task, items[place], shown, lm.tok_encode, lm.eos_id))
            except ValueError as error:
                return _not_run(f"{task.file}: item at place {place}: {error}")
        longest = max(len(piece.inputs) for one in questions for piece in one.pieces)
        if limits is not None and longest > limits:
            return _not_run(f"a prompt has {longest} tokens, the model has {limits} positions")
        empty += sum(not span for one in questions for span in one.spans)
        found += scored(questions, lm, decode)
    facts = {"items": count, "of_items": len(items), "file_sha256": digest, "empty_spans": empty}
    return found, facts


def entry_of(
    task: Task, shots: int, score: str, found: Sequence[Scored], facts: dict[str, Any]
) -> dict[str, Any]:
    """Entry of one task: raw and centred accuracy and, in the order of the places, which items were right."""
    right = [one.right(score) for one in found]
    accuracy = sum(right) / len(right)
    return {
        "status": "done",
        "kind": task.kind,
        "shots": shots,
        "accuracy": accuracy,
        "centred": centred(accuracy, task.guessing),
        "centred_later": centred(
            accuracy, task.guessing if task.guessing_later is None else task.guessing_later
        ),
        "guessing": task.guessing,
        "guessing_later": task.guessing if task.guessing_later is None else task.guessing_later,
        "right": "".join("01"[answer] for answer in right),
        **facts,
    }


def _not_run(reason: str) -> dict[str, Any]:
    return {"status": "not run", "reason": reason}


def aggregate(tasks: dict[str, dict[str, Any]], suite: Suite) -> dict[str, Any]:
    """CORE where every task of the suite was run, else null with the absent tasks; the mean over those run has its own name."""
    done = {name: entry for name, entry in tasks.items() if entry["status"] == "done"}
    absent = [name for name in suite.shots if name not in done]
    means = {
        key: sum(entry[key] for entry in done.values()) / len(done) if done else None
        for key in ("centred", "centred_later")
    }
    return {
        "core": None if absent else means["centred"],
        "core_later": None if absent else means["centred_later"],
        "mean_of_run_tasks": means["centred"],
        "absent": absent,
    }


# --- a run ---------------------------------------------------------------------------------------------------------


def reasons_of(bundle: Path, chosen: dict[str, Task]) -> dict[str, str]:
    """Why tasks have no file here, by name; nothing for those that have one. UserError for files that are not what they should be.

    A folder that was collected says why a file is absent, and is held to the hashes that it recorded.
    """
    path = bundle / BUNDLE_FILE
    known = read_json(path) if path.is_file() else None
    if known is not None and (not isinstance(known, dict) or known.get("kind") != "core_bundle"):
        raise UserError(
            f"{path}: is not the result of respath.measure.core_bundle; delete it and collect the files again"
        )
    reasons, problems = {}, []
    for name, task in chosen.items():
        recorded = None if known is None else known["files"].get(task.file)
        if recorded is not None and recorded["status"] != "done":
            reasons[name] = recorded["reason"]
            continue
        try:
            if not (bundle / task.file).is_file():
                if recorded is not None:
                    raise UserError(
                        f"{bundle / task.file}: is missing; delete {path} and collect the files again"
                    )
                reasons[name] = f"no {task.file} in the bundle"
                continue
            _, digest = read_task(bundle, name, task)
            if recorded is not None and digest != recorded["sha256"]:
                raise UserError(
                    f"{bundle / task.file}: differs from the hash in {path}; delete both and collect the files again"
                )
        except UserError as error:
            problems += error.lines
    if not problems and known is None and len(reasons) == len(chosen):
        problems.append(
            f"--bundle {bundle}: holds none of {', '.join(task.file for task in list(chosen.values())[:3])}, ...; "
            "give the folder of the published bundle that holds them (eval_data)"
        )
    if problems:
        raise UserError(list(dict.fromkeys(problems)))
    return reasons


def evaluate(
    make_lm: Callable[[], tuple[RespathLM, Callable[[list[int]], str]]],
    bundle: Path,
    suites: Sequence[str],
    names: Sequence[str] = (),
    limit: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Suites (all tasks, or those named) on one model: by suite its tasks and their mean.

    Files are checked before anything is scored. A task that two suites put with equally many examples is scored once. ``make_lm``
    gives the model and its decoder; it is called where there is something to score.
    """
    selected = select(suites, names)
    merged = {name: task for tasks in selected.values() for name, task in tasks.items()}
    reasons = reasons_of(bundle, merged)
    outcomes: dict[tuple[str, int], Any] = {}
    made = make_lm() if len(reasons) < len(merged) else None
    found: dict[str, Any] = {}
    for suite, tasks in selected.items():
        rules = catalogue().suites[suite]
        entries: dict[str, dict[str, Any]] = {}
        for name, task in tasks.items():
            shots = rules.shots[name]
            if name in reasons:
                entries[name] = _not_run(reasons[name])
                continue
            if (name, shots) not in outcomes:
                outcomes[name, shots] = score_task(bundle, name, task, shots, *made, limit)
            outcome = outcomes[name, shots]
            entries[name] = (
                outcome if isinstance(outcome, dict) else entry_of(task, shots, rules.score, *outcome)
            )
            entry = entries[name]
            say(
                f"{suite} {name}: {entry['accuracy']:.4f}"
                if "accuracy" in entry
                else f"{suite} {name}: {entry['reason']}"
            )
        found[suite] = {"score": rules.score, "tasks": entries, **aggregate(entries, rules)}
    return found


def evaluate_run(
    train_json: Path,
    checkpoints: Path,
    tokenizer: Path,
    bundle: Path,
    suites: Sequence[str],
    names: Sequence[str] = (),
    limit: int | None = None,
    device: str = "cpu",
    accept_code: bool = False,
) -> dict[str, Any]:
    """Content of core.json for one run."""
    record = read_train(train_json)
    content = {"schema": SCHEMA, "kind": "core", "run": record["run"], "limit": limit}
    if record["status"] == "diverged":
        return {**content, **_diverged(record.get("reason"))}
    model_spec = ModelSpec.model_validate_json(json.dumps(record["spec"]["model"]))
    content["code"] = measured_by(record, model_spec, "respath.measure.core")
    content["weights_sha256"] = record["weights"]["sha256"]

    def make_lm() -> tuple[RespathLM, Callable[[list[int]], str]]:
        from respath.measure.harness import RespathLM

        model, spec = load_trained(train_json, checkpoints, device, accept_code=accept_code)
        encode, decode, separator = text_codec(tokenizer)
        return RespathLM(model, encode, decode, separator, spec.recipe.context, device), decode

    try:
        found = evaluate(make_lm, bundle, suites, names, limit, say=lambda line: print(line, flush=True))
    except NotFinite as error:
        return {**content, **_diverged(str(error))}
    return {**content, "status": "done", "suites": found}


def _diverged(reason: str | None) -> dict[str, Any]:
    return {"status": "diverged", "reason": reason or "training diverged", "suites": {}}


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.core", description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True, help="checkpoint folder of this run")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument(
        "--bundle",
        type=Path,
        required=True,
        help="folder of task files in the layout of the published bundle",
    )
    parser.add_argument(
        "--suites", nargs="+", default=list(SUITES), help=f"some of {', '.join(SUITES)}; all without it"
    )
    parser.add_argument(
        "--tasks", nargs="*", default=(), help="only these tasks; the mean is then not called CORE"
    )
    parser.add_argument(
        "--limit", type=at_most, help="items per task, a fixed sample; none or without it: all"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    add_accept_code(parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    select(given.suites, given.tasks)
    with slow_imports():
        import respath.model  # noqa: F401 (and torch with it)
    content = evaluate_run(
        given.train,
        given.checkpoints,
        given.tokenizer,
        given.bundle,
        given.suites,
        given.tasks,
        given.limit,
        chosen_device(given.device),
        given.accept_code,
    )
    write_json(given.out, content)
    for suite, found in content["suites"].items():
        absent = found["absent"]
        print(
            f"{suite}: not CORE, {len(absent)} tasks absent"
            if absent
            else f"{suite}: CORE {found['core']:.4f}"
        )
    if content["status"] == "diverged":
        print(f"diverged: {content['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
