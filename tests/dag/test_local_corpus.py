"""A folder of the user's own files through the real rules: listed, scanned in parts, sampled, tokenized, and then left alone."""

from __future__ import annotations

import json

import pytest
import zstandard

from respath.data.manifest import verify
from respath.papers.check import open_papers
from respath.spec.data import sample_id, tokens_id
from tests.project_copy import ProjectCopy
from tests.unit.corpus import tiny_rows


@pytest.mark.slow
def test_a_local_corpus_becomes_a_token_store_and_nothing_is_done_twice(tmp_path):
    copy = ProjectCopy(tmp_path / "project")
    folder = tmp_path / "my data"
    rows = tiny_rows()
    for name, part in (("train/one", rows[::2]), ("train/two", rows[1::2]), ("validation/v", rows[::9])):
        path = folder / f"{name}.jsonl.zst"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zstandard.compress("".join(json.dumps(row) + "\n" for row in part).encode()))
    copy.edit("config.yaml", "corpus: null", "corpus: slimpajama-local")
    copy.edit("config.yaml", "locations: {}", f'locations: {{slimpajama-local: "{folder}"}}')
    scale = "papers/resformer/scales/smoke.yaml"
    copy.edit(scale, "train_tokens: 1_000_000", "train_tokens: 20_000")
    copy.edit(scale, "shards: 1", "shards: 2")
    copy.edit(scale, "validation_tokens: 10_000", "validation_tokens: 500")
    project = open_papers(copy.path)
    data = project.paper("resformer").data
    assert data.sample.corpus.name == "slimpajama-local" and data.sample.shards == 2
    target = f"results/tokens/{tokens_id(data)}/manifest.json"
    done = copy.snakemake("--cores", "1", target)
    assert done.returncode == 0, done.stdout + done.stderr
    content = verify(copy.path / target, full=True)
    assert not content["stand_in"] and "local copy of slimpajama-local" in content["note"]
    sample = copy.path / "results/samples" / sample_id(data.sample)
    assert len(list((copy.path / "logs/scan").glob("*/*.log"))) == 2
    assert not list(sample.glob("scan/*")), "runs and lists of the parts are gone"
    assert copy.planned(target) == {}
