"""Which code trained and measured the runs behind a table: what is mixed, and what is older than today's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from respath.fingerprint import EARLIER, describe, measuring_code, training_code
from respath.papers.resolve import Run
from respath.quantities.kinds import KINDS, imported
from respath.results.reader import Results

#: Kinds of result that are computed from a run's weights.
MEASURED = tuple(name for name, kind in KINDS.items() if kind.of == "run" and kind.path and name != "train")


def code_of(record: Mapping[str, Any]) -> dict[str, str] | None:
    """Fingerprints that a train.json records; None for one of earlier code, or for weights that were brought in."""
    return (record.get("provenance") or {}).get("code")


def sessions_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sessions that computed a run."""
    return (record.get("provenance") or {}).get("sessions") or []


def mixed(record: Mapping[str, Any]) -> bool:
    """Whether the steps of a run were computed by more than one state of its code, which the user accepted."""
    return bool((record.get("provenance") or {}).get("accepted"))


def code_warnings(
    results: Results, runs: Iterable[Run], records: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What of a table's runs is a mix of codes, a sentence each. Nothing here depends on today's code."""
    trained = {run: record for run, record in records.items() if not imported(dict(record))}
    shared = dict.fromkeys((code_of(record) or {}).get("shared", EARLIER) for record in trained.values())
    warnings = []
    if len(shared) > 1:
        names = ", ".join(name if name == EARLIER else name[:8] for name in shared)
        warnings.append(f"its runs were trained by {len(shared)} different states of the code: {names}")
    if resumed := [run for run, record in trained.items() if mixed(record)]:
        warnings.append(f"{_some(resumed)} went on from steps that other code had computed (accepted)")
    measured = [
        run.id
        for run in runs
        for result in (results.of_run(kind, run.id) for kind in MEASURED)
        if result is not None and (result.get("code") or {}).get("accepted")
    ]
    if measured := list(dict.fromkeys(measured)):
        warnings.append(f"{_some(measured)} were measured with other model code than trained them (accepted)")
    return warnings


def _some(runs: Sequence[str]) -> str:
    """Number and first names."""
    return f"{len(runs)} runs ({', '.join(runs[:3])}{', ...' if len(runs) > 3 else ''})"


def older(record: Mapping[str, Any], run: Run) -> str | None:
    """How the code that trained a run differs from today's, in a few words; None where it does not, or was not ours."""
    if imported(dict(record)):
        return None
    sessions = sessions_of(record)
    engine = sessions[-1].get("engine", "torch") if sessions else "torch"
    return describe(code_of(record), training_code(run.spec, engine))


def stale_runs(results: Results, runs: Iterable[Run]) -> dict[str, str]:
    """Ended runs that today's code would compute otherwise, or might: id, and how their code differs."""
    found = {}
    for run in runs:
        record = results.train(run.id)
        if record is not None and (difference := older(record, run)):
            found[run.id] = difference
    return found


@dataclasses.dataclass(frozen=True)
class Stale:
    """A result that today's code would compute otherwise, or might. ``what``: its kind of ``respath.quantities.kinds``."""

    run: str
    what: str
    difference: str


def stale_results(results: Results, runs: Iterable[Run]) -> list[Stale]:
    """Every stale result; of a run whose training is stale that alone, for what was measured of it follows."""
    found = []
    for run in runs:
        record = results.train(run.id)
        if record is None:
            continue
        if difference := older(record, run):
            found.append(Stale(run.id, "train", difference))
            continue
        for kind in MEASURED:
            result = results.of_run(kind, run.id)
            if result is not None and (difference := measured_otherwise(result, run)):
                found.append(Stale(run.id, kind, difference))
    return found


def measured_otherwise(result: Mapping[str, Any], run: Run) -> str | None:
    """How the code that measured a run's weights differs from today's, in a few words; None where it does not."""
    if result.get("status") == "diverged":
        return None
    code = result.get("code")
    if not code:
        return EARLIER
    try:
        return describe(code, measuring_code(run.spec.model, code["entry"]))
    except LookupError:
        return f"other code ({code['entry']} is gone)"


def remaking(stale: Stale, checkpoints: str, scale: str) -> str:
    """The command that makes a stale result anew: what is there goes first."""
    made = f"results/{KINDS[stale.what].file({'run': stale.run})}"
    gone = f"-r {checkpoints}/{stale.run} results/runs/{stale.run}" if stale.what == "train" else made
    return f"rm {gone} && snakemake --cores all --config scale={scale} -- {made}"
