"""Claims: which documents are accepted, and when which verdict is given."""

import json
import math
import shutil

import numpy as np
import pytest
import yaml
from scipy import stats

from respath.comparison.claims import evidence, judge_claims, judge_exact_claim
from respath.config.request import RunRequest
from respath.errors import UserError
from respath.files import read_json, write_json
from respath.papers import needs
from respath.papers.check import open_papers
from respath.papers.claims import Claim, Expect
from respath.quantities.quantity import Quantity
from respath.quantities.statistics import t_interval
from respath.reference.bundle import collect
from respath.results.reader import Results, kept_results
from tests.golden.toy import run_id, toy, toy_loss, toy_project
from tests.project_copy import ROOT


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
        tmp_path, "paper", chosen={"seeds": [1]}, loss_of=lambda run: 1.0 if run.variant == "mix" else 9.0
    )
    for wanted in (0, 1, 3):
        judged = judged_alone(project, results, claim(needs_seeds=wanted))
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
    assert judged.reason.startswith("2 of 2 comparisons, weakest: Mix − Base, validation loss (S)")
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
    project, results = toy(tmp_path, "smoke", skip=set(needs.all_runs(toy_project())))
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
    return open_papers(root, {"papers": ["toy"]})


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


# --- what else a verdict rests on ---


def with_documents(folder, project, shift, ids=("a", "b", "c", "d")):
    """Sums per document in every loss.json: documents of mix lie ``shift[k]`` above those of base; means stay as they are."""
    for run in needs.all_runs(project).values():
        path = folder / "evals" / run.id / "loss.json"
        record = read_json(path)
        for entry in record["domains"].values():
            offsets = [s if run.variant == "mix" else 0.0 for s in shift]
            entry["documents"] = {
                name: [100 * (entry["loss"] + offset), 100] for name, offset in zip(ids, offsets, strict=True)
            }
        write_json(path, record)


def test_the_choice_of_text_is_a_part_of_the_interval_where_results_hold_sums_per_document(tmp_path):
    project, _ = with_losses(tmp_path, BETTER, BASE)
    alone = judged_alone(project, Results(project, tmp_path), claim())
    with_documents(tmp_path, project, (-0.3, 0.3, -0.2, 0.2))
    judged = judged_alone(project, Results(project, tmp_path), claim())
    assert (alone.verdict, judged.verdict) == ("supported", "undecided")
    interval = judged.tests[0].interval
    assert interval.seed_error == alone.tests[0].interval.seed_error and interval.text_error > 0.05
    assert "from the choice of text" in evidence(judged.tests[0])
    # The same text for both sides: what moves both alike is no error.
    with_documents(tmp_path, project, (0.0, 0.0, 0.0, 0.0))
    same = judged_alone(project, Results(project, tmp_path), claim())
    assert same.verdict == "supported" and same.tests[0].interval.text_error < 1e-9


def test_sides_that_were_scored_on_different_text_are_undecided_with_a_remedy(tmp_path):
    project, _ = with_losses(tmp_path, BETTER, BASE)
    with_documents(tmp_path, project, (0.0, 0.0, 0.0, 0.0))
    path = tmp_path / "evals" / run_id(project, "S", "mix", 2) / "loss.json"
    record = read_json(path)
    record["domains"]["Prose"]["documents"]["e"] = record["domains"]["Prose"]["documents"].pop("a")
    write_json(path, record)
    judged = judged_alone(project, Results(project, tmp_path), claim())
    assert judged.verdict == "undecided"
    assert "Prose: the sides were scored on different documents; evaluate both sides again" in judged.reason


def test_a_difference_of_differences_is_paired_over_seeds(tmp_path):
    project, results = three(tmp_path, BETTER, BASE, (2.9, 2.911, 2.888))
    sides = [{"size": "S", "variant": name, "minus": {"variant": "base"}} for name in ("odd", "mix")]
    judged = verdict(project, results, left=sides[0], right=sides[1])
    assert judged.verdict == "supported" and judged.tests[0].value == pytest.approx(-0.05)
    assert judged.tests[0].text == "(a_b&c%$(x) − Base) − (Mix − Base), validation loss (S)"


def test_alternatives_are_judged_beside_the_claim(tmp_path):
    project, results = three(tmp_path, BETTER, BASE, WORSE)
    agrees = {"name": "odd as base", "right": {"size": "S", "variant": "odd"}}
    assert verdict(project, results, alternatives=[agrees]).verdict == "supported"
    other = {"name": "odd as mix", "left": {"size": "S", "variant": "odd"}}
    judged = verdict(project, results, alternatives=[agrees, other])
    assert judged.verdict == "undecided" and "odd as mix: contradicted" in judged.reason
    assert judged.as_dict()["alternatives"]["odd as mix"][0]["verdict"] == "contradicted"


def test_what_a_claim_is_given_must_be_supported_or_it_is_not_judged(tmp_path):
    project, results = three(tmp_path, BETTER, BASE, WORSE)
    depends = claim(given=["ground"])

    def judged(**ground):
        found = judge_claims(project, results, "toy", [depends, claim(id="ground", **ground)])
        return found[0]

    assert judged().verdict == "supported"
    unmet = judged(left={"size": "S", "variant": "odd"})
    assert unmet.verdict == "not judged at this scale" and unmet.tests[0].verdict == "supported"
    assert unmet.reason.startswith("given that: It (contradicted)")
    # A ground that this scale does not judge, or that was not run often enough, decides nothing.
    assert judged(left={"size": "S", "variant": "odd"}, needs_seeds=4).verdict == "supported"
    assert judged(left={"size": "S", "variant": "odd"}, judged_at=["mini"]).verdict == "supported"
    assert judged(left={"size": "M", "variant": "odd"}).verdict == "supported"


def test_a_side_may_have_a_metric_of_its_own(tmp_path):
    project, results = three(tmp_path, BETTER, BASE, WORSE)
    judged = verdict(project, results, right={"size": "S", "variant": "mix", "metric": "loss.Prose"})
    prose = results.sample("toy", Quantity("loss.Prose", RunRequest(size="S", variant="mix"))).numbers
    mean = results.sample("toy", Quantity("loss.mean", RunRequest(size="S", variant="mix"))).numbers
    expected = [mean[seed] - prose[seed] for seed in mean]
    assert judged.tests[0].value == pytest.approx(sum(expected) / len(expected))


def test_what_the_printed_effect_needs_is_told_in_seeds_and_core_hours(tmp_path):
    project, results = with_losses(tmp_path, NOISY, BASE)
    place = {"reported": "table1", "column": "loss", "left": "mix", "right": "base"}
    judged = verdict(project, results, printed_from=place)
    outcome = judged.tests[0]
    assert outcome.printed == pytest.approx(-0.05) and outcome.needed > 3
    # 12.5 s on one core for either side of a seed.
    assert outcome.needed_hours == pytest.approx((outcome.needed - 3) * 2 * 12.5 / 3600)
    assert f"the printed effect needs {outcome.needed} seeds" in evidence(outcome)


def test_pools_hold_every_paired_difference_of_the_papers_tables(tmp_path):
    project, results = three(tmp_path, BETTER, BASE, WORSE)
    outcome = verdict(project, results).tests[0]
    # mix and odd against base: two comparisons, one fewer than a pool needs.
    assert outcome.not_pooled == "2 of the 3 comparisons that a pool needs"


def test_a_claim_that_was_changed_after_its_results_were_kept_is_marked(tmp_path):
    project, results = toy(tmp_path / "results", "paper")
    collect(project, results, tmp_path / "kept")
    kept = kept_results(project, tmp_path / "kept")
    as_kept = {judged.claim.id: judged for judged in judge_claims(project, kept, "toy")}
    assert not any(judged.changed for judged in as_kept.values())
    later = as_kept["mix-beats-base"].claim.model_copy(update={"needs_seeds": 2})
    (judged,) = judge_claims(project, kept, "toy", [later])
    assert judged.changed and "written or changed after its results were kept" in judged.standing
    assert judge_claims(project, kept, "toy", [claim()])[0].changed
    assert not judge_claims(project, results, "toy", [later])[0].changed
    # Collected again, the bundles keep the hashes of the claims that were in force.
    text = {path.name: path.read_text() for path in (tmp_path / "kept").glob("*.json")}
    collect(project, results, tmp_path / "kept")
    assert text == {path.name: path.read_text() for path in (tmp_path / "kept").glob("*.json")}


@pytest.mark.parametrize(
    "scale", sorted(path.name for path in (ROOT / "reports/reference").iterdir() if path.is_dir())
)
def test_scipy_reproduces_the_kept_verdicts_on_losses(scale):
    project = open_papers(ROOT, {"papers": ["resformer"], "scale": scale})
    kept = kept_results(project)
    tested = 0
    for judged in judge_claims(project, kept, "resformer"):
        for test, outcome in zip(judged.claim.tests, judged.tests, strict=True):
            sides = test.sides()
            if outcome.own is None or any(side.metric != "loss.mean" or side.against for side in sides):
                continue
            means = []
            for side in sides:
                by_seed = {
                    run.seed: kept.of_run("loss", run.id) for run in project.runs("resformer", side.subject)
                }
                means.append([by_seed[seed]["mean_loss"] for seed in outcome.seeds])
            differences, own = np.subtract(*means), outcome.own
            assert own.mean == pytest.approx(differences.mean(), rel=1e-9)
            assert own.seed_error == pytest.approx(stats.sem(differences), rel=1e-9)
            # With the error from the choice of text, which is a bootstrap's, as Welch and Satterthwaite add two errors.
            error = math.hypot(stats.sem(differences), own.text_error or 0.0)
            low, high = stats.t.interval(0.95, own.freedom, loc=differences.mean(), scale=error)
            assert (own.low, own.high) == pytest.approx((low, high), rel=1e-9)
            used = outcome.interval
            if test.expect.direction in ("lower", "higher") and test.expect.min_effect == 0:
                two_sided = 2 * stats.t.sf(abs(used.mean) / used.stderr, used.freedom)
                assert min(outcome.p["supported"], outcome.p["contradicted"]) == pytest.approx(
                    two_sided, rel=1e-9
                )
            tested += 1
    assert tested, "no kept comparison has two seeds"
