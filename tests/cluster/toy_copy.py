"""A copy of the project in which the toy paper is the only one and its tokens are there: nothing is left but training."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import yaml

from respath.data.documents import list_corpus
from respath.data.manifest import make_manifest
from respath.data.sample import make_sample
from respath.data.tokenize import tokenize_shard
from respath.data.tokenizer import make_tokenizer
from respath.files import write_json
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.resolve import Run
from respath.spec.data import sample_id, tokenizer_id, tokens_id
from tests.project_copy import ROOT, ProjectCopy
from tests.unit.corpus import tiny_rows

TOY = ROOT / "tests/golden/project"
#: A second or two of training with ten checkpoints: enough to be interrupted, little to repeat.
STEPS = 100

#: Four runs and nothing but their training losses: the smallest target that a cluster has to work for.
TABLE = """
  trained:
    title: "What training ended with"
    section: "none"
    run: {size: S}
    rows:
      - {id: base, label: "Base", run: {variant: base}}
      - {id: mix, label: "Mix", run: {variant: mix}}
      - {id: odd, label: "Odd", run: {variant: odd}}
      - {id: larger, label: "Larger", run: {variant: base, size: M}}
    columns:
      - {id: loss, label: "Loss", metric: train.loss.final, decimals: 3, better: lower}
"""


ROWS = {"base": ("base", "S"), "mix": ("mix", "S"), "odd": ("odd", "S"), "larger": ("base", "M")}


class ToyCopy(ProjectCopy):
    """``runs`` are the four of the target ``toy_trained``, by the id of their row."""

    def __init__(self, folder: Path, **runtime):
        super().__init__(folder)
        for part in ("papers", "scales"):
            shutil.rmtree(folder / part)
            shutil.copytree(TOY / part, folder / part)
        scale = folder / "papers/toy/scales/smoke.yaml"
        toy = yaml.safe_load(scale.read_text())
        toy["recipe"]["steps"] = STEPS
        toy["data"] |= {"corpus": "tiny", "train_tokens": 20_000, "validation_tokens": 600}
        scale.write_text(yaml.safe_dump(toy))
        with (folder / "papers/toy/tables.yaml").open("a", encoding="utf-8") as stream:
            stream.write(TABLE)
        corpora = yaml.safe_load((folder / "papers/corpora.yaml").read_text())
        corpora["corpora"]["tiny"] = {"name": "tiny", "kind": "local", "train_files": ["*.jsonl"]}
        (folder / "papers/corpora.yaml").write_text(yaml.safe_dump(corpora))
        settings = {
            "papers": ["toy"],
            "locations": {"tiny": str(folder / "text")},
            "runtime": {"device": "cpu", "compile": "off", "threads": 1, "checkpoint_steps": 10, **runtime},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        self.project = open_papers(folder, settings)
        self.runs = {
            name: next(
                run for run in needs.all_runs(self.project).values() if (run.variant, run.size) == place
            )
            for name, place in ROWS.items()
        }
        self._make_tokens()

    def _make_tokens(self) -> None:
        """What the data rules make, without a job for each shard."""
        texts = self.path / "text"
        texts.mkdir()
        with (texts / "rows.jsonl").open("w", encoding="utf-8") as stream:
            for row in tiny_rows():
                code = row["meta"]["redpajama_set_name"] == "RedPajamaGithub"
                stream.write(
                    json.dumps({**row, "meta": {"redpajama_set_name": "Code" if code else "Prose"}}) + "\n"
                )
        data = self.project.paper("toy").data
        results = self.path / "results"
        source = results / "corpus/tiny/files/source.json"
        sample = results / "samples" / sample_id(data.sample) / "sample.json"
        tokenizer = results / "tokenizers" / tokenizer_id(data) / "tokenizer.json"
        store = results / "tokens" / tokens_id(data)
        write_json(source, list_corpus(data.sample.corpus, texts))
        make_sample(data.sample, [source], sample)
        make_tokenizer(data.tokenizer, tokenizer, sample)
        shards = []
        for split in ("train", "validation"):
            for domain in data.sample.domains:
                shards.append(store / split / f"{domain}.000.json")
                tokenize_shard(data, sample, tokenizer, split, domain, 0, shards[-1])
        self.manifest = store / "manifest.json"
        make_manifest(data, shards, tokenizer, sample, [source], self.manifest)

    def result(self, run: Run) -> dict:
        """train.json of a run."""
        return json.loads((self.path / f"results/runs/{run.id}/train.json").read_text())

    def steps(self, run: Run) -> int:
        """Steps in a run's history so far."""
        try:
            return len((self.path / f"checkpoints/{run.id}/history.jsonl").read_text().splitlines())
        except FileNotFoundError:
            return 0

    def has_checkpoint(self, run: Run) -> bool:
        """Whether a whole checkpoint is there."""
        return any((self.path / f"checkpoints/{run.id}").glob("step-*/DONE"))

    def trainer(self, run: Run) -> int | None:
        """Process id of the trainer at work on a run."""
        try:
            number = json.loads((self.path / f"checkpoints/{run.id}/lease.json").read_text())["pid"]
            os.kill(number, 0)
        except (OSError, ValueError):
            return None
        return number

    def undisturbed(self, run: Run) -> str:
        """SHA-256 of the weights of the same run, trained in this process without any interruption."""
        from respath.config.runtime import Runtime, Validation
        from respath.files import sha256_file
        from respath.training.loop import Job, train
        from respath.training.stopping import StopRequest

        folder = self.path / "undisturbed" / run.id
        runtime = Runtime(**{**self.project.settings.runtime.model_dump(), "processes": 1, "nodes": 1})
        out = folder / "train.json"
        train(
            Job(
                run.spec,
                run.id,
                self.manifest,
                sha256_file(self.manifest),
                folder,
                out,
                runtime,
                Validation(),
            ),
            StopRequest(),
        )
        return json.loads(out.read_text())["weights"]["sha256"]
