"""From what a spec says to the module that computes it."""

from __future__ import annotations

import functools
import importlib

from torch import nn

from respath.spec.parts import Part, module_name


@functools.cache
def module_of(document: type[Part]) -> type[nn.Module]:
    """The module of a value path or a residual stream: the class that names this document as its ``document``.

    It lives in the file of the same name: ``respath/model/values/mix.py`` computes ``respath/spec/values/mix.py``. Imported when
    it is asked for, so that a model runs nothing of other variants. Raises LookupError where there is no such class.
    """
    file = module_name(document)
    try:
        module = importlib.import_module(file)
    except ModuleNotFoundError as error:
        raise LookupError(f"{document.__name__} has no module {file}") from error
    found = [part for part in vars(module).values() if vars_of(part).get("document") is document]
    if len(found) != 1:
        raise LookupError(f"{file} needs one class with document = {document.__name__}, it has {len(found)}")
    return found[0]


def vars_of(candidate: object) -> dict:
    """Attributes that a class defines itself; none of anything else."""
    return dict(vars(candidate)) if isinstance(candidate, type) else {}
