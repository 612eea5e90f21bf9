"""The one description of a token store that training reads: counts, sizes and the SHA-256 of every shard."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from respath.config.arguments import argument
from respath.data.options import stage_parser
from respath.data.runs_of_words import WORDS
from respath.data.sample import NEAR_DUPLICATE
from respath.data.shards import SPLITS
from respath.data.tokenize import shard_quota
from respath.errors import UserError, guard
from respath.files import read_json, sha256_file, write_json
from respath.spec.data import BestFit, Data, tokenizer_id
from respath.spec.document import identity

#: Fewer validation documents than this are said: what differs between texts can then hardly be told from chance.
FEW = 8
#: Stores up to this size are hashed whole whenever they are opened; larger ones on request.
FULL_CHECK_BYTES = 256 << 20
_AGAIN = "delete it and run the same command again"


def load_manifest(path: str | Path) -> dict[str, Any]:
    """Read a manifest. UserError when it is missing or something else."""
    content = read_json(path)
    if not isinstance(content, dict) or content.get("kind") != "tokens" or content.get("schema") != 1:
        raise UserError(f"{path}: not a token manifest (kind: tokens, schema: 1); {_AGAIN}")
    return content


def inside_store(manifest: Path, relative: str) -> Path:
    """A shard named by a manifest; UserError when its path would leave the manifest's folder."""
    path = manifest.parent / relative
    if Path(relative).is_absolute() or not path.resolve().is_relative_to(manifest.parent.resolve()):
        raise UserError(f"{manifest}: shard {relative!r} lies outside the manifest's folder; {_AGAIN}")
    return path


def store_bytes(content: dict[str, Any]) -> int:
    """Size of all shards of a manifest."""
    tokens = sum(domain["tokens"] for split in content["splits"].values() for domain in split.values())
    return tokens * np.dtype(content["dtype"]).itemsize


def verify(manifest_path: str | Path, full: bool | None = None) -> dict[str, Any]:
    """Check every shard's size, and its SHA-256 when ``full`` (default: when the store is small). Returns the manifest.

    Raises UserError that names every shard that is missing, cut or changed, and the remedy.
    """
    path = Path(manifest_path)
    content = load_manifest(path)
    shards = [
        shard
        for split in content["splits"].values()
        for domain in split.values()
        for shard in domain["shards"]
    ]
    width = np.dtype(content["dtype"]).itemsize
    if full is None:
        full = store_bytes(content) <= FULL_CHECK_BYTES
    wrong = []
    for shard in shards:
        file = inside_store(path, shard["path"])
        if not file.exists():
            wrong.append(f"{file}: missing")
        elif file.stat().st_size != shard["tokens"] * width:
            wrong.append(f"{file}: {file.stat().st_size} bytes, but {path} says {shard['tokens'] * width}")
        elif full and sha256_file(file) != shard["sha256"]:
            wrong.append(f"{file}: its SHA-256 differs from {path}")
    if wrong:
        remedy = f"delete these shards' .json files and {path.name}, and run the same command again to make them anew"
        raise UserError([*wrong, remedy])
    return content


def _below(shard: Path, manifest: Path) -> str:
    try:
        return shard.resolve().relative_to(manifest.parent.resolve()).as_posix()
    except ValueError:
        raise UserError(f"{shard}: a shard must lie below the manifest's folder {manifest.parent}") from None


def _note(data: Data, sources: Sequence[dict[str, Any]]) -> str:
    corpus = data.sample.corpus
    if corpus.kind == "embedded":
        return (
            f"Stand-in: real text from installable packages ({corpus.profile}) in the place of the paper's corpus; losses are "
            "not comparable with the paper's."
        )
    if corpus.kind == "hub":
        revision = next((source["revision"] for source in sources if source.get("revision")), None)
        where = f"at {revision}" if revision else "from a local copy of its files"
        return f"Seeded sample (seed {data.sample.seed}) of {corpus.repository} {where}."
    return f"Seeded sample (seed {data.sample.seed}) of a local copy of {corpus.name}."


def make_manifest(
    data: Data,
    shards: Sequence[Path],
    tokenizer_json: Path,
    sample_json: Path,
    sources: Sequence[Path],
    out: Path,
) -> dict[str, Any]:
    """Write the manifest ``out`` over the shards' JSON files; returns its content. Equal inputs give equal bytes.

    Raises UserError for shards that are missing, given twice, cut, or made with another tokenizer.
    """
    meta = read_json(tokenizer_json.with_name("tokenizer.meta.json"))
    sample = read_json(sample_json)
    tokenizer_sha = sha256_file(tokenizer_json)
    if meta["sha256"] != tokenizer_sha:
        raise UserError(f"{tokenizer_json}: differs from tokenizer.meta.json; {_AGAIN}")
    found: dict[tuple[str, str, int], tuple[Path, dict[str, Any]]] = {}
    wrong = []
    for path in shards:
        content = read_json(path)
        key = (content["split"], content["domain"], content["shard"])
        binary = path.with_suffix(".bin")
        if key in found:
            wrong.append(f"{path}: the same shard as {found[key][0]}")
        if content["tokenizer_sha256"] != tokenizer_sha:
            wrong.append(f"{path}: made with another tokenizer; {_AGAIN}")
        if not binary.exists() or sha256_file(binary) != content["sha256"]:
            wrong.append(
                f"{binary}: missing, or its SHA-256 differs from {path.name}; delete {path.name} and run the same command again"
            )
        found[key] = path, content
    splits: dict[str, dict[str, Any]] = {split: {} for split in SPLITS}
    for split in SPLITS:
        for domain in data.sample.domains:
            count = data.sample.shards if split == "train" else 1
            missing = [k for k in range(count) if (split, domain, k) not in found]
            if missing:
                wrong.append(f"{split}/{domain}: shards {missing} are missing from --shards")
                continue
            parts = [found[split, domain, k] for k in range(count)]
            tokens = sum(content["tokens"] for _, content in parts)
            quota = data.train_tokens[domain] if split == "train" else data.validation_tokens
            splits[split][domain] = {
                "tokens": tokens,
                "documents": sum(content["documents"] for _, content in parts),
                "bytes": sum(content["bytes"] for _, content in parts),
                "quota_tokens": quota,
                # A short domain is repeated: the loader goes over it in further epochs.
                "short": any(content["tokens"] < shard_quota(data, split, domain) for _, content in parts),
                **_packed([content for _, content in parts]),
                **(_held_out(sample["domains"][domain], parts[0][1]) if split == "validation" else {}),
                "shards": [
                    {
                        "path": _below(path.with_suffix(".bin"), out),
                        "tokens": content["tokens"],
                        "sha256": content["sha256"],
                    }
                    for path, content in parts
                ],
            }
    if wrong:
        raise UserError(wrong)
    refused: Counter[str] = Counter(sample["refused"])
    for entry in sample["domains"].values():
        refused.update(entry["refused"])
    kept = ("documents_in", "duplicates", "near_duplicates", "beyond_budget")
    counts = {key: sum(entry[key] for entry in sample["domains"].values()) for key in kept}
    counts["documents_in"] += sum(sample["refused"].values())
    documents_out = sum(domain["documents"] for split in splits.values() for domain in split.values())
    sampled = sum(
        split["documents"] for entry in sample["domains"].values() for split in entry["splits"].values()
    )
    counts |= {
        "beyond_quota": sampled - documents_out,
        "documents_out": documents_out,
        "refused": dict(sorted(refused.items())),
    }
    digest = hashlib.sha256()
    for _, (_, content) in sorted(found.items()):
        digest.update(bytes.fromhex(content["sha256"]))
    stand_in = data.sample.corpus.kind == "embedded"
    listed = [read_json(path) for path in sources]
    keys = (
        "source",
        "corpus",
        "domain",
        "licence",
        "package",
        "version",
        "documents",
        "bytes",
        "archives",
        "repository",
        "revision",
        "files",
        "refused",
    )
    content = {
        "schema": 1,
        "kind": "tokens",
        "spec": identity(data),
        "stand_in": stand_in,
        "note": _note(data, listed),
        "tokenizer": {
            "id": tokenizer_id(data),
            "path": Path(os.path.relpath(tokenizer_json.resolve(), out.parent.resolve())).as_posix(),
            "sha256": tokenizer_sha,
            "vocab_size": meta["vocab_size"],
            "eos_id": meta["eos_id"],
        },
        "dtype": next(content["dtype"] for _, content in found.values()),
        # Rows that begin with a document's mark; without it documents stand one after the other, and rows are cut out of them.
        **({"packing": identity(data.packing)} if isinstance(data.packing, BestFit) else {}),
        "splits": splits,
        # A validation document is dropped when this share of its runs of so many words stands in training text.
        "near_duplicates": {"words": WORDS, "share": NEAR_DUPLICATE},
        "counts": counts,
        "sources": sorted(
            ({key: source[key] for key in keys if source.get(key) is not None} for source in listed),
            key=lambda source: (source["corpus"], source["source"]),
        ),
        "sha256_of_shards": digest.hexdigest(),
    }
    write_json(out, content)
    return content


def _held_out(entry: dict[str, Any], shard: dict[str, Any]) -> dict[str, Any]:
    """How a domain's validation documents came about, and how its tokens are spread over them (its clusters)."""
    of_held_out, of_kept = entry["shared_runs"]["held_out"], entry["shared_runs"]["validation"]
    return {
        "held_out": entry["held_out"],
        "near_duplicates": entry["near_duplicates"],
        "too_short_to_compare": entry["too_short_to_compare"],
        "duplicates": entry["duplicates"],
        # Share of the runs of words that stand in training text, before and after near-duplicates were dropped.
        "shared_runs_before": _rate(*of_held_out),
        "shared_runs": _rate(*of_kept),
        "parts": shard["parts"],
        "tokens_of_documents": shard["tokens_of_documents"],
        "few": shard["documents"] < FEW,
    }


def _packed(shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What packing dropped of a domain; nothing where documents stand one after the other."""
    parts = [shard["packing"] for shard in shards if "packing" in shard]
    if not parts:
        return {}
    sums = {
        key: sum(part[key] for part in parts) for key in ("cropped", "longer_than_a_row", "dropped_tokens")
    }
    kept = sum(shard["tokens"] for shard in shards)
    return {
        "packing": {**sums, "dropped_share": _rate(sums["dropped_tokens"], sums["dropped_tokens"] + kept)}
    }


def _rate(count: int, of: int) -> float:
    return round(count / of, 6) if of else 0.0


def summary(content: dict[str, Any]) -> str:
    """One page: tokens and documents of each domain and split against the quota, and what was left out."""
    lines = [f"{'split':<11}{'domain':<24}{'documents':>11}{'MB':>9}{'tokens':>16}{'quota':>16}  "]
    for split, domains in content["splits"].items():
        for name, domain in domains.items():
            mark = "short: repeated in further epochs" if domain["short"] and split == "train" else ""
            mark = mark or ("short" if domain["short"] else "")
            if domain.get("few"):
                mark += f"{', ' * bool(mark)}fewer than {FEW} documents"
            lines.append(
                f"{split:<11}{name:<24}{domain['documents']:>11,}{domain['bytes'] / 1e6:>9,.1f}{domain['tokens']:>16,}"
                f"{domain['quota_tokens']:>16,}  {mark}"
            )
    counts = content["counts"]
    lines.append(
        f"documents in {counts['documents_in']:,} = out {counts['documents_out']:,} + refused {sum(counts['refused'].values()):,}"
        f" + duplicates {counts['duplicates']:,} + near-duplicates of training text {counts['near_duplicates']:,} + beyond the byte budget {counts['beyond_budget']:,}"
        f" + beyond the token quota {counts['beyond_quota']:,}"
    )
    if packing := content.get("packing"):
        lines += _packing_lines(content["splits"], packing)
    lines += [f"  refused, {reason}: {n:,}" for reason, n in counts["refused"].items()]
    lines.append(content["note"])
    return "\n".join(line.rstrip() for line in lines)


def _packing_lines(splits: dict[str, Any], packing: dict[str, Any]) -> list[str]:
    """How much packing dropped, and the remedy where long documents lose the most of it."""
    domains = [domain for split in splits.values() for domain in split.values()]
    dropped, longer = (
        sum(d["packing"][key] for d in domains) for key in ("dropped_tokens", "longer_than_a_row")
    )
    share = _rate(dropped, dropped + sum(domain["tokens"] for domain in domains))
    lines = [
        f"packed by best fit into rows of {packing['row_tokens']:,} tokens: {share:.1%} of the tokens dropped"
    ]
    if longer and packing.get("long_documents", "crop") == "crop":
        lines.append(
            f"  {longer:,} documents are longer than a row and lose the rest; `long_documents: split` in the data's packing keeps it"
        )
    return lines


@guard
def main(argv: Sequence[str] | None = None) -> int:
    out = "manifest.json to write, above the shards"
    inputs = ("--sample", "--tokenizer", "--sources")
    parser = stage_parser("manifest", "Describe a token store.", "Data", out, *inputs)
    parser.add_argument(
        "--shards", required=True, nargs="+", type=Path, help="the shards' .json files, in any order"
    )
    arguments = parser.parse_args(argv)
    data = argument(Data, arguments.spec, "--spec")
    content = make_manifest(
        data, arguments.shards, arguments.tokenizer, arguments.sample, arguments.sources, arguments.out
    )
    print(summary(content), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
