"""Claims: which documents are accepted, and when which verdict is given."""

import json
import shutil

import pytest
import yaml

from respath.comparison.claims import judge_claims, judge_exact_claim
from respath.config.project import Project
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.papers.claims import Claim, Expect
from respath.quantities.statistics import t_interval
from respath.results.reader import Results
from tests.golden.toy import run_id, toy, toy_loss, toy_project


def claim(**changes):
    entry = {
        "id": "it",
        "title": "It",
        "source": {"table": 1},
        "metric": "loss.mean",
        "left": {"size": "S", "variant": "mix"},
        "right": {"size": "S", "variant": "base"},
        "expect": {"direction": "lower", "min_effect": 0.0},
        "judged_at": ["paper"],
        "needs_seeds": 3,
    }
    return Claim.model_validate_json(json.dumps({**entry, **changes}))


def with_losses(folder, left, right, **changes):
    """The toy at scale paper with these losses of mix and base at seed 1, 2 and 3."""
    losses = {"mix": left, "base": right}
    return toy(
        folder, "paper", loss_of=lambda run: losses.get(run.variant, (3.0,) * 3)[run.seed - 1], **changes
    )


def verdict(project, results, **changes):
    return judged_alone(project, results, claim(**changes))


def judged_alone(project, results, one):
    (found,) = judge_claims(project, results, "toy", [one])
    return found


BASE = (3.0, 3.01, 2.99)
BETTER = (2.95, 2.961, 2.938)
WORSE = (3.05, 3.061, 3.038)
NOISY = (2.9, 3.1, 2.95)


# --- verdicts ---


def test_a_clear_paired_difference_supports(tmp_path):
    judged = verdict(*with_losses(tmp_path, BETTER, BASE))
    assert judged.verdict == "supported"
    expected = t_interval([a - b for a, b in zip(BETTER, BASE, strict=True)])
    assert judged.tests[0].interval == expected
    assert "over 3 paired seeds" in judged.reason


def test_a_clear_difference_the_other_way_contradicts(tmp_path):
    assert verdict(*with_losses(tmp_path, WORSE, BASE)).verdict == "contradicted"


def test_an_interval_that_holds_the_bound_is_undecided_and_says_what_could_have_been_shown(tmp_path):
    judged = verdict(*with_losses(tmp_path, NOISY, BASE))
    assert judged.verdict == "undecided"
    detectable = t_interval([a - b for a, b in zip(NOISY, BASE, strict=True)]).detectable
    assert f"smallest effect that 3 seeds could have shown: {detectable:.2g}" in judged.reason


def test_without_any_run_there_is_no_verdict(tmp_path):
    project = toy_project("paper")
    judged = verdict(project, Results(project, tmp_path / "nothing"))
    assert (judged.verdict, judged.reason) == ("not run", "not trained")


def test_one_seed_never_gives_a_verdict_however_large_the_difference(tmp_path):
    project, results = toy(
        tmp_path, "paper", dials={"seeds": [1]}, loss_of=lambda run: 1.0 if run.variant == "mix" else 9.0
    )
    for needs in (0, 1, 3):
        judged = judged_alone(project, results, claim(needs_seeds=needs))
        assert judged.verdict == "too few runs"
        assert "1 of the" in judged.reason


def test_fewer_paired_seeds_than_needed_are_too_few(tmp_path):
    project = toy_project("paper")
    skip = {run_id(project, "S", "base", 2)}
    judged = verdict(*with_losses(tmp_path, BETTER, BASE, skip=skip))
    assert judged.verdict == "too few runs"
    assert judged.reason.startswith("2 of the 3 paired seeds that a verdict needs (difference −0.051")
    assert judged.tests[0].seeds == (1, 3)


def test_survivors_of_divergence_give_no_verdict_by_themselves(tmp_path):
    project = toy_project("paper")
    lost = {run_id(project, "S", "mix", 1)}
    few = verdict(*with_losses(tmp_path / "few", BETTER, BASE, diverged=lost))
    assert few.verdict == "undecided" and "1 of 3 seeds diverged" in few.reason
    # Two seeds would be enough here: a side that diverged ranks worst, against the claim or for it.
    for side, expected in (("mix", "undecided"), ("base", "supported")):
        lost = {run_id(project, "S", side, 1)}
        project_, results = with_losses(
            tmp_path / side, (2.95, 2.951, 2.949), (3.0, 3.0011, 2.9991), diverged=lost
        )
        judged = judged_alone(project_, results, claim(needs_seeds=2))
        assert judged.verdict == expected and "1 of 3 seeds diverged, which rank worst" in judged.reason


def test_pairing_removes_what_the_seeds_share(tmp_path):
    # Seeds differ by 0.4, the pairs by 0.05 with hardly any spread: unpaired, nothing could be said.
    right = (3.0, 3.4, 2.6)
    left = tuple(value - 0.05 + shift for value, shift in zip(right, (0.0, 0.001, -0.001), strict=True))
    assert verdict(*with_losses(tmp_path, left, right)).verdict == "supported"


def test_a_scale_that_may_not_judge_gives_no_verdict_but_keeps_the_evidence(tmp_path):
    project, results = toy(tmp_path, "smoke")
    judged = verdict(project, results)
    assert (judged.verdict, judged.reason) == ("not judged at this scale", "judged at paper")
    assert judged.tests[0].value == pytest.approx(2.951 - 3.0, abs=2e-3)


# --- claims over several comparisons ---


def several(left_right):
    return {
        "metric": None,
        "left": None,
        "right": None,
        "expect": None,
        "all_of": [
            {
                "metric": "loss.mean",
                "left": {"size": "S", "variant": left},
                "right": {"size": "S", "variant": right},
                "expect": {"direction": "lower", "min_effect": 0.0},
            }
            for left, right in left_right
        ],
    }


def three(folder, mix, base, odd, **changes):
    losses = {"mix": mix, "base": base, "odd": odd}
    return toy(folder, "paper", loss_of=lambda run: losses[run.variant][run.seed - 1], **changes)


PAIRS = [("mix", "base"), ("mix", "odd")]


def test_all_of_is_supported_only_when_each_comparison_is(tmp_path):
    judged = verdict(*three(tmp_path / "a", BETTER, BASE, WORSE), **several(PAIRS))
    assert judged.verdict == "supported"
    assert judged.reason.startswith("2 of 2 comparisons, weakest: loss.mean of S mix against S base")
    assert verdict(*three(tmp_path / "b", BETTER, BASE, NOISY), **several(PAIRS)).verdict == "undecided"


def test_one_contradicted_comparison_contradicts_the_claim(tmp_path):
    judged = verdict(*three(tmp_path, BETTER, NOISY, (2.5, 2.51, 2.49)), **several(PAIRS))
    assert judged.verdict == "contradicted"
    assert "1 of 2 comparisons" in judged.reason


def test_a_comparison_without_runs_leaves_the_claim_open(tmp_path):
    project = toy_project("paper")
    skip = {run_id(project, "S", "odd", seed) for seed in (1, 2, 3)}
    judged = verdict(*three(tmp_path, BETTER, BASE, WORSE, skip=skip), **several(PAIRS))
    assert judged.verdict == "too few runs"
    assert "1 supported, 1 not run" in judged.reason


# --- forms of expectation ---


def test_exact_forms_have_no_tolerance():
    assert judge_exact_claim(Expect(equals=25 / 48, exact=True), 25 / 48, None) == "supported"
    assert judge_exact_claim(Expect(equals=0.5, exact=True), 0.5000001, None) == "contradicted"
    assert judge_exact_claim(Expect(difference=-786432, exact=True), 81_117_184, 81_903_616) == "supported"
    assert judge_exact_claim(Expect(difference=0, exact=True), 1, 0) == "contradicted"


def test_counts_round_to_printed_millions():
    assert judge_exact_claim(Expect(rounds_to_million=82), 81_903_616, None) == "supported"
    assert judge_exact_claim(Expect(rounds_to_million=82), 82_600_000, None) == "contradicted"


def test_scale_free_claims_are_exact_at_every_scale_and_need_no_run(tmp_path):
    project, results = toy(tmp_path, "smoke", skip=set(toy_project().all_runs()))
    verdicts = {judged.claim.id: judged for judged in judge_claims(project, results, "toy")}
    assert verdicts["odd-cache"].verdict == "supported"
    assert verdicts["mix-beats-base"].verdict == "not judged at this scale"


def test_a_scale_free_claim_in_closed_form_needs_no_result(tmp_path):
    project = toy_project()
    cache = next(c for c in project.folder("toy").claims if c.id == "odd-cache")
    assert judged_alone(project, Results(project, tmp_path), cache).verdict == "supported"


def test_accuracies_are_judged_in_per_cent(tmp_path):
    project, _results = toy(tmp_path, "paper")
    for variant, accuracy in (("mix", 0.42), ("base", 0.40)):
        for seed in (1, 2, 3):
            path = tmp_path / "evals" / run_id(project, "S", variant, seed) / "lm.json"
            record = read_json(path)
            record["tasks"] = {"hellaswag": {"status": "done", "metrics": {"acc": accuracy + seed / 10_000}}}
            write_json(path, record)
    judged = verdict(
        project,
        Results(project, tmp_path),
        metric="lm.mean.acc",
        expect={"difference": 2.0, "tolerance": 0.1},
    )
    assert judged.verdict == "supported"


def test_training_curves_and_fits_over_sizes_are_read(tmp_path):
    project, results = toy(tmp_path, "paper", loss_of=toy_loss)
    early = verdict(project, results, metric="curve.early")
    assert len(early.tests[0].seeds) == 3
    critical = verdict(project, results, metric="curve.critical_step")
    assert len(critical.tests[0].seeds) == 3
    sizes = {"sizes": ["S", "M", "L"], "variant": "mix"}, {"sizes": ["S", "M", "L"], "variant": "base"}
    saving = verdict(
        project,
        results,
        metric="scaling.parameter_saving",
        left=sizes[0],
        right=sizes[1],
        expect={"equals": 40, "tolerance": 39.9},
    )
    assert saving.verdict == "supported"  # a lower loss at equal size is a positive saving
    data = verdict(project, results, metric="scaling.data_saving", expect={"equals": 40, "tolerance": 39.9})
    assert data.tests[0].value > 0


# --- documents ---


def broken_claims(tmp_path, change):
    """The toy's claims with one change, in a project of their own."""
    root = tmp_path / "project"
    shutil.copytree(toy_project().root, root)
    path = root / "papers" / "toy" / "claims.yaml"
    claims = yaml.safe_load(path.read_text())
    change(claims["claims"])
    path.write_text(yaml.safe_dump(claims))
    return Project(root, {"papers": ["toy"]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[0].update(metric="los.mean"), "'los.mean' is no metric"),
        (lambda c: c[0].update(judged_at=["papr"]), r"'papr' is not a scale \(did you mean 'paper'\?\)"),
        (lambda c: c[1].update(id=c[0]["id"]), "given twice"),
        (lambda c: c[0].update(expect={"direction": "lower"}), "do not go together"),
        (lambda c: c[0].pop("right"), "a difference needs `right`"),
        (lambda c: c[0].pop("left"), "needs `metric`, `left` and `expect`"),
        (lambda c: c[0].update(titel="x"), r"unknown key \(did you mean 'title'\?\)"),
    ],
)
def test_a_broken_claim_is_refused_with_file_and_remedy(tmp_path, change, message):
    with pytest.raises(UserError, match=message) as caught:
        broken_claims(tmp_path, change)
    assert "claims.yaml" in str(caught.value)
