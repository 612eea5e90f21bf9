"""CORE: prompts, spans and scores as a plain reading of the definition gives them, one item at a time."""

from __future__ import annotations

import json
import math
import random
import zipfile

import pytest
import torch

from respath.errors import UserError
from respath.files import read_json
from respath.measure import core, core_bundle
from respath.measure.harness import RespathLM
from respath.quantities.core import SUITES
from tests.unit.corpus import tiny_tokens
from tests.unit.finished_run import finished_run, scale_weights
from tests.unit.model_cases import perturbed

SEPARATOR = 256


def encode(text: str) -> list[int]:
    return list(text.encode())


def decode(ids: list[int]) -> str:
    return bytes(ids).decode(errors="replace")


@pytest.fixture(scope="module")
def lm():
    return RespathLM(perturbed("identity", torch.float64), encode, decode, SEPARATOR, context=64)


WORDS = [
    "red",
    "blue",
    "green",
    "tall",
    "short",
    "Maria",
    "Sarah",
    "runs",
    "sees",
    "the",
    "a",
    "café",
    "北",
    "because",
    "slowly",
]


def text(drawn: random.Random, most: int) -> str:
    return " ".join(drawn.choices(WORDS, k=drawn.randint(1, most)))


def items_of(kind: str, count: int, seed: int) -> list[dict]:
    drawn, items = random.Random(seed), []
    for number in range(count):
        if kind == "multiple_choice":
            choices = [f"{text(drawn, 3)} {k}" for k in range(drawn.randint(2, 4))]
            items.append(
                {"query": f"{number} {text(drawn, 5)}", "choices": choices, "gold": len(choices) - 1}
            )
        elif kind == "schema":
            options = [f"{number} {text(drawn, 4)} Maria", f"{number} {text(drawn, 4)} Sarah"]
            items.append({"context_options": options, "continuation": text(drawn, 3), "gold": number % 2})
        else:
            # White space that is to be trimmed, and a continuation of one word.
            items.append({"context": f" {number} {text(drawn, 5)} \n", "continuation": text(drawn, 1)})
    return items


def losses_of(lm, text_: str) -> tuple[list[int], list[float], list[int]]:
    """Tokens of a prompt, the loss of each but the first, and the likeliest token at each place."""
    ids = [SEPARATOR, *encode(text_)]
    with torch.no_grad():
        logits = lm.model(torch.tensor([ids]))[0].double()
    logp = logits.log_softmax(-1)
    return ids, [-float(logp[i, ids[i + 1]]) for i in range(len(ids) - 1)], logits.argmax(-1).tolist()


def plainly(lm, kind: str, items: list[dict], delimiter: str, shots: int, score: str) -> list[bool]:
    """The definition: nothing batched, nothing shared, every text written out."""
    items = list(items)
    random.Random(1337).shuffle(items)
    right = []
    for place, item in enumerate(items):
        others = [k for k in range(len(items)) if k != place]
        shown = [items[k] for k in random.Random(1234 + place).sample(others, shots)]
        before = ""
        for one in shown:
            if kind == "multiple_choice":
                before += one["query"] + delimiter + one["choices"][one["gold"]] + "\n\n"
            elif kind == "schema":
                before += one["context_options"][one["gold"]] + delimiter + one["continuation"] + "\n\n"
            else:
                before += one["context"].strip() + delimiter + one["continuation"] + "\n\n"
        if kind == "language_modeling":
            prompt = (before + item["context"].strip() + delimiter).strip()
            first = 1 + len(encode(prompt))
            ids, _, likeliest = losses_of(
                lm, before + item["context"].strip() + delimiter + item["continuation"]
            )
            right.append(all(likeliest[i - 1] == ids[i] for i in range(first, len(ids))))
            continue
        if kind == "multiple_choice":
            texts = [before + item["query"] + delimiter + choice for choice in item["choices"]]
        else:
            texts = [before + option + delimiter + item["continuation"] for option in item["context_options"]]
        found = [losses_of(lm, one) for one in texts]
        rows = [ids for ids, _, _ in found]
        shared = 0
        if kind == "multiple_choice":
            while all(len(row) > shared and row[shared] == rows[0][shared] for row in rows):
                shared += 1
            starts = [shared] * len(rows)
        else:
            while all(len(row) > shared and row[-1 - shared] == rows[0][-1 - shared] for row in rows):
                shared += 1
            starts = [len(row) - shared for row in rows]
        values = []
        for (ids, losses, _), start in zip(found, starts, strict=True):
            span = losses[start - 1 :]
            size = len(decode(ids[start:]).encode()) if score == "byte" else len(span)
            values.append(math.fsum(span) / max(1, size))
        right.append(values.index(min(values)) == item["gold"])
    return right


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """A bundle of one task a kind, with its catalogue."""
    made = {}
    for kind in ("multiple_choice", "schema", "language_modeling"):
        items = items_of(kind, 14, seed=len(kind))
        path = tmp_path / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        made[kind] = core.Task(
            kind=kind, file=path.name, items=len(items), guessing=0.25, delimiter="\nAnswer: "
        )
    suites = {
        score: core.Suite(score=score, shots={"multiple_choice": 3, "schema": 0, "language_modeling": 2})
        for score in ("token", "byte")
    }
    monkeypatch.setattr(core, "catalogue", lambda: core.Suites(suites=suites, tasks=made))
    return tmp_path


def evaluated(lm, bundle, score, *arguments, **options):
    return core.evaluate(lambda: (lm, decode), bundle, [score], *arguments, **options)[score]


@pytest.mark.parametrize("score", ["token", "byte"])
def test_every_kind_of_task_scores_as_its_definition_does(lm, bundle, score, monkeypatch):
    monkeypatch.setattr(core, "ITEMS_AT_ONCE", 5)
    found = evaluated(lm, bundle, score)
    for kind, shots in core.catalogue().suites[score].shots.items():
        items = [json.loads(line) for line in (bundle / f"{kind}.jsonl").read_text().splitlines()]
        expected = plainly(lm, kind, items, "\nAnswer: ", shots, score)
        entry = found["tasks"][kind]
        assert entry["right"] == "".join("01"[answer] for answer in expected), kind
        assert entry["accuracy"] == sum(expected) / 14 and entry["items"] == entry["of_items"] == 14
        assert entry["centred"] == (entry["accuracy"] - 0.25) / 0.75
    assert found["core"] == pytest.approx(sum(entry["centred"] for entry in found["tasks"].values()) / 3)


def test_the_likeliest_continuation_is_right_and_another_is_not(lm):
    task = core.Task(kind="language_modeling", file="", items=1, guessing=0.0)
    _, _, likeliest = losses_of(lm, "the red")
    prompt = core.prompts_of(task, {"context": "the red", "continuation": "X"}, [])
    assert prompt == ["the red", "the red X"]
    # A continuation whose tokens are the blank and the letter: right exactly when both are the likeliest.
    one = core.question(task, {"context": "the red", "continuation": "X"}, [], encode, SEPARATOR)
    assert one.pieces[0].targets == tuple(encode(" X"))
    (found,) = core.scored([one], lm, decode)
    assert found.right("byte") == (likeliest[-1] == ord(" ") and losses_of(lm, "the red ")[2][-1] == ord("X"))


def test_a_limit_takes_a_part_of_a_larger_limit_with_the_same_prompts(lm, bundle):
    whole, part = (evaluated(lm, bundle, "byte", limit=limit)["tasks"] for limit in (None, 5))
    for kind, entry in part.items():
        assert entry["items"] == 5 and entry["of_items"] == 14
        assert whole[kind]["right"].startswith(entry["right"])


def test_a_mean_over_fewer_tasks_is_not_called_core(lm, bundle):
    (bundle / "schema.jsonl").unlink()
    found = evaluated(lm, bundle, "byte")
    assert found["core"] is None and found["absent"] == ["schema"]
    assert found["tasks"]["schema"] == {"status": "not run", "reason": "no schema.jsonl in the bundle"}
    assert found["mean_of_run_tasks"] is not None
    assert evaluated(lm, bundle, "byte", ["language_modeling"])["core"] is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: lines[:-1], "13 items, not the 14 of"),
        (lambda lines: [*lines[:3], '{"query": "a\\ud800", "choices": ["b", "c"], "gold": 1}', *lines[4:]], ":4: holds bytes that are no text"),
        (lambda lines: [*lines[:3], "{not json", *lines[4:]], ":4: not valid JSON"),
        (lambda lines: [*lines[:3], '{"query": "a", "choices": ["b"], "gold": 0}', *lines[4:]], ":4: has fewer than two"),
        (lambda lines: [*lines[:3], '{"query": "a", "choices": ["b", "c"], "gold": 2}', *lines[4:]], ":4: gold: 2"),
        (lambda lines: [*lines[:3], '{"query": "a", "choices": ["b", "c"], "gold": true}', *lines[4:]], ":4: gold: is missing or no int"),
        (lambda lines: [*lines[:3], '["a"]', *lines[4:]], ":4: is no JSON object"),
        (lambda lines: [*lines[:3], "[" * 100_000, *lines[4:]], ":4: not valid JSON"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_by_line_before_anything_is_scored(lm, bundle, damage, words):
    path = bundle / "multiple_choice.jsonl"
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(UserError) as error:
        evaluated(lm, bundle, "byte")
    assert any(words in line and str(path) in line for line in error.value.lines)


def test_a_file_with_another_hash_is_refused(bundle):
    task = core.catalogue().tasks["schema"].model_copy(update={"sha256": "0" * 64})
    with pytest.raises(UserError, match="SHA-256"):
        core.read_task(bundle, "schema", task)


def test_what_cannot_be_scored_is_not_run_with_its_reason(lm, tmp_path):
    def entry(kind, items, shots=0):
        path = tmp_path / "items.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        task = core.Task(kind=kind, file=path.name, items=len(items), guessing=0.0)
        found = core.score_task(tmp_path, "one", task, shots, lm, decode)
        return found if isinstance(found, dict) else core.entry_of(task, shots, "byte", *found)

    alike = entry("multiple_choice", [{"query": "a", "choices": ["b", "b"], "gold": 0}])
    assert alike["status"] == "not run" and "encodes like" in alike["reason"]
    few = entry("multiple_choice", [{"query": "a", "choices": ["b", "c"], "gold": 0}] * 3, shots=3)
    assert few["reason"] == "3 items are too few for 3 examples beside the item itself"
    apart = entry("schema", [{"context_options": ["a", "b"], "continuation": "", "gold": 0}])
    assert apart["status"] == "done", "the delimiter is a common end"


def test_a_choice_that_begins_another_has_no_loss_and_is_counted(lm, tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"query": "a", "choices": ["red", "red cat"], "gold": 0}) + "\n")
    task = core.Task(kind="multiple_choice", file=path.name, items=1, guessing=0.5)
    found, facts = core.score_task(tmp_path, "one", task, 0, lm, decode)
    entry = core.entry_of(task, 0, "byte", found, facts)
    assert entry["right"] == "1" and entry["empty_spans"] == 1


def test_finite_weights_whose_scores_are_not_finite_are_a_diverged_run(bundle, tmp_path):
    store = tiny_tokens(tmp_path / "tokens", vocab_size=300, validation_tokens=100)
    train, manifest, checkpoints, _ = finished_run(tmp_path, *store, context=64)
    scale_weights(train, checkpoints, 1e20)
    tokenizer = manifest.parent / read_json(manifest)["tokenizer"]["path"]
    content = core.evaluate_run(train, checkpoints, tokenizer, bundle, ["token"])
    assert (content["status"], content["suites"]) == ("diverged", {}) and "not finite" in content["reason"]


def test_names_of_suites_and_tasks_get_a_suggestion():
    with pytest.raises(UserError, match="did you mean 'core21'"):
        core.select(["core21b"])
    with pytest.raises(UserError) as error:
        core.select(["core21"], ["helaswag", "coka"])
    assert [line.rpartition("mean ")[2] for line in error.value.lines] == ["'hellaswag'?)", "'coqa'?)"]


def test_the_papers_suite_has_21_tasks_and_the_leaderboards_22():
    suites = core.catalogue().suites
    assert {name: set(tasks) for name, tasks in SUITES.items()} == {
        name: set(suite.shots) for name, suite in suites.items()
    }
    assert len(suites["core22"].shots) == 22 and len(suites["core21"].shots) == 21
    changed = {
        name: shots for name, shots in suites["core21"].shots.items() if suites["core22"].shots[name] != shots
    }
    assert changed == {"arc_easy": 25, "arc_challenge": 25, "winogrande": 5}
    assert set(suites["core22"].shots) - set(suites["core21"].shots) == {"hellaswag_zeroshot"}


@pytest.mark.parametrize(
    ("task", "accuracy", "published"),
    [
        ("boolq", 0.552294, -0.178175),
        ("bigbench_language_identification", 0.256600, 0.182178),
        ("commonsense_qa", 0.224406, 0.030508),
        ("agi_eval_lsat_ar", 0.226087, 0.032609),
        ("arc_challenge", 0.221843, -0.037543),
        ("copa", 0.600000, 0.200000),
        ("winograd", 0.578755, 0.157509),
        ("jeopardy", 0.001889, 0.001889),
    ],
)
def test_centring_is_that_of_the_published_scores_of_gpt2(task, accuracy, published):
    """Rows of openai-community-gpt2.csv in nanochat's evaluation bundle."""
    assert core.centred(accuracy, core.catalogue().tasks[task].guessing) == pytest.approx(published, abs=2e-6)


# --- the bundle ----------------------------------------------------------------------------------------------------


def test_two_suites_score_equal_prompts_once_and_each_by_its_own_rule(lm, bundle, monkeypatch):
    calls = []
    scored = core.scored
    monkeypatch.setattr(core, "scored", lambda *given: calls.append(len(given[0])) or scored(*given))
    both = core.evaluate(lambda: (lm, decode), bundle, ["token", "byte"])
    assert calls == [14, 14, 14]
    assert both["token"]["score"] == "token" and both["byte"]["score"] == "byte"
    # Mean losses per token: 2 and 1.5; per byte: 0.5 and 1.
    one = core.Scored(losses=(2.0, 3.0), tokens=(1, 2), bytes=(4, 3), likeliest=False, gold=1)
    assert one.right("token") and not one.right("byte")


def test_a_collected_folder_is_held_to_its_hashes_and_says_what_is_absent(lm, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(core_bundle, "catalogue", core.catalogue)
    (bundle / "schema.jsonl").unlink()
    out = tmp_path / "collected" / "bundle.json"
    content = core_bundle.collect(str(bundle), out, tmp_path)
    assert {name: entry["status"] for name, entry in content["files"].items()} == {
        "multiple_choice.jsonl": "done",
        "schema.jsonl": "not run",
        "language_modeling.jsonl": "done",
    }
    assert str(tmp_path) not in out.read_text()
    found = evaluated(lm, out.parent, "byte")
    reason = "no file in the folder that core_bundle names"
    assert found["tasks"]["schema"] == {"status": "not run", "reason": reason}
    path = out.parent / "multiple_choice.jsonl"
    path.write_text("\n".join(reversed(path.read_text().splitlines())) + "\n")
    (out.parent / "language_modeling.jsonl").unlink()
    with pytest.raises(UserError) as error:
        evaluated(lm, out.parent, "byte")
    said = error.value.lines
    assert len(said) == 2 and "differs from the hash" in said[0] and "is missing" in said[1]


def test_without_task_files_nothing_is_scored_and_every_task_says_how_to_get_them(tmp_path):
    out = tmp_path / "bundle.json"
    core_bundle.collect("none", out, tmp_path)
    found = core.evaluate(lambda: pytest.fail("no model is needed"), tmp_path, list(SUITES))
    for suite, tasks in SUITES.items():
        assert found[suite]["core"] is None and set(found[suite]["absent"]) == set(tasks)
        assert all(
            "set `core_bundle` to `download`" in entry["reason"] for entry in found[suite]["tasks"].values()
        )


def test_every_bad_file_of_a_folder_is_one_line_at_once(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(core_bundle, "catalogue", core.catalogue)
    for name in ("schema", "language_modeling"):
        path = bundle / f"{name}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(UserError) as error:
        core_bundle.collect(str(bundle), tmp_path / "out" / "bundle.json", tmp_path)
    assert len(error.value.lines) == 2 and all("12 items, not the 14" in line for line in error.value.lines)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no such folder"):
        core_bundle.collect(str(tmp_path / "nowhere"), tmp_path / "bundle.json", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no task file"):
        core_bundle.collect(str(tmp_path / "empty"), tmp_path / "bundle.json", tmp_path)


def archive_of(folder, target):
    with zipfile.ZipFile(target, "w") as archive:
        for path in folder.glob("*.jsonl"):
            archive.write(path, f"eval_bundle/eval_data/{path.name}")
        archive.writestr("eval_bundle/../../escape.jsonl", "{}")


def test_the_archives_hash_is_that_of_its_first_download(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(core_bundle, "catalogue", core.catalogue)
    published, cache = tmp_path / "published" / "bundle.zip", tmp_path / "cache"
    published.parent.mkdir()
    archive_of(bundle, published)
    url = published.as_uri()
    folder, digest = core_bundle.downloaded(cache, url)
    assert (cache / "core/bundle.zip.sha256").read_text() == f"{digest}\n"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in bundle.glob("*.jsonl")
    )
    assert not list(tmp_path.rglob("escape.jsonl"))
    (bundle / "schema.jsonl").write_text("{}\n")
    archive_of(bundle, cache / "core/bundle.zip")
    with pytest.raises(UserError, match="is not that of the first download"):
        core_bundle.downloaded(cache, url)
    (cache / "core/bundle.zip.sha256").unlink()
    (cache / "core/bundle.zip").write_bytes(published.read_bytes()[:-30])
    with pytest.raises(UserError, match="is no whole zip archive"):
        core_bundle.downloaded(cache, url)
    with pytest.raises(UserError, match="cannot be downloaded"):
        core_bundle.downloaded(cache, f"{url}.gone")


def test_the_command_scores_a_trained_run_by_hand(bundle, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SUITES, "byte", ("multiple_choice", "schema", "language_modeling"))
    store = tiny_tokens(tmp_path / "tokens", vocab_size=300, validation_tokens=100)
    train, manifest, checkpoints, _ = finished_run(tmp_path, *store, context=64)
    tokenizer = manifest.parent / read_json(manifest)["tokenizer"]["path"]
    out = tmp_path / "core.json"
    options = ["--train", train, "--checkpoints", checkpoints, "--tokenizer", tokenizer, "--bundle", bundle]
    options += ["--suites", "byte", "--limit", "4", "--device", "cpu", "--out", out]
    assert core.main(list(map(str, options))) == 0
    content = read_json(out)
    assert content["kind"] == "core" and content["code"]["entry"] == "respath.measure.core"
    assert f"byte: CORE {content['suites']['byte']['core']:.4f}" in capsys.readouterr().out
    assert {entry["items"] for entry in content["suites"]["byte"]["tasks"].values()} == {4}
