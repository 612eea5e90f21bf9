"""``python -m respath.accounting``: the account of one spec, or of many into accounts.json."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from respath.accounting import account
from respath.accounting.commands import entries_argument
from respath.config.arguments import argument
from respath.documents import check
from respath.errors import UserError, guard
from respath.files import write_json
from respath.spec.model import ModelSpec


def accounts(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The accounts document: ``entries`` have id, spec and optionally baseline_spec, context, logits, attention, batch."""
    options = ("context", "logits", "attention", "batch", "training_context")
    return {
        "schema": 1,
        "kind": "accounts",
        "entries": {
            entry["id"]: account(
                check(ModelSpec, entry["spec"], f"--entries: {entry['id']}: spec"),
                baseline=entry.get("baseline_spec"),
                **{name: entry[name] for name in options if entry.get(name) is not None},
            ).to_json()
            for entry in entries
        },
    }


@guard
def main(arguments: list[str] | None = None) -> int:
    """Entry point; prints JSON, or writes it to --out."""
    parser = argparse.ArgumentParser(prog="python -m respath.accounting", description=__doc__)
    parser.add_argument("--spec", help="model spec as JSON or @FILE")
    parser.add_argument(
        "--entries", help="list of {id, spec, baseline_spec, context, logits, attention} as JSON or @FILE"
    )
    parser.add_argument("--context", type=int)
    parser.add_argument("--logits", choices=("all", "last"))
    parser.add_argument("--attention", choices=("causal", "full"))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--cache", choices=("full", "window"), default="full")
    parser.add_argument(
        "--measure-kv",
        action="store_true",
        help="build the real cache and report its bytes beside the formula",
    )
    parser.add_argument("--out", help="write here instead of printing")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    options = parser.parse_args(arguments)
    if (options.spec is None) == (options.entries is None):
        raise UserError("give --spec or --entries, one of them")
    if options.entries is not None:
        document = accounts(entries_argument(options.entries, ("id", "spec")))
    else:
        spec = argument(ModelSpec, options.spec, "--spec")
        result = account(
            spec,
            context=options.context,
            logits=options.logits,
            attention=options.attention,
            batch=options.batch,
            cache=options.cache,
        )
        document = result.to_json()
        if options.measure_kv:
            from respath.accounting.measure import compare_kv

            document["measured"] = compare_kv(spec, result.shape["context"], options.batch)
    if options.out:
        write_json(options.out, document)
    else:
        print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
