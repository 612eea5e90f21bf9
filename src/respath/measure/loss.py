"""Validation loss and bits per byte of a trained run, per domain and over all, on the frozen rows of its token store.

``python -m respath.measure.loss --train results/runs/RUN/train.json --tokens results/tokens/ID/manifest.json
--checkpoints checkpoints/RUN --sequences 1000 --out results/evals/RUN/loss.json``

Forward and cross entropy both run in float32 with the float32 master weights, whatever the run was trained in: variants
differ by a few thousandths of a nat, and rounding to bf16 would add noise of that size. Means are taken in float64.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from respath.data.options import sequences as rows_wanted
from respath.errors import UserError, guard
from respath.files import sha256_file, write_json
from respath.fingerprint import measured_by
from respath.measure.weights import (
    NotFinite,
    add_accept_code,
    chosen_device,
    load_trained,
    read_train,
    refuse_other_manifest,
)
from respath.startup import slow_imports

if TYPE_CHECKING:
    import torch

SCHEMA = 1
#: Tokens that one forward pass reads, by device.
TOKENS = {"cpu": 1 << 12, "other": 1 << 16}


def token_losses(model: torch.nn.Module, rows: np.ndarray, device: str = "cpu") -> np.ndarray:
    """Cross entropy in nats of every target: rows (n, context) int64 -> (n, context - 1) float64.

    Target t is token t + 1, predicted from tokens 0..t of its own row: positions run across documents, the end of a
    document is a target like any other (ResFormer's packing; HF's loss shift).
    """
    import torch

    from respath.model.loss import next_token_loss

    step = max(1, TOKENS.get(device.split(":")[0], TOKENS["other"]) // rows.shape[1])
    with torch.inference_mode():
        parts = [
            next_token_loss(model, torch.from_numpy(rows[start : start + step]).to(device), reduction="none")
            .double()
            .cpu()
            .numpy()
            for start in range(0, len(rows), step)
        ]
    return np.concatenate(parts)


def summarise(losses: np.ndarray, target_bytes: np.ndarray, documents: np.ndarray) -> dict[str, Any]:
    """Statistics of one domain from (sequences, targets) arrays: losses in nats, UTF-8 bytes per target, and the number of the
    document that each target belongs to.

    loss: mean over tokens. stderr: of that mean, over documents as clusters (Cochran 1977, 6.13, a ratio of sums; tokens of a
    document are no independent draws); null for one document. bits_per_byte: nats of the targets that stand for text, over
    ln 2 times their bytes; ends of documents have no bytes and are left out of both, as in nanochat. documents: by its number,
    what each adds, [nats, targets].
    """
    text = target_bytes > 0
    numbers, place = np.unique(documents, return_inverse=True)
    sums, tokens = np.bincount(place.ravel(), weights=losses.ravel()), np.bincount(place.ravel())
    mean, count = float(losses.mean()), len(numbers)
    spread = float(((sums - mean * tokens) ** 2).sum())
    size = int(target_bytes.sum())
    return {
        "loss": mean,
        "stderr": math.sqrt(spread * count / (count - 1)) / losses.size if count > 1 else None,
        "bits_per_byte": float(losses[text].sum() / (math.log(2) * size)) if size else None,
        "tokens": int(losses.size),
        "bytes": size,
        "sequences": len(losses),
        "documents": {
            str(number): [float(f"{total:.9g}"), int(size)]
            for number, total, size in zip(numbers, sums, tokens, strict=True)
        },
    }


def text_sums(
    losses: np.ndarray, target_bytes: np.ndarray, legacy_bytes: np.ndarray, documents: np.ndarray
) -> dict[str, Any]:
    """Sums over the targets of one domain that stand for text, (sequences, targets) each as for ``summarise``.

    text_nats, and bytes_legacy as nanochat counted them once (``legacy_byte_lengths``). text_of_documents: by a document's number
    what it adds, [nats, bytes, legacy bytes]; documents without any text are left out.
    """
    text = target_bytes > 0
    numbers, place = np.unique(documents[text], return_inverse=True)
    parts = [
        np.bincount(place, weights=values[text], minlength=len(numbers))
        for values in (losses, target_bytes, legacy_bytes)
    ]
    return {
        "text_nats": float(losses[text].sum()),
        "bytes_legacy": int(legacy_bytes.sum()),
        "text_of_documents": {
            str(number): [float(f"{nats:.9g}"), int(size), int(legacy)]
            for number, nats, size, legacy in zip(numbers, *parts, strict=True)
        },
    }


def pooled(domains: dict[str, dict[str, Any]], size: str = "bytes") -> float | None:
    """Bits per byte of all domains' text together: total nats over ln 2 times total bytes (nanochat's ``evaluate_bpb``).

    ``size``: which bytes, ``bytes`` or ``bytes_legacy``. A domain weighs as its text does; None without any.
    """
    total = sum(entry[size] for entry in domains.values())
    nats = math.fsum(entry["text_nats"] for entry in domains.values())
    return nats / (math.log(2) * total) if total else None


def unweighted_mean(domains: dict[str, dict[str, Any]], key: str) -> float | None:
    """Mean over domains, each counting once whatever its share in training (ResFormer's tables; facts row 42)."""
    values = [entry[key] for entry in domains.values()]
    return None if None in values or not values else math.fsum(values) / len(values)


def evaluate(
    train_json: Path,
    manifest: Path,
    checkpoints: Path,
    sequences: int | None,
    context: int | None = None,
    device: str = "cpu",
    common_context: int | None = None,
    accept_code: bool = False,
    padded: bool = False,
) -> dict[str, Any]:
    """Content of loss.json. ``sequences``: rows per domain at most; None: all. ``context``: tokens per row, by default as in training.
    ``common_context``: a second length, scored into ``common``. ``padded``: documents one by one too, into ``padded``.

    Raises UserError when the weights are missing or not the recorded ones, or when the manifest is not the one that the
    run was trained on (its tokenizer could differ).
    """
    record = read_train(train_json)
    manifest_sha256 = sha256_file(manifest)
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "loss",
        "run": record["run"],
        "context": context or record["spec"]["recipe"]["context"],
        "manifest_sha256": manifest_sha256,
    }
    if record["status"] == "diverged":
        return {**content, **_diverged(record.get("reason")), "weights_sha256": None}
    refuse_other_manifest(record, train_json, checkpoints, manifest, manifest_sha256, "evaluate")
    model, spec = load_trained(train_json, checkpoints, device, accept_code=accept_code)
    content["weights_sha256"] = record["weights"]["sha256"]
    content["code"] = measured_by(record, spec.model, "respath.measure.loss")
    others: dict[str, Any] = {}
    try:
        if common_context is not None:
            scored = _scored(model, manifest, common_context, sequences, device)
            others["common"] = {"context": common_context, **scored}
        if padded:
            others["padded"] = _scored_padded(model, manifest, content["context"], sequences, device)
        scored = _scored(model, manifest, content["context"], sequences, device)
    except NotFinite as error:
        return {**content, **_diverged(str(error))}
    return {**content, "status": "done", **scored, **others}


def _diverged(reason: str | None) -> dict[str, Any]:
    return {
        "status": "diverged",
        "reason": reason or "training diverged",
        "domains": {},
        "mean_loss": None,
        "mean_bits_per_byte": None,
        "bits_per_byte": None,
        "bits_per_byte_legacy": None,
    }


def _scored(
    model: torch.nn.Module, manifest: Path, context: int, sequences: int | None, device: str
) -> dict[str, Any]:
    """Losses on the frozen rows of one length. Raises NotFinite."""
    from respath.data.loader import store_byte_lengths, validation
    from respath.data.manifest import load_manifest
    from respath.data.tokenizer import legacy_byte_lengths

    lengths = store_byte_lengths(manifest)
    legacy = legacy_byte_lengths(manifest.parent / load_manifest(manifest)["tokenizer"]["path"])
    domains = {}
    for domain, (chosen, documents, of) in validation(manifest, context, sequences).items():
        losses = token_losses(model, chosen, device)
        if not np.isfinite(losses).all():
            raise NotFinite(f"the validation loss on {domain} is not finite")
        targets = chosen[:, 1:]
        entry = summarise(losses, lengths[targets], documents[:, 1:])
        text = text_sums(losses, lengths[targets], legacy[targets], documents[:, 1:])
        domains[domain] = {**entry, **text, "sequences_of": of}
    return {
        "domains": domains,
        "mean_loss": unweighted_mean(domains, "loss"),
        "mean_bits_per_byte": unweighted_mean(domains, "bits_per_byte"),
        "bits_per_byte": pooled(domains),
        "bits_per_byte_legacy": pooled(domains, "bytes_legacy"),
    }


def padded_documents(
    manifest: Path, context: int, documents: int | None
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Validation documents one by one, cut to ``context`` tokens and padded to it: by domain ids (n, context) int64, tokens of each
    (n,), and its number in the split (n,).

    At most ``documents`` per domain, in a keyed order; None: all. What has no second token has nothing to predict, and is left out.
    """
    from respath.data.loader import document_starts, keyed_subset, streams
    from respath.data.manifest import load_manifest

    content, found = load_manifest(manifest), {}
    for domain in content["splits"]["validation"]:
        parts = []
        for tokens in streams(manifest, content, "validation", domain):
            starts = document_starts(tokens, content)
            ends = np.append(starts[1:], len(tokens))
            parts += [tokens[a : min(b, a + context)] for a, b in zip(starts, ends, strict=True) if b - a > 1]
        chosen = keyed_subset(len(parts), documents, "padded documents", domain)
        ids = np.full((len(chosen), context), content["tokenizer"]["eos_id"], np.int64)
        lengths = np.array([len(parts[number]) for number in chosen])
        for row, number in zip(ids, chosen, strict=True):
            row[: len(parts[number])] = parts[number]
        found[domain] = ids, lengths, chosen
    return found


def _scored_padded(
    model: torch.nn.Module, manifest: Path, context: int, documents: int | None, device: str
) -> dict[str, Any]:
    """Losses on documents one by one; padding is no target. As DepthBench validates (OLMo-core's padded data set). Raises NotFinite."""
    from respath.data.loader import store_byte_lengths

    bytes_of, domains = store_byte_lengths(manifest), {}
    at_once = max(1, TOKENS.get(device.split(":")[0], TOKENS["other"]) // context)
    for domain, (ids, lengths, numbers) in padded_documents(manifest, context, documents).items():
        losses = np.zeros((len(ids), context - 1))
        # Documents of like lengths together: nothing after a document's last token changes what comes before it.
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), at_once):
            rows = order[start : start + at_once]
            width = lengths[rows].max()
            losses[rows, : width - 1] = token_losses(model, ids[rows, :width], device)
        target = np.arange(1, context) < lengths[:, None]
        if not np.isfinite(losses[target]).all():
            raise NotFinite(f"the validation loss on documents of {domain} is not finite")
        of = np.broadcast_to(numbers[:, None], target.shape)
        entry = summarise(losses[target], bytes_of[ids[:, 1:][target]], of[target])
        domains[domain] = {**entry, "sequences": len(ids)}
    return {"domains": domains, "mean_loss": unweighted_mean(domains, "loss")}


@guard
def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="respath.measure.loss", description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True, help="train.json of the run")
    parser.add_argument(
        "--tokens", type=Path, required=True, help="manifest.json that the run was trained on"
    )
    parser.add_argument("--checkpoints", type=Path, required=True, help="checkpoint folder of this run")
    parser.add_argument(
        "--sequences", type=rows_wanted, required=True, help="validation rows per domain at most, or `all`"
    )
    parser.add_argument("--context", type=int, help="tokens per row (default: as in training)")
    parser.add_argument("--common-context", type=int, help="a second, shorter length to score at")
    parser.add_argument(
        "--padded", action="store_true", help="score documents one by one too, cut or padded to a row"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--out", type=Path, required=True)
    add_accept_code(parser)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    given = parser.parse_args(arguments)
    lengths = [length for length in (given.context, given.common_context) if length is not None]
    if min(lengths, default=2) < 2:
        raise UserError("--context and --common-context must be at least 2")
    with slow_imports():
        import respath.model  # noqa: F401 (and torch with it)
    content = evaluate(
        given.train,
        given.tokens,
        given.checkpoints,
        given.sequences,
        given.context,
        chosen_device(given.device),
        given.common_context,
        given.accept_code,
        given.padded,
    )
    write_json(given.out, content)
    for domain, entry in content["domains"].items():
        bits = "no text" if entry["bits_per_byte"] is None else f"{entry['bits_per_byte']:.4f} bits per byte"
        print(f"{domain}: loss {entry['loss']:.4f}, {bits}, {entry['sequences']} sequences")
    print(f"{content['run']}: {content['status']}, mean loss {content['mean_loss']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
