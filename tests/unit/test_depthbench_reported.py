"""What DepthBench prints: transcribed whole, marked where it was read off a figure, and what the specs count."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from respath.accounting import account
from respath.comparison.cells import build_grid
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.reported import load_reported
from respath.papers.resolve import papers_at
from respath.results.reader import Results

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "papers" / "depthbench"
FILES = sorted((PAPER / "reported").glob("*.yaml"))


def printed(table):
    return load_reported(PAPER / "reported" / f"{table}.yaml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_cell_of_a_table_is_transcribed_or_said_to_be_empty(path):
    reported = load_reported(path)
    given = {(cell.row, cell.column) for cell in reported.cells}
    assert given == {(row, column) for row in reported.rows for column in reported.columns}
    assert reported.source.paper == "depthbench" and 1 <= reported.source.page <= 27


def test_printed_parameters_of_every_shape_are_those_of_the_spec():
    table = printed("table3")
    for size in table.rows:
        counted = account(f"depthbench/{size}/pre-ln").parameters
        assert abs(counted.backbone / 1e6 - table.value(size, "backbone")) <= 0.5
        assert abs(counted.total / 1e6 - table.value(size, "total")) <= 0.5
        ratio = table.value(size, "width") / table.value(size, "layers")
        assert abs(ratio - table.value(size, "ratio")) <= table.half_unit(size, "ratio") + 1e-12


def test_printed_parameters_of_every_architecture_are_those_of_the_spec():
    table = printed("table6")
    for variant in table.rows:
        counted = account(f"depthbench/400M-L24/{variant}").parameters.total / 1e6
        assert abs(counted - table.value(variant, "total")) <= table.half_unit(variant, "total")


@pytest.mark.parametrize("name", ["table3", "table7", "table8", "table9"])
def test_printed_shapes_are_those_of_the_paper_file_and_follow_its_rule(name):
    sizes = papers_at("smoke").folder("depthbench").paper.sizes
    table = printed(name)
    for row in table.rows:
        assert sizes[row].layers == table.value(row, "layers")
        assert sizes[row].width == table.value(row, "width") and sizes[row].width % 32 == 0
        if "ffn_width" in table.columns:
            widths = (
                3 * sizes[row].width if name == "table9" else 16 * math.ceil(8 * sizes[row].width / 3 / 16)
            )
            assert sizes[row].ffn_width == table.value(row, "ffn_width") == widths


def test_values_of_figure_2_say_whether_the_text_prints_them_or_they_were_read_off():
    table = printed("fig2")
    cells = [cell for cell in table.cells if cell.value is not None]
    assert all((cell.accuracy is None) == (cell.note == "the text") for cell in cells)
    assert table.half_unit("mhc", "400M-L24") == 0.001
    assert table.half_unit("hc", "400M-L32") == 0.0005
    for other in table.also_printed:
        assert abs(other.value - table.value(other.row, other.column)) <= 0.001 + 1e-9, "the error of reading"


def test_the_printed_cost_of_prefill_needs_logits_of_the_last_position():
    table = printed("fig11")
    widest = account("depthbench/400M-L16/pre-ln").flops.forward / 1e12
    assert abs(widest - table.value("400M-L16", "prefill")) <= 0.05
    everywhere = account("depthbench/400M-L16/pre-ln", logits="all").flops.forward / 1e12
    assert abs(everywhere - table.value("400M-L16", "prefill")) > 0.05
    deepest = {name: account(f"depthbench/400M-L70/{name}").flops.forward / 1e12 for name in ("pre-ln", "hc")}
    assert round(deepest["pre-ln"], 1) == 4.3 and round(deepest["hc"], 1) == 4.4


#: Parameters of each architecture beside Pre-LN's, written down from Appendix A: layers L, width d.
EXTRA = {
    "pre-ln": lambda L, d: 0,
    "sandwich-ln": lambda L, d: 2 * L * d,
    "lns": lambda L, d: 0,
    "deepnorm": lambda L, d: 0,
    "keel": lambda L, d: (2 * L - 1) * d,
    "hc": lambda L, d: 2 * L * (6 * d + 26),
    "mhc": lambda L, d: 2 * L * (96 * d + 27),
    "full-attnres": lambda L, d: 2 * L * 2 * d,
    "block-attnres": lambda L, d: 2 * L * 2 * d,
    "moda": lambda L, d: (L - 1) * 2 * d * d,
}


@pytest.mark.parametrize("layers", [16, 24, 32])
@pytest.mark.parametrize("variant", EXTRA)
def test_parameters_of_all_ten_are_those_of_appendix_a(variant, layers):
    d, f = {16: (1216, 3248), 24: (1024, 2736), 32: (896, 2400)}[layers]
    plain = layers * (4 * d * d + 3 * d * f + 2 * d) + d + 2 * 50_280 * d
    counted = account(f"depthbench/400M-L{layers}/{variant}").parameters
    assert counted.total == plain + EXTRA[variant](layers, d)
    assert counted.backbone == counted.total - d - 2 * 50_280 * d


@pytest.mark.parametrize("name", ["table3", "table4", "table6", "table7", "table8", "table9"])
def test_every_printed_cell_of_an_exact_table_matches(name, tmp_path):
    project = open_papers(ROOT, {"papers": ["depthbench"]})
    grid = build_grid(project, Results(project, tmp_path), project.artifact(f"depthbench_{name}"))
    shown = [cell for cell in grid.compared() if cell.printed is not None]
    assert {cell.status for cell in shown} == {"match"}
    assert len(shown) == len([cell for cell in printed(name).cells if cell.value is not None])


@pytest.mark.parametrize("scale", ["smoke", "mini", "paper"])
def test_every_table_and_figure_of_the_paper_is_a_target_and_every_claim_has_its_runs(scale):
    project = open_papers(ROOT, {"papers": ["depthbench"], "scale": scale})
    ids = {artifact.id for artifact in project.artifacts()}
    assert {f"table{n}" for n in range(1, 10)} | {f"fig{n}" for n in range(2, 17)} <= ids
    planned = set(needs.all_runs(project))
    claims = project.folder("depthbench").claims
    assert [
        claim.id for claim in claims if not needs.runs_of_claim(project, "depthbench", claim) <= planned
    ] == []
    assert len([claim for claim in claims if claim.primary]) == 6


def test_figure_6_reads_the_maps_of_exactly_the_models_that_it_draws():
    project = open_papers(ROOT, {"papers": ["depthbench"], "scale": "paper", "seeds": [1]})
    artifact = project.artifact("depthbench_fig6")
    found = needs.of_artifact(project, artifact)
    drawn = {panel.run.variant for panel in artifact.definition.panels if panel.kind == "matrix"}
    assert {run.variant for run in found.trained.values()} == drawn and len(found.trained) == 6
    assert {run.size for run in found.trained.values()} == {"400M-L32"}
    assert set(map(frozenset, found.analyses.values())) == {frozenset({"causal", "permutation"})}


def test_smoke_shares_the_runs_of_the_ladder_and_of_the_equal_backbones():
    project = open_papers(ROOT, {"papers": ["depthbench"]})
    names = {
        run.id.removeprefix("depthbench-").rsplit("-L", 1)[0] for run in needs.all_runs(project).values()
    }
    assert names == {"400M", "1.6B"}
