"""``python -m respath.accounting.kv``: bytes of real caches beside the closed form, into kv.json."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from respath.accounting import account
from respath.accounting.commands import entries_argument
from respath.documents import check
from respath.errors import UserError, guard
from respath.files import write_json
from respath.spec.document import identity
from respath.spec.model import ModelSpec


def measured_entries(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Formula and measurement of each entry: id, spec, context, and optionally batch and baseline_spec."""
    from respath.accounting.measure import compare_kv

    rows = []
    for entry in entries:
        spec = check(ModelSpec, entry["spec"], f"--entries: {entry['id']}: spec")
        context, batch = entry["context"], entry.get("batch", 1)
        closed = account(spec, context=context, batch=batch, baseline=entry.get("baseline_spec")).kv_cache
        rows.append(
            {
                "id": entry["id"],
                "context": context,
                "batch": batch,
                "elements_per_token": closed.elements_per_token,
                "ratio_to_baseline": closed.ratio_to_baseline,
                **compare_kv(spec, context, batch),
            }
        )
    return rows


def entries_of_paper(paper: str) -> list[dict[str, Any]]:
    """The models, at the paper's own shapes, whose measured cache a table, figure or claim of the paper reads."""
    from respath.papers import needs
    from respath.papers.resolve import papers_at

    resolver = papers_at("paper")
    at, folder = resolver.paper(paper), resolver.folder(paper)
    shown = [one for artifact in folder.artifacts() for one in needs.quantities(resolver, artifact)]
    read = needs.reads(resolver, paper, [*shown, *needs.quantities_of_claims(resolver, paper)])
    wanted = {
        f"{quantity.run.size}/{quantity.run.variant}": quantity.run
        for kind, _, quantity in read
        if kind.name == "cache"
    }
    return [
        {
            "id": name,
            "spec": identity(at.model(*request.model)),
            "baseline_spec": identity(at.model(request.model[0], folder.paper.accounting.baseline)),
            "context": folder.paper.accounting.context,
        }
        for name, request in wanted.items()
    ]


@guard
def main(arguments: list[str] | None = None) -> int:
    """Entry point; a table cell that differs between formula and measurement is for the report to show."""
    parser = argparse.ArgumentParser(prog="python -m respath.accounting.kv", description=__doc__)
    parser.add_argument(
        "--entries", help="list of {id, spec, context, batch, baseline_spec} as JSON or @FILE"
    )
    parser.add_argument("--paper", help="all models whose measured cache this paper's tables show")
    parser.add_argument("--out", required=True, help="kv.json")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    options = parser.parse_args(arguments)
    if (options.entries is None) == (options.paper is None):
        raise UserError("give --entries or --paper, one of them")
    if options.paper is not None:
        entries = entries_of_paper(options.paper)
    else:
        entries = entries_argument(options.entries, ("id", "spec", "context"))
    write_json(options.out, {"schema": 1, "kind": "kv", "entries": measured_entries(entries)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
