"""What a page says about evaluation items that the training sample holds."""

from __future__ import annotations

from typing import Any

from respath.errors import UserError
from respath.files import read_json
from respath.papers.resolve import Resolver
from respath.quantities.rounding import fixed
from respath.results.reader import Results
from respath.spec.data import sample_id


def overlap_context(project: Resolver, results: Results, paper: str) -> dict[str, Any] | None:
    """The overlap report of the paper's sample as rows; None where there is none (yet)."""
    path = results.store.folder / "overlap" / sample_id(project.paper(paper).data.sample) / f"{paper}.json"
    if not path.exists():
        return None
    content = read_json(path)
    if not isinstance(content, dict) or content.get("kind") != "overlap" or content.get("schema") != 1:
        raise UserError(f"{path}: not an overlap report; delete it and run the same command again")
    documents = sum(domain["documents"] for domain in content["domains"].values())
    size = sum(domain["bytes"] for domain in content["domains"].values())
    whole = sum(domain["of_bytes"] for domain in content["domains"].values())
    rows = [
        {
            "task": task,
            "items": f"{entry['items']:,}",
            "testable": f"{entry['long_enough']:,}",
            "hit": f"{entry['hit']:,}",
            "share": f"{fixed(100 * entry['hit'] / entry['long_enough'], 1)} %"
            if entry["long_enough"]
            else "–",
            "domains": ", ".join(
                f"{name.removeprefix('RedPajama')} {n:,}" for name, n in entry["domains"].items()
            ),
        }
        for task, entry in content["tasks"].items()
    ]
    return {
        "rows": rows,
        "skipped": content["skipped"],
        "words": content["words"],
        "read": f"{documents:,} training documents, {size / 1e6:,.1f} MB ({100 * size / max(1, whole):.0f} % of the sample)",
    }
