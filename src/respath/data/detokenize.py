"""Text from the GPT-2 token ids that ClimbMix is published as (its rows have no text)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from respath.data.tokenizer import END_OF_TEXT, FINGERPRINTS, content_fingerprint, obtain
from respath.errors import UserError


def byte_of_character() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable Latin-1 as it is, every other byte in order as a character from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


class Detokenizer:
    """ids -> text; ``vocabulary``: token -> id of a byte-level BPE, the end of a text included."""

    def __init__(self, vocabulary: dict[str, int]):
        spelled = byte_of_character()
        self.end = vocabulary[END_OF_TEXT]
        self.pieces: list[bytes] = [b""] * (max(vocabulary.values()) + 1)
        for token, number in vocabulary.items():
            if number != self.end:
                self.pieces[number] = bytes(spelled[character] for character in token)

    def __call__(self, ids: Any) -> str:
        """The text of one document. Ends of a text around it are dropped.

        Raises ValueError for what is no list of ids, an unknown id, an end inside the text (two documents in one row), and
        bytes that are no UTF-8 (a document cut inside a character).
        """
        array = np.asarray(ids if isinstance(ids, list | np.ndarray) else None)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError("not a list of whole numbers")
        if not array.size:
            return ""
        if int(array.min()) < 0 or int(array.max()) >= len(self.pieces):
            raise ValueError(
                f"{array[(array < 0) | (array >= len(self.pieces))][0]} is no id of this vocabulary"
            )
        text = np.flatnonzero(array != self.end)
        if not text.size:
            return ""
        array = array[text[0] : text[-1] + 1]
        if len(text) != len(array):
            raise ValueError("an end of text inside the document")
        try:
            return b"".join(map(self.pieces.__getitem__, array.tolist())).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"the ids spell invalid UTF-8 at byte {error.start}") from None


def gpt2(origin: str = "auto", cache: Path | None = None) -> Detokenizer:
    """For GPT-2's published vocabulary; ``origin`` and ``cache`` as of ``respath.data.tokenizer.obtain``.

    Raises UserError when it cannot be reached or is another one.
    """
    text, came_from = obtain("gpt2", origin, cache)
    content = json.loads(text)
    if content_fingerprint(content) != FINGERPRINTS["gpt2"]:
        raise UserError(f"{came_from}: vocabulary or merges differ from the published gpt2 tokenizer")
    added = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
    return Detokenizer(content["model"]["vocab"] | added)
