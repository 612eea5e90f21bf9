"""What a dry run refuses in a paper's files: every name, shape and number that two files should agree on, each said once."""

from __future__ import annotations

import shutil

import pytest

from respath.errors import UserError
from respath.papers.check import open_papers
from tests.golden.toy import ROOT as TOY


@pytest.fixture
def copied(tmp_path):
    """The toy project, to be edited."""
    return shutil.copytree(TOY, tmp_path / "toy")


def edit(root, name: str, old: str, new: str) -> None:
    path = root / "papers/toy" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def refused(root, **settings) -> list[str]:
    with pytest.raises(UserError) as caught:
        open_papers(root, {"scale": "smoke", **settings})
    return caught.value.lines


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("claims.yaml", "left: {size: S, variant: mix}", "left: {size: S, variant: mixx}", "mix-beats-base.left: toy has no variant 'mixx' (did you mean 'mix'?)"),
        ("claims.yaml", "right: {size: S, variant: base}", "right: {size: SS, variant: base}", "mix-beats-base.right: toy has no size 'SS'"),
        ("claims.yaml", "decisions: [mixing]", "decisions: [mixin]", "mix-beats-base.decisions: 'mixin' is not in decisions.yaml (did you mean 'mixing'?)"),
        ("claims.yaml", "metric: loss.mean", "metric: loss.meen", "mix-beats-base.metric: 'loss.meen'"),
        ("claims.yaml", "metric: loss.mean", "metric: bench.step.ratio", "is measured on one device and enters no verdict"),
        ("claims.yaml", "judged_at: [paper]", "judged_at: [papr]", "mix-beats-base.judged_at: 'papr' is not a scale"),
        ("claims.yaml", "reported: table1", "reported: tabel1", "printed_from: reported/tabel1.yaml is not there (did you mean 'table1'?)"),
        ("claims.yaml", "left: mix,", "left: mixx,", "row 'mixx' is not reported (did you mean 'mix'?)"),
        ("claims.yaml", "needs_seeds: 3", "need_seeds: 3", "need_seeds: unknown key (did you mean 'needs_seeds'?)"),
        ("decisions.yaml", "arms: [odd,", "arms: [od,", "decisions.yaml: mixing: 'od' is not a variant of the paper (did you mean 'odd'?)"),
        ("decisions.yaml", "status: open", "status: opne", "status: 'opne' is not known (did you mean 'open'?)"),
        ("reported/table1.yaml", "{row: mix,", "{row: mixx,", "'mixx' is not in `rows` (did you mean 'mix'?)"),
        ("reported/table1.yaml", "decimals: 3", "decimal: 3", "decimal: unknown key (did you mean 'decimals'?)"),
        ("tables.yaml", "{id: mix,", "{id: mixx,", "row 'mixx' is not in reported/table1.yaml (did you mean 'mix'?)"),
        ("scales/smoke.yaml", "sizes: {S:", "sizes: {SX:", "scales/smoke.yaml: sizes: 'SX' is not a size of the paper"),
        ("scales/smoke.yaml", "steps: 20", "step: 20", "recipe.step: unknown key (did you mean 'steps'?)"),
    ],
)  # fmt: skip
def test_a_slip_of_the_pen_is_refused_before_anything_runs(copied, name, old, new, said):
    edit(copied, name, old, new)
    lines = refused(copied)
    assert any(f"papers/toy/{name}" in line and said in line for line in lines), lines


def test_a_printed_number_that_contradicts_a_claim_is_refused(copied):
    edit(copied, "reported/table1.yaml", "value: 2.95", "value: 29.5")
    (line,) = refused(copied)
    assert (
        line.startswith("papers/toy/claims.yaml: mix-beats-base.printed_from: ")
        and "left 29.5, right 3.0" in line
    )


def test_a_printed_number_that_breaks_a_printed_mean_is_refused(copied):
    path = copied / "papers/toy/reported/table1.yaml"
    total = "totals:\n  - {of: [base, mix], mean: odd}\n"
    path.write_text(path.read_text().replace("value: 3.1", "value: 2.975") + total)
    open_papers(copied, {"scale": "smoke"})
    path.write_text(path.read_text().replace("value: 2.975", "value: 29.75"))
    assert any(
        "totals.0: the mean of base, mix in loss is 2.975, and 29.75 is printed for odd" in line
        for line in refused(copied)
    )


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("S: {width: 16,", "S: {width: 17,", "sizes.S.width: width 17 is not a multiple of heads 2"),
        ("model: {vocab_size: 300}", "model: {vocab_size: 300, heads: 3}", "model.heads: width 16 is not a multiple of heads 3"),
        ("model: {vocab_size: 300}", "model: {vocab_size: none}", "model.vocab_size: expects a number, got the text 'none'"),
        ("model: {vocab_size: 300}", "model: {vocab_size: 200}", "200"),
    ],
)  # fmt: skip
def test_a_value_that_is_wrong_at_a_scale_is_said_once_and_there(copied, old, new, place):
    edit(copied, "scales/smoke.yaml", old, new)
    (line,) = refused(copied)
    assert line.startswith("papers/toy/scales/smoke.yaml") and place in line


def test_a_scale_without_its_file_and_a_file_without_its_scale_are_named(copied):
    (copied / "papers/toy/scales/smoke.yaml").rename(copied / "papers/toy/scales/smok.yaml")
    lines = refused(copied)
    assert lines == [
        "papers/toy/scales/smoke.yaml: no such file; write what scale smoke changes (it may be empty)",
        "papers/toy/scales/smok.yaml: 'smok' is not a scale (did you mean 'smoke'?)",
    ]


def test_a_mistake_in_a_recipe_names_the_row_that_makes_it(copied):
    edit(copied, "tables.yaml", "run: {variant: mix}", "run: {variant: mix, recipe: {peak_lrr: 1.0}}")
    lines = refused(copied)
    (line,) = lines
    assert line.startswith("papers/toy/tables.yaml: table1.rows.1") and "recipe.peak_lrr: unknown key" in line
