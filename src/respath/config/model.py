"""Moved to ``respath.spec``; this name goes."""

from respath.spec.document import identity  # noqa: F401
from respath.spec.model import ModelSpec  # noqa: F401
from respath.spec.selectors import Layers, select_layers  # noqa: F401
