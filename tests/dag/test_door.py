"""The main door: names that are nearly right, closing lines, reasons."""

from __future__ import annotations

import pytest

from respath.errors import UserError
from respath.jobs import check_targets
from tests.project_copy import ProjectCopy


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> ProjectCopy:
    return ProjectCopy(tmp_path_factory.mktemp("door"))


TARGETS = ("all", "diff", "smoke", "resformer_table3", "bov_table3", "resformer_fig2")
FILES = ("reports/out/smoke/resformer/table3.csv",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("resformer_tabel3", "resformer_tabel3 is no target (did you mean resformer_table3?)"),
        ("table3", "table3 is no target (did you mean resformer_table3 or bov_table3?)"),
        ("mini", "mini is a scale, and the scale is now smoke: snakemake mini --config scale=mini"),
        ("train", "train makes results/{run}: ask for one such file, or for a table or figure that needs it"),
        ("moon", "moon is no target; snakemake --list-target-rules lists them"),
        (
            "reports/out/smoke/resformer/tabel3.csv",
            "reports/out/smoke/resformer/tabel3.csv is no target (did you mean reports/out/smoke/resformer/table3.csv?)",
        ),
    ],
)
def test_a_name_that_is_no_target_is_one_line_with_the_nearest_one(name, said):
    with pytest.raises(UserError) as error:
        check_targets(["diff", name], TARGETS, {"train": "results/{run}"}, FILES, "smoke", ("smoke", "mini"))
    assert error.value.lines == [said]


@pytest.mark.parametrize("name", [*TARGETS, *FILES, "results/some/file.json"])
def test_a_target_a_file_of_one_and_a_file_of_no_target_are_left_alone(name):
    check_targets([name], TARGETS, {}, FILES, "smoke", ("smoke", "mini"))


def test_snakemake_itself_says_all_wrong_names_at_once_and_nothing_about_right_ones(fresh):
    refused = fresh.snakemake("-n", "resformer_tabel3", "table13", "mini", "resformer_table13")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    lines = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
    assert lines[:2] == [
        "error: resformer_tabel3 is no target (did you mean resformer_table3?)",
        "error: table13 is no target (did you mean resformer_table13?)",
    ]
    assert lines[2].startswith("error: mini is a scale") and len(lines) == 3
    right = fresh.snakemake("-n", "resformer_table13", "--forceall")
    assert right.returncode == 0 and "error:" not in right.stderr
