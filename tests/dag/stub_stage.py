"""A stage that takes no time: its outputs are hashes of what it was given, so that anything stale or mixed shows in all behind it.

``python stub_stage.py MODULE --outputs FILE... [--inputs FILE...] -- ARGUMENTS``. Start and end of a training and the checks of
weights and tokens are the real ones; only steps and numbers are made up.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from respath.errors import RETRY, CheckFailed, UserError, guard
from respath.files import read_json, sha256_file, write_json, write_text

#: Options that name files which a stage reads, that name what it writes, and that decide nothing about it.
READ = ("--sample", "--tokenizer", "--sources", "--shards", "--tokens", "--items", "--train")
IGNORED = (
    "--out",
    "--out-dir",
    "--arrays",
    "--checkpoints",
    "--runtime",
    "--validation",
    "--location",
    "--gpt2",
    "--origin",
    "--instead",
)
STEPS, STEP_SECONDS = 4, 0.03
LEDGER = Path("ledger")


def options_of(arguments: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            options[name] = [value] if value else []
        else:
            options.setdefault(name, []).append(argument)
    return options


#: Settings that change nothing that is rendered.
RESOURCES = (
    *("papers", "runtime", "checkpoints", "locations", "items", "items_location", "core_bundle"),
    "tokenizers",
)


def text_of(value: str) -> str:
    if not value.startswith("@"):
        return value
    content = read_json(value[1:])
    return json.dumps({key: item for key, item in content.items() if key not in RESOURCES}, sort_keys=True)


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def corpus(location: str) -> dict[str, str]:
    folder = Path(location)
    if not folder.is_dir():
        raise UserError(f"config.yaml: locations: {location}: no such folder")
    return {path.name: sha256_file(path) for path in sorted(folder.iterdir())}


def store(path: Path) -> None:
    """The shards of a manifest, as the loader checks them."""
    from respath.data.loader import _again

    for name, sha in read_json(path)["shards"].items():
        shard = path.parent / name
        if not shard.is_file() or sha256_file(shard) != sha:
            raise UserError(f"{shard}: missing or changed; {_again(shard, path)}")


def train(options: dict[str, list[str]]) -> None:
    from respath.spec.document import identity
    from respath.training.results import KEPT, WEIGHTS, earlier_result, relative_path, write_result
    from respath.training.runtime import read_spec

    spec = read_spec(options["--spec"][0])
    tokens, folder, out = (Path(options[name][0]) for name in ("--tokens", "--checkpoints", "--out"))
    manifest = sha256_file(tokens) if tokens.exists() else None
    result, _ = earlier_result(out, folder, spec, manifest)
    if result is not None:
        return
    store(tokens)
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.append(True))
    folder.mkdir(parents=True, exist_ok=True)
    progress = folder / "progress.json"
    state = read_json(progress) if progress.exists() else {"step": 0, "manifest": manifest}
    if state["manifest"] != manifest:
        raise UserError(
            f"{progress}: another manifest; put that manifest's tokens back, or delete {folder} and run the same command to train anew"
        )
    for step in range(state["step"], STEPS):
        time.sleep(STEP_SECONDS)
        write_json(progress, {**state, "step": step + 1})
        if asked:
            sys.exit(RETRY)
    weights = folder / WEIGHTS
    write_text(weights, digest(identity(spec), manifest))
    record = {"schema": 1, "kind": "train", "run": folder.name, "spec": identity(spec), "status": "finished"}
    record |= {
        "loss": {},
        "curve": {},
        "weights": {"path": relative_path(weights, out), "sha256": sha256_file(weights)},
    }
    write_result({**record, "manifest_sha256": manifest}, folder, out)
    assert (folder / KEPT).exists()
    with (LEDGER / "trained").open("a") as stream:
        stream.write(f"{folder.name} {manifest}\n")


def closing(options: dict[str, list[str]]) -> int:
    """What the real closing lines refuse: results that stand on two sets of tokens or items."""
    from respath.comparison.closing import asked_for, problems
    from respath.papers.check import open_papers
    from respath.results.reader import Results

    project = open_papers(Path.cwd(), read_json(options["--config"][0][1:]))
    found = problems(project, Results(project), asked_for(project, options["--files"])[0])
    if found:
        raise CheckFailed(found)
    return 0


def known_of(module: str, options: dict[str, list[str]], content: str) -> dict[str, object]:
    """What later stages and the closing lines read of a stub's result."""
    head = {"schema": 1, "status": "done"}
    if module == "respath.measure.items":
        return {**head, "kind": "eval_items", "tasks": {"task": {"status": "done", "sha256": content}}}
    if module == "respath.measure.lm":
        items = read_json(options["--items"][0])["tasks"]["task"]["sha256"]
        run = Path(options["--out"][0]).parent.name
        return {
            **head,
            "kind": "lm_eval",
            "run": run,
            "tasks": {"task": {"status": "done", "items_sha256": items}},
        }
    return {}


def check_weights(options: dict[str, list[str]]) -> None:
    from respath.measure.weights import read_train, refuse_other_manifest, verified_weights

    result, checkpoints = Path(options["--train"][0]), Path(options["--checkpoints"][0])
    if "--tokens" in options:
        tokens = Path(options["--tokens"][0])
        refuse_other_manifest(
            read_train(result), result, checkpoints, tokens, sha256_file(tokens), "evaluate"
        )
    verified_weights(result, checkpoints)


@guard
def main() -> int:
    module, *rest = sys.argv[1:]
    cut = rest.index("--")
    files, options = options_of(rest[:cut]), options_of(rest[cut + 1 :])
    if module == "respath.training":
        train(options)
        return 0
    if module == "respath.comparison.closing":
        return closing(options)
    if "--train" in options:
        check_weights(options)
    inputs = [*files.get("--inputs", []), *(path for name in READ for path in options.get(name, []))]
    for path in inputs:
        if path.endswith(".json"):
            read_json(path)
    settings = {
        name: list(map(text_of, values))
        for name, values in options.items()
        if name not in (*READ, *IGNORED, "--inputs")
    }
    content = digest(module, settings, [(path, sha256_file(path)) for path in inputs])
    if module == "respath.data.documents":
        content = digest(content, corpus(options["--location"][0]))
    record: dict[str, object] = {"stub": module, "content": content, **known_of(module, options, content)}
    if module == "respath.data.manifest":
        folder = Path(files["--outputs"][0]).parent
        shards = [Path(path).with_suffix(".bin") for path in options["--shards"]]
        for shard in shards:
            if not shard.exists() or shard.read_text() != read_json(shard.with_suffix(".json"))["content"]:
                record_of = shard.with_suffix(".json")
                raise UserError(
                    f"{shard}: missing or changed; delete {record_of.name} and run the same command again"
                )
        record["shards"] = {str(path.relative_to(folder)): sha256_file(path) for path in shards}
    if module == "respath.data.tokenize":
        write_text(Path(files["--outputs"][0]).with_suffix(".bin"), content)
    time.sleep(STEP_SECONDS)
    for path in files["--outputs"]:
        if path.endswith(".json"):
            write_json(path, record)
        else:
            write_text(path, content)
    # A job that is killed here leaves whole files that Snakemake counts as incomplete.
    time.sleep(3 * STEP_SECONDS)
    return 0


if __name__ == "__main__":
    os.makedirs(LEDGER, exist_ok=True)
    sys.exit(main())
