"""What a run is trained on: corpus, sample, tokenizer and quotas, and the ids of what is made from them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from respath.files import content_hash
from respath.spec.document import Document, identity

#: What may name a file or folder of ours: no slash, no leading dot or dash, nothing unprintable.
FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$"


class BpeTokenizer(Document):
    """A byte-level BPE trained on the training split of the sample; token 0 is the end of a document."""

    kind: Literal["bpe"]
    vocab_size: int = Field(ge=257)
    split: Literal["gpt2", "nanochat"] = "gpt2"
    """Pattern that cuts text into words before merging; nanochat's takes at most two digits together."""
    training_bytes: int = Field(8 << 20, ge=1)
    """UTF-8 bytes of text that it is trained on, at most, over all domains."""
    document_characters: int | None = Field(None, ge=1)
    """Characters of each document that it is trained on, at most; null: all."""


class NeoxTokenizer(Document):
    """GPT-NeoX-20B's byte-level BPE, 50,277 entries, ``<|endoftext|>`` = 0 (RedPajama-INCITE-7B-Base)."""

    kind: Literal["neox"]
    vocab_size: Literal[50277] = 50277


class Gpt2Tokenizer(Document):
    """GPT-2's byte-level BPE, 50,257 entries, ``<|endoftext|>`` = 50256."""

    kind: Literal["gpt2"]
    vocab_size: Literal[50257] = 50257


Tokenizer = Annotated[BpeTokenizer | NeoxTokenizer | Gpt2Tokenizer, Field(discriminator="kind")]


class Corpus(Document):
    """Where documents come from. One definition serves embedded text, a local folder and the hub."""

    name: str = Field(pattern=FILE_NAME)
    kind: Literal["embedded", "local", "hub"]
    profile: Literal["embedded-pip", "embedded-debian"] | None = None
    """embedded: which sources (a profile of ``respath.data.sources``)."""
    repository: str | None = None
    """hub: repository id, pinned revision, and the files of each split (shell patterns)."""
    revision: str | None = None
    train_files: tuple[str, ...] = ()
    """local and hub: files of each split below the folder or repository (shell patterns)."""
    validation_files: tuple[str, ...] = ()
    text_field: str = "text"
    """Column that holds the text; column (dotted) that names the domain, or one domain for all rows."""
    domain_field: str | None = "meta.redpajama_set_name"
    token_field: str | None = None
    """Column that holds GPT-2 token ids in the place of a text; they are put back together."""
    download_bytes: int | None = Field(None, ge=0, exclude=True)
    """For plans: what fetching it costs. This and ``instead`` are no part of a run's identity."""
    instead: tuple[str, ...] = Field((), exclude=True)
    """Corpora that can stand in when this one cannot be fetched; named in the message, never taken by themselves."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "embedded" and self.profile is None:
            raise ValueError("an embedded corpus needs `profile: embedded-pip` or `profile: embedded-debian`")
        if self.kind == "hub" and not (self.repository and self.revision):
            raise ValueError("a hub corpus needs `repository:` and a pinned `revision:`")
        if self.kind != "embedded" and not self.train_files:
            raise ValueError("a local or hub corpus needs `train_files:` (shell patterns)")
        return self


class Sample(Document):
    """Which documents are taken from a corpus: seeded shuffle, held-out split, byte budget, shards."""

    corpus: Corpus
    domains: tuple[str, ...]
    seed: int = 1
    validation_share: float = Field(0.05, gt=0, lt=1)
    """Share of documents held out when the corpus has no validation files of its own."""
    train_bytes: dict[str, int] = {}
    """Text bytes kept per domain and split, at most; tokenization stops at the token quota within them."""
    validation_bytes: int | None = None
    shards: int = Field(1, ge=1)


class Concatenate(Document):
    """Documents one after the other, each followed by its end; rows are cut out of the stream."""

    kind: Literal["concatenate"]


class BestFit(Document):
    """Rows that begin with the beginning of a document, filled by best fit (nanochat; ``respath.data.packing``)."""

    kind: Literal["best_fit"]
    row_tokens: int = Field(ge=2)
    """Tokens of a row: the recipe's ``context``."""
    buffer_documents: int = Field(1000, ge=1)
    """Documents among which the one that fits best is looked for."""
    long_documents: Literal["crop", "split"] = "crop"
    """A document longer than a row. crop: it waits until it fills a rest, and what exceeds that is dropped, as in nanochat.
    split: it comes in parts of a row each, so that short rows lose little."""


Packing = Annotated[Concatenate | BestFit, Field(discriminator="kind")]


class Data(Document):
    """Token data of a run: sample, tokenizer, and quotas in tokens per domain (ResFormer Table 12)."""

    sample: Sample
    tokenizer: Tokenizer
    train_tokens: dict[str, int]
    validation_tokens: int = Field(ge=1)
    packing: Packing = Concatenate(kind="concatenate")

    @property
    def weights(self) -> dict[str, float]:
        """Share of each domain: the probability that a training sequence comes from it."""
        total = sum(self.train_tokens.values())
        return {domain: tokens / total for domain, tokens in self.train_tokens.items()}

    @model_validator(mode="after")
    def _same_domains(self) -> Self:
        if odd := [name for name in self.sample.domains if not re.fullmatch(FILE_NAME, name)]:
            raise ValueError(f"domains {odd} cannot name files; use letters, digits, `_`, `.`, `+`, `-`")
        if set(self.train_tokens) != set(self.sample.domains):
            raise ValueError(
                f"train_tokens names {sorted(self.train_tokens)}, the sample {sorted(self.sample.domains)}"
            )
        empty = [domain for domain, tokens in self.train_tokens.items() if tokens < 1]
        if empty:
            raise ValueError(f"domains {empty} have a quota of no tokens")
        return self


#: Part of the ids of samples, trained tokenizers and token stores: raised when an equal spec comes to mean other data, together with
#: ``SPEC_VERSION`` of the runs.
DATA_VERSION = 2


def sample_id(sample: Sample) -> str:
    """Readable id of a sample, e.g. ``embedded-pip-1f0c2a44``."""
    return f"{sample.corpus.name}-{content_hash([DATA_VERSION, identity(sample)])}"


def tokenizer_id(data: Data) -> str:
    """Id of a tokenizer: published ones by name, trained ones with the sample that they were trained on."""
    kind = data.tokenizer.kind
    if kind != "bpe":
        return kind
    made = [DATA_VERSION, identity(data.sample), identity(data.tokenizer)]
    return f"bpe{data.tokenizer.vocab_size}-{content_hash(made)}"


def tokens_id(data: Data) -> str:
    """Id of a token store."""
    made = content_hash([DATA_VERSION, identity(data)])
    return f"{data.sample.corpus.name}-{data.tokenizer.kind}{data.tokenizer.vocab_size}-{made}"
