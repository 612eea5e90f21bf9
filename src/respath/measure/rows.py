"""Items in the schema that lm-eval's task definitions read, converted from the schemas in which they are published."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Row = dict[str, Any]

_QUESTION = re.compile(r"^Question: (.*)\nAnswer:$", re.DOTALL)


def _text(row: Row, key: str) -> str:
    """A string field. ValueError or TypeError names the key."""
    if not isinstance(row, dict):
        raise TypeError("not a JSON object")
    if key not in row:
        raise ValueError(f"key {key!r} is missing")
    if not isinstance(row[key], str):
        raise TypeError(f"{key!r} is not text but {type(row[key]).__name__}")
    return row[key]


def _choice(value: Any, count: int, key: str) -> int:
    """A 0-based answer below ``count``, given as number or digits."""
    if isinstance(value, bool) or not str(value).isdigit() or int(value) >= count:
        raise ValueError(f"{key!r} is {value!r}, not one of 0..{count - 1}")
    return int(value)


def _letters(count: int) -> list[str]:
    return [chr(ord("A") + index) for index in range(count)]


def hellaswag(row: Row) -> Row:
    """HellaSwag: two contexts, four endings; lm-eval cleans the text itself."""
    endings = row.get("endings")
    if not isinstance(endings, list) or len(endings) != 4:
        raise ValueError("'endings' is not a list of four texts")
    label = _choice(row.get("label"), 4, "label")
    texts = {key: _text(row, key) for key in ("activity_label", "ctx_a", "ctx_b", "ctx")}
    return {
        "ind": int(row.get("ind", 0)),
        **texts,
        "endings": [str(ending) for ending in endings],
        "label": str(label),
    }


def winogrande(row: Row) -> Row:
    """Winogrande: a sentence with a gap ``_`` and two fillers; the answer counts from 1."""
    texts = {key: _text(row, key) for key in ("sentence", "option1", "option2")}
    if "_" not in texts["sentence"]:
        raise ValueError("'sentence' has no gap '_'")
    answer = str(row.get("answer", ""))
    if answer not in ("1", "2"):
        raise ValueError(f"'answer' is {answer!r}, neither '1' nor '2' (a test split has no answers)")
    return {**texts, "answer": answer}


def piqa(row: Row) -> Row:
    """PIQA: a goal and two solutions. The original keeps the labels in a second file, read by the caller."""
    texts = {key: _text(row, key) for key in ("goal", "sol1", "sol2")}
    return {**texts, "label": _choice(row.get("label"), 2, "label")}


def boolq(row: Row) -> Row:
    """BoolQ in SuperGLUE's keys (``label``); the original calls it ``answer``."""
    answer = row.get("label", row.get("answer"))
    if not isinstance(answer, bool) and answer not in (0, 1):
        raise ValueError(f"neither 'label' nor 'answer' is true or false (got {answer!r})")
    return {"question": _text(row, "question"), "passage": _text(row, "passage"), "label": int(answer)}


def _multiple_choice(row: Row, stem: str) -> Row:
    """ARC and OpenBookQA: the hub's schema, the original's nested question, or {id, query, choices, gold}."""
    identity = str(row.get("id", ""))
    if "query" in row:
        match = _QUESTION.match(_text(row, "query"))
        if not match:
            raise ValueError("'query' does not read 'Question: ...\\nAnswer:'")
        texts = row.get("choices")
        if not isinstance(texts, list) or not texts:
            raise ValueError("'choices' is not a list of texts")
        labels = _letters(len(texts))
        return {
            "id": identity,
            stem: match[1],
            "choices": {"text": [str(text) for text in texts], "label": labels},
            "answerKey": labels[_choice(row.get("gold"), len(texts), "gold")],
        }
    nested = row.get("question")
    if isinstance(nested, dict):
        choices = nested.get("choices")
        if not isinstance(choices, list) or not choices:
            raise ValueError("'question.choices' is not a list")
        row = {
            **row,
            stem: nested.get("stem"),
            "choices": {"text": [c.get("text") for c in choices], "label": [c.get("label") for c in choices]},
        }
    choices = row.get("choices")
    if not isinstance(choices, dict) or len(choices.get("text", ())) != len(choices.get("label", ())):
        raise ValueError("'choices' does not hold as many 'text' as 'label'")
    key = str(row.get("answerKey", "")).strip()
    labels = [str(label) for label in choices["label"]]
    if key not in labels:
        raise ValueError(f"'answerKey' is {key!r}, not one of {labels}")
    return {
        "id": identity,
        stem: _text(row, stem),
        "choices": {"text": [str(text) for text in choices["text"]], "label": labels},
        "answerKey": key,
    }


def arc(row: Row) -> Row:
    """ARC, easy and challenge."""
    return _multiple_choice(row, "question")


def openbookqa(row: Row) -> Row:
    """OpenBookQA, main."""
    return _multiple_choice(row, "question_stem")


def lambada(row: Row) -> Row:
    """LAMBADA as OpenAI cut it: plain text whose last word is to be predicted."""
    text = _text(row, "text")
    if " " not in text.strip():
        raise ValueError("'text' is a single word, so there is nothing to predict it from")
    return {"text": text}


def wikitext(row: Row) -> Row:
    """One article per row."""
    return {"page": _text(row, "page")}


def mbpp(row: Row) -> Row:
    """MBPP: a task in words, its tests and the reference code, which is text and never run."""
    tests = row.get("test_list") if isinstance(row, dict) else None
    texts = {key: _text(row, key) for key in ("text", "code")}
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise ValueError("'test_list' is not a list of texts")
    return {**texts, "test_list": tests}


def _texts(*keys: str) -> Callable[[Row], Row]:
    return lambda row: {key: _text(row, key) for key in keys}


SCHEMAS: dict[str, Callable[[Row], Row]] = {
    **{
        function.__name__: function
        for function in (hellaswag, openbookqa, winogrande, arc, piqa, boolq, lambada, wikitext, mbpp)
    },
    "humaneval": _texts("prompt", "canonical_solution"),
    "sciq": _texts("question", "correct_answer", "support"),
    "gsm8k": _texts("question", "answer"),
    "math500": _texts("problem", "solution"),
}


def same_question(one: Row, other: Row) -> bool:
    """Whether two converted ARC or OpenBookQA rows ask the same; labels (A.. or 1..) only name positions."""
    strip = [
        {
            **row,
            "choices": row["choices"]["text"],
            "answerKey": row["choices"]["label"].index(row["answerKey"]),
        }
        for row in (one, other)
    ]
    return strip[0] == strip[1]


def wikitext_pages(text: str) -> Iterator[Row]:
    """Articles of a raw WikiText file: a page starts at a line `` = Title = `` (one equals sign on each side)."""
    page: list[str] = []
    # Not splitlines(), which also breaks at characters that occur inside a line.
    for line in text.replace("\r\n", "\n").split("\n"):
        if re.match(r"^ ?= [^=].* = ?$", line) and not re.match(r"^ ?= =", line):
            if "".join(page).strip():
                yield {"page": "\n".join(page)}
            page = []
        page.append(line)
    if "".join(page).strip():
        yield {"page": "\n".join(page)}


def convert(schema: str, rows: Iterable[tuple[str, Row]]) -> tuple[list[Row], list[str]]:
    """Convert ``(where, row)`` pairs; returns the rows and one line ``where: problem`` for each that is malformed."""
    function, good, bad = SCHEMAS[schema], [], []
    for where, row in rows:
        try:
            converted = function(row)
            # Half of a surrogate pair is no text: no file and no tokenizer takes it.
            json.dumps(converted, ensure_ascii=False).encode()
            good.append(converted)
        except Exception as error:  # whatever a row holds, it is this row's fault and has its place
            bad.append(f"{where}: {error or type(error).__name__}")
    return good, bad
