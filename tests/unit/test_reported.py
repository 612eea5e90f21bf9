"""The ResFormer paper as data: its printed numbers agree with themselves, claims and decisions point at what exists."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from respath.documents import load_yaml
from respath.errors import UserError
from respath.papers.reported import load_reported, shown_decimals

PAPER = Path(__file__).parents[2] / "papers" / "resformer"
FILES = sorted((PAPER / "reported").glob("*.yaml"))
ACCURACIES = ("arc_c", "arc_e", "boolq", "hellaswag", "lambada", "openbookqa", "winogrande", "piqa")
LENGTHS = (512, 2048, 8192, 32000, 64000)
DOMAINS = (
    "RedPajamaCommonCrawl",
    "RedPajamaC4",
    "RedPajamaGithub",
    "RedPajamaBook",
    "RedPajamaArXiv",
    "RedPajamaWikipedia",
    "RedPajamaStackExchange",
)


def table(number):
    return load_reported(PAPER / "reported" / f"table{number}.yaml")


def figure(number):
    return load_reported(PAPER / "reported" / f"fig{number}.yaml")


# --- the files -------------------------------------------------------------------------------------------------------


def test_all_fourteen_tables_are_there():
    assert {path.name for path in FILES} >= {f"table{number}.yaml" for number in range(1, 15)} | {"fig2.yaml"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_loads_and_names_its_own_place(path):
    reported = load_reported(path)
    kind, number = (
        ("table", reported.source.table) if path.stem.startswith("table") else ("fig", reported.source.figure)
    )
    assert path.stem == f"{kind}{number}"
    assert reported.source.paper == "resformer" and reported.source.arxiv == "2410.17897v5"
    assert 1 <= reported.source.page <= 16, "the PDF has 16 pages"


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem.startswith("table")], ids=lambda path: path.stem
)
def test_a_table_has_every_cell_in_the_papers_order(path):
    reported = load_reported(path)
    given = [(cell.row, cell.column) for cell in reported.cells]
    assert sorted(given) == sorted((row, column) for row in reported.rows for column in reported.columns)
    assert list(dict.fromkeys(row for row, _ in given)) == list(reported.rows)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_cell_that_shows_other_digits_than_its_column_says_so(path):
    reported = load_reported(path)
    for cell in reported.cells:
        if isinstance(cell.value, float) and cell.decimals is not None:
            assert shown_decimals(cell.value) == cell.decimals or cell.value == 0.0, cell
            assert cell.note, f"{cell.row}, {cell.column}: other decimals than the column's need a note"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_value_printed_elsewhere_differs_from_the_cell(path):
    reported = load_reported(path)
    for other in reported.also_printed:
        assert other.value != reported.value(other.row, other.column), other


# --- the loader ------------------------------------------------------------------------------------------------------


def test_half_unit_is_half_of_the_last_printed_digit():
    assert table(3).half_unit("identity", "loss") == 0.0005
    assert table(8).half_unit("64000-svformer", "loss") == 0.00005
    assert table(2).half_unit("plus", "avg") == 0.05
    assert table(14).half_unit("peak_lr", "82M") == 0.00005
    assert table(14).half_unit("schedule", "82M") is None
    assert table(14).half_unit("tie_embeddings", "82M") is None


def test_dropped_trailing_zeros_do_not_widen_the_half_unit():
    assert table(3).cell("constant-2", "loss").decimals == 1
    assert table(3).half_unit("constant-2", "loss") == 0.0005


def test_a_cell_that_the_paper_does_not_print_is_null():
    assert figure(2).value("180M-transformer", "RedPajamaBook") is None
    assert figure(2).half_unit("180M-transformer", "RedPajamaBook") is None


def test_units_come_from_the_cell_then_the_column_then_the_table():
    assert table(14).unit_of("batch_tokens", "82M") == "M tokens"
    assert table(12).unit_of("RedPajamaC4", "tokens") == "B tokens"
    assert table(13).unit_of("total_batch_size", "512") == "sequences"


def test_an_unknown_row_or_column_is_a_user_error_with_a_suggestion():
    with pytest.raises(UserError) as error:
        table(3).value("identiy", "los")
    assert len(error.value.lines) == 2
    assert "did you mean 'identity'" in error.value.lines[0] and "did you mean 'loss'" in error.value.lines[1]


GOOD = {
    "source": {"paper": "resformer", "arxiv": "2410.17897v5", "table": 3, "section": "4.2", "page": 5},
    "title": "A table",
    "unit": "nats per token",
    "columns": {"loss": {"decimals": 3}},
    "rows": ["a", "b"],
    "cells": [{"row": "a", "column": "loss", "value": 2.739}, {"row": "b", "column": "loss", "value": None}],
}


def write(tmp_path, **changes):
    path = tmp_path / "table3.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}, sort_keys=False), encoding="utf-8")
    return path


def cells(*more):
    return [*GOOD["cells"], *more]


def test_the_untouched_example_loads(tmp_path):
    assert load_reported(write(tmp_path)).value("a", "loss") == 2.739


@pytest.mark.parametrize(("slip", "refused"), [(27.42, True), (0.2742, True), (2.9, False), (4.9, False)])
def test_a_number_without_its_decimal_point_is_told_from_its_column(tmp_path, slip, refused):
    rows = {"a": 2.739, "b": 2.712, "c": 2.746, "d": slip}
    entries = [{"row": row, "column": "loss", "value": value} for row, value in rows.items()]
    columns = {"loss": {"decimals": 4}}
    path = write(tmp_path, rows=list(rows), cells=entries, columns=columns)
    if not refused:
        assert load_reported(path).value("d", "loss") == slip
        return
    with pytest.raises(
        UserError, match=f"cells.3.value: {slip} is of another order than the 3 others of its column"
    ):
        load_reported(path)
    entries[3]["note"] = "printed so"
    load_reported(write(tmp_path, rows=list(rows), cells=entries, columns=columns))


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"colour": "red"}, "colour: unknown key"),
        ({"title": None}, "title"),
        ({"rows": ["a", "b", "a"]}, "'a' is listed twice"),
        ({"cells": cells({"row": "c", "column": "loss", "value": 1.0})}, "'c' is not in `rows`"),
        ({"cells": cells({"row": "a", "column": "lss", "value": 1.0})}, "did you mean 'loss'"),
        ({"cells": cells({"row": "a", "column": "loss", "value": 2.7})}, "given twice"),
        ({"cells": [{"row": "a", "column": "loss", "value": 2.73915}]}, "more than 3 decimals"),
        ({"source": {**GOOD["source"], "figure": 2}}, "exactly one of `table` and `figure`"),
        ({"source": {**GOOD["source"], "page": 0}}, "source.page"),
        (
            {"also_printed": [{"row": "z", "column": "loss", "value": 1.0, "where": "v1"}]},
            "'z' is not in `rows`",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named_with_file_line_and_key(tmp_path, changes, expected):
    path = write(tmp_path, **changes)
    with pytest.raises(UserError) as error:
        load_reported(path)
    assert any(expected in line for line in error.value.lines), error.value.lines
    assert all(line.startswith(f"{path}:") for line in error.value.lines)


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path):
    wrong = [{"row": "c", "column": "loss", "value": 1.0}, {"row": "a", "column": "acc", "value": 1.0}]
    with pytest.raises(UserError) as error:
        load_reported(write(tmp_path, cells=wrong))
    assert len(error.value.lines) == 2


# --- the paper against itself ----------------------------------------------------------------------------------------


def test_table2_averages_are_the_means_of_the_eight_accuracies():
    reported = table(2)
    for row in reported.rows:
        mean = math.fsum(reported.value(row, task) for task in ACCURACIES) / len(ACCURACIES)
        assert abs(mean - reported.value(row, "avg")) <= reported.half_unit(row, "avg") + 1e-9, row


def test_learnable_gains_the_1_7_points_of_the_text():
    gain = table(2).value("learnable", "avg") - table(2).value("transformer", "avg")
    assert round(gain, 1) == 1.7


def test_table9_at_the_default_rate_is_the_difference_of_table8():
    difference = table(8).value("2048-svformer", "loss") - table(8).value("2048-transformer", "loss")
    assert round(difference, 3) == table(9).value("llama-6e-4-120", "relative_loss")
    assert round(difference, 3) != table(9).value("llama-6e-4-1200", "relative_loss")


def test_identity_has_one_loss_in_tables_3_5_6_7_and_11():
    assert {table(number).value("identity", "loss") for number in (3, 5, 6, 7, 11)} == {2.712}


def test_the_transformer_has_one_loss_wherever_it_is_a_baseline():
    losses = {number: table(number).value("transformer", "loss") for number in (1, 3, 5, 6, 7, 10)}
    losses[8] = table(8).value("2048-transformer", "loss")
    assert set(losses.values()) == {2.739}
    assert table(4).value("transformer", "loss") == 2.7389, "Table 4 prints one digit more"
    assert round(2.7389, 3) == 2.739
    assert any(other.value == 2.7389 for other in table(3).also_printed)


@pytest.mark.parametrize(
    "here, there",
    [
        ((1, "share-keys-values"), (8, "2048-cla2")),
        ((3, "learnable"), (4, "learnable")),
        ((3, "constant-2"), (10, "constant-2")),
    ],
)
def test_the_same_model_has_the_same_loss_in_two_tables(here, there):
    assert table(here[0]).value(here[1], "loss") == table(there[0]).value(there[1], "loss")


def test_coefficient_five_on_the_deep_layers_is_printed_twice_with_two_values():
    # Tables 3 and 10 number the layers differently; if the settings were one, the gap would be noise or an error.
    gap = table(3).value("sparse-5-6to8", "loss") - table(10).value("sparse-5-5to7", "loss")
    assert round(gap, 3) == 0.005


def test_domain_losses_of_v1_average_to_the_printed_mean_without_weights():
    reported = figure(2)
    for row in ("82M-transformer", "82M-identity"):
        mean = math.fsum(reported.value(row, domain) for domain in DOMAINS) / len(DOMAINS)
        assert round(mean, 4) == reported.value(row, "mean")
    shares = {domain: table(12).value(domain, "proportion") / 100 for domain in DOMAINS}
    weighted = math.fsum(
        share * reported.value("82M-transformer", domain) for domain, share in shares.items()
    )
    assert weighted > 3.0, "a mean weighted by tokens is far from the printed one"


def test_v1_means_round_to_the_losses_of_v5():
    assert round(figure(2).value("82M-transformer", "mean"), 3) == table(3).value("transformer", "loss")
    assert round(figure(2).value("82M-identity", "mean"), 3) == table(3).value("identity", "loss")


def test_table12_sums_to_everything():
    assert set(table(12).rows) == set(DOMAINS)
    assert sum(table(12).value(domain, "proportion") for domain in DOMAINS) == 100
    assert sum(table(12).value(domain, "tokens") for domain in DOMAINS) == table(14).value(
        "data_tokens", "82M"
    )
    for domain in DOMAINS:
        assert table(12).value(domain, "tokens") == 20 * table(12).value(domain, "proportion") / 100


@pytest.mark.parametrize("length", LENGTHS)
def test_every_batch_of_table13_is_two_million_tokens(length):
    tokens = table(13).value("total_batch_size", str(length)) * length
    assert tokens == (2**21 if length <= 8192 else 2_048_000)
    assert round(tokens / 1e6) == table(14).value("batch_tokens", "82M")


@pytest.mark.parametrize("length", LENGTHS)
def test_accumulation_in_table13_already_contains_the_gpus(length):
    total, per_gpu, accumulation, gpus = (table(13).value(row, str(length)) for row in table(13).rows)
    assert total == per_gpu * accumulation
    assert per_gpu * gpus * accumulation == 8 * total, (
        "read literally, the printed numbers are 8 times too many"
    )
    assert per_gpu * gpus * 4 == total, (
        "4 steps of accumulation, as in the authors' scripts, give the printed total"
    )


def test_table14_trains_on_five_percent_more_tokens_than_it_samples():
    trained = table(14).value("steps", "82M") * 2**21
    assert trained == 20_971_520_000
    assert 1.04 < trained / (table(14).value("data_tokens", "82M") * 10**9) < 1.05


@pytest.mark.parametrize("size", ["82M", "180M", "468M"])
def test_shapes_of_table14_count_to_their_labels(size):
    layers, heads, width, ffn, vocabulary = (
        table(14).value(row, size) for row in ("layers", "heads", "width", "ffn_width", "vocab_size")
    )
    parameters = 2 * vocabulary * width + layers * (4 * width**2 + 3 * width * ffn + 2 * width) + width
    assert f"{round(parameters / 1e6)}M" == size
    assert width == 64 * heads and ffn == 3.5 * width


def test_warmup_is_kept_with_both_printed_values():
    for size in table(14).columns:
        assert table(14).value("warmup_steps", size) == 120
    assert {other.value for other in table(14).also_printed} == {1200}


# --- decisions and claims --------------------------------------------------------------------------------------------

CLAIMS = load_yaml(PAPER / "claims.yaml")["claims"]
SCALES = {"smoke", "mini", "paper"}
SCALE_FREE = ("account.",)
ENTRY_KEYS = {"metric", "left", "right", "expect", "printed_from"}
by_id = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["id"])


def entries(claim):
    return claim.get("all_of") or [{key: claim[key] for key in ENTRY_KEYS & set(claim)}]


@by_id
def test_only_scale_free_claims_are_judged_at_smoke_and_without_seeds(claim):
    scale_free = all(entry["metric"].startswith(SCALE_FREE) for entry in entries(claim))
    assert ("smoke" in claim["judged_at"]) == scale_free
    assert claim["needs_seeds"] >= 3 if not scale_free else claim["needs_seeds"] == 0
    if scale_free:
        assert set(claim["judged_at"]) == SCALES


@by_id
def test_a_printed_value_is_of_the_model_that_is_compared(claim):
    for entry in entries(claim):
        for side in {"left", "right"} & set(entry.get("printed_from", {})):
            variant, row = entry[side]["variant"], entry["printed_from"][side]
            assert row == variant or row.endswith(f"-{variant}") or row == "resformer", "another model's cell"


@pytest.mark.parametrize(
    "claim_id, layers, divisor",
    [("svformer-cache-8-layers", 8, 1), ("svformer-cache-24-layers", 24, 1), ("svformer-gqa4-cache", 8, 4)],
)
def test_cache_ratios_follow_from_one_shared_value(claim_id, layers, divisor):
    (claim,) = [claim for claim in CLAIMS if claim["id"] == claim_id]
    assert claim["expect"]["equals"] == (layers + 1) / (2 * layers * divisor)


def test_three_projections_are_missing_in_sparse_v1only():
    (claim,) = [claim for claim in CLAIMS if claim["id"] == "sparse-v1only-three-fewer-projections"]
    assert claim["expect"]["difference"] == -3 * table(14).value("width", "82M") ** 2
