"""Texts as people compare them: white space folded, and the runs of words that they share, hashed and in bounded memory."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import numpy as np

#: Words in a row that two texts must share (GPT-3, Appendix C): in lower case, without punctuation.
WORDS = 13
_WORD = re.compile(r"\w+")
#: ASCII: letters in lower case, digits and the underscore stay, all else is a space.
_PLAIN = bytes(ord(chr(b).lower()) if chr(b).isalnum() or b == ord("_") else 32 for b in range(128)) + bytes(
    range(128, 256)
)
#: Bytes of words handled at a time, some 40 bytes of memory each.
_BLOCK = 4 << 20
_U64 = np.uint64


def mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's output function (Steele, Lea, Flood 2014): 64 bits in, 64 well mixed bits out."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return x ^ (x >> _U64(31))


#: A random number for each byte at each place of a word (tabulation hashing; places beyond 32 repeat), and one for each
#: place of a run.
_PLACES = 32
_TABLE = mix(np.arange(1, _PLACES * 256 + 1, dtype=_U64) * _U64(0x9E3779B97F4A7C15))
_FACTORS = mix(np.arange(1, WORDS + 1, dtype=_U64) * _U64(0xD1B54A32D192ED03)) | _U64(1)


def folded(text: str) -> str:
    """The text by which documents are the same or not: composed (NFC), every stretch of white space one space, none around."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _words(text: str) -> bytes:
    """The words in lower case with one space between."""
    if text.isascii():
        return b" ".join(text.encode().translate(_PLAIN).split())
    words = _WORD.findall(unicodedata.normalize("NFC", text).lower())
    return " ".join(words).encode("utf-8", "surrogatepass")


def runs_of_words(text: str) -> np.ndarray:
    """64-bit hashes of the text's runs of ``WORDS`` words, in order: (words - 12,) uint64; empty for a shorter text."""
    # With a space behind the last word too, as each word is hashed with the one behind it.
    data = np.frombuffer(_words(text) + b" ", np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(data == 32) + 1])
    lengths, starts = np.diff(starts), starts[:-1]
    count = len(starts) - WORDS + 1
    if count < 1:
        return np.empty(0, _U64)
    words = np.empty(len(starts), _U64)
    first = 0
    while first < len(starts):
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BLOCK)))
        at = starts[first:last]
        end = starts[last] if last < len(starts) else len(data)
        block = data[at[0] : end]
        places = np.arange(len(block)) - np.repeat(at - at[0], lengths[first:last])
        words[first:last] = np.add.reduceat(_TABLE[(places % _PLACES) * 256 + block], at - at[0])
        first = last
    words = mix(words)
    runs = np.zeros(count, _U64)
    for place, factor in enumerate(_FACTORS):
        runs += words[place : place + count] * factor
    return mix(runs)


class Found:
    """The runs of a set of texts, and which of them occur elsewhere.

    Memory: some 60 bytes for a run that is kept while they are sorted, 25 afterwards. ``most``: runs kept of one text, the smallest hashes, so a
    random part of a longer one.
    """

    _SIEVE = 27

    def __init__(self, texts: Iterable[np.ndarray], most: int | None = None):
        kept = [np.unique(runs)[:most] for runs in texts]
        #: Runs kept of each text.
        self.kept = np.array([len(runs) for runs in kept], np.int64)
        empty = np.empty(0, _U64)
        self.runs, self._place = np.unique(np.concatenate([empty, *kept]), return_inverse=True)
        self._text = np.repeat(np.arange(len(kept)), self.kept)
        self._sieve = np.zeros(1 << (self._SIEVE - 3), np.uint8)
        byte, bit = self._in_sieve(self.runs)
        np.bitwise_or.at(self._sieve, byte, bit)

    def _in_sieve(self, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        place = runs >> _U64(64 - self._SIEVE)
        return place >> _U64(3), _U64(1).astype(np.uint8) << (place & _U64(7)).astype(np.uint8)

    def nothing(self) -> np.ndarray:
        """Marks for ``see``: no run has been seen. Shape (runs,), bool."""
        return np.zeros(len(self.runs), bool)

    def see(self, runs: np.ndarray, seen: np.ndarray) -> bool:
        """Mark in ``seen`` the kept runs that are among these; whether there was one."""
        if not len(self.runs) or not len(runs):
            return False
        byte, bit = self._in_sieve(runs)
        runs = runs[(self._sieve[byte] & bit) != 0]
        places = np.searchsorted(self.runs, runs)
        places[places == len(self.runs)] = 0
        found = places[self.runs[places] == runs]
        seen[found] = True
        return bool(len(found))

    def counts(self, seen: np.ndarray) -> np.ndarray:
        """Of each text, how many of its kept runs were seen: (texts,) int64."""
        return np.bincount(self._text[seen[self._place]], minlength=len(self.kept))
