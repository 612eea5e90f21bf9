"""Documents given on a command line: JSON, or ``@FILE`` that holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from respath.documents import Model, check
from respath.errors import UserError
from respath.files import read_json


def json_argument(text: str, option: str) -> Any:
    """The value of ``JSON`` or ``@FILE``. Raises UserError naming the option or the file."""
    if text.startswith("@"):
        return read_json(Path(text[1:]))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{option}: not valid JSON ({error}); write JSON or @FILE") from None


def argument(model: type[Model], text: str, option: str) -> Model:
    """A typed document. Raises UserError naming the option or file, and the key."""
    return check(model, json_argument(text, option), text[1:] if text.startswith("@") else option)
