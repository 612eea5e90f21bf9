"""What stands under every table and figure: scale, seeds, and what its runs recorded about themselves."""

from __future__ import annotations

from respath.comparison.provenance import Provenance


def footer_lines(provenance: Provenance) -> list[str]:
    """Plain sentences, without dates and without anything of today's checkout."""
    seeds = ", ".join(map(str, provenance.seeds))
    lines = [f"Scale {provenance.scale}, {'seed' if len(provenance.seeds) == 1 else 'seeds'} {seeds}."]
    if provenance.wanted:
        lines.append(f"{provenance.present} of {provenance.wanted} runs.")
    if provenance.present:
        commits = ", ".join(provenance.commits) or "not recorded"
        manifests = ", ".join(provenance.manifests) or "not recorded"
        lines.append(f"Commit of the runs: {commits}. Token manifest: {manifests}.")
    if provenance.items:
        lines.append(f"Items evaluated: {', '.join(provenance.items)}.")
    # Only where runs were read: a table without any must not change when a token store appears beside it.
    if provenance.stand_in and provenance.present:
        lines.append("The training text is a stand-in for the paper's corpus.")
    lines += [f"Warning: {warning}." for warning in provenance.warnings]
    return lines


def specs_line(provenance: Provenance) -> str:
    """Hashes of the specs of all runs, or nothing for a table without runs."""
    return f"Specs: {' '.join(provenance.specs)}" if provenance.specs else ""
