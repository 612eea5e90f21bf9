"""A tiny seven-domain token store from the standard library's own text, through the real data path, without network."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from respath.data.documents import SLIMPAJAMA_DOMAINS, list_corpus
from respath.data.manifest import make_manifest
from respath.data.sample import make_sample
from respath.data.tokenize import tokenize_shard
from respath.data.tokenizer import make_tokenizer
from respath.files import write_json
from respath.spec.data import BpeTokenizer, Corpus, Data, Sample

#: Parts of ResFormer's Table 12: 50/20/10/5/5/5/5 %.
PARTS = dict(zip(SLIMPAJAMA_DOMAINS, (10, 4, 2, 1, 1, 1, 1), strict=True))


def tiny_rows(bytes_per_domain: int = 40_000) -> list[dict]:
    """Rows in SlimPajama's format: pydoc's topics (prose) and the sources of standard modules (code), cut into documents."""
    import argparse
    import datetime
    import decimal
    import typing
    import unittest.mock
    from pydoc_data.topics import topics

    prose = [topics[name] for name in sorted(topics)]
    code = [
        inspect.getsource(module)
        for module in (argparse, typing, unittest.mock, datetime, decimal)
        if module.__file__
    ]
    rows = []
    for number, domain in enumerate(SLIMPAJAMA_DOMAINS):
        texts = code if domain == "RedPajamaGithub" else prose[number::6]
        size = 0
        for text in texts:
            for start in range(0, len(text), 3000):
                if size > bytes_per_domain * (2 if number == 0 else 1):
                    break
                part = text[start : start + 3000]
                size += len(part.encode())
                rows.append({"text": part, "meta": {"redpajama_set_name": domain}})
    return rows


def short_rows(domains: tuple[str, ...]) -> list[dict]:
    """Paragraphs of pydoc's topics, dealt to domains: from a few tokens to several rows of a tiny model."""
    from pydoc_data.topics import topics

    paragraphs = [part for name in sorted(topics) for part in topics[name].split("\n\n") if part.strip()]
    return [
        {"text": text, "meta": {"redpajama_set_name": domains[i % len(domains)]}}
        for i, text in enumerate(dict.fromkeys(paragraphs))
    ]


def tiny_tokens(
    tmp_path: Path,
    vocab_size: int = 512,
    *,
    train_tokens: int = 40_000,
    validation_tokens: int = 1_000,
    shards: int = 1,
    seed: int = 1,
    domains: tuple[str, ...] = SLIMPAJAMA_DOMAINS,
    rows: list[dict] | None = None,
    **changes,
) -> tuple[Path, Data]:
    """Build a token store below ``tmp_path`` in about a second; returns (manifest.json, its Data spec).

    ``rows``: other documents than ``tiny_rows``. ``changes``: other fields of the Data spec.
    """
    tmp_path = Path(tmp_path)
    folder = tmp_path / "corpus"
    folder.mkdir(parents=True)
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in (tiny_rows() if rows is None else rows))
    corpus = Corpus(name="tiny", kind="local", train_files=("*.jsonl",))
    sample = Sample(corpus=corpus, domains=domains, seed=seed, validation_share=0.2, shards=shards)
    parts = {domain: PARTS.get(domain, 1) for domain in domains}
    data = Data(
        sample=sample,
        **{"tokenizer": BpeTokenizer(kind="bpe", vocab_size=vocab_size), **changes},
        train_tokens={d: train_tokens * part // sum(parts.values()) for d, part in parts.items()},
        validation_tokens=validation_tokens,
    )
    source, sample_json = tmp_path / "source.json", tmp_path / "sample" / "sample.json"
    tokenizer_json, store = tmp_path / "tokenizer" / "tokenizer.json", tmp_path / "tokens"
    write_json(source, list_corpus(corpus, folder))
    make_sample(sample, [source], sample_json)
    make_tokenizer(data.tokenizer, tokenizer_json, sample_json)
    outs = []
    for split in ("train", "validation"):
        for domain in domains:
            for shard in range(shards if split == "train" else 1):
                out = store / split / f"{domain}.{shard:02d}.json"
                tokenize_shard(data, sample_json, tokenizer_json, split, domain, shard, out)
                outs.append(out)
    manifest = store / "manifest.json"
    make_manifest(data, outs, tokenizer_json, sample_json, [source], manifest)
    return manifest, data
