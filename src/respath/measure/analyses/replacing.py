"""Methods of one object replaced or followed for a while; what an outer block put there comes back when the inner one ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(target: Any, method: str, instead: Callable) -> Iterator[None]:
    """Inside the block ``target.method`` is ``instead``."""
    outer = vars(target).get(method)
    setattr(target, method, instead)
    try:
        yield
    finally:
        if outer is None:
            delattr(target, method)
        else:
            setattr(target, method, outer)


@contextlib.contextmanager
def listening(target: Any, method: str, hear: Callable[[tuple, Any], None]) -> Iterator[None]:
    """Inside the block ``hear(arguments, result)`` follows each call of ``target.method``, which stays as it is."""
    original = getattr(target, method)

    def heard(*arguments):
        result = original(*arguments)
        hear(arguments, result)
        return result

    with replaced(target, method, heard):
        yield
