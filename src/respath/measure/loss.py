"""Validation loss and bits per byte of a trained run, per domain, on the frozen packed rows of its token store.

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
) -> dict[str, Any]:
    """Content of loss.json. ``sequences``: rows per domain at most; None: all. ``context``: tokens per row, by default as in training.
    ``common_context``: a second length, scored into ``common``.

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
    common = {}
    try:
        if common_context is not None:
            scored = _scored(model, manifest, common_context, sequences, device)
            common = {"common": {"context": common_context, **scored}}
        scored = _scored(model, manifest, content["context"], sequences, device)
    except NotFinite as error:
        return {**content, **_diverged(str(error))}
    return {**content, "status": "done", **scored, **common}


def _diverged(reason: str | None) -> dict[str, Any]:
    return {
        "status": "diverged",
        "reason": reason or "training diverged",
        "domains": {},
        "mean_loss": None,
        "mean_bits_per_byte": None,
    }


def _scored(
    model: torch.nn.Module, manifest: Path, context: int, sequences: int | None, device: str
) -> dict[str, Any]:
    """Losses on the frozen rows of one length. Raises NotFinite."""
    from respath.data.loader import store_byte_lengths, validation

    lengths = store_byte_lengths(manifest)
    domains = {}
    for domain, (chosen, documents, of) in validation(manifest, context, sequences).items():
        losses = token_losses(model, chosen, device)
        if not np.isfinite(losses).all():
            raise NotFinite(f"the validation loss on {domain} is not finite")
        entry = summarise(losses, lengths[chosen[:, 1:]], documents[:, 1:])
        domains[domain] = {**entry, "sequences_of": of}
    return {
        "domains": domains,
        "mean_loss": unweighted_mean(domains, "loss"),
        "mean_bits_per_byte": unweighted_mean(domains, "bits_per_byte"),
    }


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
    )
    write_json(given.out, content)
    for domain, entry in content["domains"].items():
        bits = "no text" if entry["bits_per_byte"] is None else f"{entry['bits_per_byte']:.4f} bits per byte"
        print(f"{domain}: loss {entry['loss']:.4f}, {bits}, {entry['sequences']} sequences")
    print(f"{content['run']}: {content['status']}, mean loss {content['mean_loss']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
