"""Names of files that come from outside: what a pattern takes, which split that is, and that none leaves its root."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from respath.errors import UserError
from respath.spec.data import Corpus

_HELD_OUT = re.compile(r"^(validation|valid|val|test|dev)([-_.].*)?$")


def inside(root: Path, relative: str) -> Path:
    """The file ``relative`` below ``root``; UserError when it would leave it (absolute, ``..`` or a link outwards).

    The links of a Hugging Face cache (``snapshots/REV/file -> ../../blobs/..``) are followed: they stay in the repository.
    """
    pure = PurePosixPath(relative)
    if pure.is_absolute() or ".." in pure.parts or "\\" in relative or not relative or "\0" in relative:
        raise UserError(f"{relative!r}: not a path below {root}; write it relative and without `..`")
    real, base = (root / pure).resolve(), root.resolve()
    allowed = [base]
    if base.parent.name == "snapshots":
        allowed.append(base.parent.parent / "blobs")
    if not any(real.is_relative_to(folder) for folder in allowed):
        raise UserError(f"{root / pure}: a link that leaves {root}; copy the file into the folder")
    return root / pure


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a relative path matches a shell pattern; ``*`` also crosses folders, ``**/`` also stands for none."""
    return any(
        fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, pattern.replace("**/", ""))
        for pattern in patterns
    )


def check_patterns(corpus: Corpus) -> None:
    """UserError for a pattern that leaves the folder of the corpus."""
    for pattern in (*corpus.train_files, *corpus.validation_files):
        pure = PurePosixPath(pattern)
        if pure.is_absolute() or ".." in pure.parts:
            raise UserError(
                f"corpus {corpus.name}: pattern {pattern!r} leaves the folder; write it relative, without `..`"
            )


def splits_of(names: Iterable[str], corpus: Corpus) -> tuple[dict[str, str], list[str]]:
    """{file: split} of the files that a corpus takes, by name, and those left out because their name marks them as held out.

    A file that matches ``validation_files`` is validation even where ``train_files`` matches too. A training pattern never
    takes a file whose folder or name says validation, valid, val, dev or test.
    """
    chosen, left_out = {}, []
    for name in sorted(names):
        if matches(name, corpus.validation_files):
            chosen[name] = "validation"
        elif not matches(name, corpus.train_files):
            continue
        elif any(_HELD_OUT.match(part) for part in PurePosixPath(name).parts):
            left_out.append(name)
        else:
            chosen[name] = "train"
    return chosen, left_out


def missing_splits(corpus: Corpus, chosen: dict[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """(split, patterns) for which no file was found."""
    wanted = (("train", corpus.train_files), ("validation", corpus.validation_files))
    return [(split, patterns) for split, patterns in wanted if patterns and split not in chosen.values()]
