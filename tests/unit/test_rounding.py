"""One rounding rule: halves away from zero, for what is shown and for what is compared."""

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from respath.comparison.cells import MATCH, build_grid, is_number, judge_exact
from respath.papers.check import open_papers
from respath.papers.library import find_root
from respath.quantities.rounding import fixed, rounded, signed, significant
from respath.reporting.layout import number
from respath.results.reader import Results


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (52.25, 1, "52.3"),
        (52.35, 1, "52.4"),
        (-52.25, 1, "-52.3"),
        (0.125, 2, "0.13"),
        (2.675, 2, "2.68"),
        (100 * 0.5225, 1, "52.3"),
        (0.1 + 0.2 - 0.05, 1, "0.3"),
        (52.2499, 1, "52.2"),
        (-0.0004, 3, "0.000"),
        (33_554_432, 0, "33554432"),
        (10**20 + 1, 0, "100000000000000000001"),
        (24.5, 0, "25"),
    ],
)
def test_halves_go_away_from_zero_and_dust_decides_nothing(value, decimals, shown):
    assert fixed(value, decimals) == number(value, decimals).text == shown


def test_signs_and_what_is_no_number_are_kept():
    assert fixed(0.0005, 3, sign=True) == "+0.001" and fixed(-0.0004, 3, sign=True) == "+0.000"
    assert fixed(math.inf, 2) == "inf" and fixed(math.nan, 2) == "nan"
    assert signed(-0.0125) == "−0.0125" and signed(2.125) == "+2.13"
    assert [significant(v, 3) for v in (0.0, 1234.5, 0.00012345, 9.995)] == [
        "0",
        "1.23e+03",
        "0.000123",
        "10",
    ]


@example(Decimal("52.250"), 1, -1)
@given(st.decimals(-1000, 1000, places=3), st.integers(0, 2), st.integers(-2, 2))
def test_a_value_matches_a_printed_one_exactly_where_they_are_shown_alike(exact, decimals, off):
    ours = float(exact)
    printed = float(rounded(ours, decimals) + off * Decimal(1).scaleb(-decimals))
    judged = judge_exact(ours, printed, 0.5 * 10**-decimals, decimals)
    assert (judged.status == MATCH) == (fixed(ours, decimals) == fixed(printed, decimals)) == (off == 0)


def test_no_cell_of_a_paper_shows_another_number_than_the_printed_one_that_it_matches(tmp_path):
    project = open_papers(find_root(), {"scale": "paper"})
    results = Results(project, tmp_path)
    compared = 0
    for artifact in (artifact for artifact in project.artifacts() if artifact.is_table):
        for cell in build_grid(project, results, artifact).compared():
            if cell.kind == "exact" and cell.status == MATCH and is_number(cell.printed):
                compared += 1
                digits = cell.printed_decimals
                assert fixed(cell.ours, digits) == fixed(cell.printed, digits), cell
    assert compared > 50
