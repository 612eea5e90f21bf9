"""Every variant of every paper trains on two ranks: the trainer's DDP path, and DeepSpeed ZeRO-2, equal to one process.

Bank of Values trains with Muon, whose matrices DeepSpeed flattens; that recipe runs on DDP, so its variants' DDP step
(here with AdamW) is the proof that counts for them, and their ZeRO-2 step an extra.
"""

from __future__ import annotations

import math

import pytest

from respath.errors import UserError
from respath.papers.resolve import papers_at
from tests.unit.two_ranks import RANKS, has_deepspeed, run_pair

pytestmark = pytest.mark.slow

PROJECT = papers_at("smoke")


def distinct_specs() -> dict:
    """Ref at scale smoke -> spec, in the first size that fits the variant; equal specs once."""
    refs = {}
    for paper in PROJECT.library.known:
        for variant in PROJECT.folder(paper).variants:
            for size in PROJECT.folder(paper).paper.sizes:
                try:
                    spec = PROJECT.at("smoke").paper(paper).model(size, variant)
                except UserError:
                    continue
                refs.setdefault(spec, f"{paper}/{size}/{variant}")
                break
    return {ref: spec for spec, ref in refs.items()}


SPECS = distinct_specs()
ENGINES = [
    "ddp",
    pytest.param(
        "deepspeed",
        marks=pytest.mark.skipif(
            not has_deepspeed(), reason="needs the extra deepspeed (pip install 'respath[deepspeed]')"
        ),
    ),
]


def may_stand_still(ref: str, parameter: str) -> bool:
    """Softmax does not see a bias that all keys share; without transport, its coefficients take part in nothing."""
    return parameter.endswith("k_proj.bias") or (
        ref.endswith("hc-no-transport") and parameter.endswith(".transport")
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[dict]:
    """What the two ranks report, by ref and engine; one pair of processes for all."""
    engines = ["ddp", "deepspeed"] if has_deepspeed() else ["ddp"]
    return run_pair(tmp_path_factory.mktemp("pair"), SPECS, engines, seconds=900)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ref", SPECS)
def test_one_step_on_two_ranks_is_one_process_s_step_on_all_rows(pair, ref, engine):
    ranks = [results[ref][engine] for results in pair]
    assert len(ranks) == RANKS and not any("error" in rank for rank in ranks), ranks
    assert all(math.isfinite(rank["loss"]) and math.isfinite(rank["after"]) for rank in ranks)
    assert ranks[0]["loss"] != ranks[1]["loss"]  # they saw different rows
    unmoved = {name for rank in ranks for name in rank["unmoved"]}
    assert not [name for name in unmoved if not may_stand_still(ref, name)]
    if SPECS[ref].dropout:
        return  # a mask per rank: there is no single process that drops the same
    assert ranks[0]["after"] == ranks[1]["after"]
    # Steps are up to the learning rate, 1e-2, long; gradients of fp32 sums in another order differ by a millionth.
    assert all(rank["gap"] < 1e-6 for rank in ranks), ranks
