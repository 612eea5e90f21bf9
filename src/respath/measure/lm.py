"""lm-eval's tasks on a trained run, zero-shot, with lm-eval's own definitions and metrics on local items.

``python -m respath.measure.lm --train results/runs/RUN/train.json --checkpoints checkpoints/RUN --tokenizer
tokenizer.json --items results/eval_items/NAME/items.json --limit 32 --out results/evals/RUN/lm.json``
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from respath.data.paths import inside
from respath.errors import UserError, guard
from respath.files import read_json, sha256_file, write_json, write_text
from respath.fingerprint import measured_by
from respath.measure.suites import definitions_folder, lm_eval_version
from respath.measure.weights import NotFinite, add_accept_code, chosen_device, load_trained, read_train
from respath.spec.model import ModelSpec
from respath.startup import slow_imports

SCHEMA = 1


def read_items(path: Path) -> dict[str, Any]:
    """items.json with every task file present and unchanged. UserError otherwise, all problems at once."""
    items = read_json(path)
    if not isinstance(items, dict) or items.get("kind") != "eval_items":
        raise UserError(f"{path}: not an items.json; make one with python -m respath.measure.items")
    problems = []
    for name, entry in items["tasks"].items():
        if entry["status"] != "done":
            continue
        file = inside(path.parent, str(entry["file"]))
        if not file.is_file():
            problems.append(f"{file}: items of task {name} are missing; delete {path} and collect them again")
        elif sha256_file(file) != entry["sha256"]:
            problems.append(
                f"{file}: differs from the hash in {path}; delete both and collect the items again"
            )
    if problems:
        raise UserError(problems)
    return items


def keyed_sample(lines: list[str], task: str, limit: int | None) -> list[str]:
    """``limit`` items in the order of the file (all when None): those with the smallest hashes of task and content.

    A fixed sample: files are sorted by source or difficulty, so their first items are none. Smaller limits take parts of
    larger ones, and the order of the file does not matter.
    """

    def key(place: int) -> tuple[bytes, int]:
        return hashlib.blake2b(
            lines[place].strip().encode(), key=task.encode()[:64], digest_size=16
        ).digest(), place

    chosen = sorted(range(len(lines)), key=key)[:limit]
    return [lines[place] for place in sorted(chosen)]


def override(name: str, entry: dict[str, Any], data: Path) -> str:
    """A task file that includes lm-eval's own and replaces its data, nothing else. YAML (JSON is a subset of it)."""
    others = dict.fromkeys(("training_split", "validation_split", "test_split", "fewshot_split"))
    return json.dumps(
        {
            "include": str(definitions_folder() / entry["definition"]),
            "task": name,
            "dataset_path": "json",
            "dataset_name": None,
            "dataset_kwargs": {"data_files": {entry["split"]: str(data)}},
            **others,
            f"{entry['split']}_split": entry["split"],
            "num_fewshot": 0,
        },
        indent=1,
    )


def stay_offline(cache: Path) -> None:
    """Point the data-set libraries at a private cache and away from the network; they read this when imported."""
    os.environ.update(
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        HF_HOME=str(cache),
        HF_DATASETS_CACHE=str(cache / "datasets"),
        HF_DATASETS_DISABLE_PROGRESS_BARS="1",
        TOKENIZERS_PARALLELISM="false",
    )


def _metrics(results: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, float]:
    """lm-eval's metrics of one task, without its filter suffix, and its standard error of those that are means."""
    from lm_eval.api.metrics import mean_stderr

    found = {
        key.removesuffix(",none"): float(value)
        for key, value in results.items()
        if key.endswith(",none") and isinstance(value, int | float)
    }
    # lm-eval couples standard errors to the bootstrap of perplexities, which takes minutes: its own closed form
    # for means is called directly.
    for name in ("acc", "acc_norm"):
        if name in found and len(samples) > 1:
            found[f"{name}_stderr"] = float(mean_stderr([sample[name] for sample in samples]))
    if odd := [name for name, value in found.items() if not math.isfinite(value)]:
        raise NotFinite(f"{odd[0]} is not finite")
    return dict(sorted(found.items()))


def evaluate_tasks(
    make_lm: Callable[[], Any], items_path: Path, limit: int | None, only: str | None = None
) -> dict[str, dict[str, Any]]:
    """Entry per task of ``items_path``, or of one of them: metrics on ``limit`` of its items (all when None), or why it was not run.

    ``make_lm`` builds the language model; it is called once lm-eval may be imported.
    """
    items = read_items(items_path)
    if only is not None:
        items = {**items, "tasks": {name: entry for name, entry in items["tasks"].items() if name == only}}
    ready = {name: entry for name, entry in items["tasks"].items() if entry["status"] == "done"}
    outcome: dict[str, dict[str, Any]] = {
        name: {"status": "not run", "reason": entry.get("reason")} for name, entry in items["tasks"].items()
    }
    if not ready:
        return outcome
    lm_eval_version()
    with tempfile.TemporaryDirectory(prefix="respath-lm-eval-") as folder:
        work = Path(folder)
        stay_offline(work / "cache")
        for name, entry in ready.items():
            data = work / f"{name}.jsonl"
            with inside(items_path.parent, str(entry["file"])).open(encoding="utf-8") as stream:
                write_text(data, "".join(keyed_sample(list(stream), name, limit)))
            write_text(work / "tasks" / f"{name}.yaml", override(name, entry, data))
        try:
            from lm_eval.evaluator import evaluate
            from lm_eval.tasks import TaskManager
        except ImportError as error:
            raise UserError(
                f"lm-eval cannot be imported ({error}); install it with `pip install lm-eval`"
            ) from None
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        manager = TaskManager(include_path=str(work / "tasks"), include_defaults=False)
        # evaluate() rather than simple_evaluate(), which asks git, pip and the compilers for their versions.
        try:
            results = evaluate(make_lm(), manager.load(list(ready)), bootstrap_iters=0, log_samples=True)
        except OverflowError:
            raise NotFinite("a perplexity is beyond the largest number") from None
    for name, entry in ready.items():
        outcome[name] = {
            "status": "done",
            "source": entry["source"],
            "split": entry["split"],
            "items": len(results["samples"][name]),
            "of_items": entry["items"],
            "items_sha256": entry["sha256"],
            "version": results["versions"][name],
            "metrics": _metrics(results["results"][name], results["samples"][name]),
        }
    return outcome


def evaluate_run(
    train_json: Path,
    checkpoints: Path,
    tokenizer: Path,
    items: Path,
    limit: int | None,
    device: str = "cpu",
    accept_code: bool = False,
) -> dict[str, Any]:
    """Content of lm.json for one run."""
    record = read_train(train_json)
    known = read_items(items)
    content = {
        "schema": SCHEMA,
        "kind": "lm_eval",
        "run": record["run"],
        "suite": known["suite"],
        "limit": limit,
        "lm_eval_version": lm_eval_version(),
    }
    if record["status"] == "diverged":
        return {**content, **_diverged(record.get("reason"), known)}
    model_spec = ModelSpec.model_validate_json(json.dumps(record["spec"]["model"]))
    content["code"] = measured_by(record, model_spec, "respath.measure.harness")
    counts: dict[str, int] = {}
    made = []

    def make_lm():
        from respath.measure.harness import RespathLM

        model, spec = load_trained(train_json, checkpoints, device, accept_code=accept_code)
        encode, decode, eos_id = text_codec(tokenizer)
        made.append(RespathLM(model, encode, decode, eos_id, spec.recipe.context, device))
        return made[0]

    try:
        tasks = evaluate_tasks(make_lm, items, limit)
    except NotFinite as error:
        return {
            **content,
            **_diverged(str(error), known),
            "weights_sha256": record["weights"]["sha256"],
        }
    if made:
        counts = dataclasses.asdict(made[0].counts)
        del counts["tokens_read"]
        content["context"] = made[0].context
    return {
        **content,
        "status": "done",
        "tasks": tasks,
        "counts": counts,
        "weights_sha256": record["weights"]["sha256"],
    }


def _diverged(reason: str | None, known: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "diverged",
        "reason": reason or "training diverged",
        "tasks": {name: {"status": "diverged"} for name in known["tasks"]},
    }


def text_codec(tokenizer: Path) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str], int]:
    """Encode, decode and end-of-document id of a tokenizer.json."""
    from respath.data.tokenizer import end_id, load

    loaded = load(tokenizer)
    return (
        lambda text: loaded.encode(text, add_special_tokens=False).ids,
        loaded.decode,
        end_id(loaded, tokenizer),
    )


def at_most(text: str) -> int | None:
    """A number of items from the command line; None for ``none``."""
    if text == "none":
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a positive number nor none")
    return number


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.lm", description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, required=True, help="checkpoint folder of this run")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json")
    parser.add_argument("--items", type=Path, required=True, help="items.json of respath.measure.items")
    parser.add_argument(
        "--limit", type=at_most, required=True, help="items per task, a fixed sample, or none for all"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    add_accept_code(parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    with slow_imports():
        import respath.model  # noqa: F401 (and torch with it)
    device = chosen_device(given.device)
    content = evaluate_run(
        given.train, given.checkpoints, given.tokenizer, given.items, given.limit, device, given.accept_code
    )
    write_json(given.out, content)
    for name, entry in content["tasks"].items():
        shown = ", ".join(f"{key} {value:.4g}" for key, value in entry.get("metrics", {}).items())
        print(f"{name}: {shown or entry['status']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
