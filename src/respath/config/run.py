"""Moved to ``respath.spec``; this name goes."""

from respath.spec.data import *  # noqa: F403
from respath.spec.recipe import *  # noqa: F403
from respath.spec.run import *  # noqa: F403
