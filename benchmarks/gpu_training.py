"""A short run of the real trainer on real text: the loss falls, ``kill -9`` in the middle loses nothing, the weights come out the same.

The text is the standard library's own (its sources, and the prose of its manual), so that nothing is downloaded; the model is
ResFormer's 82M with the whole vocabulary of the paper, of which a small tokenizer uses a part.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_part import ROOT, Part, one_line
from benchmarks.gpu_speed import product_name, speed
from respath.config.request import RunRequest
from respath.files import read_json, sha256_file
from respath.papers.resolve import papers_at
from respath.spec.data import Data
from respath.spec.run import RunSpec, spec_text
from respath.training.folders import checkpoint_path
from tests.unit.corpus import tiny_tokens

#: Two of the corpus's domains: code and prose.
CODE, PROSE = "RedPajamaGithub", "RedPajamaWikipedia"
#: The run: the scale of the model, and what changes in the paper's recipe.
RUNS = {
    False: {"scale": "paper", "steps": 40, "warmup_steps": 5, "batch_sequences": 32, "context": 2048},
    True: {"scale": "smoke", "steps": 24, "warmup_steps": 2, "batch_sequences": 8, "context": 64},
}
#: Tokens of the store, entries of the tokenizer, bytes of text of each kind.
STORES = {False: (300_000, 4096, 2_000_000), True: (60_000, 512, 300_000)}
#: The loss is to fall by this many nats: what it takes to know frequent tokens from others. A model that learned nothing
#: stays at the logarithm of its vocabulary.
FALL = 0.5


def standard_library(limit: int) -> list[dict[str, Any]]:
    """Rows in SlimPajama's format, so many bytes of each kind at most, in documents of 3,000 characters."""
    from pydoc_data.topics import topics

    folder = Path(sysconfig.get_path("stdlib"))
    code = (path.read_text(encoding="utf-8", errors="ignore") for path in sorted(folder.glob("*.py")))
    rows = []
    for domain, texts in ((CODE, code), (PROSE, (topics[name] for name in sorted(topics)))):
        left = limit
        for text in texts:
            for start in range(0, len(text), 3000):
                if left <= 0:
                    break
                part = text[start : start + 3000]
                left -= len(part.encode())
                rows.append({"text": part, "meta": {"redpajama_set_name": domain}})
    return rows


def run_spec(data: Data, small: bool) -> RunSpec:
    """ResFormer (Identity) 82M with the paper's recipe on these tokens, for a few steps."""
    wanted = RUNS[small]
    request = RunRequest(size="82M", variant="identity")
    content = json.loads(spec_text(papers_at(wanted["scale"]).paper("resformer").run(request, 1).spec))
    content["recipe"] |= {key: value for key, value in wanted.items() if key != "scale"}
    content["data"] = data.model_dump(mode="json")
    return RunSpec.model_validate_json(json.dumps(content))


class Trainer:
    """One run below a folder, and its command."""

    def __init__(self, folder: Path, spec: RunSpec, manifest: Path, device: str):
        self.spec, self.checkpoints, self.out = spec, folder / "checkpoints", folder / "train.json"
        self.log = folder / "log.txt"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(spec_text(spec), encoding="utf-8")
        self.command = [sys.executable, "-m", "respath.training", "--spec", f"@{folder / 'spec.json'}"]
        self.command += ["--tokens", str(manifest), "--checkpoints", str(self.checkpoints)]
        self.command += ["--out", str(self.out)]
        self.device = "cuda" if device.startswith("cuda") else device

    def start(self, **runtime: Any) -> subprocess.Popen:
        """The trainer in a process of its own."""
        runtime = {"device": self.device, "compile": "off", "keep": 1, **runtime}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.command, "--runtime", json.dumps(runtime)],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            )

    def finish(self, process: subprocess.Popen, seconds: float) -> None:
        """Wait for its end. Raises RuntimeError with its last line, TimeoutError when it takes too long."""
        try:
            code = process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError("the time for this part was over before the training was") from None
        if code:
            raise RuntimeError(f"exit code {code}: {self.last_line()}")

    def kill_after(self, step: int, seconds: float) -> None:
        """Train until the checkpoint of a step is whole, then kill -9."""
        process, done = self.start(checkpoint_steps=step), checkpoint_path(self.checkpoints, step) / "DONE"
        end = time.monotonic() + max(seconds, 1)
        while not done.exists():
            if process.poll() is not None:
                raise RuntimeError(f"ended before step {step}: {self.last_line()}")
            if time.monotonic() > end:
                process.kill()
                process.wait()
                raise TimeoutError(f"the time for this part was over before step {step}")
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def last_line(self) -> str:
        """What it said last."""
        said = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return one_line(said[-1]) if said else "said nothing"

    @property
    def losses(self) -> list[float]:
        """Loss of each step."""
        history = (self.checkpoints / "history.jsonl").read_text(encoding="utf-8")
        return [json.loads(line)["loss"] for line in history.splitlines()]

    @property
    def weights_sha256(self) -> str:
        """Of the final weights."""
        return sha256_file(self.checkpoints / "final" / "model.safetensors")


def killed_and_resumed(part: Part, trainer: Trainer) -> None:
    """One row: a run that is killed after a third of its steps and started again."""
    recipe = trainer.spec.recipe
    third = recipe.steps // 3
    trainer.kill_after(third, part.left)
    trainer.finish(trainer.start(), part.left)
    result, losses = read_json(trainer.out), trainer.losses
    session = result["provenance"]["sessions"][-1]
    steps = session["last_step"] - session["first_step"] + 1
    rates = speed(
        trainer.spec.model,
        recipe.context,
        recipe.batch_sequences,
        session["seconds"] / steps,
        product_name(part),
    )
    first, last = losses[0], result["loss"]["final"]
    whole = len(losses) == recipe.steps and result["status"] == "finished"
    part.row(
        run="killed and resumed",
        model="resformer/82M/identity",
        steps=recipe.steps,
        sequences=recipe.batch_sequences,
        context=recipe.context,
        micro_batch=result["provenance"]["micro_batch"],
        resumed_after=session["first_step"] - 1,
        first_loss=first,
        final_loss=last,
        **rates,
        ok=whole and session["first_step"] > third and last is not None and last < first - FALL,
    )


def uninterrupted(part: Part, trainer: Trainer, weights: str) -> None:
    """One row: the same run without interruption, and whether its weights are the same, bit for bit."""
    trainer.finish(trainer.start(), part.left)
    part.row(
        run="uninterrupted",
        same_weights=trainer.weights_sha256 == weights,
        ok=trainer.weights_sha256 == weights,
    )


def run(part: Part) -> None:
    """The store, the interrupted run, and if there is time the same run in one piece."""
    tokens, vocabulary, text = STORES[part.small]
    with tempfile.TemporaryDirectory(prefix="respath-gpu-check-") as name:
        folder = Path(name)
        part.doing = "the token store"
        manifest, data = tiny_tokens(
            folder,
            vocabulary,
            train_tokens=tokens,
            domains=(CODE, PROSE),
            rows=standard_library(text),
        )
        spec = run_spec(data, part.small)
        trainer = Trainer(folder / "interrupted", spec, manifest, part.device)
        if not part.affords("the 82M run", 5):
            return
        before = part.left
        part.attempt({"run": "killed and resumed"}, lambda: killed_and_resumed(part, trainer), check=True)
        if part.rows[-1].get("ok") and part.affords("the run in one piece", 0.7 * (before - part.left)):
            again = Trainer(folder / "whole", spec, manifest, part.device)
            part.attempt(
                {"run": "uninterrupted"},
                lambda: uninterrupted(part, again, trainer.weights_sha256),
                check=True,
            )
