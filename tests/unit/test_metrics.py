"""Names of metrics: what exists passes, a slip is named with what was meant."""

import shutil

import pytest

from respath.errors import UserError
from respath.papers.check import open_papers
from respath.quantities.kinds import Names
from respath.quantities.metrics import unknown
from tests.golden.toy import ROOT as TOY

DOMAINS, TASKS = ("Books", "ArXiv"), ("hellaswag", "wikitext")


@pytest.mark.parametrize(
    "metric",
    ["loss.mean", "loss.mean_bits_per_byte", "loss.Books", "loss.ArXiv.bits_per_byte", "lm.hellaswag.acc",
     "lm.mean.acc_stderr", "lm.wikitext.word_perplexity", "train.loss.final", "account.parameters.total"],
)  # fmt: skip
def test_a_metric_that_exists_is_not_refused(metric):
    assert unknown(metric, Names(DOMAINS, TASKS)) == ""


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("loss.meen", "'meen' is no domain (did you mean 'mean'?)"),
        ("loss.Book", "'Book' is no domain (did you mean 'Books'?)"),
        ("loss.Books.bits_per_bite", "did you mean 'bits_per_byte'"),
        ("lm.hellaswog.acc", "did you mean 'hellaswag'"),
        ("lm.hellaswag.ac", "did you mean 'acc'"),
        ("train.loss.finale", "did you mean 'loss.final'"),
        ("curve.earli", "did you mean 'curve.early'"),
        ("kv.measured_bytes", "'kv.measured_bytes' is no metric; it starts with the kind of result"),
        ("los.mean", "did you mean 'loss'"),
        ("loss", "is no metric"),
    ],
)
def test_a_slip_is_named_with_what_was_meant(metric, said):
    assert said in unknown(metric, Names(DOMAINS, TASKS))


@pytest.fixture
def copied(tmp_path):
    """The toy project, to be edited."""
    return shutil.copytree(TOY, tmp_path / "toy")


def swap(path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_table_with_a_wrong_metric_is_refused_when_the_project_is_read(copied):
    swap(copied / "papers/toy/tables.yaml", "metric: loss.mean", "metric: loss.meen")
    with pytest.raises(UserError, match=r"tables.yaml: table1: metric 'loss.meen': .*did you mean 'mean'"):
        open_papers(copied)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("loss.mean", "loss.meen", "did you mean 'mean'"),
     ("account.kv_cache.ratio_to_baseline", "account.kv_cache.ratio_to_base", "did you mean 'ratio_to_baseline'")],
)  # fmt: skip
def test_a_claim_with_a_wrong_metric_is_refused(copied, old, new, said):
    swap(copied / "papers/toy/claims.yaml", old, new)
    with pytest.raises(UserError) as raised:
        open_papers(copied)
    assert len(raised.value.lines) == 1 and new in raised.value.lines[0] and said in raised.value.lines[0]


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("variants", "  base:", "  ba/se:", "variants: 'ba/se' cannot be a name"),
        ("tables", "  table1:", "  table 1:", "tables: 'table 1' cannot name a target"),
    ],
)
def test_a_name_that_paths_or_targets_cannot_carry_is_refused(copied, name, old, new, said):
    swap(copied / f"papers/toy/{name}.yaml", old, new)
    with pytest.raises(UserError, match=said):
        open_papers(copied)
