"""Figure 12 with checkpoints that the user names: folders in Hugging Face's form, analysed and drawn by the workflow itself."""

from __future__ import annotations

import csv
import json

import pytest

from respath.config.request import RunRequest
from respath.errors import UserError
from respath.jobs import check_named_checkpoints
from respath.model import build_model
from respath.model.export import export
from respath.papers.check import open_papers
from respath.spec.data import tokens_id
from tests.project_copy import ProjectCopy
from tests.unit.corpus import tiny_tokens

#: Names of checkpoints in the figure -> variants whose folder transformers reads.
NAMED = {"a-llama": "transformer", "a-gpt2": "gpt2-transformer"}


@pytest.fixture
def copy(tmp_path) -> ProjectCopy:
    """A project whose token store is there (a tiny one), and exported baselines beside it."""
    pytest.importorskip("transformers")
    (tmp_path / "project").mkdir()
    copy = ProjectCopy(tmp_path / "project")
    project = open_papers(copy.path, {"scale": "smoke"})
    manifest, _ = tiny_tokens(tmp_path / "store", 1024, validation_tokens=7_000)
    store = copy.path / "results/tokens" / tokens_id(project.paper("resformer").data)
    store.parent.mkdir(parents=True)
    store.symlink_to(manifest.parent)
    tokenizer = manifest.parent / json.loads(manifest.read_text())["tokenizer"]["path"]
    for name, variant in NAMED.items():
        spec = project.paper("resformer").run(RunRequest(size="82M", variant=variant), 1).spec
        model = build_model(spec.model, seed=1)
        export(model, tmp_path / name, context=spec.recipe.context, tokenizer=tokenizer)
    return copy


@pytest.mark.slow
def test_named_checkpoints_stand_in_figure_12(copy, tmp_path):
    folders = ", ".join(f"{name}: {tmp_path / name}" for name in NAMED)
    arguments = ("resformer_fig12", "--rerun-triggers", "mtime", "--config", f"hf_models={{{folders}}}")
    done = copy.snakemake(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    figure = copy.path / "reports/out/smoke/resformer/fig12"
    with figure.with_suffix(".csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["panel"] == "C"]
    uniform = {float(row["value"]) for row in rows if row["role"] == "reference"}
    for name in NAMED:
        nats = [float(row["value"]) for row in rows if row["line"] == name]
        # Untrained attention is next to uniform, and not exactly so.
        assert len(nats) == 8 and all(0 < abs(value - min(uniform)) < 0.2 for value in nats)
    assert len(uniform) == 1 and figure.with_suffix(".svg").read_text().startswith("<svg")


def test_a_name_without_a_checkpoint_folder_is_told_before_anything_is_planned(tmp_path):
    with pytest.raises(UserError) as error:
        check_named_checkpoints({"one": str(tmp_path / "none"), "two": str(tmp_path)}, lambda keys: "here")
    assert [line.split(":")[1].strip() for line in error.value.lines] == ["hf_models.one", "hf_models.two"]
    (tmp_path / "config.json").write_text("{}")
    check_named_checkpoints({"two": str(tmp_path)}, lambda keys: "here")
